package table

import (
	"bytes"
	"hash/fnv"
	"testing"

	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/wheel"
)

// TestMemoryOfShardsThatDoubled: timers take about as much memory in 16 shards that one was divided
// into as they took in that one, at once and after a restart.
func TestMemoryOfShardsThatDoubled(t *testing.T) {
	const timers, shards = 100_000, 16
	all := []*Table{fillTable(t, timers)}
	before := all[0].MemoryBytes()
	number := uint64(1 << 40)
	apply := func(table *Table, add func(b *Batch)) {
		t.Helper()
		var b Batch
		number++
		b.Reset(benchNow, 1, number)
		add(&b)
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for of := 2; of <= shards; of *= 2 {
		for i := range of / 2 {
			parent := all[i]
			half := make([]uint64, parent.slots.High>>6+1)
			parent.Newer(0, 0, 1<<30, func(h timer.Handle, _ timer.TopicID, id []byte) {
				hash := fnv.New32a()
				hash.Write(id)
				if int(hash.Sum32()>>7)%of >= of/2 {
					half[h>>6] |= 1 << (h & 63)
				}
			})
			apply(parent, func(b *Batch) { b.Divide(of, half) })
			child, err := LoadChild(parent.id, timer.ShardID(i+1+of/2), bytes.NewReader(saveChild(parent)))
			if err != nil {
				t.Fatal(err)
			}
			apply(parent, func(b *Batch) { b.Sweep(1 << 30) })
			all = append(all, child)
		}
	}
	check := func(when string, most float64) {
		t.Helper()
		var sum, slots, content, ids, rest int64
		live := 0
		for _, one := range all {
			if err := one.Audit(false); err != nil {
				t.Fatal(err)
			}
			sum += one.MemoryBytes()
			slots += one.slots.Memory()
			content += one.content.Memory()
			ids += one.ids.Memory()
			live += one.Len()
		}
		rest = sum - slots - content - ids
		t.Logf("%s: %.2f × of the memory before (slots %d, content %d, ids %d, others %d; before %d)", when, float64(sum)/float64(before), slots>>20, content>>20, ids>>20, rest>>20, before>>20)
		if live != timers {
			t.Errorf("%d timers", live)
		}
		if float64(sum) > most*float64(before) {
			t.Errorf("%s: %d bytes, before %d", when, sum, before)
		}
	}
	for _, one := range all {
		one.MoveContents(1 << 30)
	}
	check("doubled four times", 1.4)
	for i, one := range all {
		var b []byte
		s := one.BeginSnapshot()
		for done := false; !done; {
			b, done = s.Next(b, 1<<20)
		}
		again, err := Load(one.id, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = again
	}
	check("loaded again", 1.3)
	for _, one := range all { // what leaves the wheel by its row is the timer of that row
		due, popped := map[wheel.Handle]bool{}, make([]wheel.Handle, 100)
		for !one.Advance(benchNow+timers*86, 1<<20) {
		}
		for n := len(popped); n == len(popped); {
			n = one.Pop(popped)
			for _, h := range popped[:n] {
				if one.get(timer.Handle(h)) == nil || due[h] {
					t.Fatalf("handle %d of shard %d is popped", h, one.id)
				}
				due[h] = true
			}
		}
		if len(due) != one.Len() {
			t.Errorf("%d of %d timers of shard %d are popped", len(due), one.Len(), one.id)
		}
	}
}

// TestPackKeepsTheOrder: what is due when slots are packed leaves the wheel in the order of its
// times, and what is not due still waits.
func TestPackKeepsTheOrder(t *testing.T) {
	var s slab.Slots
	w := wheel.New(0)
	const most = 300
	for h := timer.Handle(1); h <= most; h++ {
		_, slot := s.Take()
		slot.SetState(timer.Scheduled)
		w.Add(wheel.Handle(h), wheel.Tick(1000-h)) // the highest is due first
	}
	for h := timer.Handle(1); h <= most; h++ {
		if h%3 > 0 {
			w.Remove(wheel.Handle(h))
			s.Give(h)
		}
	}
	w.Advance(850, 1<<20)
	w = pack(&s, w)
	if s.Rows() != most/3 || w.Len() != most/3 {
		t.Fatalf("%d rows, %d in the wheel", s.Rows(), w.Len())
	}
	var popped [most]wheel.Handle
	n := w.Pop(popped[:])
	for i, row := range popped[:n] {
		if h := s.Handle(uint32(row)); h != timer.Handle(most-3*i) {
			t.Fatalf("handle %d comes as number %d", h, i)
		}
	}
	if n != most/3-49 {
		t.Errorf("%d are due", n)
	}
}
