package memfs

import (
	"maps"
	"slices"
)

// Rand is the source of choices; *math/rand/v2.Rand is one.
type Rand interface {
	IntN(n int) int
}

// CrashOptions says how a power cut treats writes that were not synced. The zero value loses all.
type CrashOptions struct {
	KeepData   int  // percent chance for each changed block to have reached the disk
	KeepSize   int  // percent chance for each file's change of size
	KeepNames  int  // percent chance for each change of a directory
	BlockBytes int  // unit in which data is kept or lost: 512 (default) or 4096
	Garbage    bool // blocks that hold nothing yet hold random bytes, not zeros
}

// CrashClone returns the file system as it stands after a power cut now: unsynced data,
// sizes and directory changes are kept or lost by chance, each by itself and in any order.
// The original continues as if nothing had happened. Faults and locks are not copied.
func (m *FS) CrashClone(r Rand, opt CrashOptions) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crashClone{rand: r, opt: opt, copies: map[*inode]*inode{}, changed: map[*inode]map[string]*inode{}}
	for _, op := range m.pending {
		if r.IntN(100) >= opt.KeepNames || op.failed {
			continue
		}
		for _, s := range op.sets {
			set(c.names(s.dir), s.name, s.node)
		}
	}
	out := New()
	out.root = c.clone(m.root)
	out.capacity = m.capacity
	return out
}

type crashClone struct {
	rand    Rand
	opt     CrashOptions
	copies  map[*inode]*inode
	changed map[*inode]map[string]*inode // directories with changes that survived
}

func (c *crashClone) names(dir *inode) map[string]*inode {
	if c.changed[dir] == nil {
		c.changed[dir] = maps.Clone(dir.durable)
	}
	return c.changed[dir]
}

func (c *crashClone) clone(n *inode) *inode {
	if done := c.copies[n]; done != nil {
		return done
	}
	if !n.dir {
		f := &inode{blocks: n.blocks.afterCrash(c.rand, c.opt)}
		c.copies[n] = f
		return f
	}
	d := newDir()
	c.copies[n] = d
	names := n.durable
	if c.changed[n] != nil {
		names = c.changed[n]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.entries[name] = c.clone(names[name])
	}
	d.durable = maps.Clone(d.entries)
	return d
}

// Kill ends the process that uses the file system: its handles fail and its locks are
// free. All that was written is there, but still not synced.
func (m *FS) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	m.opened = 0
	clear(m.locks)
	m.faults = nil
}
