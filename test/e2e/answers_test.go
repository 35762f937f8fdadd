package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// kept is an attempt as attempt_log shows it.
type kept struct {
	Attempt, Status         int
	Error, Answer, Location string
	AnswerBase64            string `json:"answer_base64"`
	AnswerType              string `json:"answer_type"`
}

func (c *client) attempts(t *testing.T, topic, id string) []kept {
	t.Helper()
	var x struct {
		Log []kept `json:"attempt_log"`
	}
	c.must(t, 200, "GET", "/v1/topics/"+topic+"/timers/"+id, "").decode(t, &x)
	return x.Log
}

// TestAnswers: what a receiver answers to attempts that fail is shown for each, and lies in no log
// and no metric. It outlives kill -9. A topic can keep nothing of it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const mark = "card-declined-by-bank"
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		switch n {
		case 1:
			http.Error(w, mark+"\nsecond line", 500)
		case 2:
			w.Header().Set("Location", "/moved-"+mark)
			w.Header().Set("Content-Type", "x/"+mark)
			w.WriteHeader(302)
		case 3:
			w.WriteHeader(503)
			_, _ = w.Write([]byte(strings.Repeat("\xff", 2000)))
		default:
			http.Error(w, mark, 400)
		}
	})
	dir := t.TempDir()
	p := serve(t, dir)
	c := newClient(p)
	const retry = `,"breaker":{"failures":1000},"retry":{"max_attempts":4,"min_backoff":"20ms","jitter":0}`
	c.topic(t, "kept", rcv.url(), retry)
	c.topic(t, "none", rcv.url(), retry+`,"answers":"none"`)
	for _, topic := range []string{"kept", "none"} {
		c.must(t, 201, "POST", "/v1/topics/"+topic+"/timers", `{"id":"x","delay":"0s"}`)
		poll(t, patience, "the timer is dead", func() bool { return c.read(t, topic, "x").State == "dead" })
	}
	// A pending timer keeps the answer to its last attempt.
	c.topic(t, "pending", rcv.url(), `,"history":"0s","retry":{"min_backoff":"1h"}`)
	c.must(t, 201, "POST", "/v1/topics/pending/timers", `{"id":"x","delay":"0s"}`)
	poll(t, patience, "the timer waits for its retry", func() bool { return c.read(t, "pending", "x").LastStatus == 500 })

	const text = "text/plain; charset=utf-8"
	want := []kept{
		{Attempt: 1, Status: 500, Error: "status 500", Answer: mark + "\nsecond line\n", AnswerType: text},
		{Attempt: 2, Status: 302, Error: "redirect 302", Location: "/moved-" + mark, AnswerType: "x/" + mark},
		{Attempt: 3, Status: 503, Error: "status 503", AnswerBase64: strings.Repeat("/", 1365) + "w==", AnswerType: text},
		{Attempt: 4, Status: 400, Error: "status 400", Answer: mark + "\n", AnswerType: text},
	}
	check := func() {
		t.Helper()
		if got := c.attempts(t, "pending", "x"); fmt.Sprint(got) != fmt.Sprint(want[:1]) {
			t.Errorf("pending: %+v", got)
		}
		if got := c.read(t, "pending", "x").LastError; got != "status 500: "+mark+" second line" {
			t.Errorf("pending: last error %q", got)
		}
		if got := c.attempts(t, "kept", "x"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
		if got := c.read(t, "kept", "x").LastError; got != "status 400: "+mark {
			t.Errorf("last error %q", got)
		}
		for _, list := range []string{"dead", "history"} {
			var page struct {
				Timers, Entries []struct {
					Log []kept `json:"attempt_log"`
				}
			}
			c.must(t, 200, "GET", "/v1/topics/kept/"+list, "").decode(t, &page)
			rows := append(page.Timers, page.Entries...)
			if len(rows) != 1 || len(rows[0].Log) == 0 || rows[0].Log[len(rows[0].Log)-1] != want[3] {
				t.Errorf("%s: %+v", list, rows)
			}
		}
		for _, path := range []string{"/timers/x", "/timers?state=dead", "/dead", "/history"} {
			if a := c.must(t, 200, "GET", "/v1/topics/none"+path, ""); strings.Contains(string(a.body), mark) || strings.Contains(string(a.body), "answer") {
				t.Errorf("%s of the topic that keeps none: %s", path, a.body)
			}
		}
	}
	check()
	for _, path := range []string{"/metrics", "/v1/destinations"} {
		if a := c.must(t, 200, "GET", path, ""); strings.Contains(string(a.body), mark) {
			t.Errorf("%s has an answer", path)
		}
	}
	p.kill()
	if strings.Contains(p.stderr.String()+p.stdout.String(), mark) {
		t.Error("a log has an answer")
	}
	p = serve(t, dir)
	c.use(p)
	check()
}
