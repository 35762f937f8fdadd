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
	Newest       bool // the newest comes first; goes with ID
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

// order is that of the answer: 1 if the oldest end comes first, -1 if the newest does.
func (q *Query) order() int64 {
	if q.Newest {
		return -1
	}
	return 1
}

// List gives a page of ends, and whether there are more.
func (s *Store) List(q *Query) (page []Event, more bool, err error) {
	s.Flush()
	walk := cursor{query: q, after: q.begin(), before: Key{EndMs: cmp.Or(q.ToMs, math.MaxInt64)}}
	key := topicKey(q.Topic)
	var find func(*index) chain
	if q.ID != nil {
		walk.hash = idHash(q.Topic, q.ID)
		key = idKey(walk.hash)
		find = func(x *index) chain { return x.named.of(key) }
	}
	views, release := s.views(find, func(f *file) bool {
		return f.index.maxMs >= walk.after.EndMs && f.index.minMs < walk.before.EndMs && f.index.filter.has(key)
	})
	defer release()
	// A file is not looked into before the answer has come to its time: a page is of a few files.
	slices.SortFunc(views, func(a, b view) int { return cmp.Compare(a.begins(q), b.begins(q)) })
	cursors := make([]cursor, 0, len(views))
	p := answer{store: s, query: q}
	for {
		var first *cursor
		var next *entry
		for i := 0; ; i++ {
			if i == len(cursors) {
				if i == len(views) || next != nil && views[i].begins(q) > q.order()*next.endMs() {
					break
				}
				walk.view = &views[i]
				cursors = append(cursors, walk)
			}
			x, ok, err := cursors[i].peek()
			if err != nil {
				return nil, false, err
			}
			if ok && (next == nil || q.compare(x, next) < 0) {
				first, next = &cursors[i], x
			}
		}
		if first == nil {
			return p.events, false, nil
		}
		if p.full() {
			return p.events, true, nil
		}
		if err := p.take(first.view, next); err != nil {
			return nil, false, err
		}
		first.pass()
	}
}

// compare is the order of the answer.
func (q *Query) compare(a, b *entry) int {
	if q.Newest {
		return b.compare(a)
	}
	return a.compare(b)
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

// Attempts gives the attempts of a timer that were recorded before a place in its shard's log,
// oldest first.
func (s *Store) Attempts(shard uint32, seq, place uint64, item uint32) ([]Event, error) {
	s.Flush()
	key := attemptKey(shard, seq)
	tried := func(x *index) chain { return x.tried.of(key) }
	views, release := s.views(tried, func(f *file) bool { return f.index.filter.has(key) })
	defer release()
	before := watermark{place, item}
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
