package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	goclient "carillon/client"
)

// TestAddUnderAKeyHappensOnce: an add with an Idempotency-Key and a delay is made once, also when its call has long been made.
func TestAddUnderAKeyHappensOnce(t *testing.T) {
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4")
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	c := clientAt(node.url, callTimeout)
	body := fmt.Sprintf(`{"delay":"100ms","payload":1,"callback":{"url":%q}}`, server.URL)
	add := func(body string) answer {
		return c.do("POST", "/v1/topics/orders/timers", body, "Idempotency-Key", `"order/77"`)
	}
	first := add(body)
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	var timer struct{ ID, UID, State string }
	if err := json.Unmarshal(first.body, &timer); err != nil {
		t.Fatal(err)
	}
	id, uid := timer.ID, timer.UID
	done := holdsWithinBy(20*time.Millisecond, 20*time.Second, func() bool {
		a := c.do("GET", "/v1/topics/orders/timers/"+id, "")
		return a.status == 200 && json.Unmarshal(a.body, &timer) == nil && timer.State == "done"
	})
	again := add(body)
	if err := json.Unmarshal(again.body, &timer); err != nil || !done || again.status != 200 || timer.UID != uid || timer.State != "done" {
		t.Errorf("done %v; again: %d %s", done, again.status, again.body)
	}
}

// TestPageOfANamedOrigin: --cors-origin lets its pages call, and no others.
func TestPageOfANamedOrigin(t *testing.T) {
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4", "--cors-origin", "https://ops.example")
	c := clientAt(node.url, callTimeout)
	for origin, status := range map[string]int{"https://ops.example": 200, "https://evil.example": 403} {
		a := c.do("GET", "/v1/topics", "", "Origin", origin, "Sec-Fetch-Site", "cross-site")
		if a.status != status || (a.header.Get("Access-Control-Allow-Origin") == origin) != (status == 200) {
			t.Errorf("%s: %d %v", origin, a.status, a.header)
		}
	}
	if a := c.do("OPTIONS", "/v1/topics", "", "Origin", "https://ops.example", "Access-Control-Request-Method", "GET"); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestEventsReachTheClient: client.Events tells of a timer's life at a real node.
func TestEventsReachTheClient(t *testing.T) {
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4")
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.PutTopic(ctx, "orders", goclient.Policy{Callback: &goclient.Callback{URL: server.URL}}); err != nil {
		t.Fatal(err)
	}
	adding, stop := context.WithCancel(ctx)
	added := make(chan struct{})
	go func() { // again and again, as nobody knows when the stream has begun
		defer close(added)
		for i := 0; adding.Err() == nil; i++ {
			_, _ = c.Add(adding, "orders", goclient.Spec{ID: fmt.Sprint("o-", i), Labels: []string{"vip"}})
			select {
			case <-adding.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	var told []string
	for e, err := range c.Events(ctx, goclient.EventFilter{Topic: "orders", Labels: []string{"vip"}, Kinds: []goclient.EventKind{goclient.EventAdded, goclient.EventFired}}) {
		if err != nil {
			t.Error(err)
			break
		}
		told = append(told, fmt.Sprintf("%s %s/%s %s", e.Kind, e.Topic, strings.TrimRight(e.ID, "0123456789"), e.Result))
		if e.Kind == goclient.EventFired {
			break
		}
	}
	stop()
	<-added
	if all := strings.Join(told, "; "); !strings.Contains(all, "added orders/o- ") || !strings.Contains(all, "fired orders/o- success") {
		t.Errorf("told: %s", all)
	}
}

// TestCallsAsCloudEvents: a topic's calls become CloudEvents with one field of its policy. Attempts
// tell of one event, so they have one id; another occurrence is another event.
func TestCallsAsCloudEvents(t *testing.T) {
	node := serve(t, t.TempDir(), "--shards", "4")
	secret := goclient.NewSecret()
	receiver, err := goclient.NewReceiver(goclient.ReceiverOptions{Secrets: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan goclient.Delivery, 8)
	server := httptest.NewServer(receiver.Handle(func(_ context.Context, d *goclient.Delivery) error {
		arrived <- *d
		if d.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}))
	t.Cleanup(server.Close)
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	topic, err := c.PutTopic(ctx, "orders", goclient.Policy{
		Callback: &goclient.Callback{URL: server.URL}, Secrets: []string{secret}, Format: goclient.FormatCloudEvents,
		Retry: &goclient.Retry{MinBackoff: 20 * time.Millisecond},
	})
	if err != nil || topic.Policy.Format != goclient.FormatCloudEvents {
		t.Fatalf("%+v, %v", topic, err)
	}
	due := time.Now().Add(50 * time.Millisecond).Truncate(time.Millisecond).UTC()
	ids := map[string]bool{}
	for _, id := range []string{"{order-77}close", "order-78"} {
		if _, err := c.Add(ctx, "orders", goclient.Spec{ID: id, At: due, Payload: 7}); err != nil {
			t.Fatal(err)
		}
		for attempt := 1; attempt <= 2; attempt++ {
			select {
			case d := <-arrived:
				want := goclient.CloudEvent{ID: d.ID, Source: "/v1/topics/orders", Type: "carillon.timer.due", Subject: id, Time: due}
				if d.CloudEvent == nil || *d.CloudEvent != want || d.Attempt != attempt || string(d.Body) != "7" {
					t.Errorf("%+v, %+v, want %+v", d, d.CloudEvent, want)
				}
				ids[d.ID] = true
			case <-ctx.Done():
				t.Fatalf("%s: attempt %d did not arrive", id, attempt)
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("two events of two attempts each have the ids %v", ids)
	}
}
