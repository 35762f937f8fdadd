package web

import (
	"crypto/sha256"
	"maps"
	"slices"
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
			waited, entered := g.Enter(nil, ops, wait, ended)
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
		if g.used != 0 || g.Waiting() != 0 || len(g.lines)+g.turns.Len() != 0 {
			t.Errorf("%d operations, %d batches and %d lines are left", g.used, g.Waiting(), len(g.lines))
		}
	})
}

// TestGateTakesTurnsByToken: tokens with many batches that wait get the same number of operations,
// whatever the size of their batches. One that sends a batch at a time waits for one turn of each
// other. A line ends with its last batch.
func TestGateTakesTurnsByToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type batch struct {
			who  *Principal
			ops  int
			done chan struct{}
		}
		var g Gate
		var mu sync.Mutex
		var inside []batch
		got := map[*Principal]int{}   // operations that were let in
		prior := map[*Principal]int{} // … before the last batch ended
		ended := false
		send := func(who *Principal, ops int) {
			for {
				mu.Lock()
				before, last := maps.Clone(got), ended
				mu.Unlock()
				if last {
					return
				}
				g.Enter(who, ops, time.Hour, nil)
				b := batch{who, ops, make(chan struct{})}
				mu.Lock()
				for other, n := range prior {
					if most := turnOps + 299; who != nil && who.Name == "one" && other != who && n-before[other] > most {
						t.Errorf("one batch waited for %d operations of another token", n-before[other])
					}
				}
				got[who] += ops
				inside = append(inside, b)
				mu.Unlock()
				<-b.done
			}
		}
		token := func(name string) *Principal { return &Principal{Name: name, Sum: sha256.Sum256([]byte(name))} }
		one, large, small := token("one"), token("large"), token("small")
		for range 64 {
			go send(large, turnOps)
			go send(small, 300)
			go send(nil, 1)
		}
		synctest.Wait()
		go send(one, turnOps)
		finish := func() { // what has been inside for longest
			synctest.Wait()
			b := inside[0]
			inside, prior = slices.Delete(inside, 0, 1), maps.Clone(got)
			g.Leave(b.ops)
			synctest.Wait()
			close(b.done)
		}
		for range 100 { // those that entered before anybody waited have left
			finish()
		}
		clear(got)
		for range 5000 {
			finish()
		}
		synctest.Wait()
		if a, b := got[large], got[small]; a < 100_000 || a-b > 3*turnOps || b-a > 3*turnOps {
			t.Errorf("large batches have %d operations, small ones %d", a, b)
		}
		if got[one] == 0 || got[nil] == 0 {
			t.Errorf("one at a time has %d, requests without a token have %d", got[one], got[nil])
		}
		ended = true
		for len(inside) > 0 {
			finish()
			synctest.Wait()
		}
		if g.used != 0 || g.Waiting() != 0 || len(g.lines)+g.turns.Len() != 0 {
			t.Errorf("%d operations, %d batches and %d lines are left", g.used, g.Waiting(), len(g.lines))
		}
	})
}
