package table

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
)

func foreignIn(t *Table) (n int) {
	for h := timer.Handle(1); h <= t.slots.High; h++ {
		if t.foreign(h) {
			n++
		}
	}
	return n
}

// halfOf reports whether an id of a topic goes to the child, when there are so many shards.
func halfOf(of int, topic timer.TopicID, id string) bool {
	h := fnv.New32a()
	fmt.Fprint(h, topic, id)
	return int(h.Sum32()>>3)&(of/2) != 0
}

// entry applies an entry of one item.
func (mh *modelHarness) entry(add func(b *Batch) int) timer.Result {
	mh.t.Helper()
	var b Batch
	b.Reset(mh.now, 1, 2)
	add(&b)
	data := bytes.Clone(b.Bytes())
	r, err := mh.table.Apply(data, nil, nil)
	if err != nil {
		mh.t.Fatal(err)
	}
	mh.model.begin(mh.now, len(data))
	mh.table.TakeHistory()
	if mh.since != nil {
		mh.since = append(mh.since, data)
	}
	return r[0]
}

// saveChild saves the foreign timers of a table.
func saveChild(t *Table) (b []byte) {
	s := t.BeginChild()
	for done := false; !done; {
		b, done = s.Next(b, 1000)
	}
	return b
}

// divide divides the table in the log, and the model, and returns the model of the child.
func (mh *modelHarness) divide(of int) *model {
	mh.t.Helper()
	half := make([]uint64, mh.table.slots.High>>6+1)
	mh.table.Newer(0, 0, 1<<30, func(h timer.Handle, topic timer.TopicID, id []byte) {
		if halfOf(of, topic, string(id)) {
			half[h>>6] |= 1 << (h & 63)
		}
	})
	half[0] |= 1 // no slot
	if r := mh.entry(func(b *Batch) int { return b.Divide(of, half) }); r.Code != timer.OK {
		mh.t.Fatalf("code %d", r.Code)
	}
	m := mh.model
	child := newModel()
	child.clock, child.seq, child.fence = m.clock, m.seq, m.fence
	for topic, at := range m.closed {
		child.closed[topic] = at
	}
	for topic, d := range m.deliveries {
		child.deliveries[topic] = d
	}
	split := func(list []*modelTimer) (own, other []*modelTimer) {
		for _, x := range list {
			if halfOf(of, x.Topic, x.ID) {
				other = append(other, x)
			} else {
				own = append(own, x)
			}
		}
		return own, other
	}
	m.all, child.all = split(m.all)
	m.finished, child.finished = split(m.finished)
	for key, list := range m.byID {
		if len(list) > 0 && halfOf(of, list[0].Topic, list[0].ID) {
			child.byID[key] = list
			delete(m.byID, key)
		}
	}
	return child
}

// TestDividedTableGoesOnAsTwo: a table that was divided is two, each with its half of the timers,
// and both go on like any. The child is the same from whatever snapshot of the divided table, of
// any replica, it is loaded. Foreign timers are dropped in the end, and no others.
func TestDividedTableGoesOnAsTwo(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			g := newModelHarness(t, rand.New(rand.NewPCG(seed, 8)).IntN)
			set := func(g *modelHarness) {
				g.deadByVersion, g.notLate, g.outcomes = seed%2 == 0, seed%4 == 0, seed%3 > 0
				g.delivers, g.answers, g.pauses, g.collects = seed%2 == 1, seed%3 == 0, seed%3 != 1, seed%4 > 0
			}
			set(g)
			g.drive(120)
			own := g.model
			c := &modelHarness{t: t, pick: g.pick, model: g.divide(16), now: g.now, id: 15, last: own.seq}
			set(c)
			c.belongs = func(topic timer.TopicID, id string) bool { return halfOf(16, topic, id) }
			g.belongs = func(topic timer.TopicID, id string) bool { return !halfOf(16, topic, id) }
			g.check()
			load := func() *Table {
				child, err := LoadChild(7, 15, bytes.NewReader(saveChild(g.table)))
				if err != nil {
					t.Fatal(err)
				}
				if err := child.Audit(false); err != nil {
					t.Fatal(err)
				}
				return child
			}
			first := load()
			for range 3 {
				g.drive(20)
				g.restart()
				if again := load(); again.Hash() != first.Hash() || dump(again) != dump(first) {
					t.Fatalf("the child of later is\n%s\nwant\n%s", dump(again), dump(first))
				}
			}
			c.table = first
			c.check()
			c.restart()
			for done := false; !done; {
				before := foreignIn(g.table)
				if r := g.entry(func(b *Batch) int { return b.Sweep(5) }); r.Code != timer.OK || foreignIn(g.table) < before-5 {
					t.Fatalf("code %d, %d foreign of %d", r.Code, foreignIn(g.table), before)
				}
				g.turn()
				c.turn()
				g.check()
				if _, err := LoadChild(7, 15, bytes.NewReader(saveChild(g.table))); err == nil {
					t.Fatal("a table that is being swept has a child")
				}
				if g.pick(3) == 0 {
					g.restart()
				}
				done = !g.table.Leaving()
			}
			g.drive(60)
			c.drive(60)
			if g.table.DividedOf() != 16 || c.table.DividedOf() != 16 {
				t.Error("they do not know that they are divided")
			}
			// The second doubling: a grandchild has numbers of both.
			last := c.model.seq
			grandchild := c.divide(32)
			table, err := LoadChild(15, 31, bytes.NewReader(saveChild(c.table)))
			if err != nil {
				t.Fatal(err)
			}
			for seq, want := range map[uint64]timer.ShardID{1: 7, c.last: 7, c.last + 1: 15, last: 15, last + 1: 0} {
				if got := table.originOf(seq); got != want {
					t.Errorf("number %d is of shard %d, want %d", seq, got, want)
				}
			}
			for _, x := range grandchild.all {
				if m := table.Copy(x.handle); m == nil || m.ID != x.ID || m.Seq != x.Seq {
					t.Errorf("handle %d is %+v, want %q", x.handle, m, x.ID)
				}
			}
		})
	}
}

// TestDivisionGolden: the snapshot of a table in the middle of its division, and that of its child.
func TestDivisionGolden(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(11, 5)).IntN)
	g.drive(150)
	g.divide(16)
	g.turn()
	testkit.Golden(t, "table-snapshot-divided", image(g.table))
	child, err := LoadChild(7, 15, bytes.NewReader(saveChild(g.table)))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "table-snapshot-child", image(child))
}

// TestDivideTwice: an entry that divides again, or sweeps what is not there, changes nothing.
func TestDivideTwice(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(3, 5)).IntN)
	g.drive(80)
	if r := g.entry(func(b *Batch) int { return b.Sweep(5) }); r.Code != timer.Skipped {
		t.Errorf("a sweep of nothing: code %d", r.Code)
	}
	g.divide(16)
	hash := g.table.Hash()
	for _, of := range []int{8, 16, 32} {
		if r := g.entry(func(b *Batch) int { return b.Divide(of, make([]uint64, 100)) }); r.Code != timer.Skipped || g.table.Hash() != hash {
			t.Errorf("divided again for %d: code %d", of, r.Code)
		}
	}
}

// BenchmarkDivide measures the processor time that the division of 250,000 timers takes of a table:
// of the entry, of what saves the foreign half, of the child that is loaded from it, and of the
// child's first snapshot.
func BenchmarkDivide(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		g := &modelHarness{t: b, table: fillTable(b, 250_000), model: newModel(), now: benchNow}
		b.StartTimer()
		last := testkit.CPUTime(b)
		took := func(what string) {
			now := testkit.CPUTime(b)
			b.ReportMetric(float64((now-last).Microseconds())/1000, "ms-to-"+what)
			last = now
		}
		g.divide(2)
		took("divide")
		saved := saveChild(g.table)
		took("save")
		child, err := LoadChild(1, 2, bytes.NewReader(saved))
		if err != nil {
			b.Fatal(err)
		}
		took("load")
		image(child)
		took("write")
		for g.table.Leaving() {
			g.entry(func(b *Batch) int { return b.Sweep(1024) })
		}
		took("sweep")
	}
}
