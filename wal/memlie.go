package wal

import (
	"maps"
	"slices"
)

// Lie is what a disk does instead of a sync that it says it has done. The zero value is the truth.
type Lie struct {
	Told bool // the sync is a lie; of a directory: none of its changes is on disk

	// Of the sectors that are to be synced, in order: which of them do not come where they should. Skip counts round and round; Count 0 means all.
	Skip, Count int
	Shift       int64 // they come so many sectors further on in the file, over what is there; 0: nowhere
	Short       bool  // the file's size on disk stays what it was
	Shown       bool  // what the disk has is what is read from now on, by the running process, too
}

// SetLiar asks liar at each sync of a file or a directory whether it is a lie, outside of all locks. What is lost by a lie shows after a power cut
// (CrashClone), unless it is written and synced again.
func (m *MemFS) SetLiar(liar func(name string, dir bool) Lie) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.liar = liar
}

// lie asks the liar.
func (m *MemFS) lie(name string, dir bool) Lie {
	m.mu.Lock()
	liar := m.liar
	m.mu.Unlock()
	if liar == nil {
		return Lie{}
	}
	return liar(name, dir)
}

// lie is a sync that did not do all of its work.
func (b *memBlocks) lie(l Lie) {
	var dirty []int64
	for _, i := range slices.Sorted(maps.Keys(b.before)) {
		if !b.failed[i] {
			dirty = append(dirty, i)
		}
	}
	if n := len(dirty); n > 0 && l.Count > 0 {
		skip := l.Skip % n
		dirty = dirty[skip:min(n, skip+l.Count)]
	}
	for _, i := range dirty {
		b.failed[i] = true
	}
	if sectors := (int64(len(b.data)) + sectorBytes - 1) / sectorBytes; l.Shift != 0 && sectors > 1 {
		for _, i := range dirty {
			to := ((i+l.Shift)%sectors + sectors) % sectors
			if lo, hi := i*sectorBytes, min((i+1)*sectorBytes, int64(len(b.data))); lo < hi && to != i {
				b.before[to], b.failed[to] = slices.Clone(b.data[lo:hi]), true
			}
		}
	}
	size := b.size
	b.sync()
	if l.Short {
		b.size = size
	}
	if l.Shown {
		*b = b.afterCrash(never{}, CrashOptions{})
	}
}

// never is chance that keeps nothing.
type never struct{}

func (never) IntN(n int) int { return n - 1 }
