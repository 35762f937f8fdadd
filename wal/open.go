package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"carillon/internal/vfs"
)

// Open opens or creates the stream in dir: it takes the directory's lock, verifies every
// byte, gives each record to replay in order, cuts a torn or unused tail off, and begins a
// new segment. It leaves no goroutine behind: use Run or Step. Damage is a *CorruptionError,
// and nothing was changed then; an error of replay comes back wrapped. replay may be nil; see
// Options.Replayers for where it runs.
func Open(fsys vfs.FS, dir string, opt Options, replay func(pos Position, r Record) error) (*Stream, error) {
	lock, err := vfs.LockDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	s := &Stream{fs: fsys, dir: dir, opt: opt, lock: lock, wake: make(chan struct{}, 1)}
	if err := s.recover(replay); err != nil {
		lock.Close()
		return nil, err
	}
	// In memory, locks are no files.
	if at := (vfs.Place{Path: filepath.Join(dir, vfs.LockName)}); !at.Left(fsys) {
		s.w.lockAt = at
	}
	s.sampleDisk()
	return s, nil
}

func (s *Stream) recover(replay func(Position, Record) error) error {
	r := newReplayer(s.opt.Replayers, replay)
	sc := scanner{fs: s.fs, dir: s.dir, prepared: min(s.opt.SegmentBytes, leastSegmentBytes), frame: r.frame}
	found, err := sc.scan()
	if rerr := r.wait(); rerr != nil {
		return rerr // its subject comes before the place where the scan stopped
	}
	if err != nil {
		return err
	}
	if err := s.removeLeftovers(found); err != nil {
		return fmt.Errorf("wal: open %s: %w", s.dir, err)
	}
	if !found.fresh {
		if err := s.repair(found); err != nil {
			return fmt.Errorf("wal: repair %s: %w", s.dir, err)
		}
	}
	if err := s.unmarkEnd(); err != nil {
		return fmt.Errorf("wal: open %s: %w", s.dir, err)
	}
	if err := s.begin(found); err != nil {
		return fmt.Errorf("wal: open %s: %w", s.dir, err)
	}
	return nil
}

// removeLeftovers removes the files that a crash can leave behind: the spare segment, generations
// that were dropped already, one that was begun without a segment. It makes the names in the
// directory durable, even if syncs of an earlier process failed. FIRST goes before the generations
// that it gives up.
func (s *Stream) removeLeftovers(found *streamScan) error {
	if len(found.old) > 0 && !found.fresh {
		if err := writeBounds(s.fs, s.dir, firstName, firstMagic, found.first); err != nil {
			return err
		}
	}
	if err := vfs.RemoveTree(s.fs, filepath.Join(s.dir, preallocatedDir)); err != nil {
		return err
	}
	for _, gen := range slices.Concat(found.old, found.empty) {
		if err := vfs.RemoveTree(s.fs, genPath(s.dir, gen)); err != nil {
			return err
		}
	}
	if err := vfs.ResyncDir(s.fs, s.dir); err != nil {
		return err
	}
	return s.syncParents()
}

// syncParents makes durable that the directory is there: a killed process may have made it and
// not synced its parents. A parent that we may not read was not made by us.
func (s *Stream) syncParents() error {
	for dir := filepath.Clean(s.dir); dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		if err := s.fs.SyncDir(dir); errors.Is(err, fs.ErrPermission) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// unmarkEnd removes the END file, durably, before anything is appended behind it.
func (s *Stream) unmarkEnd() error {
	err := s.fs.Remove(filepath.Join(s.dir, endName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// begin starts the segment that will be appended to. An empty last one is replaced by its
// own name; otherwise a full generation is closed.
func (s *Stream) begin(found *streamScan) error {
	s.gens, s.salt = found.gens, found.chain.salt
	s.w.seq = found.chain.next - 1
	s.w.prevHash = found.chain.prevHash
	s.w.synced = s.w.seq
	s.durable.Store(s.w.synced)
	if found.fresh {
		s.salt = salt(s.opt.Salt())
		if err := s.roll(1, 1, 0); err != nil {
			return err
		}
		return writeBounds(s.fs, s.dir, firstName, firstMagic, bounds{gen: 1, seq: 1, salt: s.salt})
	}
	g := s.gens[len(s.gens)-1]
	s.w.gen, s.w.genBytes = g.Gen, g.Bytes
	next := g.Gen
	if found.last.end > 0 && g.Bytes >= s.opt.GenBytes {
		next++
	}
	return s.roll(next, found.chain.next, found.chain.prevHash)
}

func sortGenerations(gens []generation) []generation {
	slices.SortFunc(gens, func(a, b generation) int { return cmp.Compare(a.num, b.num) })
	return gens
}
