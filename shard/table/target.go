package table

import (
	"encoding/binary"
	"hash/maphash"

	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

// Target identifies a callback override that timers of a table share; 0 is none. It is local to a
// replica and never reused for another override, so a cached Target stays valid. The low half is
// the number of a row, which is reused; the high half counts the uses of that row.
type Target uint64

func (n Target) row() uint32 { return uint32(n) }

const (
	targetChunkBits = 8
	targetChunkLen  = 1 << targetChunkBits
)

// target is one override, 24 bytes.
type target struct {
	hash uint64
	// ref is the encoded override in the arena: its length, then its bytes. In a free row it is the
	// next free row.
	ref  uint32
	refs uint32 // number of timers that use it; 0 = the row is free
	// saved is the number of the last snapshot that contains its definition.
	saved uint32
	life  uint32
}

// targets stores each override once, in the table's arena, with a reference count.
type targets struct {
	chunks []*[targetChunkLen]target
	high   uint32
	free   uint32
	used   int
	index  index
	seed   maphash.Seed
	sealed sealedBy
}

// place returns a callback's hash in the index.
func (p *targets) place(callback []byte) uint32 { return uint32(maphash.Bytes(p.seed, callback) >> 32) }

func (p *targets) at(n uint32) *target {
	return &p.chunks[n>>targetChunkBits][n&(targetChunkLen-1)]
}

// intern returns the row of an encoded callback and adds a reference. The row of an empty callback
// is 0.
func (p *targets) intern(a *arena, callback []byte) uint32 {
	if len(callback) == 0 {
		return 0
	}
	hash, place := xxhash.Sum64(callback), p.place(callback)
	n := p.index.find(place, func(n uint32) bool {
		g := p.at(n)
		return g.hash == hash && string(g.bytes(a)) == string(callback)
	})
	if n != 0 {
		p.at(n).refs++
		return n
	}
	if n = p.free; n != 0 {
		p.free = p.at(n).ref
	} else {
		p.high++
		n = p.high
		if int(n>>targetChunkBits) == len(p.chunks) {
			p.chunks = append(p.chunks, new([targetChunkLen]target))
		}
	}
	p.used++
	ref, b := a.alloc(encoding.UvarintLen(uint64(len(callback))) + len(callback))
	copy(b[binary.PutUvarint(b, uint64(len(callback))):], callback)
	*p.at(n) = target{hash: hash, ref: ref, refs: 1, life: p.at(n).life + 1}
	p.index.insert(place, n)
	p.sealed.count(callback, +1)
	return n
}

// retain adds a reference.
func (p *targets) retain(n uint32) {
	if n != 0 {
		p.at(n).refs++
	}
}

func (p *targets) release(a *arena, n uint32) {
	if n == 0 {
		return
	}
	g := p.at(n)
	if g.refs--; g.refs > 0 {
		return
	}
	p.index.remove(p.place(g.bytes(a)), n)
	p.sealed.count(g.bytes(a), -1)
	a.release(g.ref)
	*g = target{ref: p.free, life: g.life}
	p.free = n
	p.used--
}

func (g *target) bytes(a *arena) []byte {
	b := a.at(g.ref)
	n, k := binary.Uvarint(b)
	return b[k : k+int(n)]
}

func (p *targets) memory() int64 {
	return int64(len(p.chunks))*targetChunkLen*24 + int64(cap(p.chunks))*8 + p.index.memory()
}

// Callback returns the override that n identifies, or an empty one if it is no longer used.
func (t *Table) Callback(n Target) timer.Callback {
	row := n.row()
	if row == 0 || row > t.targets.high {
		return timer.Callback{}
	}
	g := t.targets.at(row)
	if g.refs == 0 || g.life != uint32(n>>32) {
		return timer.Callback{}
	}
	return g.callback(&t.blobs)
}

// hasURL reports whether an encoded callback has a URL, which is its first field.
func hasURL(callback []byte) bool { return len(callback) > 0 && callback[0] == encoding.CallbackURL }

// callback decodes the override. The bytes were checked before they were interned.
func (g *target) callback(a *arena) timer.Callback {
	c, _ := encoding.DecodeCallback(g.bytes(a))
	return c
}

// name returns the Target of a row.
func (p *targets) name(row uint32) Target {
	if row == 0 {
		return 0
	}
	return Target(p.at(row).life)<<32 | Target(row)
}
