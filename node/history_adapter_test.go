package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

type pastEntry struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	EndedMs  int64  `json:"ended_ms"`
	Payload  any    `json:"payload"`
	Log      []struct {
		Attempt int   `json:"attempt"`
		Started int64 `json:"started_ms"`
		Ended   int64 `json:"ended_ms"`
		Status  int   `json:"status"`
	} `json:"attempt_log"`
}

func (r *running) history(topic, query string) (list []pastEntry) {
	r.t.Helper()
	var v struct{ Entries []pastEntry }
	testkit.Must(r.t, json.Unmarshal([]byte(r.must(200, "GET", "/v1/topics/"+topic+"/history"+query, "")), &v))
	return v.Entries
}

// TestHungHistoryHoldsUpNoRead: attempts are looked for beside a read, for half a second, and by so
// many at once.
func TestHungHistoryHoldsUpNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &historyAdapter{looks: make(chan struct{}, 1)}
		some := []timer.HistoryAttempt{{Attempt: 1}}
		hung := make(chan struct{})
		begun := time.Now()
		if got := h.soon(func() []timer.HistoryAttempt { <-hung; return some }); got != nil || time.Since(begun) != lookIn {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		if got := h.soon(func() []timer.HistoryAttempt { return some }); got != nil || time.Since(begun) != lookIn {
			t.Errorf("beside one that hangs: %v after %v", got, time.Since(begun))
		}
		close(hung)
		synctest.Wait()
		if got := h.soon(func() []timer.HistoryAttempt { return some }); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// TestHistory: ended timers are there, each once and with all attempts, and still is after a
// restart that reads the log again.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		switch {
		case a.timer == "retried" && a.attempt < 4:
			w.WriteHeader(500 + a.attempt)
		case a.timer == "stopped":
			w.WriteHeader(410)
		}
	})
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(
		`{"callback":{"url":%q},"retry":{"min_backoff":"100ms","multiplier":1,"jitter":0},"breaker":{"failures":100}}`, rec.URL))
	for _, id := range []string{"plain", "retried", "stopped"} {
		n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":%q,"delay":"10ms","payload":{"of":%q}}`, id, id))
	}
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"late","delay":"1h"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"prevented","delay":"1h"}`)
	n.must(200, "DELETE", "/v1/topics/orders/timers/prevented", "")
	rec.await(t, 6)
	n.eventually("orders", "retried", "done")
	n.eventually("orders", "plain", "done")
	n.eventually("orders", "stopped", "dead")

	check := func() {
		t.Helper()
		all := map[string]pastEntry{}
		list := n.history("orders", "")
		for i, e := range list {
			all[e.ID] = e
			if i > 0 && e.EndedMs < list[i-1].EndedMs {
				t.Errorf("not in order: %+v", list)
			}
		}
		if len(list) != 4 || len(all) != 4 {
			t.Fatalf("%d entries of %d timers: %+v", len(list), len(all), list)
		}
		if e := all["plain"]; e.State != "done" || e.Attempts != 1 || len(e.Log) != 1 || e.Log[0].Status != 200 || fmt.Sprint(e.Payload) != "map[of:plain]" {
			t.Errorf("%+v", e)
		}
		if e := all["stopped"]; e.State != "dead" || e.Reason != "stopped" || len(e.Log) != 1 || e.Log[0].Status != 410 {
			t.Errorf("%+v", e)
		}
		if e := all["prevented"]; e.State != "cancelled" || len(e.Log) != 0 || e.EndedMs == 0 {
			t.Errorf("%+v", e)
		}
		e := all["retried"]
		if e.State != "done" || e.Attempts != 4 || len(e.Log) != 4 {
			t.Fatalf("%+v", e)
		}
		for i, a := range e.Log {
			if want := []int{501, 502, 503, 200}[i]; a.Attempt != i+1 || a.Status != want || a.Started == 0 || a.Ended < a.Started || i > 0 && a.Started < e.Log[i-1].Ended+100 {
				t.Errorf("attempt %d: %+v", i+1, e.Log)
			}
		}
	}
	check()
	if got := n.history("orders", "?state=dead,cancelled"); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if got := n.history("orders", "?id=retried&state=done"); len(got) != 1 || len(got[0].Log) != 4 {
		t.Errorf("%+v", got)
	}
	for range 2 {
		testkit.Must(t, n.stop())
		n = start(t, dir)
		check()
	}
	core := n.node.run.Load().core.Load()
	topic, _ := core.member.State.Named("orders")
	id := timer.ShardOf(&timer.Topic{Name: "orders"}, "retried", 4)
	list, _, err := core.router.History(t.Context(), &timer.HistoryQuery{Topic: topic.ID, Shards: []timer.ShardID{id}, ID: "retried", States: 0xff, Newest: true, Limit: 1})
	if err != nil || len(list) != 1 || list[0].Timer.LastStatus != 200 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestHistoryTime: an entry that a topic does not keep any more is not shown, and is not written
// when it keeps nothing.
func TestHistoryTime(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/none", `{"history":"0s","callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(201, "PUT", "/v1/topics/short", `{"history":"1h","callback":{"url":"http://127.0.0.1:1/"}}`)
	for _, topic := range []string{"none", "short"} {
		n.must(201, "POST", "/v1/topics/"+topic+"/timers", `{"id":"a","delay":"1h"}`)
		n.must(200, "DELETE", "/v1/topics/"+topic+"/timers/a", "")
	}
	if got := n.history("none", ""); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := n.history("short", ""); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	n.must(200, "PATCH", "/v1/topics/short", `{"history":"1s"}`)
	until(t, "nothing of it is shown", func() bool { return len(n.history("short", "")) == 0 })
}

// TestRepeatedLongAfterTheEnd: an add with an id and an instant that is past gives the timer that
// it made, also when the shard has forgotten it, alone and in a batch; an add of other content
// makes another one, and so does that of a timer that was cancelled. One that is not to be late
// makes none.
func TestRepeatedLongAfterTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	const timers = "/v1/topics/jobs/timers"
	at := time.Now().Add(-time.Hour).UnixMilli()
	add := fmt.Sprintf(`{"id":"{k}order","at_ms":%d,"payload":7}`, at)
	n.must(201, "POST", timers, add)
	got := n.pull("jobs", `{"wait":"60s"}`)
	if len(got.Timers) != 1 || n.claim("ack", got.Timers[0].Receipt, "") != 200 {
		t.Fatalf("pulled: %+v", got)
	}
	uid := n.eventually("jobs", "{k}order", "done")["uid"]
	gone := fmt.Sprintf(`{"id":"{k}gone","at_ms":%d,"payload":7}`, at)
	n.must(201, "POST", timers, gone)
	n.must(200, "DELETE", timers+"/{k}gone", "")
	n.forget("jobs", "{k}")

	for _, body := range []string{add, fmt.Sprintf(`{"at_ms":%d,"payload":7,"id":"{k}order","if_late":"reject"}`, at)} {
		var again map[string]any
		if err := json.Unmarshal([]byte(n.must(200, "POST", timers, body)), &again); err != nil || again["state"] != "done" || again["uid"] != uid {
			t.Errorf("%s gives %v (%v), want the timer that is done", body, again, err)
		}
	}
	batch := n.must(200, "POST", "/v1/topics/jobs/batch", fmt.Sprintf(`{"ops":[{"op":"add",%s,{"op":"add","id":"{k}new","at_ms":%d},{"op":"add",%s,
		{"op":"add","id":"{k}late","at_ms":%d,"if_late":"reject"}]}`, add[1:], at, add[1:], at))
	var results struct{ Results []struct{ Status int } }
	if err := json.Unmarshal([]byte(batch), &results); err != nil || fmt.Sprint(results.Results) != "[{200} {201} {200} {410}]" {
		t.Errorf("the batch: %s (%v)", batch, err)
	}
	n.must(410, "POST", timers, fmt.Sprintf(`{"id":"{k}late","at_ms":%d,"if_late":"reject"}`, at))
	n.must(404, "GET", timers+"/{k}late", "")
	if got := n.pull("jobs", `{"max":9}`); len(got.Timers) != 1 || got.Timers[0].ID != "{k}new" {
		t.Errorf("after all that there is to do: %+v", got)
	}
	n.must(201, "POST", timers, fmt.Sprintf(`{"id":"{k}order","at_ms":%d,"payload":8}`, at))
	n.must(201, "POST", timers, gone) // what was cancelled is made again
}

// TestRepeatedPutIsNotCalledTwice: a put whose instant is past, and that was called, is answered
// with its timer, shortly after its end and when the shard has forgotten it, alone and in a batch.
// One of another instant or content, or with If-Match, makes a new timer.
func TestRepeatedPutIsNotCalledTwice(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	const path = "/v1/topics/jobs/timers/{k}order"
	at := time.Now().Add(-time.Hour).UnixMilli()
	put := fmt.Sprintf(`{"at_ms":%d,"payload":7}`, at)
	n.must(201, "PUT", path, put)
	got := n.pull("jobs", `{"wait":"60s"}`)
	if len(got.Timers) != 1 || n.claim("ack", got.Timers[0].Receipt, "") != 200 {
		t.Fatalf("pulled: %+v", got)
	}
	uid := n.eventually("jobs", "{k}order", "done")["uid"]
	repeat := func() {
		t.Helper()
		for _, body := range []string{put, fmt.Sprintf(`{"at_ms":%d,"payload":7,"if_late":"reject"}`, at)} {
			var again map[string]any
			if err := json.Unmarshal([]byte(n.must(200, "PUT", path, body)), &again); err != nil || again["state"] != "done" || again["uid"] != uid {
				t.Errorf("%s gives %v (%v), want the timer that is done", body, again, err)
			}
		}
		batch := n.must(200, "POST", "/v1/topics/jobs/batch", fmt.Sprintf(`{"ops":[{"op":"put","id":"{k}order",%s]}`, put[1:]))
		if !strings.Contains(batch, `"status":200`) || !strings.Contains(batch, `"done"`) {
			t.Errorf("the batch: %s", batch)
		}
		if got := n.pull("jobs", `{"max":9}`); len(got.Timers) != 0 {
			t.Errorf("it is called again: %+v", got)
		}
	}
	repeat()
	if !testing.Short() {
		n.forget("jobs", "{k}")
		repeat()
	}
	n.must(201, "PUT", path, fmt.Sprintf(`{"at_ms":%d,"payload":8}`, at))
	n.must(200, "DELETE", path, "")
	n.must(201, "PUT", path, fmt.Sprintf(`{"at_ms":%d,"payload":7}`, at+1))
}

// forget has the shard of a key drop the timers that have ended there, by the size of those that
// end now.
func (r *running) forget(topic, key string) {
	r.t.Helper()
	payload := strings.Repeat("x", 250<<10)
	for i := range 11 {
		var ops []string
		for j := range 28 {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%sf%d-%d","delay":"1h","payload":%q}`, key, i, j, payload))
		}
		r.must(200, "POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	r.must(200, "POST", "/v1/topics/"+topic+"/cancel", fmt.Sprintf(`{"filter":{"id_prefix":"%sf"}}`, key))
}
