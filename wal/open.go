package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Open opens or creates the stream in dir: it takes the directory's lock, verifies every
// byte, gives each record to replay in order, cuts a torn or unused tail off, and begins a
// new segment. It leaves no goroutine behind: use Run or Step. Damage is a *CorruptionError,
// and nothing was changed then; an error of replay comes back wrapped. replay may be nil; see
// Options.Replayers for where it runs.
func Open(fsys FS, dir string, opt Options, replay func(pos Position, r Record) error) (*Stream, error) {
	lock, err := LockDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	opt = opt.withDefaults()
	s := &Stream{fs: fsys, dir: dir, opt: opt, lock: lock, wake: make(chan struct{}, 1)}
	if err := s.recover(replay); err != nil {
		lock.Close()
		return nil, err
	}
	s.sampleDisk()
	return s, nil
}

func (s *Stream) recover(replay func(Position, Record) error) error {
	r := newReplayer(s.opt.Replayers, replay)
	sc := scanner{fs: s.fs, dir: s.dir, frame: r.frame}
	found, err := sc.scan()
	if rerr := r.wait(); rerr != nil {
		return rerr // what it is of comes before what the scan stopped at
	}
	if err != nil {
		return err
	}
	if err := s.tidy(found); err != nil {
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

// tidy removes what a crash can leave behind: the spare segment, generations that were
// dropped already, one that was begun without a segment.
func (s *Stream) tidy(found *streamScan) error {
	if err := removeTree(s.fs, filepath.Join(s.dir, spareDir)); err != nil {
		return err
	}
	for _, gen := range slices.Concat(found.old, found.empty) {
		if err := removeTree(s.fs, genPath(s.dir, gen)); err != nil {
			return err
		}
	}
	return s.settle(s.dir)
}

// settle makes durable what a killed process may have left in memory only: the entries
// of dir, and dir itself. A parent that we may not read was not made by us.
func (s *Stream) settle(dir string) error {
	if err := s.fs.SyncDir(dir); err != nil {
		return err
	}
	err := s.fs.SyncDir(filepath.Dir(filepath.Clean(dir)))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// repair cuts the last segment after its last good frame and makes it durable: what was
// replayed may have been in memory only. What is cut off is kept in a .broken file, unless
// it is prepared space that was never used.
func (s *Stream) repair(found *streamScan) error {
	l := found.last
	path := filepath.Join(l.dir, l.name)
	if cut := trimZeros(l.tail); len(cut) > 0 {
		if err := writeSynced(s.fs, fmt.Sprintf("%s.%d%s", path, l.end, brokenSuffix), cut); err != nil {
			return err
		}
	}
	if err := s.settle(l.dir); err != nil {
		return err
	}
	f, err := s.fs.OpenFile(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	if l.end < l.size {
		if err := f.Truncate(l.end); err != nil {
			return err
		}
	}
	return f.Sync()
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
	s.gens = found.gens
	s.w.seq = found.chain.next - 1
	s.w.prevHash = found.chain.prevHash
	s.w.synced = s.w.seq
	if found.fresh {
		if err := s.turn(1, 1, 0); err != nil {
			return err
		}
		return writeMark(s.fs, s.dir, firstName, firstMagic, mark{gen: 1, seq: 1})
	}
	g := s.gens[len(s.gens)-1]
	s.w.gen, s.w.genBytes = g.Gen, g.Bytes
	next := g.Gen
	if found.last.end > 0 && g.Bytes >= s.opt.GenBytes {
		next++
	}
	return s.turn(next, found.chain.next, found.chain.prevHash)
}

func sortGenerations(gens []generation) []generation {
	slices.SortFunc(gens, func(a, b generation) int { return cmp.Compare(a.num, b.num) })
	return gens
}
