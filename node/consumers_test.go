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

type pulled struct {
	Timers []struct {
		ID      string `json:"id"`
		Receipt string `json:"receipt"`
		Fence   uint64 `json:"fence"`
		Attempt int    `json:"attempt"`
		UntilMs int64  `json:"lease_until_ms"`
	} `json:"timers"`
}

func (r *running) pull(topic, body string) pulled {
	r.t.Helper()
	var p pulled
	if err := json.Unmarshal([]byte(r.must(200, "POST", "/v1/topics/"+topic+"/pull", body)), &p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// claim is the status of one receipt.
func (r *running) claim(verb, receipt, more string) int {
	r.t.Helper()
	var answer struct{ Results []struct{ Status int } }
	body := r.must(200, "POST", "/v1/"+verb, fmt.Sprintf(`{"receipts":[%q]%s}`, receipt, more))
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Results) != 1 {
		r.t.Fatalf("%s: %v", body, err)
	}
	return answer.Results[0].Status
}

func TestPullAndAck(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"1s","retry":{"max_attempts":2,"min_backoff":"1ms"}}`)
	n.must(422, "POST", "/v1/topics/jobs/timers", `{"delay":"1s","callback":{"url":"http://127.0.0.1:1/"}}`)
	for i := range 20 { // over all shards
		n.must(201, "POST", "/v1/topics/jobs/timers", fmt.Sprintf(`{"id":"j%02d","at_ms":%d,"priority":%d}`, i, 1_000_000_000_000+i, i%2))
	}
	p := n.pull("jobs", `{"max":15,"wait":"10s"}`)
	for len(p.Timers) < 15 { // some may not have been ready yet
		more := n.pull("jobs", fmt.Sprintf(`{"max":%d,"wait":"10s"}`, 15-len(p.Timers)))
		p.Timers = append(p.Timers, more.Timers...)
	}
	first := p.Timers[0]
	if v := n.timer("jobs", first.ID); v["state"] != "leased" || v["attempts"] != 1.0 || first.Attempt != 1 || first.Fence == 0 || first.UntilMs == 0 {
		t.Errorf("%+v %v", first, v)
	}
	n.must(409, "PATCH", "/v1/topics/jobs/timers/"+first.ID, `{"priority":9}`)
	n.must(409, "PUT", "/v1/topics/jobs", `{"delivery":"push"}`)
	if got := n.claim("ack", first.Receipt, ""); got != 200 {
		t.Errorf("ack: %d", got)
	}
	if got := n.claim("ack", first.Receipt, ""); got != 200 {
		t.Errorf("ack again: %d", got)
	}
	if got := n.claim("extend", first.Receipt, ""); got != 410 {
		t.Errorf("extend what is done: %d", got)
	}
	if got := n.claim("ack", forgedReceipt(first.Receipt), ""); got != 410 {
		t.Errorf("a forged receipt: %d", got)
	}
	if v := n.timer("jobs", first.ID); v["state"] != "done" {
		t.Errorf("%v", v)
	}

	// A lease outlives the process that gave it.
	held := n.pull("jobs", `{"wait":"10s","lease":"30s"}`).Timers[0]
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n = start(t, dir)
	if got := n.claim("extend", held.Receipt, `,"lease":"1m"`); got != 200 {
		t.Errorf("extend after a restart: %d", got)
	}
	if got := n.claim("nack", held.Receipt, `,"reason":"later","delay":"1h"`); got != 200 {
		t.Errorf("nack: %d", got)
	}
	if v := n.timer("jobs", held.ID); v["state"] != "scheduled" || v["last_error"] != "later" {
		t.Errorf("%v", v)
	}
	if got := n.must(200, "GET", "/metrics", ""); !strings.Contains(got, `carillon_fired_total{result="retry"}`) {
		t.Error("nothing is counted")
	}
}

// TestLongPollWakes: a consumer that waits has the timer when it is due, on any node.
func TestLongPollWakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	const count = 30
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	pulledAt := map[string]time.Time{}
	dueBy := map[string]time.Time{} // or when its add was answered, if that was later
	due := time.Now().Add(1500 * time.Millisecond)
	for i := range count {
		wg.Go(func() {
			p := nodes[i%3].pull("jobs", `{"wait":"30s"}`)
			at := time.Now()
			mu.Lock()
			defer mu.Unlock()
			for _, v := range p.Timers {
				got[v.ID]++
				pulledAt[v.ID] = at
			}
		})
	}
	for i := range count {
		id := fmt.Sprint("j", i)
		nodes[i%2].must(201, "POST", "/v1/topics/jobs/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d}`, id, due.UnixMilli()))
		if dueBy[id] = due; time.Now().After(due) {
			dueBy[id] = time.Now()
		}
	}
	wg.Wait()
	if len(got) != count {
		t.Errorf("%d of %d timers were pulled", len(got), count)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%s was pulled %d times", id, n)
		}
	}
	last := time.Duration(0)
	for id, at := range pulledAt {
		d := at.Sub(dueBy[id])
		if last = max(last, d); at.Before(due) || d > time.Second {
			t.Errorf("the puller of %s was woken %s after the due time", id, d)
		}
	}
	t.Logf("the last of %d was woken %s late", count, last)
}

// TestReportLater: a receiver that answers 202 ends the timer with the call's receipt, at any node.
func TestReportLater(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		if a.timer != "now" {
			w.WriteHeader(202)
		}
	})
	nodes[0].must(201, "PUT", "/v1/topics/jobs", fmt.Sprintf(`{"ack":"report","lease":"2s","callback":{"url":%q},"retry":{"max_attempts":2,"min_backoff":"1ms","max_backoff":"1ms"}}`, rec.URL))
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"later","delay":"0s"}`)
	a := rec.await(t, 1)[0]
	receipt := a.header.Get("Carillon-Receipt")
	if receipt == "" {
		t.Fatalf("no receipt: %v", a.header)
	}
	// Its answer may be on its way still.
	for deadline := time.Now().Add(10 * time.Second); nodes[1].claim("extend", receipt, `,"lease":"1m"`) != 200; {
		if time.Now().After(deadline) {
			t.Fatal("the lease is not the receiver's")
		}
	}
	if v := nodes[2].timer("jobs", "later"); v["state"] != "leased" || v["last_status"] != 202.0 {
		t.Errorf("%v", v)
	}
	if got := nodes[2].claim("ack", receipt, ""); got != 200 {
		t.Errorf("ack: %d", got)
	}
	nodes[0].eventually("jobs", "later", "done")
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"now","delay":"0s"}`)
	nodes[2].eventually("jobs", "now", "done")
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"silent","delay":"0s"}`)
	if v := nodes[1].eventually("jobs", "silent", "dead"); v["reason"] != "max_attempts" || v["attempts"] != 2.0 {
		t.Errorf("%v", v)
	}
}

// forgedReceipt is a receipt with one letter changed.
func forgedReceipt(receipt string) string {
	letter := byte('A')
	if receipt[9] == letter {
		letter = 'B'
	}
	return receipt[:9] + string(letter) + receipt[10:]
}
