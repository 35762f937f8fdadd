package memfs

import (
	"maps"
	"slices"
)

// sectorBytes is the smallest unit that reaches a disk whole.
const sectorBytes = 512

// blocks is a file's content, and the part of it that is on disk.
type blocks struct {
	data   []byte           // as the running process sees it
	size   int64            // on disk
	before map[int64][]byte // the disk's contents of the sectors changed since the last sync
	failed map[int64]bool   // changed sectors that a failed sync dropped: they never reach the disk
}

// preserve remembers the disk's contents of the sectors in [from, to) before they change.
func (b *blocks) preserve(from, to int64) {
	if b.before == nil {
		b.before, b.failed = map[int64][]byte{}, map[int64]bool{}
	}
	for i := from / sectorBytes; i*sectorBytes < to; i++ {
		delete(b.failed, i)
		if _, dirty := b.before[i]; dirty {
			continue
		}
		lo := min(i*sectorBytes, int64(len(b.data)))
		hi := min(lo+sectorBytes, int64(len(b.data)))
		b.before[i] = slices.Clone(b.data[lo:hi])
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
	for i := range b.before {
		if !b.failed[i] {
			delete(b.before, i)
		}
	}
	b.size = int64(len(b.data))
}

// fail is a sync that failed: the changed pages count as clean from now on, though they
// were not written, as on Linux.
func (b *blocks) fail() {
	for i := range b.before {
		b.failed[i] = true
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
	for _, i := range slices.Sorted(maps.Keys(b.before)) {
		if i/perBlock != block {
			block, kept = i/perBlock, r.IntN(100) < opt.KeepData
		}
		if kept && !b.failed[i] {
			continue
		}
		lo := min(i*sectorBytes, int64(len(out)))
		sector := out[lo:min(lo+sectorBytes, int64(len(out)))]
		clear(sector)
		if n := copy(sector, b.before[i]); n == 0 && opt.Garbage {
			for k := range sector {
				sector[k] = byte(r.IntN(256))
			}
		}
	}
	return blocks{data: out[:size], size: size}
}
