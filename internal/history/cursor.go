package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// view is a file as a query sees it: sealed, or with an index in memory that may grow behind the
// part that is seen.
type view struct {
	*file
	store    *Store
	ends     []entry // nil, both, of a sealed file
	attempts []attemptRef
	find     func(*index) chain // what the query wants of one that is not sealed; nil: all ends
	found    chain
	sealed   bool
	data     int64 // where its records end
	// no end in it is earlier, or later
	minMs, maxMs int64
}

// begins is before which time, in the order of a query's answer, it has no end.
func (v *view) begins(q *Query) int64 {
	if q.Newest {
		return -v.maxMs
	}
	return v.minMs
}

// inMemory gives the view an index built from the records, because its own is damaged.
func (v *view) inMemory() error {
	x, places, err := v.reindex()
	if err != nil {
		return err
	}
	if places > 0 {
		v.store.damaged.Add(uint64(places))
		v.store.cfg.Logger.Error("the index of a file of the history is damaged; it was rebuilt from the records", "file", v.name)
	}
	v.show(x)
	return nil
}

// show has the view see an index in memory.
func (v *view) show(x *index) {
	v.sealed, v.ends, v.attempts = false, x.ends, x.attempts
	if v.find != nil {
		v.found = v.find(x)
	}
}

// cursor walks the ends in one file that a query selects, in the order of the answer. Cost: O(log n)
// to begin, and then of those that are walked; O(n) in a file that is not sealed, or with an id
// O(ends of that id).
type cursor struct {
	view  *view
	query *Query
	hash  uint32 // of the query's id, if it has one
	// ends at or before after are passed over, and those from before on
	after, before Key

	batch []entry
	begun bool
	next  int // sealed: number of the next in the section
	done  bool
	page  endsPage // sealed, with an id
}

const cursorBatch = 512

// peek is the next entry; false at the end.
func (c *cursor) peek() (*entry, bool, error) {
	for len(c.batch) == 0 && !c.done {
		err := c.fill()
		if errors.Is(err, errDamaged) && c.view.sealed {
			err = c.view.inMemory()
		}
		if err != nil {
			return nil, false, err
		}
	}
	if len(c.batch) == 0 {
		return nil, false, nil
	}
	return &c.batch[0], true, nil
}

// pass goes beyond the entry that peek returned.
func (c *cursor) pass() {
	if c.query.Newest {
		c.before = c.batch[0].key()
	} else {
		c.after = c.batch[0].key()
	}
	c.batch = c.batch[1:]
}

// selects reports whether an end is of those that the cursor walks.
func (c *cursor) selects(x *entry) bool {
	return x.topic == c.query.Topic && (c.query.ID == nil || x.hash == c.hash) &&
		x.key().Compare(c.after) > 0 && x.key().Compare(c.before) < 0 && c.query.matches(x)
}

func (c *cursor) fill() error {
	switch {
	case c.view.sealed && c.query.ID != nil:
		return c.fillNamed()
	case c.view.sealed:
		return c.fillSealed()
	}
	// The first of the rest, some at a time.
	c.batch, c.done = nil, true
	look := func(i int) {
		if x := &c.view.ends[i]; c.selects(x) {
			if c.batch = append(c.batch, *x); len(c.batch) == 4*cursorBatch {
				c.trim()
			}
		}
	}
	if c.query.ID != nil {
		for i := range c.view.found.each() {
			look(i)
		}
	} else {
		for i := range c.view.ends {
			look(i)
		}
	}
	c.trim()
	return nil
}

func (c *cursor) trim() {
	slices.SortFunc(c.batch, func(a, b entry) int { return c.query.compare(&a, &b) })
	if len(c.batch) > cursorBatch {
		c.batch, c.done = c.batch[:cursorBatch], false
	}
}

// follows reports whether an end comes behind a place in the index.
func (c *cursor) follows(x *entry, place Key) bool {
	return cmp.Or(cmp.Compare(x.topic, c.query.Topic), x.key().Compare(place)) > 0
}

func (c *cursor) fillSealed() error {
	s := c.view.file.ends
	if !c.begun {
		n, err := c.view.search(s, func(b []byte) bool {
			var x entry
			x.decode(b)
			return !c.follows(&x, c.after)
		})
		if err != nil {
			return err
		}
		c.next, c.begun = n, true
	}
	if c.next >= s.count {
		c.done = true
		return nil
	}
	var buf [pageBytes]byte
	b, err := c.view.page(s, c.next/s.perPage(), buf[:])
	if err != nil {
		return err
	}
	for b = b[c.next%s.perPage()*s.width:]; len(b) > 0; b = b[s.width:] {
		var x entry
		x.decode(b)
		if x.topic != c.query.Topic || x.key().Compare(c.before) >= 0 {
			c.done = true
			return nil
		}
		c.next++
		if c.selects(&x) {
			c.batch = append(c.batch, x)
		}
	}
	return nil
}

// fillNamed takes from one page of the ids those of the query's id. They are in the order of the
// ends.
func (c *cursor) fillNamed() (err error) {
	s, le := c.view.file.ids, binary.LittleEndian
	if !c.begun {
		if c.next, err = c.begin(); err != nil {
			return err
		}
		c.begun = true
	}
	if c.next < 0 || c.next >= s.count {
		c.done = true
		return nil
	}
	page, step := c.next/s.perPage(), int(c.query.order())
	var buf [pageBytes]byte
	b, err := c.view.page(s, page, buf[:])
	if err != nil {
		return err
	}
	for from := page * s.perPage(); c.next >= from && (c.next-from)*s.width < len(b); c.next += step {
		id := b[(c.next-from)*s.width:]
		if c.done = le.Uint32(id) != c.hash; c.done {
			return nil
		}
		x, err := c.page.entry(c.view, le.Uint32(id[4:]))
		if err != nil {
			c.batch = nil // all are read again, from the records
			return err
		}
		if c.done = c.follows(&x, c.before) || !c.follows(&x, c.after); c.done {
			return nil
		}
		if c.selects(&x) {
			c.batch = append(c.batch, x)
		}
	}
	return nil
}

// begin finds the first of the ids of a sealed file that the query may select, in the order of its
// answer.
func (c *cursor) begin() (n int, err error) {
	le, place := binary.LittleEndian, c.after
	if c.query.Newest {
		place = c.before
	}
	var broken error
	n, err = c.view.search(c.view.file.ids, func(b []byte) bool {
		if hash := le.Uint32(b); hash != c.hash || broken != nil {
			return hash < c.hash
		}
		var x entry
		x, broken = c.page.entry(c.view, le.Uint32(b[4:]))
		return !c.follows(&x, place)
	})
	if err == nil {
		err = broken
	}
	if c.query.Newest {
		n-- // the last one that does not follow
	}
	return n, err
}

// endsPage is the page of a sealed file's ends that was read last.
type endsPage struct {
	buf    []byte // its memory
	bytes  []byte
	number int
}

// entry reads an end by its number.
func (p *endsPage) entry(v *view, number uint32) (x entry, err error) {
	s := v.file.ends
	if int(number) >= s.count {
		return x, errDamaged
	}
	if page := int(number) / s.perPage(); p.bytes == nil || p.number != page {
		if p.buf == nil {
			p.buf = make([]byte, pageBytes)
		}
		if p.bytes, err = v.page(s, page, p.buf); err != nil {
			p.bytes = nil
			return x, err
		}
		p.number = page
	}
	x.decode(p.bytes[int(number)%s.perPage()*entryBytes:])
	return x, nil
}

// from walks a section from the first element that is not less, until do returns false.
func (v *view) from(s section, less func([]byte) bool, do func([]byte) (bool, error)) error {
	n, err := v.search(s, less)
	if err != nil {
		return err
	}
	var buf [pageBytes]byte
	for n < s.count {
		b, err := v.page(s, n/s.perPage(), buf[:])
		if err != nil {
			return err
		}
		for b = b[n%s.perPage()*s.width:]; len(b) > 0; b = b[s.width:] {
			if on, err := do(b[:s.width]); err != nil || !on {
				return err
			}
			n++
		}
	}
	return nil
}

// tries are where the attempts of a timer lie.
func (v *view) tries(key uint64) ([]uint32, error) {
	if v.sealed {
		var list []uint32
		err := v.from(v.file.attempts, func(b []byte) bool { return binary.LittleEndian.Uint64(b) < key }, func(b []byte) (bool, error) {
			if binary.LittleEndian.Uint64(b) != key {
				return false, nil
			}
			list = append(list, binary.LittleEndian.Uint32(b[8:]))
			return true, nil
		})
		if !errors.Is(err, errDamaged) {
			return list, err
		}
		if err := v.inMemory(); err != nil {
			return nil, err
		}
	}
	var list []uint32
	for i := range v.found.each() {
		if v.attempts[i].key == key {
			list = append(list, v.attempts[i].offset)
		}
	}
	return list, nil
}

// record reads one record into memory of its own.
func (v *view) record(offset uint32, e *Event) error {
	var first [512]byte
	n := int(min(int64(len(first)), v.data-int64(offset)))
	if n < recordHead {
		return errDamaged
	}
	if err := v.read(first[:n], int64(offset)); err != nil {
		return err
	}
	size, ok := v.salt.sizeOf(first[:])
	if !ok || int64(offset)+recordHead+int64(size) > v.data {
		return errDamaged
	}
	b := make([]byte, recordHead+size)
	if have := copy(b, first[:n]); have < len(b) {
		if err := v.read(b[have:], int64(offset)+int64(have)); err != nil {
			return err
		}
	}
	_, err := v.salt.decodeRecord(b, e)
	return err
}
