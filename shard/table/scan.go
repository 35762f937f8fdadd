package table

import (
	"slices"

	"carillon/shard/table/slab"
	"carillon/timer"
)

// TopK keeps the first Limit timers of one query in some tables, in its order: O(Limit) keys,
// however many the tables are. Take copies the timers at the end.
type TopK struct {
	found []candidate // a heap with the last in order at the root
	max   int
	full  bool // some selected timers did not fit
	ends  bool // some table has slots behind the query's range
}

// Part is a table of a TopK.
type Part struct {
	Table  *Table
	Query  *timer.Query // the same in all parts, but for Only
	Hides  Hides
	Number int // for the caller
}

type candidate struct {
	key    timer.SortKey
	handle timer.Handle
	part   *Part
}

// Scan visits at most budget slots of a part after from (0 at first), keeps selected timers, and
// returns the slot to continue after. Entries may be applied between two calls. A timer that
// changes meanwhile may or may not be seen.
func (k *TopK) Scan(part *Part, from timer.Handle, budget int) (next timer.Handle, done bool) {
	t, q := part.Table, part.Query
	if k.max == 0 {
		k.max = min(max(q.Limit, 1), timer.MaxScan)
		k.found = make([]candidate, 0, min(k.max, 16))
	}
	many := q.ManyTopics()
	row, ok := t.topics.rowOf[q.Topic]
	if !ok && !many {
		return t.slots.High, true
	}
	selected := selection{&t.timers, q}
	high := t.slots.High
	if to := q.Slots.To; to != 0 && to < high {
		high, k.ends = to, true
	}
	for from = max(from, q.Slots.From); budget > 0 && from < high; budget-- {
		var s *slab.Slot
		from, s = t.slots.Visit(from, high)
		if !many && s.Topic != row || s.State() == 0 || t.foreign(from) || !wants(q, part.Hides, from, s) || many && !listed(q, t.topics.rows[s.Topic].id) {
			continue
		}
		ms, ok := selected.timeOf(s)
		if !ok || k.full && k.behind(ms) || !selected.matches(s) { // the ids are read last: they are elsewhere
			continue
		}
		if k.mayTake(ms) {
			key := timer.SortKey{SortMs: ms, Seq: s.Seq()}
			if many {
				key.Topic = t.topics.rows[s.Topic].id
			}
			k.offer(part, from, key, t.content.View(s.Ref).ID)
		}
	}
	return from, from >= high
}

// mayTake reports whether a timer of this time may be among the first, before its id is looked up.
func (k *TopK) mayTake(sortMs int64) bool {
	if k.behind(sortMs) {
		k.full = true
		return false
	}
	return true
}

// behind reports that there is no place for a timer of this time.
func (k *TopK) behind(sortMs int64) bool {
	return len(k.found) == k.max && sortMs > k.found[0].key.SortMs
}

// offer keeps a candidate if it is among the first.
func (k *TopK) offer(part *Part, h timer.Handle, key timer.SortKey, id []byte) {
	key.ID = string(id)
	if after := part.Query.After; after != nil && key.Compare(*after) <= 0 {
		return
	}
	c := candidate{key, h, part}
	if len(k.found) < k.max {
		k.found = append(k.found, c)
		k.up(len(k.found) - 1)
		return
	}
	k.full = true
	if key.Compare(k.found[0].key) < 0 {
		k.found[0] = c
		k.down(0)
	}
}

func (k *TopK) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if k.found[i].key.Compare(k.found[parent].key) <= 0 {
			return
		}
		k.found[i], k.found[parent] = k.found[parent], k.found[i]
		i = parent
	}
}

func (k *TopK) down(i int) {
	for {
		last := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(k.found); c++ {
			if k.found[c].key.Compare(k.found[last].key) > 0 {
				last = c
			}
		}
		if last == i {
			return
		}
		k.found[i], k.found[last] = k.found[last], k.found[i]
		i = last
	}
}

// Found is a selected timer and its key in the order.
type Found struct {
	Key    timer.SortKey
	Handle timer.Handle
	Part   *Part
	Timer  *timer.Timer
}

// Rest is what a query selects behind the timers that were taken.
type Rest struct {
	More   bool // there may be some: at Next, or behind it
	NoRoom bool // that at Next did not fit
	Next   timer.SortKey
}

// Take copies the timers found, in order, as long as there is room, and empties the TopK. It leaves
// out timers that are gone or that the query no longer selects.
func (k *TopK) Take(room timer.Room) (out []Found, rest Rest) {
	slices.SortFunc(k.found, func(a, b candidate) int { return a.key.Compare(b.key) })
	out = make([]Found, 0, len(k.found))
	rest.More = k.full
	for _, c := range k.found {
		t, q := c.part.Table, c.part.Query
		rest.Next = c.key
		s := t.live(c.handle, c.key.Seq)
		if s == nil || !wants(q, c.part.Hides, c.handle, s) {
			continue
		}
		if ms, ok := (selection{&t.timers, q}).has(s); !ok || ms != c.key.SortMs {
			continue
		}
		if room != nil && !room.Take(t.CopySize(c.handle, !q.WithoutPayload)) {
			rest.More, rest.NoRoom = true, true
			break
		}
		out = append(out, Found{c.key, c.handle, c.part, t.CopyWith(c.handle, !q.WithoutPayload)})
	}
	if k.ends && !rest.More {
		rest.More, rest.Next = true, timer.RangeEnd
	}
	k.found, k.full, k.ends, k.max = nil, false, false, 0
	return out, rest
}

// ScanLeased calls fn for leased timers, and if attempted also for scheduled timers with attempts.
// It visits at most budget slots after from (0 at first) and returns the slot to continue after. fn
// must not change the table.
func (t *timers) ScanLeased(from timer.Handle, budget int, attempted bool, fn func(h timer.Handle)) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slots.High; budget-- {
		var s *slab.Slot
		from, s = t.slots.Visit(from, t.slots.High)
		if state := s.State(); (state == timer.Leased || attempted && state == timer.Scheduled && s.Attempts() > 0) && !t.foreign(from) {
			fn(from)
		}
	}
	return from, from >= t.slots.High
}

// walkSlots is the most slots that Walk visits in one step of its group, which takes about 0.2 ms.
const walkSlots = 4096

// Walk appends references of selected timers to marks and moves the cursor, which it starts if it
// is new. It visits at most budget and at most walkSlots slots, and stops at limit marks.
func (t *timers) Walk(q *timer.Query, hides Hides, at *timer.ScanCursor, budget, limit int, marks []timer.Ref) []timer.Ref {
	if !at.Begun {
		*at = timer.ScanCursor{High: t.slots.High, Seq: t.seq, Begun: true}
	}
	budget = min(budget, walkSlots)
	row, ok := t.topics.rowOf[q.Topic]
	high := min(at.High, t.slots.High)
	if !ok || at.From >= high {
		at.From = at.High
		return marks
	}
	for ; budget > 0 && at.From < high && len(marks) < limit; budget-- {
		var s *slab.Slot
		at.From, s = t.slots.Visit(at.From, high)
		if s.Topic != row || s.State() == 0 || t.foreign(at.From) || s.Seq() > at.Seq || !wants(q, hides, at.From, s) {
			continue
		}
		if _, ok := (selection{t, q}).has(s); ok {
			marks = append(marks, t.refOf(hides, at.From, s))
		}
	}
	if at.From >= high {
		at.From = at.High
	}
	return marks
}

func (t *timers) refOf(hides Hides, h timer.Handle, s *slab.Slot) timer.Ref {
	v := t.content.View(s.Ref)
	m := timer.Ref{ID: string(v.ID), Seq: s.Seq(), Origin: t.originOf(s.Seq()), Tag: v.Tag, Version: v.Version, DueMs: t.dueMs(s)}
	switch s.State() {
	case timer.Scheduled:
		m.NextMs, m.Paused = s.When(), s.Paused()
	case timer.Leased:
		m.Leased = hides == nil || !hides(h)
		m.NextMs = t.attempts.At(s.Attempt).AttemptDueMs()
	case timer.Dead:
		m.NoURL = !t.content.HasURL(s.Ref)
	}
	return m
}

// Forecast counts scheduled timers by the time of their next attempt. A repeating timer counts
// once, at its next occurrence.
type Forecast struct {
	FromMs, BucketMs int64
	Buckets          []int64 // from FromMs on
	Overdue, Later   int64   // before and after the buckets
}

// Add adds another forecast with the same buckets.
func (f *Forecast) Add(o *Forecast) {
	for i := range f.Buckets {
		f.Buckets[i] += o.Buckets[i]
	}
	f.Overdue += o.Overdue
	f.Later += o.Later
}

// Forecast adds to f at most budget slots after from and returns the slot to continue after.
// only is asked for which timers; nil: all.
func (t *timers) Forecast(topics map[timer.TopicID]bool, only func(timer.TopicID, []byte) bool, hides Hides, from timer.Handle, budget int, f *Forecast) (next timer.Handle, done bool) {
	for ; budget > 0 && from < t.slots.High; budget-- {
		var s *slab.Slot
		from, s = t.slots.Visit(from, t.slots.High)
		if s.State() != timer.Scheduled && (s.State() != timer.Leased || hides == nil || !hides(from)) {
			continue
		}
		if s.Paused() || t.foreign(from) { // nobody knows when
			continue
		}
		id := t.topics.rows[s.Topic].id
		if id == CanaryTopic || topics != nil && !topics[id] || only != nil && !only(id, t.content.View(s.Ref).ID) {
			continue
		}
		ms := s.When()
		if s.State() == timer.Leased { // leased before it is due
			ms = t.attempts.At(s.Attempt).AttemptDueMs()
		}
		switch bucket := (ms - f.FromMs) / f.BucketMs; {
		case ms < f.FromMs:
			f.Overdue++
		case bucket >= int64(len(f.Buckets)):
			f.Later++
		default:
			f.Buckets[bucket]++
		}
	}
	return from, from >= t.slots.High
}
