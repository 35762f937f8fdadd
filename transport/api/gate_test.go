package api

import (
	"net/http"
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
