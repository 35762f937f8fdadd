package table

import "slices"

const (
	partMax   = 1024 // entries of a part; splitting one is the longest an insert can take, some microseconds
	partMin   = 8
	indexMix  = 0x9E3779B1 // odd: places within a part are independent of the bits that chose the part
	handleLen = 32
)

// index finds slot numbers by a 32-bit hash. It is an extendible hash table of small
// open-addressing parts: a part that is full grows by a sixth or splits in two, so that no insert
// copies more than one part, and it is about three quarters full at any size. An entry is hash<<32
// | number; numbers are never 0.
type index struct {
	dir   []*part
	depth uint // len(dir) = 1<<depth; a hash's first bits choose the part
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

func (x *index) part(hash uint32) *part {
	return x.dir[uint64(hash)<<x.depth>>32]
}

func (p *part) home(hash uint32) int {
	return int(uint64(hash*indexMix) * uint64(len(p.entries)) >> 32)
}

// find returns the first number with this hash that is accepted by is, else 0.
func (x *index) find(hash uint32, is func(number uint32) bool) uint32 {
	if len(x.dir) == 0 {
		return 0
	}
	p := x.part(hash)
	for i := p.home(hash); ; {
		e := p.entries[i]
		if e == 0 {
			return 0
		}
		if uint32(e>>handleLen) == hash && is(uint32(e)) {
			return uint32(e)
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
}

// insert adds a number, which is not in.
func (x *index) insert(hash, number uint32) {
	if len(x.dir) == 0 {
		x.dir = []*part{x.newPart(0, partMin)}
	}
	p := x.part(hash)
	for p.used+1 > len(p.entries)-len(p.entries)/8 {
		x.expand(p, hash)
		p = x.part(hash)
	}
	p.put(uint64(hash)<<handleLen | uint64(number))
	x.count++
}

func (p *part) put(entry uint64) {
	i := p.home(uint32(entry >> handleLen))
	for p.entries[i] != 0 {
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	p.entries[i] = entry
	p.used++
}

// replace makes the entry of number old be that of number fresh. It says whether old was in.
func (x *index) replace(hash, old, fresh uint32) bool {
	p, i := x.locate(hash, old)
	if p == nil {
		return false
	}
	p.entries[i] = uint64(hash)<<handleLen | uint64(fresh)
	return true
}

// remove takes a number out and says whether it was in. Entries behind it close the gap, so there
// are no tombstones that would slow down later searches.
func (x *index) remove(hash, number uint32) bool {
	p, i := x.locate(hash, number)
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
		home := p.home(uint32(e >> handleLen))
		if (j-home+n)%n >= (j-i+n)%n {
			p.entries[i] = e
			i = j
		}
	}
	p.entries[i] = 0
	p.used--
	x.count--
	if n > 4*partMin && p.used < n/3 {
		x.resize(p, p.used*3/2)
	}
	return true
}

func (x *index) locate(hash, number uint32) (*part, int) {
	if len(x.dir) == 0 {
		return nil, 0
	}
	p := x.part(hash)
	want := uint64(hash)<<handleLen | uint64(number)
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

// expand makes room in p, the part of hash. A part that only a much larger directory would split,
// since its hashes are all nearly one (which a client can bring about), grows instead.
func (x *index) expand(p *part, hash uint32) {
	if p.used < partMax*7/8 || p.depth == x.depth && len(x.dir) >= 8*x.parts {
		x.resize(p, p.used+p.used/3+partMin/2)
		return
	}
	if p.depth == x.depth {
		dir := make([]*part, 2*len(x.dir))
		for i, q := range x.dir {
			dir[2*i], dir[2*i+1] = q, q
		}
		x.dir = dir
		x.depth++
	}
	low, high := x.newPart(p.depth+1, p.used*3/5), x.newPart(p.depth+1, p.used*3/5)
	for _, e := range p.entries {
		if e == 0 {
			continue
		}
		side := low
		if uint32(e>>handleLen)<<p.depth>>31 != 0 {
			side = high
		}
		if side.used+1 >= len(side.entries) {
			x.resize(side, side.used*3/2)
		}
		side.put(e)
	}
	span := 1 << (x.depth - p.depth) // neighbours in the directory that are p
	first := int(uint64(hash)<<x.depth>>32) &^ (span - 1)
	for i := range span {
		x.dir[first+i] = low
		if i >= span/2 {
			x.dir[first+i] = high
		}
	}
	x.parts--
	x.cells -= len(p.entries)
}

func (x *index) resize(p *part, cells int) {
	old := p.entries
	x.cells -= len(old)
	p.entries = makeCells(max(cells, partMin))
	x.cells += len(p.entries)
	p.used = 0
	for _, e := range old {
		if e != 0 {
			p.put(e)
		}
	}
}

func (x *index) newPart(depth uint, cells int) *part {
	p := &part{depth: depth, entries: makeCells(max(cells, partMin))}
	x.parts++
	x.cells += len(p.entries)
	return p
}

// makeCells uses all of the memory block that the runtime gives.
func makeCells(n int) []uint64 {
	s := slices.Grow([]uint64(nil), n)
	return s[:cap(s)]
}

func (x *index) memory() int64 {
	return int64(x.cells)*8 + int64(x.parts)*48 + int64(cap(x.dir))*8
}
