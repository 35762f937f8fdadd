package content

import (
	"encoding/binary"
	"fmt"
	"maps"

	"carillon/internal/secret"
	"carillon/shard/table/index"
	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

// Target identifies a callback override that timers of a table share; 0 is none. It is local to a
// replica and never reused for another override, so a cached Target stays valid. The low half is
// the number of a row, which is reused; the high half counts the uses of that row.
type Target uint64

const (
	callbackChunkBits = 8
	callbackChunkLen  = 1 << callbackChunkBits
)

// override is one callback, 24 bytes.
type override struct {
	hash uint64
	// ref is the encoded override in the arena: its length, then its bytes. In a free row it is the
	// next free row.
	ref  uint32
	refs uint32 // number of timers that use it; 0 = the row is free
	// saved is the number of the last snapshot that contains its definition.
	saved uint32
	life  uint32
}

// callbacks keeps each override once, with a reference count. To find one is O(its bytes).
type callbacks struct {
	chunks []*[callbackChunkLen]override
	high   uint32
	free   uint32
	index  index.Index
	sealed sealedBy
	last   uint32 // interned, if it is not free since: the next is often the same

	decoded Target // the last one that Callback returned
	of      timer.Callback
}

func (c *callbacks) at(n uint32) *override {
	return &c.chunks[n>>callbackChunkBits][n&(callbackChunkLen-1)]
}

func (c *callbacks) memory() int64 {
	return int64(len(c.chunks))*callbackChunkLen*24 + int64(cap(c.chunks))*8 + c.index.Memory()
}

// Intern returns the row of an encoded callback and adds a reference. The row of an empty callback
// is 0.
func (s *Store) Intern(callback []byte) uint32 {
	if len(callback) == 0 {
		return 0
	}
	c := &s.callbacks
	if c.last != 0 && string(s.EncodedCallback(c.last)) == string(callback) {
		c.at(c.last).refs++
		return c.last
	}
	hash, place := xxhash.Sum64(callback), c.index.Hash(0, callback)
	n := c.index.Find(place, func(n uint32) bool {
		return c.at(n).hash == hash && string(s.EncodedCallback(n)) == string(callback)
	})
	if n != 0 {
		c.at(n).refs++
		c.last = n
		return n
	}
	if n = c.free; n != 0 {
		c.free = c.at(n).ref
	} else {
		c.high++
		n = c.high
		if int(n>>callbackChunkBits) == len(c.chunks) {
			c.chunks = append(c.chunks, new([callbackChunkLen]override))
		}
	}
	ref, b := s.blocks.Alloc(encoding.UvarintLen(uint64(len(callback))) + len(callback))
	copy(b[binary.PutUvarint(b, uint64(len(callback))):], callback)
	*c.at(n) = override{hash: hash, ref: ref, refs: 1, life: c.at(n).life + 1}
	c.index.Insert(place, n)
	c.last = n
	c.sealed.count(callback, +1)
	return n
}

// Retain adds a reference to a callback.
func (s *Store) Retain(row uint32) {
	if row != 0 {
		s.callbacks.at(row).refs++
	}
}

// release removes a reference. The last one frees the row.
func (s *Store) release(row uint32) {
	if row == 0 {
		return
	}
	c := &s.callbacks
	g := c.at(row)
	if g.refs--; g.refs > 0 {
		return
	}
	callback := s.EncodedCallback(row)
	c.index.Remove(c.index.Hash(0, callback), row)
	c.sealed.count(callback, -1)
	s.blocks.Release(g.ref)
	if c.last == row {
		c.last = 0
	}
	*g = override{ref: c.free, life: g.life}
	c.free = row
}

// EncodedCallback returns a callback's encoded form; nil of row 0.
func (s *Store) EncodedCallback(row uint32) []byte {
	if row == 0 {
		return nil
	}
	b := s.blocks.At(s.callbacks.at(row).ref)
	n, k := binary.Uvarint(b)
	return b[k : k+int(n)]
}

// CallbackAt returns a callback; an empty one of row 0. Its bytes were checked before they were
// interned.
func (s *Store) CallbackAt(row uint32) timer.Callback {
	cb, _ := encoding.DecodeCallback(s.EncodedCallback(row))
	return cb
}

// TargetOf returns the Target of a row.
func (s *Store) TargetOf(row uint32) Target {
	if row == 0 {
		return 0
	}
	return Target(s.callbacks.at(row).life)<<32 | Target(row)
}

// Callback returns the callback that n identifies, or an empty one if it is no longer used. Its
// headers are not to be changed.
func (s *Store) Callback(n Target) timer.Callback {
	row := uint32(n)
	if row == 0 || row > s.callbacks.high {
		return timer.Callback{}
	}
	if g := s.callbacks.at(row); g.refs == 0 || g.life != uint32(n>>32) {
		return timer.Callback{}
	}
	if c := &s.callbacks; c.decoded != n {
		c.decoded, c.of = n, s.CallbackAt(row)
	}
	return s.callbacks.of
}

// Define returns a callback's encoded form, and whether its bytes still have their hash, if it was
// not asked for the snapshot of this number before. Otherwise it returns nil.
func (s *Store) Define(row, snapshot uint32) (callback []byte, sound bool) {
	if row == 0 || s.callbacks.at(row).saved == snapshot {
		return nil, true
	}
	g := s.callbacks.at(row)
	g.saved = snapshot
	callback = s.EncodedCallback(row)
	return callback, xxhash.Sum64(callback) == g.hash
}

// SealedBy adds the number of sealed header values of the callbacks in use to all, by the id of the
// sealing key.
func (s *Store) SealedBy(all map[string]int64) map[string]int64 {
	if len(s.callbacks.sealed) > 0 && all == nil {
		all = map[string]int64{}
	}
	for id, n := range s.callbacks.sealed {
		all[string(id[:])] += n
	}
	return all
}

// Audit counts the sealed values again and returns an error if the counts differ.
func (s *Store) Audit() error {
	var sealed sealedBy
	for row := uint32(1); row <= s.callbacks.high; row++ {
		if s.callbacks.at(row).refs > 0 {
			sealed.count(s.EncodedCallback(row), +1)
		}
	}
	if !maps.Equal(sealed, s.callbacks.sealed) {
		return fmt.Errorf("sealed values %v, want %v", s.callbacks.sealed, sealed)
	}
	return nil
}

// sealedBy counts the header values of a table's callback overrides by the key that sealed them. It
// lets an operator verify that a key is unused before removing it. It is derived from the overrides
// and not replicated state.
type sealedBy map[secret.KeyID]int64

// count adds by for each sealed value of an encoded callback, which has been checked before.
func (s *sealedBy) count(callback []byte, by int64) {
	for r := (encoding.Reader{Rest: callback}); len(r.Rest) > 0; {
		switch r.Byte() {
		case encoding.CallbackURL, encoding.CallbackMethod:
			r.Block(len(callback), "text")
		case encoding.CallbackHeaders:
			for n := r.Uvarint(); n > 0; n-- {
				r.Block(len(callback), "name")
				if id, ok := secret.KeyIn(r.Block(len(callback), "value")); ok {
					s.add(id, by)
				}
			}
		default: // the last field is not text
			return
		}
	}
}

func (s *sealedBy) add(id secret.KeyID, by int64) {
	if *s == nil {
		*s = sealedBy{}
	}
	if (*s)[id] += by; (*s)[id] == 0 {
		delete(*s, id)
	}
}
