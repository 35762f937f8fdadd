package memfs

import (
	"slices"
)

// SyncLie is the fault of a disk that reports a sync as done. The zero value is a true sync.
type SyncLie struct {
	Lies bool // the sync is false; for a directory: none of its changes is on disk

	// Skip and Count choose, of the sectors to be synced in order, those that do not come where
	// they should. Skip counts round and round; Count 0 means all from there.
	Skip, Count int
	Shift       int64 // the chosen sectors overwrite those so many sectors further on; 0: none
	KeepSize    bool  // the file's size on disk stays as it was
	DropCache   bool  // the running process, too, reads the disk's contents from now on
}

// SetSyncLies has lies called at each sync of a file or a directory, outside of all locks. The loss
// of a false sync shows after a power cut (CrashClone), unless it is written and synced again.
func (m *FS) SetSyncLies(lies func(name string, dir bool) SyncLie) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncLies = lies
}

// lie is the answer of SetSyncLies' function to one sync.
func (m *FS) lie(name string, dir bool) SyncLie {
	m.mu.Lock()
	lies := m.syncLies
	m.mu.Unlock()
	if lies == nil {
		return SyncLie{}
	}
	return lies(name, dir)
}

// lie carries out a false sync.
func (b *blocks) lie(l SyncLie) {
	var dirty []int64
	slices.Sort(b.changed)
	for _, i := range b.changed {
		if !b.sectors[i].failed {
			dirty = append(dirty, i)
		}
	}
	if n := len(dirty); n > 0 && l.Count > 0 {
		skip := l.Skip % n
		dirty = dirty[skip:min(n, skip+l.Count)]
	}
	for _, i := range dirty {
		b.sectors[i].failed = true
	}
	if sectors := (int64(len(b.data)) + sectorBytes - 1) / sectorBytes; l.Shift != 0 && sectors > 1 {
		for _, i := range dirty {
			to := ((i+l.Shift)%sectors + sectors) % sectors
			if lo, hi := i*sectorBytes, min((i+1)*sectorBytes, int64(len(b.data))); lo < hi && to != i {
				s := b.change(to)
				s.before, s.failed = slices.Clone(b.data[lo:hi]), true
			}
		}
	}
	size := b.size
	b.sync()
	if l.KeepSize {
		b.size = size
	}
	if l.DropCache {
		*b = b.afterCrash(never{}, CrashOptions{})
	}
}

// never is a Rand that keeps nothing.
type never struct{}

func (never) IntN(n int) int { return n - 1 }
