package web

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestGateKeepsOrder: what does not fit waits, those that came first go first, and one that has
// waited too long, or until the server stops, is refused and leaves room to those behind it.
func TestGateKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = time.Second
		var g Gate
		var mu sync.Mutex
		var order []int
		enter := func(ops int, ended <-chan struct{}) {
			begun := time.Now()
			waited, entered := g.Enter(ops, wait, ended)
			mu.Lock()
			defer mu.Unlock()
			if order = append(order, ops); !entered {
				order[len(order)-1] = -ops
			}
			if took := time.Since(begun); waited != (took > 0) || !entered && ended == nil && took != wait {
				t.Errorf("%d operations: waited %v, entered %v after %v", ops, waited, entered, took)
			}
		}
		want := func(when string, list ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(order) != len(list) {
				t.Fatalf("%s: %v, want %v", when, order, list)
			}
			for i := range list {
				if order[i] != list[i] {
					t.Fatalf("%s: %v, want %v", when, order, list)
				}
			}
			order = nil
		}
		enter(gateOps+1, nil) // larger than the gate, and alone
		want("alone", gateOps+1)
		go enter(gateOps-1, nil)
		synctest.Wait()
		go enter(3, nil)
		time.Sleep(wait / 2)
		go enter(1, nil)
		want("full")
		g.Leave(gateOps + 1)
		want("the first left", gateOps-1)
		time.Sleep(wait / 2) // 3 has waited for room that only 1 finds
		want("in vain", -3, 1)
		g.Leave(1)

		ended := make(chan struct{})
		go enter(2, ended)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		close(ended)
		want("the server stops", -2)
		g.Leave(gateOps - 1)
		if g.used != 0 || g.Waiting() != 0 {
			t.Errorf("%d operations and %d batches are left", g.used, g.Waiting())
		}
	})
}
