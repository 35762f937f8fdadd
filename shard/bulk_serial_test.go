package shard

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

const (
	lineTimers = 100_000
	lineCalls  = 2_000 // calls of one serial key, which run one after the other
)

// timerCost is the cost of many timers to a host, by the form of their IDs. Times are CPU times.
type timerCost struct {
	add    time.Duration // for all timers
	cancel time.Duration // for 1,000 timers from the middle, once all wait
	fire   time.Duration // for lineCalls timers
	heap   int64         // bytes, once all timers are due and wait behind a paused topic
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves the contents of sync.Pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// piled adds n timers to one shard, all due at the same instant, and lets them come due while their
// topic is paused. Then it fires some of them.
func piled(t *testing.T, n int, serial bool, id func(i int) string) (p timerCost) {
	t.Helper()
	r := newHostHarness(t, nil)
	policy := func(paused bool) {
		r.topic(1, func(topic *timer.Topic) { topic.Policy.Serial, topic.Paused = serial, paused })
		r.host.TopicsChanged()
	}
	policy(true)
	r.runIdle()
	r.calls.auto = 200
	before, begin := heapNow(), testkit.CPUTime(t)
	due := r.clock.wallMs + 10_000
	many := func(from, to int, cmd func(i int) timer.Command, want timer.Code) {
		for from < to {
			var asked []*pending
			for end := min(from+1000, to); from < end; from++ {
				asked = append(asked, r.mustSubmit(cmd(from)))
			}
			r.runIdle()
			for _, a := range asked {
				if !a.answered() || a.op.err != nil || a.op.result.Code != want {
					t.Fatalf("%+v: %v", a.op.result, a.op.err)
				}
			}
		}
	}
	many(0, n, func(i int) timer.Command {
		return timer.Command{Kind: timer.Add, Topic: 1, ID: id(i), Content: uint64(i), Spec: &timer.Spec{DueMs: due, Payload: []byte(`{"n":12345678}`), PayloadKind: timer.JSONPayload}}
	}, timer.Created)
	p.add = testkit.CPUTime(t) - begin
	r.pass(11 * time.Second)
	p.heap = heapNow() - before

	middle := n / 2
	begin = testkit.CPUTime(t)
	many(middle, middle+1000, func(i int) timer.Command { return timer.Command{Kind: timer.Cancel, Topic: 1, ID: id(i)} }, timer.Prevented)
	p.cancel = testkit.CPUTime(t) - begin

	begin = testkit.CPUTime(t)
	policy(false)
	for turns := 0; len(r.calls.started) < min(lineCalls, n-1000); turns++ {
		if !r.busy() {
			r.step(time.Millisecond)
		}
		if turns > 100*lineCalls {
			t.Fatalf("%d calls after %d turns", len(r.calls.started), turns)
		}
		r.turn()
	}
	p.fire = testkit.CPUTime(t) - begin
	key, _ := timer.KeyOf(id(0))
	other, _ := timer.KeyOf(id(1))
	line := key == other
	seen := map[string]int{}
	for i, c := range r.calls.started {
		if seen[c.Job.ID]++; seen[c.Job.ID] > 1 || c.Job.ID == id(middle) {
			t.Fatalf("call %d is of %s, for the %d. time", i, c.Job.ID, seen[c.Job.ID])
		}
		next := i
		if i >= middle { // the timers in between were cancelled
			next += 1000
		}
		if serial && line && c.Job.ID != id(next) {
			t.Fatalf("call %d is of %s, not in order", i, c.Job.ID)
		}
	}
	r.audit()
	return p
}

// TestManyOfOneKey: 100,000 timers of one serial key, or of 100,000 keys, cost about as much as
// plain timers: in memory, to add, to cancel and to fire. Firing does not get slower with a longer
// key queue. All costs are measured in this run and compared with each other.
func TestManyOfOneKey(t *testing.T) {
	n := lineTimers
	if testing.Short() {
		n /= 10
	}
	one := func(i int) string { return fmt.Sprintf("{key}-%08d", i) }
	each := func(i int) string { return fmt.Sprintf("{k%08d}", i) }
	plain := piled(t, n, false, one)
	keys, line, short := piled(t, n, true, each), piled(t, n, true, one), piled(t, lineCalls+1000, true, one)
	for name, p := range map[string]timerCost{"plain": plain, "of a key each": keys, "of one key": line} {
		t.Logf("%d %s: add %v, cancel 1,000 in %v, %d calls in %v, %d B each", n, name, p.add, p.cancel, lineCalls, p.fire, p.heap/int64(n))
	}
	t.Logf("%d of one key: %d calls in %v", lineCalls+1000, lineCalls, short.fire)
	const slack = 50 * time.Millisecond // for operations too short to measure
	bound := func(what string, got, of time.Duration, most float64) {
		t.Helper()
		if float64(got) > most*float64(of+slack) {
			t.Errorf("%s takes %v, more than %v times %v", what, got, most, of)
		}
	}
	bound("to add timers of one key", line.add, plain.add, 2)
	bound("to add timers of many keys", keys.add, plain.add, 2)
	bound("to cancel in a line", line.cancel, plain.cancel, 2)
	bound("to cancel among many keys", keys.cancel, plain.cancel, 2)
	bound("to fire timers of many keys", keys.fire, plain.fire, 2)
	bound("to fire from a long line", line.fire, short.fire, 2)
	for name, p := range map[string]timerCost{"of a key each": keys, "of one key": line} {
		if more := (p.heap - plain.heap) / int64(n); more > 300 {
			t.Errorf("a timer %s takes %d B more than a plain one", name, more)
		}
	}
}
