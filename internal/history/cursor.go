package history

import (
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
	sealed   bool
	data     int64 // where its records end
	minMs    int64 // no end in it is earlier
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
	v.sealed, v.ends, v.attempts = false, x.ends, x.attempts
	return nil
}

// cursor walks the ends of one topic in one file, in order.
type cursor struct {
	view  *view
	topic uint32
	after Key // events at or before it are passed over
	toMs  int64
	match func(x *entry) bool

	batch []entry
	next  int // sealed: number of the next in the section
	done  bool
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

func (c *cursor) fill() error {
	if c.view.sealed {
		return c.fillSealed()
	}
	// The smallest of the rest, some at a time.
	c.done = true
	for i := range c.view.ends {
		x := &c.view.ends[i]
		if x.topic != c.topic || x.key().Compare(c.after) <= 0 || x.endMs() >= c.toMs || !c.match(x) {
			continue
		}
		if c.batch = append(c.batch, *x); len(c.batch) == 4*cursorBatch {
			c.trim()
		}
	}
	c.trim()
	return nil
}

func (c *cursor) trim() {
	slices.SortFunc(c.batch, func(a, b entry) int { return a.compare(&b) })
	if len(c.batch) > cursorBatch {
		c.batch, c.done = c.batch[:cursorBatch], false
	}
}

func (c *cursor) fillSealed() error {
	s := c.view.file.ends
	if c.next == 0 {
		n, err := c.view.search(s, func(b []byte) bool {
			var x entry
			x.decode(b)
			return x.topic < c.topic || x.topic == c.topic && x.key().Compare(c.after) <= 0
		})
		if err != nil {
			return err
		}
		c.next = n
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
		if x.topic != c.topic || x.endMs() >= c.toMs {
			c.done = true
			return nil
		}
		c.next++
		if c.match(&x) {
			c.batch = append(c.batch, x)
		}
	}
	return nil
}

// named are the ends in a view of a topic whose ids have a hash.
func (v *view) named(topic, hash uint32) ([]entry, error) {
	if v.sealed {
		list, err := v.namedSealed(topic, hash)
		if !errors.Is(err, errDamaged) {
			return list, err
		}
		if err := v.inMemory(); err != nil {
			return nil, err
		}
	}
	var list []entry
	for i := range v.ends {
		if x := &v.ends[i]; x.hash == hash && x.topic == topic {
			list = append(list, *x)
		}
	}
	return list, nil
}

func (v *view) namedSealed(topic, hash uint32) (list []entry, err error) {
	s, le := v.file.ids, binary.LittleEndian
	err = v.from(s, func(b []byte) bool { return le.Uint32(b) < hash }, func(b []byte) (bool, error) {
		if le.Uint32(b) != hash {
			return false, nil
		}
		n := int(le.Uint32(b[4:]))
		if n >= v.file.ends.count {
			return false, errDamaged
		}
		var buf [pageBytes]byte
		p, err := v.page(v.file.ends, n/v.file.ends.perPage(), buf[:])
		if err != nil {
			return false, err
		}
		var x entry
		if x.decode(p[n%v.file.ends.perPage()*entryBytes:]); x.topic == topic && x.hash == hash {
			list = append(list, x)
		}
		return true, nil
	})
	return list, err
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
	for i := range v.attempts {
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
