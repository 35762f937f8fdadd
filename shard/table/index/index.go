// Package index finds numbers by a 32-bit hash of what they stand for.
package index

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// partMax is the most entries of a part. Splitting one part is the longest that an insert can
	// take: some microseconds.
	partMax = 1024
	partMin = 8
	// odd; makes positions within a part independent of the bits that choose the part
	mix        = 0x9E3779B1
	numberBits = 32
)

// Index finds slot numbers by a 32-bit hash. It is an extendible hash table of small
// open-addressing parts. A full part grows by a sixth or splits in two, so an insert copies at most
// one part, and the index is about three quarters full at any size. An entry is hash<<32 | number;
// a number is never 0. All operations are O(1), and O(partMax) when a part splits.
type Index struct {
	// seed randomises the hashes of keys that clients choose, so that clients cannot cause
	// collisions. No replicated state depends on it, but the memory that an index takes does.
	seed  maphash.Seed
	fixed bool
	dir   []*part
	depth uint // len(dir) = 1<<depth; the first depth bits of a hash choose the part
	parts int
	count int // entries
	cells int
}

// part is one open-addressing table with linear probing.
type part struct {
	depth   uint
	used    int
	entries []uint64
}

// Fixed makes the indexes that are made from now on hash alike in each process, so that a simulated
// run can be repeated. It is not for keys of strangers.
var Fixed bool

func New() Index { return Index{seed: maphash.MakeSeed(), fixed: Fixed} }

// Hash returns the hash of a key in a space of keys.
func (ix *Index) Hash(space uint64, key []byte) uint32 {
	h := uint64(0)
	if ix.fixed {
		h = xxhash.Sum64(key)
	} else {
		h = maphash.Bytes(ix.seed, key)
	}
	hi, lo := bits.Mul64(h^space*0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
	return uint32((hi ^ lo) >> 32)
}

func (ix *Index) Len() int { return ix.count }

func (ix *Index) part(hash uint32) *part {
	return ix.dir[uint64(hash)<<ix.depth>>32]
}

func (p *part) home(hash uint32) int {
	return int(uint64(hash*mix) * uint64(len(p.entries)) >> 32)
}

// Find returns the first number with this hash that is accepts, or 0.
func (ix *Index) Find(hash uint32, is func(number uint32) bool) uint32 {
	if len(ix.dir) == 0 {
		return 0
	}
	p := ix.part(hash)
	for i := p.home(hash); ; {
		e := p.entries[i]
		if e == 0 {
			return 0
		}
		if uint32(e>>numberBits) == hash && is(uint32(e)) {
			return uint32(e)
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
}

// Insert adds a number that the index does not have.
func (ix *Index) Insert(hash, number uint32) {
	ix.roomFor(hash).put(uint64(hash)<<numberBits | uint64(number))
	ix.count++
}

// roomFor is the part of a hash, with room for one more.
func (ix *Index) roomFor(hash uint32) *part {
	if len(ix.dir) == 0 {
		ix.dir = []*part{ix.newPart(0, partMin)}
	}
	p := ix.part(hash)
	for p.used+1 > len(p.entries)-len(p.entries)/8 {
		ix.expand(p, hash)
		p = ix.part(hash)
	}
	return p
}

func (p *part) put(entry uint64) {
	i := p.home(uint32(entry >> numberBits))
	for p.entries[i] != 0 {
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	p.entries[i] = entry
	p.used++
}

// Replace changes the entry of number old to number fresh and reports whether old was found.
func (ix *Index) Replace(hash, old, fresh uint32) bool {
	p, i := ix.locate(hash, old)
	if p == nil {
		return false
	}
	p.entries[i] = uint64(hash)<<numberBits | uint64(fresh)
	return true
}

// Remove deletes a number and reports whether it was found. The entries behind it move up, so there
// are no tombstones to slow down later searches.
func (ix *Index) Remove(hash, number uint32) bool {
	p, i := ix.locate(hash, number)
	if p == nil {
		return false
	}
	n := len(p.entries)
	for j := i; ; {
		if j++; j == n {
			j = 0
		}
		e := p.entries[j]
		if e == 0 {
			break
		}
		home := p.home(uint32(e >> numberBits))
		if (j-home+n)%n >= (j-i+n)%n {
			p.entries[i] = e
			i = j
		}
	}
	p.entries[i] = 0
	p.used--
	ix.count--
	if n > 4*partMin && p.used < n/3 {
		ix.resize(p, p.used*3/2)
	}
	return true
}

func (ix *Index) locate(hash, number uint32) (*part, int) {
	if len(ix.dir) == 0 {
		return nil, 0
	}
	p := ix.part(hash)
	want := uint64(hash)<<numberBits | uint64(number)
	for i := p.home(hash); ; {
		switch p.entries[i] {
		case 0:
			return nil, 0
		case want:
			return p, i
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
}

// expand makes room in p, the part of hash. If the hashes of p are nearly equal, which a client can
// cause, only a much larger directory would split it; such a part grows instead.
func (ix *Index) expand(p *part, hash uint32) {
	if p.used < partMax*7/8 || p.depth == ix.depth && len(ix.dir) >= 8*ix.parts {
		ix.resize(p, p.used+p.used/3+partMin/2)
		return
	}
	if p.depth == ix.depth {
		dir := make([]*part, 2*len(ix.dir))
		for i, q := range ix.dir {
			dir[2*i], dir[2*i+1] = q, q
		}
		ix.dir = dir
		ix.depth++
	}
	low, high := ix.newPart(p.depth+1, p.used*3/5), ix.newPart(p.depth+1, p.used*3/5)
	for _, e := range p.entries {
		if e == 0 {
			continue
		}
		side := low
		if uint32(e>>numberBits)<<p.depth>>31 != 0 {
			side = high
		}
		if side.used+1 >= len(side.entries) {
			ix.resize(side, side.used*3/2)
		}
		side.put(e)
	}
	span := 1 << (ix.depth - p.depth) // number of directory entries that point to p
	first := int(uint64(hash)<<ix.depth>>32) &^ (span - 1)
	for i := range span {
		ix.dir[first+i] = low
		if i >= span/2 {
			ix.dir[first+i] = high
		}
	}
	ix.parts--
	ix.cells -= len(p.entries)
}

func (ix *Index) resize(p *part, cells int) {
	old := p.entries
	ix.cells -= len(old)
	p.entries = makeCells(max(cells, partMin))
	ix.cells += len(p.entries)
	p.used = 0
	for _, e := range old {
		if e != 0 {
			p.put(e)
		}
	}
}

func (ix *Index) newPart(depth uint, cells int) *part {
	p := &part{depth: depth, entries: makeCells(max(cells, partMin))}
	ix.parts++
	ix.cells += len(p.entries)
	return p
}

// makeCells uses the whole capacity that the allocator returns.
func makeCells(n int) []uint64 {
	s := slices.Grow([]uint64(nil), n)
	return s[:cap(s)]
}

func (ix *Index) Memory() int64 {
	return int64(ix.cells)*8 + int64(ix.parts)*48 + int64(cap(ix.dir))*8
}
