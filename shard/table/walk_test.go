package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"carillon/timer"
)

// TestWalk compares walks with the model: on an unchanged table they find each selected timer
// exactly once.
func TestWalk(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(5, 22)).IntN)
	for range 300 {
		g.turn()
	}
	for _, q := range []timer.Query{
		{States: 1<<timer.Scheduled | 1<<timer.Leased},
		{States: 1 << timer.Scheduled, FromMs: g.now, ToMs: g.now + 60_000},
		{States: 1<<timer.Scheduled | 1<<timer.Leased, Labels: []string{"label1"}, IDPrefix: "timer"},
		{States: 1 << timer.Dead, ByEnd: true, Reason: timer.Expired},
	} {
		q.Topic = 1
		want := map[string]bool{}
		for _, x := range g.model.all {
			if _, ok := modelSelects(&q, x); ok {
				want[fmt.Sprint(x.ID, "/", x.Version)] = true
			}
		}
		var marks []timer.Ref
		at := timer.ScanCursor{High: g.table.slots.High, Seq: g.table.seq, Begun: true}
		for !at.Done() {
			marks = append(marks, g.table.Walk(&q, nil, &at, 7, 3, nil)...)
		}
		for _, m := range marks {
			key := fmt.Sprint(m.ID, "/", m.Version)
			if !want[key] {
				t.Errorf("%+v: %s is met twice, or not selected", q, key)
			}
			delete(want, key)
			if x := g.model.last(1, m.ID); !q.ByEnd && (x.DueMs != m.DueMs || x.State == timer.Scheduled && x.NextMs != m.NextMs || m.Leased != (x.State == timer.Leased)) {
				t.Errorf("mark %+v of %+v", m, x.Timer)
			}
		}
		if len(want) > 0 {
			t.Errorf("%+v: %v were not met", q, want)
		}
	}
}

// TestWalkMeetsEachTimerOnce: under concurrent changes no timer is visited twice, timers added
// later are not visited, and timers selected throughout are visited.
func TestWalkMeetsEachTimerOnce(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(7, 1)).IntN)
	for range 200 {
		g.turn()
	}
	scheduled := func() map[uint64]bool {
		seqs := map[uint64]bool{}
		for _, x := range g.model.all {
			if x.Topic == 1 && !x.State.Over() {
				seqs[x.Seq] = true
			}
		}
		return seqs
	}
	q := timer.Query{Topic: 1, States: 1<<timer.Scheduled | 1<<timer.Leased}
	for range 20 {
		always := scheduled()
		at := timer.ScanCursor{High: g.table.slots.High, Seq: g.table.seq, Begun: true}
		last := at.Seq
		met := map[uint64]bool{}
		for !at.Done() {
			for _, m := range g.table.Walk(&q, nil, &at, 5, 2, nil) {
				seq := uint64(0) // overlapping occurrences have the same id
				for _, x := range g.model.all {
					if x.Topic == 1 && x.ID == m.ID && x.DueMs == m.DueMs && x.Version == m.Version && !x.State.Over() && (seq == 0 || met[seq]) {
						seq = x.Seq
					}
				}
				if seq == 0 {
					t.Fatalf("%s was met and is not there", m.ID)
				}
				if met[seq] || seq > last {
					t.Errorf("timer %d is met again, or came after %d", seq, last)
				}
				met[seq] = true
			}
			g.turn()
			now := scheduled()
			for seq := range always {
				if !now[seq] {
					delete(always, seq)
				}
			}
		}
		for seq := range always {
			if !met[seq] {
				t.Errorf("timer %d was there all the time and was not met", seq)
			}
		}
	}
}
