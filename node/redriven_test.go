package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// redriven makes a series whose first occurrence is dead, redrives that and waits until it is in a
// state. The receiver answers with a status of its own from then on.
func (r *running) redriven(topic, state string, then http.HandlerFunc) {
	r.t.Helper()
	var live atomic.Bool
	rec := newReceiver(r.t, func(_ *receivedFile, w http.ResponseWriter) {
		if !live.Load() {
			w.WriteHeader(410)
			return
		}
		then(w, nil)
	})
	r.must(201, "PUT", "/v1/topics/"+topic+"/timers/s", fmt.Sprintf(`{"delay":"0s","repeat":{"every":"1h"},"callback":{"url":%q},"retry":{"min_backoff":"1h"}}`, rec.URL))
	until(r.t, "the first occurrence is dead", func() bool {
		return strings.Contains(r.must(200, "GET", "/v1/topics/"+topic+"/dead", ""), `"id":"s"`)
	})
	live.Store(true)
	if got := r.bulk("/v1/topics/"+topic+"/dead/redrive", `{"ids":["s"]}`); got != (counted{1, 1, 0}) {
		r.t.Fatalf("redriven: %+v", got)
	}
	until(r.t, "the redriven one is "+state, func() bool { return strings.Contains(r.must(200, "GET", "/v1/topics/"+topic+"/timers", ""), state) })
}

// TestListOfARedrivenOccurrence: a list says why a redriven occurrence waits that runs in parallel
// with its series, and not why the other one does.
func TestListOfARedrivenOccurrence(t *testing.T) {
	r := start(t, t.TempDir())
	r.redriven("calls", `"attempts":1`, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	r.must(200, "POST", "/v1/topics/calls/timers/s/pause", "")
	type timers struct {
		Timers []struct {
			Attempts int
			Paused   bool
			Waits    string `json:"waits_for"`
		}
	}
	var page timers
	until(t, "both are scheduled", func() bool {
		page = timers{} // a field that an answer lacks would stay as it was
		if err := json.Unmarshal([]byte(r.must(200, "GET", "/v1/topics/calls/timers?state=scheduled", "")), &page); err != nil {
			t.Fatal(err)
		}
		return len(page.Timers) == 2
	})
	for _, v := range page.Timers {
		if want := map[bool]string{true: "paused", false: "backoff"}[v.Paused]; v.Waits != want {
			t.Errorf("%+v, want %s", v, want)
		}
	}
}

// TestBulkCancelOfARunningOccurrence: each occurrence of a series is counted by its own end.
func TestBulkCancelOfARunningOccurrence(t *testing.T) {
	r := start(t, t.TempDir())
	release := make(chan struct{})
	defer close(release)
	r.redriven("calls", `"leased"`, func(http.ResponseWriter, *http.Request) { <-release })
	if got := r.bulk("/v1/topics/calls/cancel", `{"all":true}`); got != (counted{2, 1, 1}) {
		t.Errorf("cancelled: %+v", got)
	}
}

// TestRedriveForLaterHasAReason: a dead letter that is redriven for later is past its due time and
// not called: a read, a list and the topic's counts say why.
func TestRedriveForLaterHasAReason(t *testing.T) {
	r := start(t, t.TempDir())
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(410) })
	r.must(201, "PUT", "/v1/topics/calls/timers/a", fmt.Sprintf(`{"delay":"0s","callback":{"url":%q}}`, rec.URL))
	until(t, "it is dead", func() bool {
		return strings.Contains(r.must(200, "GET", "/v1/topics/calls/dead", ""), `"id":"a"`)
	})
	if got := r.bulk("/v1/topics/calls/dead/redrive", `{"all":true,"delay":"1h"}`); got != (counted{1, 1, 0}) {
		t.Fatalf("redriven: %+v", got)
	}
	for path, want := range map[string]string{
		"/timers/a": `"waits_for":"backoff"`, "/timers": `"waits_for":"backoff"`, "": `"waiting":{"backoff":1}`,
	} {
		if got := r.must(200, "GET", "/v1/topics/calls"+path, ""); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}
