package demo

import (
	"testing"
	"time"

	"carillon/loadtest/sink"
)

const dueMs = 1_000_000

// call is a delivery of a version of timer 0, so many milliseconds after its due time.
func call(version int, due, afterMs int64) *sink.Delivery {
	return &sink.Delivery{Timer: []byte(timerID(0)), Body: []byte(payloadOf(0, version)), DueMs: due, ArrivedUs: (due + afterMs) * 1000}
}

func TestBookJudges(t *testing.T) {
	added := func(b *book) { b.add(0, yes, 3, time.Now()) }
	changed := func(b *book) { b.changing(0, dueMs+500); b.change(0, yes) }
	prevented := func(b *book) { b.cancelling(0); b.cancel(0, yes) }
	calls := func(list ...*sink.Delivery) func(*book) {
		return func(b *book) {
			for _, d := range list {
				b.deliver(d)
			}
		}
	}
	for _, c := range []struct {
		name string
		acts []func(*book)
		owed int
		want tallies
	}{
		{"lost", []func(*book){added}, 1, tallies{acked: 1}},
		{"nobody said that it is there", nil, 0, tallies{}},
		{"called", []func(*book){added, calls(call(1, dueMs, 1))}, 0, tallies{acked: 1, called: 1}},
		{"called before the add was answered", []func(*book){calls(call(1, dueMs, 1)), added}, 0, tallies{acked: 1, called: 1}},
		{"early", []func(*book){added, calls(call(1, dueMs, -1))}, 0, tallies{acked: 1, called: 1, early: 1}},
		{"twice", []func(*book){added, calls(call(1, dueMs, 1), call(1, dueMs, 9))}, 0, tallies{acked: 1, called: 1, duplicate: 1}},
		{"cancelled", []func(*book){added, prevented}, 0, tallies{acked: 1, prevented: 1}},
		{"cancelled and called", []func(*book){added, prevented, calls(call(1, dueMs, 1))}, 0, tallies{acked: 1, prevented: 1, called: 1, forbidden: 1}},
		{"a cancel without an answer excuses", []func(*book){added, func(b *book) { b.cancelling(0) }}, 0, tallies{acked: 1}},
		{"a cancel that came too late does not", []func(*book){added, func(b *book) { b.cancelling(0); b.cancel(0, no) }}, 1, tallies{acked: 1}},
		{"changed", []func(*book){added, changed, calls(call(2, dueMs+500, 1))}, 0, tallies{acked: 1, changed: 1, called: 1}},
		{"the old version of a changed one", []func(*book){added, changed, calls(call(1, dueMs, 1))}, 0, tallies{acked: 1, changed: 1, called: 1, altered: 1}},
		{"the new payload at the old time", []func(*book){added, changed, calls(call(2, dueMs, 1))}, 0, tallies{acked: 1, changed: 1, called: 1, altered: 1, early: 1}},
		{"a version that nobody wrote", []func(*book){added, calls(call(2, dueMs, 1))}, 0, tallies{acked: 1, called: 1, altered: 1}},
		{"a timer that nobody wrote", []func(*book){added, calls(&sink.Delivery{Timer: []byte("t9")})}, 1, tallies{acked: 1, altered: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBook()
			b.enter(dueMs)
			for _, act := range c.acts {
				act(b)
			}
			if b.tallies != c.want || b.owed() != c.owed {
				t.Errorf("%+v, owed %d; want %+v, owed %d", b.tallies, b.owed(), c.want, c.owed)
			}
		})
	}
}

func TestBookNotesWhoTakesAddsAgain(t *testing.T) {
	b := newBook()
	for range 4 {
		b.enter(dueMs)
	}
	fell := time.Now()
	b.add(0, yes, 1, fell.Add(-time.Millisecond))
	b.fall(fell)
	b.add(1, yes, 2, fell.Add(-time.Millisecond)) // sent before
	b.add(2, no, 3, fell.Add(time.Millisecond))
	b.add(3, yes, 4, fell.Add(time.Millisecond))
	if _, ok := b.again[4]; len(b.again) != 1 || !ok {
		t.Errorf("%v", b.again)
	}
	if shard, waiting := b.busiest(); shard != 1 || waiting != 1 {
		t.Errorf("shard %d, %d waiting", shard, waiting)
	}
}

func TestResultNamesBrokenPromises(t *testing.T) {
	if f := (Result{Called: 1, Duplicate: 3}).Failures(); len(f) != 0 {
		t.Errorf("%v", f)
	}
	if f := (Result{Called: 1, Lost: 1, Early: 2}).Failures(); len(f) != 2 || f[0] != "1 lost" || f[1] != "2 early" {
		t.Errorf("%v", f)
	}
	if f := (Result{}).Failures(); len(f) != 1 {
		t.Errorf("a run without calls proves nothing: %v", f)
	}
}
