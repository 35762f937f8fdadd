package history

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// Query selects ends of one topic, in the order of their keys.
type Query struct {
	Topic        uint32
	Shards       func(shard uint32) bool // nil: of all
	ID           []byte                  // of this timer only; nil: of any
	States       uint8                   // bit 1<<State
	FromMs, ToMs int64                   // [FromMs, ToMs); ToMs 0: open
	After        *Key
	Newest       bool // the last one alone; goes with ID
	Limit        int
	Bytes        int // a page ends when it is this large, with at least one event; 0: no bound
}

func (q *Query) matches(x *entry) bool {
	return q.States>>x.state()&1 != 0 && (q.Shards == nil || q.Shards(x.shard()))
}

// begin is the place after which every answer comes.
func (q *Query) begin() Key {
	from := Key{EndMs: q.FromMs - 1, Index: math.MaxUint64, Shard: math.MaxUint32, Item: math.MaxUint32}
	if q.After != nil && q.After.Compare(from) > 0 {
		return *q.After
	}
	return from
}

func (q *Query) endMs() int64 {
	return cmp.Or(q.ToMs, math.MaxInt64)
}

// List gives a page of ends, and whether there are more.
func (s *Store) List(q *Query) (page []Event, more bool, err error) {
	s.Flush()
	if q.ID != nil {
		return s.ofID(q)
	}
	begin, end := q.begin(), q.endMs()
	views, release := s.views(func(f *file) bool {
		return f.index.maxMs >= begin.EndMs && f.index.minMs < end && f.index.filter.has(topicKey(q.Topic))
	})
	defer release()
	// A file is not looked into before the answer has come to its time: a page is of a few files.
	slices.SortFunc(views, func(a, b view) int { return cmp.Compare(a.minMs, b.minMs) })
	cursors := make([]cursor, 0, len(views))
	p := answer{store: s, query: q}
	for {
		var first *cursor
		var least *entry
		for i := 0; ; i++ {
			if i == len(cursors) {
				if i == len(views) || least != nil && views[i].minMs > least.endMs() {
					break
				}
				cursors = append(cursors, cursor{view: &views[i], topic: q.Topic, after: begin, toMs: end, match: q.matches})
			}
			x, ok, err := cursors[i].peek()
			if err != nil {
				return nil, false, err
			}
			if ok && (least == nil || x.compare(least) < 0) {
				first, least = &cursors[i], x
			}
		}
		if first == nil {
			return p.events, false, nil
		}
		if p.full() {
			return p.events, true, nil
		}
		if err := p.take(first.view, least); err != nil {
			return nil, false, err
		}
		first.after = first.batch[0].key()
		first.batch = first.batch[1:]
	}
}

// answer is an answer that is being filled.
type answer struct {
	store  *Store
	query  *Query
	events []Event
	bytes  int
	last   Key
	begun  bool
}

func (a *answer) full() bool {
	return len(a.events) >= a.query.Limit || a.query.Bytes > 0 && a.bytes >= a.query.Bytes && len(a.events) > 0
}

// take reads an entry's record. One that cannot be read, or is there twice, is passed over.
func (a *answer) take(v *view, x *entry) error {
	if a.begun && x.key() == a.last {
		return nil
	}
	a.begun, a.last = true, x.key()
	var e Event
	err := v.record(x.offset, &e)
	switch {
	case errors.Is(err, errDamaged) || err == nil && !x.is(&e):
		a.store.damage(v.file)
		return nil
	case err != nil:
		return err
	}
	if a.query.ID == nil || string(e.ID) == string(a.query.ID) {
		a.events = append(a.events, e)
		a.bytes += len(e.ID) + len(e.Body)
	}
	return nil
}

// ofID gives the ends of one timer's id. They are few: all are looked up, and then read in order.
func (s *Store) ofID(q *Query) ([]Event, bool, error) {
	type hit struct {
		entry
		view *view
	}
	var hits []hit
	hash, begin, end := idHash(q.Topic, q.ID), q.begin(), q.endMs()
	views, release := s.views(func(f *file) bool {
		return f.index.maxMs >= begin.EndMs && f.index.minMs < end && f.index.filter.has(idKey(hash))
	})
	defer release()
	for i := range views {
		list, err := views[i].named(q.Topic, hash)
		if err != nil {
			return nil, false, err
		}
		for _, x := range list {
			if x.key().Compare(begin) > 0 && x.endMs() < end && q.matches(&x) {
				hits = append(hits, hit{x, &views[i]})
			}
		}
	}
	slices.SortFunc(hits, func(a, b hit) int { return a.compare(&b.entry) })
	if q.Newest {
		slices.Reverse(hits)
	}
	p := answer{store: s, query: q}
	for i := range hits {
		if p.full() {
			return p.events, true, nil
		}
		if err := p.take(hits[i].view, &hits[i].entry); err != nil {
			return nil, false, err
		}
	}
	return p.events, false, nil
}

// Attempts gives the attempts of a timer that were recorded before a place in its shard's log,
// oldest first.
func (s *Store) Attempts(shard uint32, seq, index uint64, item uint32) ([]Event, error) {
	s.Flush()
	key := attemptKey(shard, seq)
	views, release := s.views(func(f *file) bool { return f.index.filter.has(key) })
	defer release()
	before := watermark{index, item}
	var list []Event
	for i := range views {
		offsets, err := views[i].tries(key)
		if err != nil {
			return nil, err
		}
		for _, offset := range offsets {
			var e Event
			switch err := views[i].record(offset, &e); {
			case errors.Is(err, errDamaged) || err == nil && attemptKey(e.Shard, e.Seq) != key:
				s.damage(views[i].file)
			case err != nil:
				return nil, err
			case before.covers(e.Index, e.Item):
				list = append(list, e)
			}
		}
	}
	order := func(a, b Event) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Item, b.Item)) }
	slices.SortFunc(list, order)
	return slices.CompactFunc(list, func(a, b Event) bool { return order(a, b) == 0 }), nil
}
