package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// fill adds timers t0 … in batches, a second apart, from due on.
func (r *running) fill(topic string, n int, due time.Time, callback string) {
	r.t.Helper()
	for from := 0; from < n; from += 500 {
		var ops []string
		for i := from; i < min(from+500, n); i++ {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%d","at_ms":%d,"labels":["l%d"],"callback":{"url":%q}}`, i, due.Add(time.Duration(i)*time.Second).UnixMilli(), i%2, callback))
		}
		got := r.must(200, "POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
		if strings.Contains(got, `"error"`) {
			r.t.Fatal(got)
		}
	}
}

// counted is the answer of a bulk change.
type counted struct{ Matched, Changed, Skipped int }

func (r *running) bulk(path, body string) (c counted) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.must(200, "POST", path, body)), &c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// TestBulk: thousands of timers are moved, each once, and cancelled, while others are added and
// changed.
func TestBulk(t *testing.T) {
	const n = 5000
	r := start(t, t.TempDir())
	due := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	r.fill("many", n, due, "http://127.0.0.1:9/")

	// The new times lie ahead in the order of due times: a walk by due time would meet them again
	// and again.
	stop := make(chan struct{})
	var others sync.WaitGroup
	patched := 0
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if code, body := r.call("PATCH", fmt.Sprintf("/v1/topics/many/timers/t%d", i%n), `{"priority":7}`); code != 200 {
				t.Errorf("%d %s", code, body)
				return
			}
			r.call("PUT", fmt.Sprintf("/v1/topics/many/timers/new%d", i), `{"delay":"48h","callback":{"url":"http://127.0.0.1:9/"}}`)
			patched++
		}
	})
	got := r.bulk("/v1/topics/many/reschedule", `{"filter":{"id_prefix":"t"},"shift":"+1h"}`)
	close(stop)
	others.Wait()
	if got != (counted{n, n, 0}) {
		t.Errorf("moved %+v of %d", got, n)
	}
	for i := 0; i < n; i += 7 {
		if timer := r.timer("many", fmt.Sprint("t", i)); int64(timer["due_ms"].(float64)) != due.Add(time.Hour+time.Duration(i)*time.Second).UnixMilli() {
			t.Fatalf("%d patches; t%d is due %v", patched, i, timer["due"])
		}
	}
	if got := r.bulk("/v1/topics/many/cancel", `{"filter":{"label":"l1","id_prefix":"t"}}`); got != (counted{n / 2, n / 2, 0}) {
		t.Errorf("cancelled %+v", got)
	}
	if got := r.bulk("/v1/topics/many/cancel", `{"filter":{"label":"l1","id_prefix":"t"}}`); got != (counted{}) {
		t.Errorf("cancelled again %+v", got)
	}
	r.bulk("/v1/topics/many/cancel", `{"all":true}`)
	if topic := r.must(200, "GET", "/v1/topics/many", ""); !strings.Contains(topic, `"scheduled":0`) {
		t.Error(topic)
	}
}

// TestBulkInFlight: a timer whose call runs is skipped; cancelled all the same, no further call of
// it starts.
func TestBulkInFlight(t *testing.T) {
	r := start(t, t.TempDir())
	begun, release := make(chan struct{}), make(chan struct{})
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) {
		close(begun)
		<-release
		w.WriteHeader(500)
	})
	r.must(201, "PUT", "/v1/topics/calls/timers/a", `{"delay":"0s","callback":{"url":"`+rec.URL+`"}}`)
	<-begun
	if got := r.bulk("/v1/topics/calls/reschedule", `{"all":true,"shift":"1h"}`); got != (counted{1, 0, 1}) {
		t.Errorf("moved %+v", got)
	}
	if got := r.bulk("/v1/topics/calls/cancel", `{"all":true}`); got != (counted{1, 0, 1}) {
		t.Errorf("cancelled %+v", got)
	}
	close(release)
	r.eventually("calls", "a", "cancelled")
}

// TestPurgeKeepsWhatTheFilterDoesNot: an id may have died twice; a filter that selects the older
// one leaves the other.
func TestPurgeKeepsWhatTheFilterDoesNot(t *testing.T) {
	r := start(t, t.TempDir())
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(410) })
	kill := func() {
		r.call("PUT", "/v1/topics/calls/timers/a", `{"delay":"0s","callback":{"url":"`+rec.URL+`"}}`)
		r.eventually("calls", "a", "dead")
	}
	kill()
	<-time.After(20 * time.Millisecond)
	border := time.Now().UnixMilli()
	<-time.After(20 * time.Millisecond)
	kill()
	dead := func() string { return r.must(200, "GET", "/v1/topics/calls/dead", "") }
	if n := strings.Count(dead(), `"id":"a"`); n != 2 {
		t.Fatalf("%d dead letters", n)
	}
	older := fmt.Sprintf(`{"filter":{"to":%d}}`, border)
	if got := r.bulk("/v1/topics/calls/dead/purge", older); got != (counted{1, 1, 0}) {
		t.Errorf("purged %+v", got)
	}
	if left := dead(); strings.Count(left, `"id":"a"`) != 1 || !strings.Contains(left, `"version":2`) {
		t.Error(left)
	}
	if got := r.bulk("/v1/topics/calls/dead/redrive", `{"all":true,"delay":"1h","callback":{"url":"http://127.0.0.1:9/new"}}`); got != (counted{1, 1, 0}) {
		t.Errorf("redriven %+v", got)
	}
	if timer := r.timer("calls", "a"); timer["state"] != "scheduled" || timer["attempts"].(float64) != 0 || !strings.Contains(fmt.Sprint(timer["callback"]), "/new") {
		t.Error(timer)
	}
}
