package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"carillon/timer"
)

// topicsOf are the topics that a restore uses.
type topicsOf map[timer.TopicID]*timer.Topic

func (t topicsOf) Topic(id timer.TopicID) (*timer.Topic, bool) {
	v, ok := t[id]
	return v, ok
}

func restoreTopics(ids ...timer.TopicID) topicsOf {
	topics := topicsOf{}
	for _, id := range ids {
		policy := timer.DefaultPolicy()
		topics[id] = &timer.Topic{ID: id, Name: fmt.Sprint("t", id), Policy: policy}
	}
	return topics
}

// drawnTable makes a table by the given number of random turns of the model.
func drawnTable(tb testing.TB, seed uint64, turns int) *Table {
	tb.Helper()
	g := newModelHarness(tb, rand.New(rand.NewPCG(seed, 5)).IntN)
	for range turns {
		g.turn()
	}
	return g.table
}

// TestRestoreTable: a restored table passes the audit, timers that are not overdue are unchanged,
// and all new numbers, fences and versions are above those that the old table has given.
func TestRestoreTable(t *testing.T) {
	for seed := range uint64(8) {
		before := drawnTable(t, seed, 120)
		saved := image(before)
		for _, mode := range []Overdue{HoldOverdue, FireOverdue, DropOverdue} {
			o := Restore{Owner: 77 << 24, NowMs: before.ClockMs() + 3_000, Overdue: mode, Topics: restoreTopics(before.TopicRows().IDs()...)}
			after, err := o.Table(7, bytes.NewReader(saved))
			if err != nil {
				t.Fatal(err)
			}
			if err := after.Audit(false); err != nil {
				t.Fatalf("seed %d, mode %d: %v", seed, mode, err)
			}
			again, err := Load(7, bytes.NewReader(image(after)))
			if err != nil || again.Hash() != after.Hash() || dump(again) != dump(after) {
				t.Fatalf("seed %d, mode %d: what was restored cannot be saved and loaded: %v", seed, mode, err)
			}
			if after.fence != before.fence+1<<32 || after.seq < before.seq+1<<32 {
				t.Errorf("fence %d of %d, number %d of %d", after.fence, before.fence, after.seq, before.seq)
			}
			sameBut(t, before, after, &o)
		}
	}
}

// sameBut compares timers. With DropOverdue, overdue timers have ended or moved on.
func sameBut(t *testing.T, before, after *Table, o *Restore) {
	t.Helper()
	late := int64(0)
	for h := timer.Handle(1); h <= before.slots.High; h++ {
		was := before.Copy(h)
		if was == nil {
			continue
		}
		overdue := !was.State.Over() && was.DueMs <= o.NowMs
		if overdue {
			late++
		}
		now := after.Copy(h)
		switch {
		case !overdue || o.Overdue != DropOverdue:
			if !reflect.DeepEqual(was, now) {
				t.Fatalf("timer %d was %+v, is %+v", h, was, now)
			}
			if v := after.versionAfter(now.Version); v <= now.Version+1<<19 {
				t.Fatalf("version %d follows %d", v, now.Version)
			}
			if was.State == timer.Leased && after.LeaseOwner(now.Fence) != o.Owner {
				t.Fatalf("lease %d is owned by %x", now.Fence, after.LeaseOwner(now.Fence))
			}
		}
	}
	switch {
	case o.Overdue != DropOverdue:
		if o.Late != late {
			t.Errorf("%d are overdue, %d counted", late, o.Late)
		}
	// a dropped timer's successor may be overdue too
	case o.Late < late || o.Cancelled+o.GivenUp != o.Late:
		t.Errorf("%d cancelled, %d given up, of %d, and at least %d", o.Cancelled, o.GivenUp, o.Late, late)
	}
	for h := timer.Handle(1); h <= after.slots.High && o.Overdue == DropOverdue; h++ {
		if now := after.Copy(h); now != nil && !now.State.Over() && now.DueMs <= o.NowMs {
			t.Fatalf("timer %d is overdue: %+v", h, now)
		}
	}
	held := int64(0)
	for _, n := range o.Held {
		held += n
	}
	if want := map[bool]int64{true: late}[o.Overdue == HoldOverdue]; held != want {
		t.Errorf("%d are held, want %d", held, want)
	}
}

// TestRestoredVersionsAreNew: a client that saw a lost version must not match a new version by it.
func TestRestoredVersionsAreNew(t *testing.T) {
	table := New(7, benchNow)
	apply := func(t *testing.T, table *Table, c timer.Command) timer.Result {
		t.Helper()
		var b Batch
		b.Reset(table.ClockMs()+1, 1, 1)
		b.Command(&c)
		out, err := table.Apply(b.Bytes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	spec := &timer.Spec{DueMs: benchNow + 1_000_000}
	apply(t, table, timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: spec, Tag: 5})
	was := table.Read(1, "a")
	o := Restore{Owner: 77 << 24, NowMs: benchNow, Topics: restoreTopics(1)}
	restored, err := o.Table(7, bytes.NewReader(image(table)))
	if err != nil {
		t.Fatal(err)
	}
	// the webhook-id of earlier calls stays the same
	if now := restored.Read(1, "a"); !reflect.DeepEqual(now, was) {
		t.Errorf("was %+v, is %+v", was, now)
	}
	for i := range 3 { // the lost versions 2, 3, 4
		lost := uint32(2 + i)
		if r := apply(t, restored, timer.Command{Kind: timer.Put, Topic: 1, ID: "a", Spec: spec, IfMatch: lost}); r.Code != timer.VersionMismatch {
			t.Errorf("a put of the lost version %d: %v", lost, r.Code)
		}
		apply(t, restored, timer.Command{Kind: timer.Put, Topic: 1, ID: "a", Spec: spec})
	}
	if r := apply(t, restored, timer.Command{Kind: timer.Add, Topic: 1, ID: "new", Spec: spec}); r.Version <= 1<<19 {
		t.Errorf("a new timer has version %d", r.Version)
	}
}

// TestRestoreDropsWhatWasDeleted: timers of topics deleted during the backup are dropped. If a
// topic's deletion had begun but the topic still exists, it accepts adds again.
func TestRestoreDropsWhatWasDeleted(t *testing.T) {
	table := New(7, benchNow)
	var b Batch
	b.Reset(benchNow, 1, 1)
	for topic := range timer.TopicID(2) {
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1 + topic, ID: "a", Spec: &timer.Spec{DueMs: benchNow + 5}})
	}
	b.Command(&timer.Command{Kind: timer.CloseTopic, Topic: 3})
	if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	o := Restore{Owner: 77 << 24, NowMs: benchNow, Topics: restoreTopics(2, 3)}
	restored, err := o.Table(7, bytes.NewReader(image(table)))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Read(1, "a") != nil || restored.Read(2, "a") == nil || restored.Closed(3) || o.Scheduled != 1 {
		t.Errorf("topics %v, closed %t, scheduled %d", restored.TopicRows().IDs(), restored.Closed(3), o.Scheduled)
	}
}

// TestRestoreDeliversAsTheTopicSays: if the topics have a change of delivery that the shard's part
// of the backup lacks, the shard takes it over. Timers leased in the other way are released.
func TestRestoreDeliversAsTheTopicSays(t *testing.T) {
	table := New(7, benchNow)
	var b Batch
	b.Reset(benchNow, 1, 1)
	b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: benchNow}})
	b.Command(&timer.Command{Kind: timer.Deliver, Topic: 1, Pull: true, Turn: 1})
	out, err := table.Apply(b.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := table.Due(out[0].Handle)
	b.Reset(benchNow+1, 1, 1)
	b.Pull(60_000, out[0].Handle, d.Seq, d.Rev)
	if _, err := table.Apply(b.Bytes(), nil, nil); err != nil || table.Read(1, "a").State != timer.Leased {
		t.Fatal(err, table.Read(1, "a").State)
	}
	topics := restoreTopics(1)
	topics[1].Turn = 2 // changed to push
	o := Restore{Owner: 77 << 24, NowMs: benchNow + 2, Topics: topics}
	restored, err := o.Table(7, bytes.NewReader(image(table)))
	if err != nil {
		t.Fatal(err)
	}
	want := []topicDelivery{{1, delivery{turn: 2}}}
	if got := restored.Read(1, "a"); got.State != timer.Scheduled || !slices.Equal(restored.deliveries.of, want) {
		t.Errorf("state %v, deliveries %+v", got.State, restored.deliveries.of)
	}
}
