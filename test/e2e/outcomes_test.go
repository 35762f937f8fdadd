package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// outcomeOf is the payload of an outcome.
type outcomeOf struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Timer   struct {
		Topic      string          `json:"topic"`
		ID         string          `json:"id"`
		UID        string          `json:"uid"`
		State      string          `json:"state"`
		Payload    json.RawMessage `json:"payload"`
		AttemptLog []struct {
			Attempt int `json:"attempt"`
			Status  int `json:"status"`
		} `json:"attempt_log"`
	} `json:"timer"`
}

// outcomes are those in a topic, by the id of the timer that ended.
func (c *client) outcomes(t testing.TB, topic string) map[string][]outcomeOf {
	t.Helper()
	all := map[string][]outcomeOf{}
	for _, x := range c.all(t, topic) {
		var o outcomeOf
		if err := json.Unmarshal(x.Payload, &o); err != nil {
			t.Fatalf("outcome %s: %v", x.ID, err)
		}
		all[o.Timer.ID] = append(all[o.Timer.ID], o)
	}
	return all
}

// TestOutcomes: the ends of timers make outcomes, which are called or pulled as their topic says,
// and the topics that are named stay.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir())
	c := newClient(p)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request, _ int) {
		switch id := req.Header.Get("Carillon-Timer"); {
		case strings.HasPrefix(id, "bad"):
			w.WriteHeader(410)
		case id == "twice" && req.Header.Get("Carillon-Attempt") == "1":
			w.WriteHeader(500)
		}
	})
	add := func(body string) string { return fmt.Sprintf(`{"delay":"0s",%s}`, body) }
	c.must(t, 422, "PUT", "/v1/topics/work", `{"on_dead":{"topic":"failed"}}`)
	c.must(t, 201, "PUT", "/v1/topics/failed", `{"delivery":"pull"}`)
	c.topic(t, "finished", r.url(), "")
	c.topic(t, "work", r.url(), `,"on_dead":{"topic":"failed"}`)
	c.must(t, 201, "POST", "/v1/topics/work/timers", add(`"id":"bad1","payload":{"order": 7}`), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	c.must(t, 201, "POST", "/v1/topics/work/timers", add(`"id":"good1","on_done":{"topic":"finished"}`))
	c.must(t, 201, "POST", "/v1/topics/work/timers", add(`"id":"twice","on_done":{"topic":"finished"},"retry":{"min_backoff":"1ms"}`))
	c.must(t, 201, "POST", "/v1/topics/work/timers", add(`"id":"bad2","on_dead":null`))
	settledAs(t, c, "work", "bad2", "dead")

	var pulled struct {
		Timers []struct {
			ID, Receipt, Traceparent string
			Labels                   []string
			Payload                  outcomeOf
		}
	}
	c.must(t, 200, "POST", "/v1/topics/failed/pull", `{"max":10,"wait":"10s"}`).decode(t, &pulled)
	if len(pulled.Timers) != 1 {
		t.Fatalf("pulled %+v", pulled)
	}
	x := pulled.Timers[0]
	if o := x.Payload; o.Outcome != "dead" || o.Reason != "stopped" || o.Timer.ID != "bad1" || string(o.Timer.Payload) != `{"order": 7}` || len(o.Timer.AttemptLog) != 1 || o.Timer.AttemptLog[0].Status != 410 {
		t.Errorf("the outcome is %+v", o)
	}
	if fmt.Sprint(x.Labels) != "[outcome]" || !strings.HasPrefix(x.Traceparent, "00-0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("labels %v, trace %s", x.Labels, x.Traceparent)
	}
	c.must(t, 200, "POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q]}`, x.Receipt))
	settledAs(t, c, "failed", x.ID, "done") // found by its id
	poll(t, patience, "the outcome of a second attempt", func() bool { return len(c.outcomes(t, "finished")["twice"]) == 1 })
	if log := c.outcomes(t, "finished")["twice"][0].Timer.AttemptLog; len(log) != 2 || log[0].Attempt != 1 || log[0].Status != 500 || log[1].Status != 200 {
		t.Errorf("attempts %+v", log)
	}
	poll(t, patience, "the outcome of good1 is called", func() bool { return len(c.outcomes(t, "finished")["good1"]) == 1 })

	if a := c.must(t, 409, "DELETE", "/v1/topics/failed?force=false", ""); a.code() != "in_use" {
		t.Errorf("a topic that a policy names: %s", a.body)
	}
	c.must(t, 200, "PATCH", "/v1/topics/work", `{"on_dead":null}`)
	c.must(t, 201, "PUT", "/v1/topics/failed2", `{"delivery":"pull"}`)
	c.must(t, 201, "POST", "/v1/topics/work/timers", `{"id":"later","delay":"1h","on_dead":{"topic":"failed2"}}`)
	if a := c.must(t, 409, "DELETE", "/v1/topics/failed2", ""); a.code() != "in_use" || !strings.Contains(string(a.body), "1 pending timer of another topic names") {
		t.Errorf("a topic that a timer names: %s", a.body)
	}
	c.must(t, 200, "DELETE", "/v1/topics/failed2?force=true", "")
	c.must(t, 200, "PATCH", "/v1/topics/work", `{"callback":{"url":"`+strings.Replace(r.url(), "/hook", "/gone", 1)+`"},"retry":{"max_attempts":1}}`)
	c.must(t, 200, "PATCH", "/v1/topics/work/timers/later", `{"labels":["x"]}`) // it keeps what it named
	c.must(t, 201, "PUT", "/v1/topics/work/timers/bad3", `{"delay":"0s","on_dead":{"topic":"finished"}}`)
	poll(t, patience, "the outcome of bad3 is called", func() bool { return len(c.outcomes(t, "finished")["bad3"]) == 1 })
	if made := p.gauge(t, `carillon_outcomes_total{result="made"}`); made != "4" {
		t.Errorf("%s outcomes were made", made)
	}
}

// TestOutcomesOutliveKills: a node is killed again and again while timers end. Each of them has one
// outcome.
func TestOutcomesOutliveKills(t *testing.T) {
	t.Parallel()
	kills := setting(t, "CARILLON_E2E_OUTCOME_KILLS", 3)
	random := seeded(t)
	dir := t.TempDir()
	p := serve(t, dir)
	c := newClient(p)
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request, _ int) {
		if strings.HasPrefix(req.Header.Get("Carillon-Timer"), "bad") {
			w.WriteHeader(410)
		}
	})
	c.topic(t, "outcomes", r.url(), "")
	c.topic(t, "work", r.url(), `,"on_done":{"topic":"outcomes"},"on_dead":{"topic":"outcomes"},"retry":{"min_backoff":"50ms"}`)
	const each = 300
	for round := range kills {
		var ops []string
		for n := range each {
			kind := [...]string{"good", "bad", "late"}[n%3]
			extra := ""
			if kind == "late" {
				extra = `,"at":"2026-01-01T00:00:00Z","expires_after":"1s"`
			} else {
				extra = fmt.Sprintf(`,"delay_ms":%d`, random.IntN(600))
			}
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%s-%d-%d"%s}`, kind, round, n, extra))
		}
		c.batch(t, "work", ops)
		wait(time.Duration(random.IntN(700)) * time.Millisecond) // some have ended
		p.kill()
		p = serve(t, dir)
		c.use(p)
	}
	want := kills * each
	poll(t, 60*time.Second, "all have ended, and their outcomes", func() bool {
		if len(c.outcomes(t, "outcomes")) < want {
			return false
		}
		for _, x := range c.all(t, "outcomes") {
			if x.State != "done" {
				return false
			}
		}
		return true
	})
	all := c.outcomes(t, "outcomes")
	for _, x := range c.all(t, "work") {
		list := all[x.ID]
		if len(list) != 1 || list[0].Outcome != x.State || list[0].Timer.State != x.State {
			t.Errorf("%s is %s and has %d outcomes: %+v", x.ID, x.State, len(list), list)
		}
	}
	t.Logf("%d kills, %d timers, %d outcomes", kills, want, len(all))
}

// TestOutcomeAfterARestore: an outcome has the attempts of before a restore, too.
func TestOutcomeAfterARestore(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(500) })
	p := serve(t, t.TempDir())
	c := newClient(p)
	c.must(t, 201, "PUT", "/v1/topics/failed", `{"delivery":"pull"}`)
	c.topic(t, "work", r.url(), `,"on_dead":{"topic":"failed"},"retry":{"max_attempts":3,"min_backoff":"5s","multiplier":1,"jitter":0}`)
	c.must(t, 201, "POST", "/v1/topics/work/timers", `{"id":"a","delay":"0s"}`)
	poll(t, patience, "the first attempt", func() bool { return r.answered() == 1 })
	file := filepath.Join(t.TempDir(), "backup")
	tool(t, 0, "ctl", "--url", p.url, "backup", file)
	p.kill()
	dir := filepath.Join(t.TempDir(), "restored")
	tool(t, 0, "restore", "--from", file, "--data", dir, "--fired", "fire")
	c = newClient(serve(t, dir))
	poll(t, patience, "the outcome", func() bool { return len(c.outcomes(t, "failed")["a"]) == 1 })
	if log := c.outcomes(t, "failed")["a"][0].Timer.AttemptLog; len(log) != 3 || log[0].Attempt != 1 {
		t.Errorf("attempts %+v", log)
	}
}
