package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/wheel"
)

// TestScan compares pages of sliced scans with a sort of all timers.
func TestScan(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(21, 5)).IntN)
	for range 300 {
		g.turn()
	}
	for _, q := range []timer.Query{
		{States: 1<<timer.Scheduled | 1<<timer.Leased},
		{States: 1 << timer.Scheduled, FromMs: g.now, ToMs: g.now + 60_000},
		{States: 1<<timer.Scheduled | 1<<timer.Done | 1<<timer.Cancelled, Labels: []string{"label1", "label0"}},
		{States: 1 << timer.Dead, ByEnd: true},
		{States: 1 << timer.Dead, ByEnd: true, Reason: timer.Expired},
		{States: 1<<timer.Done | 1<<timer.Cancelled | 1<<timer.Scheduled, ByEnd: true},
		{States: 0xff, IDPrefix: "timer-1", WithoutPayload: true},
		{States: 0xff, IDPrefix: "timer-1", WholeID: true},
		{States: 0xff, AllTopics: true},
		{States: 1<<timer.Scheduled | 1<<timer.Dead, AllTopics: true, IDPrefix: "timer-1"},
		{States: 0xff, Topics: []timer.TopicID{2, 3}, Labels: []string{"label1"}},
	} {
		q.Topic = 1
		var want []timer.SortKey
		for _, x := range g.model.all {
			if ms, ok := modelSelects(&q, x); ok {
				key := timer.SortKey{SortMs: ms, ID: x.ID, Seq: x.Seq}
				if q.ManyTopics() {
					key.Topic = x.Topic
				}
				want = append(want, key)
			}
		}
		slices.SortFunc(want, timer.SortKey.Compare)
		var got []timer.SortKey
		for q.Limit = 3; ; {
			page, more := scanAll(g.table, &q)
			for _, f := range page {
				got = append(got, f.Key)
				if f.Timer.Seq != f.Key.Seq || q.WithoutPayload && f.Timer.Payload != nil {
					t.Errorf("found %+v", f)
				}
			}
			if !more {
				break
			}
			q.After = &got[len(got)-1]
		}
		if !slices.Equal(got, want) || len(want) == 0 && q.ManyTopics() {
			t.Errorf("%+v: found %v, want %v", q, got, want)
		}
	}
}

// TestScanOfRanges: scans of ranges of slots that follow each other find what one scan finds, each
// timer once, and say whether there are slots behind.
func TestScanOfRanges(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(21, 5)).IntN)
	for range 300 {
		g.turn()
	}
	q := timer.Query{States: 0xff, AllTopics: true, Limit: 1000}
	all, _ := scanAll(g.table, &q)
	var want, got []string
	for _, f := range all {
		want = append(want, fmt.Sprint(f.Handle, f.Key))
	}
	ranges := 0
	for more := true; more; ranges++ {
		var page []Found
		q.Slots.To = q.Slots.From + 5
		if page, more = scanAll(g.table, &q); more != (q.Slots.To < g.table.slots.High) {
			t.Fatalf("more %v behind slot %d of %d", more, q.Slots.To, g.table.slots.High)
		}
		for _, f := range page {
			if f.Handle <= q.Slots.From || f.Handle > q.Slots.To {
				t.Errorf("slot %d in %+v", f.Handle, q.Slots)
			}
			got = append(got, fmt.Sprint(f.Handle, f.Key))
		}
		q.Slots.From = q.Slots.To
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) || ranges < 3 {
		t.Errorf("%d ranges have %d timers, there are %d", ranges, len(got), len(want))
	}
}

// TestScanOrdersEqualTimes: timers of one time come in order of their ids, however they were added.
func TestScanOrdersEqualTimes(t *testing.T) {
	d := newTableHarness(t)
	due := d.now + 1000
	for _, id := range strings.Fields("f b h a g c e d") {
		d.command(timer.Command{Kind: timer.Add, ID: id, Spec: &timer.Spec{DueMs: due}})
	}
	q := timer.Query{Topic: 1, States: 1 << timer.Scheduled, Limit: 3}
	got := ""
	for more := true; more; {
		var page []Found
		page, more = scanAll(d.table, &q)
		for _, f := range page {
			got += f.Timer.ID
			q.After = &f.Key
		}
	}
	if got != "abcdefgh" {
		t.Errorf("found %q", got)
	}
}

func scanAll(t *Table, q *timer.Query) ([]Found, bool) {
	var top TopK
	part := &Part{Table: t, Query: q}
	for from, done := timer.Handle(0), false; !done; {
		from, done = top.Scan(part, from, 7)
	}
	out, rest := top.Take(nil)
	return out, rest.More
}

func modelSelects(q *timer.Query, x *modelTimer) (int64, bool) {
	ms := x.DueMs
	if q.ByEnd {
		ms = x.EndedMs
	}
	topic := x.Topic == q.Topic
	if q.ManyTopics() {
		topic = q.AllTopics || slices.Contains(q.Topics, x.Topic)
	}
	ok := topic && (!q.WholeID || x.ID == q.IDPrefix) && q.States&(1<<x.State) != 0 && (!q.ByEnd || x.State.Over()) &&
		ms >= q.FromMs && (q.ToMs == 0 || ms < q.ToMs) && strings.HasPrefix(x.ID, q.IDPrefix) &&
		(q.Reason == timer.NoReason || x.Reason == q.Reason)
	for _, label := range q.Labels {
		ok = ok && slices.Contains(x.Labels, label)
	}
	return ms, ok
}

// TestPop: a popped timer comes back when its schedule changes, or by Arm.
func TestPop(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add})
	h, _ := d.table.Lookup(1, "a")
	pop := func(ms int64) int {
		d.table.Advance(ms, 1000)
		var dst [4]wheel.Handle
		return d.table.Pop(dst[:])
	}
	if ms, ok := d.table.NextDue(); !ok || ms > d.now+1000 || pop(d.now+999) != 0 || pop(d.now+1000) != 1 || pop(d.now+9000) != 0 {
		t.Errorf("next due %d", ms)
	}
	hash := d.table.Hash()
	d.table.Arm(h, d.now+20_000)
	if pop(d.now+20_000) != 1 || d.table.Hash() != hash {
		t.Error("a watched timer does not come, or it changed the state")
	}
	var b Batch
	b.Reset(d.now+20_000, 1, 1)
	b.Command(&timer.Command{Kind: timer.Modify, Topic: 1, ID: "a", Patch: &timer.Patch{Priority: true}})
	if _, err := d.table.Apply(b.Bytes(), nil, nil); err != nil || pop(d.now+20_000) != 1 {
		t.Errorf("a changed timer does not come: %v", err)
	}
}
