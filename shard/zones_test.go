package shard

import (
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/vfs/memfs"
)

// addSeries adds a repeating timer.
func (r *hostHarness) addSeries(id string, p *timer.Repeat) {
	r.t.Helper()
	if got := r.do(timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: r.clock.wallMs + 100, Repeat: p}}); got.Code != timer.Created {
		r.t.Fatalf("the add of %s answers %d", id, got.Code)
	}
}

// TestZoneIsReadAside: a worker never reads a time zone itself. Timers without a zone go on while
// one is being read, however long that takes.
func TestZoneIsReadAside(t *testing.T) {
	var onWorker, reads atomic.Int32
	gate := make(chan struct{})
	zone := func(name string) (*time.Location, error) {
		reads.Add(1)
		if strings.Contains(string(debug.Stack()), "(*worker)") {
			onWorker.Add(1)
		} else {
			<-gate
		}
		return recurrence.LoadZone(name)
	}
	synctest.Test(t, func(t *testing.T) {
		gate = make(chan struct{})
		r := makeHarness(t, memfs.New(), func(c *Config) { c.Zone = zone })
		r.bubble = true
		r.mustOpen()
		defer r.abort()
		r.addSeries("cron", &timer.Repeat{Cron: "*/5 * * * *", Zone: "Asia/Kathmandu"})
		r.addSeries("again", &timer.Repeat{Cron: "*/10 * * * *", Zone: "Asia/Kathmandu"})
		r.addSeries("span", &timer.Repeat{EveryMs: 60_000})
		r.add("plain", 100*time.Millisecond)
		r.pass(5 * time.Second)
		r.wantCalls("span plain")
		if n := reads.Load(); n > 1 {
			t.Errorf("the zone is read %d times, want once", n)
		}
		close(gate)
		synctest.Wait()
		r.pass(100 * time.Millisecond)
		for _, c := range r.calls.take() {
			c.answer(200)
		}
		r.pass(time.Second)
		for _, id := range []string{"cron", "again"} {
			if got := r.timer(id); got.State != timer.Scheduled || got.DueMs <= r.clock.wallMs || got.DueMs%(5*60_000) != 0 {
				t.Errorf("the next occurrence: %+v", *got)
			}
		}
		if n := onWorker.Load(); n != 0 || reads.Load() != 1 {
			t.Errorf("the zone is read %d times, %d of them on a worker", reads.Load(), n)
		}
	})
}

// TestZoneThatCannotBeRead: a series in a zone that this node lacks waits, and is not considered
// over. The zone is read again later.
func TestZoneThatCannotBeRead(t *testing.T) {
	var there atomic.Bool
	bubbleHarness(t, func(c *Config) {
		c.Zone = func(name string) (*time.Location, error) {
			if !there.Load() {
				return nil, errors.New("no such zone")
			}
			return recurrence.LoadZone(name)
		}
	}, func(r *hostHarness) {
		r.addSeries("a", &timer.Repeat{Cron: "*/5 * * * *", Zone: "Asia/Kathmandu"})
		r.pass(30 * time.Second)
		synctest.Wait()
		r.pass(10 * time.Second)
		r.wantCalls("")
		r.wantState("a", "scheduled 0")
		there.Store(true)
		r.pass(recurrence.RetryAfter)
		synctest.Wait()
		r.pass(time.Second)
		r.wantCalls("a")
	})
}
