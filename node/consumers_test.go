package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/node/calls"
	"carillon/test/testkit"
	"carillon/timer"
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
	testkit.Must(r.t, json.Unmarshal([]byte(r.must(200, "POST", "/v1/topics/"+topic+"/pull", body)), &p))
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
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"1h","retry":{"max_attempts":2,"min_backoff":"1ms"}}`)
	n.must(422, "POST", "/v1/topics/jobs/timers", `{"delay":"1s","callback":{"url":"http://127.0.0.1:1/"}}`)
	for i := range 20 { // over all shards
		n.must(201, "POST", "/v1/topics/jobs/timers", fmt.Sprintf(`{"id":"j%02d","at_ms":%d,"priority":%d}`, i, 1_000_000_000_000+i, i%2))
	}
	p := n.pull("jobs", `{"max":15,"wait":"60s"}`)
	for len(p.Timers) < 15 { // some may not have been ready yet
		more := n.pull("jobs", fmt.Sprintf(`{"max":%d,"wait":"60s"}`, 15-len(p.Timers)))
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
	held := n.pull("jobs", `{"wait":"60s","lease":"30s"}`).Timers[0]
	testkit.Must(t, n.stop())
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

// TestLongPollWakes: a consumer that waits has the timer when it is due, on any node. The yardstick
// are as many consumers that find timers, which a busy machine delays as well.
func TestLongPollWakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	const count = 30
	type taken struct {
		times    int
		sent, at time.Time // of the pull
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]taken{}
	pullAll := func() {
		for i := range count {
			wg.Go(func() {
				sent := time.Now()
				p := nodes[i%3].pull("jobs", `{"wait":"60s"}`)
				at := time.Now()
				mu.Lock()
				defer mu.Unlock()
				for _, v := range p.Timers {
					got[v.ID] = taken{got[v.ID].times + 1, sent, at}
				}
			})
		}
	}
	ready := map[string]time.Time{} // its due time, or when its add was answered, if that was later
	addAll := func(name string, due time.Time) {
		for i := range count {
			id := fmt.Sprint(name, i)
			nodes[i%2].must(201, "POST", "/v1/topics/jobs/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d}`, id, due.UnixMilli()))
			if ready[id] = due; time.Now().After(due) {
				ready[id] = time.Now()
			}
		}
	}
	// last is how long after its timer was ready and its pull was sent the last pull was answered.
	last := func(name string) (late time.Duration) {
		for i := range count {
			id := fmt.Sprint(name, i)
			if got[id].times != 1 {
				t.Errorf("%s was pulled %d times", id, got[id].times)
			}
			late = max(late, min(got[id].at.Sub(ready[id]), got[id].at.Sub(got[id].sent)))
		}
		return late
	}
	due := time.Now().Add(1500 * time.Millisecond)
	pullAll()
	addAll("waits", due)
	wg.Wait()
	addAll("found", time.Now())
	pullAll()
	wg.Wait()
	woken, found := last("waits"), last("found")
	for id, one := range got {
		if ready[id].Equal(due) && one.at.Before(due) {
			t.Errorf("the puller of %s was woken early", id)
		}
	}
	if woken > time.Second+10*found {
		t.Errorf("the last of %d was woken %s after the due time; as many that find timers take %s", count, woken, found)
	}
	t.Logf("the last of %d was woken %s late; as many that find timers take %s", count, woken, found)
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
	nodes[0].must(201, "PUT", "/v1/topics/jobs", fmt.Sprintf(`{"ack":"report","lease":"1h","callback":{"url":%q},"retry":{"max_attempts":2,"min_backoff":"1ms","max_backoff":"1ms"}}`, rec.URL))
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"later","delay":"0s"}`)
	a := rec.await(t, 1)[0]
	receipt := a.header.Get("Carillon-Receipt")
	if receipt == "" {
		t.Fatalf("no receipt: %v", a.header)
	}
	// Its answer may be on its way still.
	until(t, "the lease is the receiver's", func() bool { return nodes[1].claim("extend", receipt, `,"lease":"2h"`) == 200 })
	if v := nodes[2].timer("jobs", "later"); v["state"] != "leased" || v["last_status"] != 202.0 {
		t.Errorf("%v", v)
	}
	if got := nodes[2].claim("ack", receipt, ""); got != 200 {
		t.Errorf("ack: %d", got)
	}
	nodes[0].eventually("jobs", "later", "done")
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"now","delay":"0s"}`)
	nodes[2].eventually("jobs", "now", "done")
	nodes[0].must(200, "PATCH", "/v1/topics/jobs", `{"lease":"1s"}`)
	nodes[1].must(201, "POST", "/v1/topics/jobs/timers", `{"id":"silent","delay":"0s"}`)
	if v := nodes[1].eventually("jobs", "silent", "dead"); v["reason"] != "max_attempts" || v["attempts"] != 2.0 {
		t.Errorf("%v", v)
	}
}

// TestReportsBeginWhileACallRuns: a call that runs while its topic changes to ack: report has no
// receipt. The 202 of its receiver ends it: a lease would only have it called again.
func TestReportsBeginWhileACallRuns(t *testing.T) {
	for name, batch := range map[string]string{"one": "", "many": `,"batch":{"max":2}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, t.TempDir())
			called, answer := make(chan struct{}), make(chan struct{})
			rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) {
				close(called)
				<-answer
				w.WriteHeader(202)
			})
			n.must(201, "PUT", "/v1/topics/jobs", fmt.Sprintf(`{"callback":{"url":%q},"lease":"1s","retry":{"max_attempts":1}%s}`, rec.URL, batch))
			n.must(201, "POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s"}`)
			<-called
			n.must(200, "PATCH", "/v1/topics/jobs", `{"ack":"report","batch":null}`)
			close(answer)
			until(t, "it ends", func() bool { return n.timer("jobs", "a")["state"] != "leased" })
			if v := n.timer("jobs", "a"); v["state"] != "done" || v["last_status"] != 202.0 {
				t.Errorf("%v", v)
			}
		})
	}
}

// TestReceiptOfAShardThatIsNotKnownYet: the number of shards doubles, and a node that has yet to
// learn of it is given a receipt of a new shard. The lease is there, in the shard where the timer
// still is as far as this node knows.
func TestReceiptOfAShardThatIsNotKnownYet(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	n.must(201, "POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s"}`)
	core := n.node.run.Load().core.Load()
	secret := core.clusterSecret()
	r, ok := calls.OpenReceipt(secret, n.pull("jobs", `{"wait":"60s"}`).Timers[0].Receipt)
	if !ok {
		t.Fatal("the receipt cannot be read")
	}
	r.Shard += timer.ShardID(core.host.Shards())
	if got := n.claim("ack", r.Seal(secret), ""); got != 200 {
		t.Errorf("ack: %d", got)
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

// TestLeasesThatWereHeld: what is certain is kept after an error, and the error says the most
// open of all.
func TestLeasesThatWereHeld(t *testing.T) {
	done, over := timer.Result{Code: timer.OK}, timer.Result{Code: timer.OverFired}
	ops := []timer.Op{{Err: timer.ErrNoLeader}, {Result: done}, {Err: timer.ErrUnknown}, {Result: over}, {Err: timer.ErrNoLeader}, {Result: done}}
	of := make([]updated, len(ops))
	for i := range ops {
		ops[i].Command, of[i].at = &timer.Command{Kind: timer.AckLease}, i+1
	}
	held := make([]bool, len(ops)+1)
	if err := markHeld(held, ops, of, time.Now(), nil); !errors.Is(err, timer.ErrUnknown) {
		t.Error(err)
	}
	if want := []bool{false, false, true, false, false, false, true}; !slices.Equal(held, want) {
		t.Errorf("%v, want %v", held, want)
	}
}
