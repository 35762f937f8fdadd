package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	goclient "carillon/client"
)

// TestAddUnderAKeyHappensOnce: adds with the same Idempotency-Key add one timer, even after its
// end. A different add with the key is refused.
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
	if other := add(strings.Replace(body, `"payload":1`, `"payload":2`, 1)); other.status != 422 || !strings.Contains(string(other.body), `"code":"exists"`) {
		t.Errorf("other content under the key: %d %s", other.status, other.body)
	}
}

// TestCallsGoOnInTheTraceOfTheirAdd: an add, its calls and its history entry share a trace, and
// each attempt has its own span, also when another node than the shard's leader takes the add. A
// timer's own traceparent header takes precedence.
func TestCallsGoOnInTheTraceOfTheirAdd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	const (
		traceID = "0af7651916cd43dd8448eb211c80319c"
		parent  = "00-" + traceID + "-b7ad6b7169203331-01"
		own     = "00-11111111111111111111111111111111-2222222222222222-00"
	)
	type call struct{ timer, parent, state string }
	calls := make(chan call, 64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- call{r.Header.Get("Carillon-Timer"), r.Header.Get("traceparent"), r.Header.Get("tracestate")}
		if r.Header.Get("Carillon-Attempt") == "1" {
			w.WriteHeader(500)
		}
	}))
	t.Cleanup(server.Close)
	client := c.members[0].client
	client.must(t, 201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"20ms"}}`, server.URL))
	add := func(m *member, body string) {
		t.Helper()
		if a := m.client.do("POST", "/v1/topics/orders/timers", body, "traceparent", parent, "tracestate", "congo=t61"); a.status != 201 || !strings.Contains(string(a.body), `"traceparent":"`+parent+`"`) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	ids := []string{"{a}1", "{b}2", "{c}3", "{d}4"} // in several shards
	for i, id := range ids {
		add(c.members[i%3], fmt.Sprintf(`{"id":%q,"delay":"20ms"}`, id))
	}
	add(c.members[1], fmt.Sprintf(`{"id":"own","delay":"20ms","callback":{"url":%q,"headers":{"traceparent":%q}}}`, server.URL, own))
	spans, seen := map[string]bool{}, map[string]int{}
	for range 2 * (len(ids) + 1) {
		select {
		case got := <-calls:
			seen[got.timer]++
			if got.timer == "own" {
				if got.parent != own || got.state != "" {
					t.Errorf("%+v", got)
				}
				continue
			}
			if !strings.HasPrefix(got.parent, "00-"+traceID+"-") || !strings.HasSuffix(got.parent, "-01") || len(got.parent) != 55 || got.parent == parent || got.state != "congo=t61" {
				t.Errorf("%+v", got)
			}
			spans[got.parent] = true
		case <-time.After(20 * time.Second):
			t.Fatalf("calls so far: %v", seen)
		}
	}
	if len(spans) != 2*len(ids) {
		t.Errorf("%d attempts have %d spans", 2*len(ids), len(spans))
	}
	for i, id := range ids {
		poll(t, patience, "the history has "+id, func() bool {
			body := string(c.members[i%3].client.do("GET", "/v1/topics/orders/history?id="+url.QueryEscape(id), "").body)
			return strings.Contains(body, `"traceparent":"`+parent+`"`) && strings.Contains(body, `"tracestate":"congo=t61"`)
		})
	}
}

// TestLastErrorStays: the error of an attempt is shown while the next attempt runs.
func TestLastErrorStays(t *testing.T) {
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4")
	c := clientAt(node.url, callTimeout)
	c.must(t, 201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	c.must(t, 201, "POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s"}`)
	var pulled struct {
		Timers []struct{ Receipt, LastError string }
	}
	pull := func() string {
		a := c.do("POST", "/v1/topics/jobs/pull", `{"wait":"10s"}`)
		if err := json.Unmarshal(a.body, &pulled); err != nil || len(pulled.Timers) != 1 {
			t.Fatalf("%v: %d %s", err, a.status, a.body)
		}
		return string(a.body)
	}
	pull()
	c.must(t, 200, "POST", "/v1/nack", fmt.Sprintf(`{"receipts":[%q],"delay":"0s","reason":"out of ink"}`, pulled.Timers[0].Receipt))
	again := pull()
	shown := string(c.do("GET", "/v1/topics/jobs/timers/a", "").body)
	if !strings.Contains(again, `"last_error":"out of ink"`) || !strings.Contains(shown, `"state":"leased"`) ||
		!strings.Contains(shown, `"last_error":"out of ink"`) || !strings.Contains(shown, `"error":"out of ink"}]`) {
		t.Errorf("pulled again: %s\nread: %s", again, shown)
	}
}

// TestPageOfANamedOrigin: pages of the --cors-origin may call the API, and pages of others may not.
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

// TestEventsReachTheClient: client.Events receives the events of a timer from a real node.
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
	go func() { // repeatedly, because the stream may begin late
		defer close(added)
		for i := 0; adding.Err() == nil; i++ {
			_, _ = c.Add(adding, "orders", goclient.Spec{ID: fmt.Sprint("o-", i), Delay: goclient.Now, Labels: []string{"vip"}})
			select {
			case <-adding.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	var told []string
	var begun bool // an add was received: the stream may begin between an add and its call
	for e, err := range c.Events(ctx, goclient.EventFilter{Topic: "orders", Labels: []string{"vip"}, Kinds: []goclient.EventKind{goclient.EventAdded, goclient.EventFired}}) {
		if err != nil {
			t.Error(err)
			break
		}
		told = append(told, fmt.Sprintf("%s %s/%s %s", e.Kind, e.Topic, strings.TrimRight(e.ID, "0123456789"), e.Result))
		begun = begun || e.Kind == goclient.EventAdded
		if begun && e.Kind == goclient.EventFired {
			break
		}
	}
	stop()
	<-added
	if all := strings.Join(told, "; "); !strings.Contains(all, "added orders/o- ") || !strings.Contains(all, "fired orders/o- success") {
		t.Errorf("told: %s", all)
	}
}

// TestCallsAsCloudEvents: with format cloudevents calls are CloudEvents. Attempts of a timer share
// an event id, and other timers have other ids.
func TestCallsAsCloudEvents(t *testing.T) {
	t.Parallel()
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
