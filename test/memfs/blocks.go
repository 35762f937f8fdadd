package memfs

import "slices"

// sectorBytes is the smallest unit that reaches a disk whole.
const sectorBytes = 512

// blocks is a file's content, and the part of it that is on disk.
type blocks struct {
	data    []byte   // as the running process sees it
	size    int64    // on disk
	sectors []sector // by number
	changed []int64  // since the last sync: the numbers of these sectors, in no order
	spare   [][]byte // memory for what sectors were before
}

// sector is what is known of a sector that was changed since the last sync.
type sector struct {
	before  []byte // the disk's contents
	changed bool
	failed  bool // a failed sync dropped the change: it never reaches the disk
}

// change takes note that a sector is changed, and returns it.
func (b *blocks) change(i int64) *sector {
	if n := i + 1 - int64(len(b.sectors)); n > 0 {
		b.sectors = append(b.sectors, make([]sector, n)...)
	}
	s := &b.sectors[i]
	if !s.changed {
		s.changed = true
		b.changed = append(b.changed, i)
	}
	return s
}

// preserve remembers the disk's contents of the sectors in [from, to) before they change.
func (b *blocks) preserve(from, to int64) {
	for i := from / sectorBytes; i*sectorBytes < to; i++ {
		known := len(b.changed)
		s := b.change(i)
		s.failed = false
		if lo := i * sectorBytes; len(b.changed) > known && lo < int64(len(b.data)) {
			var room []byte
			if n := len(b.spare); n > 0 {
				room, b.spare = b.spare[n-1], b.spare[:n-1]
			} else {
				room = make([]byte, 0, sectorBytes)
			}
			s.before = append(room, b.data[lo:min(lo+sectorBytes, int64(len(b.data)))]...)
		}
	}
}

func (b *blocks) writeAt(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	b.preserve(min(off, int64(len(b.data))), end)
	b.resize(max(end, int64(len(b.data))))
	copy(b.data[off:], p)
}

func (b *blocks) truncate(size int64) {
	b.preserve(min(size, int64(len(b.data))), max(size, int64(len(b.data))))
	b.resize(size)
}

// resize grows with zeros, or cuts.
func (b *blocks) resize(size int64) {
	if old := int64(len(b.data)); size > old {
		b.data = slices.Grow(b.data, int(size-old))[:size]
		clear(b.data[old:])
	}
	b.data = b.data[:size]
}

func (b *blocks) sync() {
	b.changed = slices.DeleteFunc(b.changed, func(i int64) bool {
		s := &b.sectors[i]
		if s.failed {
			return false
		}
		if s.before != nil {
			b.spare = append(b.spare, s.before[:0])
		}
		*s = sector{}
		return true
	})
	b.size = int64(len(b.data))
}

// fail is a sync that failed: the changed pages count as clean from now on, though they
// were not written, as on Linux.
func (b *blocks) fail() {
	for _, i := range b.changed {
		b.sectors[i].failed = true
	}
}

// afterCrash returns the blocks that a power cut leaves.
func (b *blocks) afterCrash(r Rand, opt CrashOptions) blocks {
	size := b.size
	if size != int64(len(b.data)) && r.IntN(100) < opt.KeepSize {
		size = int64(len(b.data))
	}
	out := slices.Clone(b.data)
	out = append(out, make([]byte, max(0, size-int64(len(out))))...)
	perBlock := int64(max(opt.BlockBytes, sectorBytes) / sectorBytes)
	block, kept := int64(-1), false
	slices.Sort(b.changed)
	for _, i := range b.changed {
		if i/perBlock != block {
			block, kept = i/perBlock, r.IntN(100) < opt.KeepData
		}
		if kept && !b.sectors[i].failed {
			continue
		}
		lo := min(i*sectorBytes, int64(len(out)))
		sector := out[lo:min(lo+sectorBytes, int64(len(out)))]
		clear(sector)
		if n := copy(sector, b.sectors[i].before); n == 0 && opt.Garbage {
			for k := range sector {
				sector[k] = byte(r.IntN(256))
			}
		}
	}
	return blocks{data: out[:size], size: size}
}
