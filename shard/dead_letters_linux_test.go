package shard

import (
	"runtime"
	"testing"
	"time"

	"carillon/test/testkit/growth"
	"carillon/timer"
)

// TestDeadLettersOfOneIDHoldUpNoTurn: after many deaths of one id, a batch of cancels of it is
// applied in turns of milliseconds, and the deaths that left no dead letter are counted.
func TestDeadLettersOfOneIDHoldUpNoTurn(t *testing.T) {
	deaths := 40_000
	if testing.Short() {
		deaths = 4_000
	}
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = 10_000 })
	at := r.clock.wallMs - 1000
	for i := range deaths {
		spec := &timer.Spec{DueMs: at, HasExpiry: true}
		if got := r.do(timer.Command{Kind: timer.Add, ID: "a", Spec: spec, Content: uint64(i)}); got.Code != timer.Created {
			t.Fatalf("add %d: %d", i, got.Code)
		}
	}
	r.runIdle()
	if n := r.table().Totals().Dead; int(n)+r.observer.replaced != deaths {
		t.Fatalf("%d dead letters and %d that were replaced, of %d", n, r.observer.replaced, deaths)
	}
	r.add("a", time.Hour)
	for range 1000 {
		if _, err := r.submit(1, timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	longest := time.Duration(0)
	for r.busy() {
		begun := growth.ThreadTime(t)
		r.host.workers[0].turn()
		longest = max(longest, growth.ThreadTime(t)-begun)
		if _, err := r.host.stream.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if longest > growth.MaxTurn {
		t.Errorf("the longest turn took %v", longest)
	}
}
