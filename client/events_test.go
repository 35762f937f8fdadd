package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const someEvents = "retry: 1000\n: events of timers, as they happen\n\n" +
	"event: fired\ndata: {\"topic\":\"orders\",\"id\":\"a\",\"node\":\"n1\",\"at\":\"2030-01-01T00:00:00.250Z\",\"attempt\":2,\"result\":\"retry\",\"late_ms\":0,\"status\":503," +
	"\"next_attempt\":\"2030-01-01T00:00:02Z\",\"labels\":[\"x\"]}\n\n: still here\n\n" +
	"event: missed\ndata: {\"missed\":7}\n\n"

// Events come as they are sent; when the connection ends, that is an event, and the next node is
// asked.
func TestEvents(t *testing.T) {
	first, second := newNode(t, reply{status: 200, body: someEvents}), newNode(t, reply{status: 200, body: "event: dead\ndata: {\"id\":\"b\",\"reason\":\"expired\"}\n\n"})
	c, waits := newClient(t, Options{}, noNode(), first, second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	for e, err := range c.Events(ctx, EventFilter{Topic: "orders", Labels: []string{"x", "y"}, Kinds: []EventKind{EventFired, EventDead}}) {
		must(t, err)
		got = append(got, fmt.Sprint(e.Kind, " ", e.Topic, e.ID, " ", e.Attempt, e.Result, e.Status, e.Labels, e.Reason, e.Missed, " ", e.Error != ""))
		if e.Kind == EventFired && (!e.At.Equal(at) || !e.NextAttempt.Equal(at.Add(1750*time.Millisecond)) || e.Node != "n1" || len(e.Raw) == 0) {
			t.Errorf("%+v", e)
		}
		if len(got) == 4 {
			cancel()
		}
	}
	want := "[fired ordersa 2retry503 [x]0 false missed  00 []7 false missed  00 []0 true dead b 00 []expired0 false]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v\nwant %s", got, want)
	}
	if asked := first.seen(); len(asked) != 1 || asked[0] != "GET /v1/events?kind=fired%2Cdead&label=x&label=y&topic=orders" || len(second.seen()) != 1 || len(*waits) != 1 {
		t.Errorf("%v, %v, %v", asked, second.seen(), *waits)
	}
	for range c.Events(t.Context(), EventFilter{}) { // a caller that breaks off hears no more
		break
	}
}

// A refusal ends the events; an error that may pass is tried again.
func TestEventsRefused(t *testing.T) {
	node := newNode(t, problem(503, "overloaded"), problem(403, "forbidden"))
	c, waits := newClient(t, Options{}, node)
	var kinds []EventKind
	var last error
	for e, err := range c.Events(t.Context(), EventFilter{}) {
		if last = err; err == nil {
			kinds = append(kinds, e.Kind)
		}
	}
	if !errors.Is(last, ErrForbidden) || fmt.Sprint(kinds) != "[missed]" || len(*waits) != 1 {
		t.Errorf("%v, %v, %v", last, kinds, *waits)
	}
}

// silentNode answers and then says nothing.
type silentNode struct{ opened int }

type silence struct{ ctx context.Context }

func (s silence) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (silence) Close() error               { return nil }

func (n *silentNode) RoundTrip(req *http.Request) (*http.Response, error) {
	n.opened++
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: silence{req.Context()}}, nil
}

// A node from which nothing comes, not even that it is still there, is given up.
func TestEventsOfASilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &silentNode{}
		c, err := New([]string{"http://a"}, Options{HTTP: &http.Client{Transport: node}})
		must(t, err)
		began := time.Now()
		for e := range c.Events(t.Context(), EventFilter{}) {
			if e.Kind != EventMissed || time.Since(began) != eventSilence || node.opened != 1 {
				t.Errorf("%+v after %v, opened %d times", e, time.Since(began), node.opened)
			}
			break
		}
	})
}
