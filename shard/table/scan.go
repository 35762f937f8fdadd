package table

import (
	"bytes"
	"slices"

	"carillon/timer"
	"carillon/timer/encoding"
)

// TopK keeps the first Limit timers of a Scan, in the query's order. It stores only their keys;
// Take copies the timers at the end. One TopK serves one query of one table.
type TopK struct {
	found []candidate // a heap with the last in order at the root
	max   int
	full  bool // some selected timers did not fit
	Hides Hides
}

// Hides reports whether a leased timer counts as scheduled. A nil Hides hides none.
type Hides func(h timer.Handle) bool

type candidate struct {
	key    timer.SortKey
	handle timer.Handle
}

// Scan visits at most budget slots after from (0 at first), adds selected timers to top, and
// returns the slot to continue after. Entries may be applied between two calls. A timer that
// changes meanwhile may or may not be seen.
func (t *Table) Scan(q *timer.Query, from timer.Handle, budget int, top *TopK) (next timer.Handle, done bool) {
	if top.max == 0 {
		top.max = min(max(q.Limit, 1), timer.MaxScan)
		top.found = make([]candidate, 0, min(top.max, 16))
	}
	row, ok := t.topics.rowOf[q.Topic]
	if !ok {
		return t.slab.high, true
	}
	for ; budget > 0 && from < t.slab.high; budget-- {
		from++
		s := t.slab.at(from)
		if s.topic != row || s.state() == 0 || !wants(q, top.Hides, from, s) {
			continue
		}
		if ms, ok := t.selects(q, s); ok && top.mayTake(ms) {
			top.offer(q, from, s.seq(), ms, t.view(s.ref).id)
		}
	}
	return from, from >= t.slab.high
}

// wants reports whether a timer is in one of the query's states.
func wants(q *timer.Query, hides Hides, h timer.Handle, s *slot) bool {
	state := s.state()
	if state == timer.Leased && hides != nil && hides(h) {
		state = timer.Scheduled
	}
	return q.States&(1<<state) != 0
}

// selects reports whether the query selects a timer of the right topic and state. It also returns
// the timer's time in the query's order.
func (t *Table) selects(q *timer.Query, s *slot) (sortMs int64, ok bool) {
	if q.ByEnd {
		if !s.state().Over() {
			return 0, false
		}
		sortMs = t.runs.at(s.run).endedMs()
	} else {
		sortMs = t.dueMs(s)
	}
	if sortMs < q.FromMs || q.ToMs != 0 && sortMs >= q.ToMs || q.After != nil && sortMs < q.After.SortMs {
		return 0, false
	}
	if q.Reason != timer.NoReason && s.reason() != q.Reason {
		return 0, false
	}
	if q.IDPrefix == "" && len(q.Labels) == 0 {
		return sortMs, true
	}
	v := t.view(s.ref)
	if !bytes.HasPrefix(v.id, []byte(q.IDPrefix)) {
		return 0, false
	}
	return sortMs, hasLabels(v.rest, q.Labels)
}

// hasLabels reports whether a spec has all of the labels.
func hasLabels(rest []byte, want []string) bool {
	if len(want) == 0 {
		return true
	}
	r := encoding.Reader{Rest: rest}
	for f := (encoding.RestField{}); len(r.Rest) > 0 && r.Rest[0] <= encoding.FieldLabels && f.Next(&r); {
		if f.Field != encoding.FieldLabels {
			continue
		}
		have := encoding.DecodeLabels(f.Bytes)
		for _, label := range want {
			if !slices.Contains(have, label) {
				return false
			}
		}
		return true
	}
	return false
}

// mayTake reports whether a timer of this time may be among the first, before its id is looked up.
func (p *TopK) mayTake(sortMs int64) bool {
	if len(p.found) == p.max && sortMs > p.found[0].key.SortMs {
		p.full = true
		return false
	}
	return true
}

// offer keeps a candidate if it is among the first.
func (p *TopK) offer(q *timer.Query, h timer.Handle, seq uint64, sortMs int64, id []byte) {
	key := timer.SortKey{SortMs: sortMs, ID: string(id), Seq: seq}
	if q.After != nil && key.Compare(*q.After) <= 0 {
		return
	}
	c := candidate{key, h}
	if len(p.found) < p.max {
		p.found = append(p.found, c)
		p.up(len(p.found) - 1)
		return
	}
	p.full = true
	if key.Compare(p.found[0].key) < 0 {
		p.found[0] = c
		p.down(0)
	}
}

func (p *TopK) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if p.found[i].key.Compare(p.found[parent].key) <= 0 {
			return
		}
		p.found[i], p.found[parent] = p.found[parent], p.found[i]
		i = parent
	}
}

func (p *TopK) down(i int) {
	for {
		last := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(p.found); c++ {
			if p.found[c].key.Compare(p.found[last].key) > 0 {
				last = c
			}
		}
		if last == i {
			return
		}
		p.found[i], p.found[last] = p.found[last], p.found[i]
		i = last
	}
}

// Len returns the number of timers found.
func (p *TopK) Len() int { return len(p.found) }

// Last returns the key of the last timer kept, in the query's order.
func (p *TopK) Last() timer.SortKey {
	if len(p.found) == 0 {
		return timer.SortKey{}
	}
	return p.found[0].key
}

// More reports whether the query selects timers behind those kept.
func (p *TopK) More() bool { return p.full }

// Found is a selected timer and its key in the order.
type Found struct {
	Key    timer.SortKey
	Handle timer.Handle
	Timer  *timer.Timer
}

// Take copies the timers found, in order, and empties the TopK. It leaves out timers that are gone
// or that the query no longer selects.
func (p *TopK) Take(t *Table, q *timer.Query) []Found {
	slices.SortFunc(p.found, func(a, b candidate) int { return a.key.Compare(b.key) })
	out := make([]Found, 0, len(p.found))
	for _, c := range p.found {
		s := t.live(c.handle, c.key.Seq)
		if s == nil || !wants(q, p.Hides, c.handle, s) {
			continue
		}
		if ms, ok := t.selects(q, s); !ok || ms != c.key.SortMs {
			continue
		}
		out = append(out, Found{c.key, c.handle, t.found(c.handle, q)})
	}
	p.found, p.full, p.max = nil, false, 0
	return out
}

// found copies a selected timer, or returns a short form of it if there is no room.
func (t *Table) found(h timer.Handle, q *timer.Query) *timer.Timer {
	if q.Room == nil || q.Room.Take(t.CopySize(h, !q.WithoutPayload)) {
		return t.CopyWith(h, !q.WithoutPayload)
	}
	s := t.get(h)
	m := &timer.Timer{Topic: t.topics.rows[s.topic].id, ID: string(t.view(s.ref).id), Seq: s.seq(), State: s.state(), Spec: timer.Spec{DueMs: t.dueMs(s)}, Short: true}
	if m.State.Over() && s.run != 0 {
		m.EndedMs = t.runs.at(s.run).endedMs()
	}
	return m
}

// RoomFor returns the bound of the answer to a query: its Bytes and its Room.
func RoomFor(q *timer.Query) timer.Room {
	if q.Bytes == 0 {
		return q.Room
	}
	own := timer.NewAllowance(q.Bytes)
	if q.Room == nil {
		return own
	}
	return both{own, q.Room}
}

// both is the room within two bounds.
type both struct{ a, b timer.Room }

func (r both) Take(bytes int) bool { return r.a.Take(bytes) && r.b.Take(bytes) }
