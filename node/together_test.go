package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// gotCall is a call that a togetherReceiver got: of many timers, or of one.
type gotCall struct {
	topic string
	ids   []string
	body  string
}

// togetherReceiver answers calls as fails has it: "" succeeds, and a text fails the timer, by its
// name in the answer where the call is of many. It answers an outcome's call with 200.
type togetherReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	calls []gotCall
	fails func(id string) (why string)
}

func newTogetherReceiver(t *testing.T, fails func(id string) string) *togetherReceiver {
	r := &togetherReceiver{fails: fails}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		call := gotCall{topic: req.Header.Get("Carillon-Topic"), body: string(body)}
		r.mu.Lock()
		defer r.mu.Unlock()
		defer func() { r.calls = append(r.calls, call) }()
		if id := req.Header.Get("Carillon-Timer"); id != "" {
			call.ids = []string{id}
			if why := r.fails(id); why != "" && call.topic != "events" {
				w.WriteHeader(500)
				_, _ = io.WriteString(w, why)
			}
			return
		}
		var many struct {
			Timers []struct {
				ID        string
				WebhookID string `json:"webhook_id"`
			}
		}
		if err := json.Unmarshal(body, &many); err != nil {
			t.Error(err)
		}
		var failed []map[string]string
		for _, one := range many.Timers {
			call.ids = append(call.ids, one.ID)
			if why := r.fails(one.ID); why != "" {
				failed = append(failed, map[string]string{"webhook_id": one.WebhookID, "error": why})
			}
		}
		slices.Sort(call.ids)
		_ = json.NewEncoder(w).Encode(map[string]any{"failed": failed})
	}))
	t.Cleanup(r.Close)
	return r
}

// take returns the calls of a topic so far, and forgets all.
func (r *togetherReceiver) take(topic string) (of []gotCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.topic == topic {
			of = append(of, c)
		}
	}
	r.calls = nil
	return of
}

// TestOutcomesOfBatches: each timer of a call of many has its own outcome. With answers none no
// text of the receiver is kept or passed on, neither from the call's answer nor from a retry's.
func TestOutcomesOfBatches(t *testing.T) {
	receiver := newTogetherReceiver(t, func(id string) string {
		if id == "bad" {
			return "card 4711 declined"
		}
		return ""
	})
	r := start(t, t.TempDir(), withTestClock)
	r.ask("PUT", "/v1/topics/events", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	for _, answers := range []string{"failed", "none"} {
		r.ask("PUT", "/v1/topics/"+answers, fmt.Sprintf(`{"callback":{"url":%q},"answers":%q,"batch":{"max":10,"wait":"5s","by":"key"},
			"on_done":{"topic":"events"},"on_dead":{"topic":"events"},"retry":{"max_attempts":2,"min_backoff":"1m","max_backoff":"1m"}}`, receiver.URL, answers))
		for _, id := range []string{"good", "bad"} { // without a key: by key they share one
			r.ask("PUT", "/v1/topics/"+answers+"/timers/"+id, `{"delay":"1h","payload":{"of":"`+id+`"}}`)
		}
		r.move(`{"advance":"2h"}`)
		outcomes := map[string]string{}
		for _, c := range receiver.take("events") {
			var o struct {
				Outcome string
				Timer   struct {
					ID         string
					AttemptLog []json.RawMessage `json:"attempt_log"`
				}
			}
			if err := json.Unmarshal([]byte(c.body), &o); err != nil {
				t.Fatal(err)
			}
			outcomes[o.Timer.ID] = fmt.Sprint(o.Outcome, " ", len(o.Timer.AttemptLog))
			want := 0
			if o.Timer.ID == "bad" && answers == "failed" {
				want = 3 // the error, and what was answered to each of the two attempts
			}
			if strings.Count(c.body, "card 4711") != want {
				t.Errorf("answers %s: the outcome is %s", answers, c.body)
			}
		}
		if len(outcomes) != 2 || outcomes["good"] != "done 1" || outcomes["bad"] != "dead 2" {
			t.Errorf("answers %s: outcomes are %v", answers, outcomes)
		}
		for _, path := range []string{"/timers/bad", "/dead", "/history"} {
			got := r.ask("GET", "/v1/topics/"+answers+path, "")
			if strings.Count(got, "card 4711") > 0 != (answers == "failed") {
				t.Errorf("answers %s: %s has %s", answers, path, got)
			}
		}
	}
}

// TestCollectTogether: arrays go in calls of many, and by the limits of their keys; one that fails
// is retried alone before the next of its id, and an outcome has the array.
func TestCollectTogether(t *testing.T) {
	failed := map[string]int{}
	receiver := newTogetherReceiver(t, func(id string) string {
		if failed[id]++; id == "{k}a" && failed[id] == 1 || id == "{l}dead" {
			return "no"
		}
		return ""
	})
	r := start(t, t.TempDir(), withTestClock, func(c *Config) { c.Shards = 1 })
	r.ask("PUT", "/v1/topics/events", fmt.Sprintf(`{"callback":{"url":%q}}`, receiver.URL))
	r.ask("PUT", "/v1/topics/many", fmt.Sprintf(`{"callback":{"url":%q},"merge":"collect","batch":{"max":10,"wait":"5s"},"on_dead":{"topic":"events"},
		"retry":{"max_attempts":2,"min_backoff":"10m","max_backoff":"10m","jitter":0}}`, receiver.URL))
	add := func(topic, id, payload string) {
		r.ask("POST", "/v1/topics/"+topic+"/timers", fmt.Sprintf(`{"id":%q,"delay":"1m","payload":%s}`, id, payload))
	}
	for i, id := range []string{"{k}a", "b", "{l}dead", "{k}a", "b", "{l}dead"} {
		add("many", id, fmt.Sprint(i))
	}
	r.move(`{"advance":"2m"}`)
	calls := receiver.take("many")
	if len(calls) != 1 || fmt.Sprint(calls[0].ids) != "[b {k}a {l}dead]" {
		t.Fatalf("calls %+v", calls)
	}
	for _, part := range []string{`"id":"{k}a"`, `"payload":[0,3]`, `"payload":[1,4]`, `"payload":[2,5]`} {
		if !strings.Contains(calls[0].body, part) {
			t.Errorf("%s is not in %s", part, calls[0].body)
		}
	}
	add("many", "{k}a", "6") // behind the one in backoff
	add("many", "b", "7")
	r.move(`{"advance":"2m"}`)
	if calls = receiver.take("many"); len(calls) != 1 || fmt.Sprint(calls[0].ids) != "[b]" {
		t.Fatalf("calls %+v", calls)
	}
	r.move(`{"advance":"10m"}`)
	receiver.mu.Lock()
	all := slices.Clone(receiver.calls)
	receiver.mu.Unlock()
	calls = receiver.take("many")
	slices.SortStableFunc(calls, func(a, b gotCall) int { return strings.Compare(a.ids[0], b.ids[0]) })
	if len(calls) != 3 || calls[0].body != "[0,3]" || !strings.Contains(calls[1].body, `"payload":[6]`) || calls[2].body != "[2,5]" {
		t.Errorf("calls %+v", calls)
	}
	if i := slices.IndexFunc(all, func(c gotCall) bool { return c.topic == "events" }); i < 0 || !strings.Contains(all[i].body, `"payload":[2,5]`) {
		t.Errorf("the outcome is missing: %+v", all)
	}

	r.ask("PUT", "/v1/topics/limited", fmt.Sprintf(`{"callback":{"url":%q},"merge":"collect","per_key":{"concurrency":1,"rate":{"per_second":0.01,"burst":1}}}`, receiver.URL))
	r.move(`{"advance":"100s"}`)
	for i, id := range []string{"{m}a", "{m}b", "{m}a", "{m}c", "{m}b"} {
		add("limited", id, fmt.Sprint(i))
	}
	r.move(`{"advance":"61s"}`)
	add("limited", "{m}b", "5") // due, and kept by its key: it still collects
	r.move(`{"advance":"239s"}`)
	calls = receiver.take("limited")
	if len(calls) != 3 || calls[0].body != "[0,2]" || calls[1].body != "[1,4,5]" || calls[2].body != "[3]" {
		t.Errorf("calls %+v", calls)
	}
}
