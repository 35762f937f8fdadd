package api

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBatchesWaitTheirTurn: of 64 batches of a thousand operations at once, no more are given to
// the engine than it queues (20,000 operations), and each of the others in its turn: none is
// refused.
func TestBatchesWaitTheirTurn(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.BatchWait = time.Minute })
	h.do("POST", "/v1/topics/orders/timers", `{"id":"x","delay":"1h",`+cb+`}`).want(201)
	const batchesAtOnce, engineTakes = 64, 20
	var mu sync.Mutex
	inside, most, all := 0, 0, false
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	h.engine.beforeDo = func() { // ends once every batch is inside or waits
		mu.Lock()
		if inside++; !all {
			most = inside
		}
		for !all {
			if all = inside+h.server.node.Batches.Waiting() == batchesAtOnce; !all {
				mu.Unlock()
				<-poll.C
				mu.Lock()
			}
		}
		mu.Unlock()
	}
	body := `{"ops":[` + strings.TrimSuffix(strings.Repeat(`{"op":"cancel","id":"x"},`, 1000), ",") + `]}`
	var clients sync.WaitGroup
	for range batchesAtOnce {
		clients.Go(func() {
			resp, err := http.Post("http://"+h.addr+batches, "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("answered %d", resp.StatusCode)
			}
		})
	}
	clients.Wait()
	if most == 0 || most > engineTakes {
		t.Errorf("the engine had %d batches at once", most)
	}
}

// TestBatchesOfTwoTokens: a token with 64 batches at once leaves another one its turn: that one's
// batch waits for one batch of the first, behind those that are being worked on.
func TestBatchesOfTwoTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `many add,cancel,topics "*"`, `one add,cancel "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Limits.BatchWait = auth, time.Hour })
	h.do("POST", "/v1/topics/orders/timers", `{"id":"x","delay":"1h",`+cb+`}`, "Authorization: Bearer many").want(201)
	const batchesAtOnce, atOnce = 64, 16
	var mu sync.Mutex
	var inside []chan struct{} // in the order in which they came
	open, answers := false, make(chan string)
	h.engine.beforeDo = func() {
		mu.Lock()
		if open {
			mu.Unlock()
			return
		}
		finish := make(chan struct{})
		inside = append(inside, finish)
		mu.Unlock()
		<-finish
	}
	finish := func() { // the one that has been inside for longest
		mu.Lock()
		defer mu.Unlock()
		close(inside[0])
		inside = inside[1:]
	}
	finishAll := func() {
		mu.Lock()
		defer mu.Unlock()
		open = true
		for _, c := range inside {
			close(c)
		}
		inside = nil
	}
	defer finishAll()
	body := `{"ops":[` + strings.TrimSuffix(strings.Repeat(`{"op":"cancel","id":"x"},`, 1000), ",") + `]}`
	send := func(token string) {
		rq, _ := http.NewRequest("POST", "http://"+h.addr+batches, strings.NewReader(body))
		rq.Header.Set("Content-Type", "application/json")
		rq.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(rq)
		if err != nil {
			t.Error(err)
		} else if resp.Body.Close(); resp.StatusCode != 200 {
			t.Errorf("%s: answered %d", token, resp.StatusCode)
		}
		answers <- token
	}
	waiting := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return h.server.node.Batches.Waiting() == n && len(inside) == atOnce
		}
	}
	for range batchesAtOnce {
		go send("many")
	}
	h.await("the first token's batches wait", waiting(batchesAtOnce-atOnce))
	go send("one")
	h.await("the second's does", waiting(batchesAtOnce+1-atOnce))
	before := 0
	for finish(); <-answers != "one"; finish() {
		if before++; before > atOnce+1 {
			t.Errorf("%d of the first token's batches are done, and the second's is not", before)
			before-- // it is to be answered, too
			break
		}
		h.await("the next is let in", waiting(batchesAtOnce+1-atOnce-before))
	}
	finishAll()
	for range batchesAtOnce - before {
		<-answers
	}
}
