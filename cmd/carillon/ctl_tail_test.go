package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// An event is a line; events that could not be shown are counted next to it.
func TestTail(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/healthz" {
			return
		}
		if r.RequestURI != "/v1/events?kind=fired%2Cdead&label=vip&topic=orders" {
			t.Errorf("asked for %s", r.RequestURI)
		}
		fmt.Fprint(w, ": events\n\n"+
			`event: added`+"\n"+`data: {"topic":"orders","id":"a","at":"2030-01-01T00:00:00Z","due":"2030-01-01T00:00:30.250Z"}`+"\n\n"+
			`event: fired`+"\n"+`data: {"topic":"orders","id":"a","at":"2030-01-01T00:00:30.251Z","attempt":1,"result":"retry","status":503,"late_ms":1,"error":"boom\u001b[31m","next_attempt":"2030-01-01T00:00:31Z"}`+"\n\n"+
			`event: missed`+"\n"+`data: {"missed":12}`+"\n\n"+
			`event: dead`+"\n"+`data: {"topic":"orders","id":"a","at":"2030-01-01T00:00:32Z","reason":"max_attempts"}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	p := start(t, "ctl", "tail", "orders", "--kind", "fired,dead", "--label", "vip", "--url", server.URL)
	for _, want := range []string{
		"2030-01-01T00:00:00.000Z added     orders/a due 2030-01-01T00:00:30.250Z",
		"2030-01-01T00:00:30.251Z fired     orders/a attempt 1 retry 503 +1 ms next 2030-01-01T00:00:31.000Z boom·[31m",
		"2030-01-01T00:00:32.000Z dead      orders/a max_attempts",
	} {
		if got := p.line(t, ""); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p.signal(t, syscall.SIGINT)
	if got := p.wait(t); got.code != exitOK || got.out != "" || got.err != "carillon: 12 events are not shown: this side is too slow\n" {
		t.Errorf("%+v", got)
	}

	p = start(t, "ctl", "tail", "orders", "--kind", "fired", "--kind", "dead", "--label", "vip", "--url", server.URL, "--json")
	if got := p.line(t, ""); !strings.HasPrefix(got, `{"event":"added","data":{"topic":"orders","id":"a",`) {
		t.Errorf("%q", got)
	}
	p.signal(t, syscall.SIGTERM)
	p.wait(t)

	refused := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		fmt.Fprint(w, `{"code":"unknown_topic","detail":"there is no such topic"}`)
	}))
	defer refused.Close()
	if got := carillon(t, "", nil, "ctl", "tail", "orders", "--url", refused.URL); got.code != exitFailure || got.err != "carillon: there is no such topic (404 unknown_topic)\n" {
		t.Errorf("%+v", got)
	}
	refused.Close()
	if got := carillon(t, "", nil, "ctl", "tail", "--url", refused.URL); got.code != exitFailure || !strings.HasPrefix(got.err, "carillon: no node answers at "+refused.URL) {
		t.Errorf("%+v", got)
	}
	if got := carillon(t, "", nil, "ctl", "tail", "--kind", "fried"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
