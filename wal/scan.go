package wal

import (
	"errors"
	"fmt"
	"path/filepath"

	"carillon/internal/vfs"
)

// streamScan is the result of a read through a whole stream.
type streamScan struct {
	fresh  bool // nothing was ever written
	closed bool // cleanly: by the END file
	first  bounds
	gens   []GenInfo // ascending; those without a segment are left out
	empty  []uint64  // directories of generations without a segment
	old    []uint64  // generations before FIRST: a drop that was not finished
	chain  chain
	last   lastSegment
}

// lastSegment is the only one that a crash can leave incomplete.
type lastSegment struct {
	dir, name string
	end       int64  // after the last good frame
	size      int64  // of the file
	kept      []byte // up to end; shares the scan's buffer, as tail does
	tail      []byte // from end on
	bad       error  // why the frame at end is no good
}

type generation struct {
	num      uint64
	segments []uint64 // first sequence numbers, ascending
}

// scanner reads a stream without changing it.
type scanner struct {
	fs       vfs.FS
	dir      string
	prepared int64 // the least length that the last segment was prepared to
	frame    func(gen uint64, segment string, off int64, h header, records []byte) error
	buf      []byte
	before   string // path of the segment that was read last
	out      streamScan
}

// scan verifies every byte of the stream, in order, and calls frame for each good one.
// All damage but that after the last good frame of the last segment is an error.
func (s *scanner) scan() (*streamScan, error) {
	gens, err := listGenerations(s.fs, s.dir)
	if err != nil {
		return nil, fmt.Errorf("wal: list %s: %w", s.dir, err)
	}
	first, created, err := readBounds(s.fs, s.dir, firstName, firstMagic)
	if err != nil {
		return nil, err
	}
	if !created {
		return s.unfinished(gens)
	}
	s.out.first = first
	if gens, err = s.arrange(gens); err != nil {
		return nil, err
	}
	s.out.chain = chain{next: s.out.first.seq, prevHash: s.out.first.prevHash, salt: s.out.first.salt}
	for i, g := range gens {
		if err := s.generation(g, i == len(gens)-1); err != nil {
			return nil, err
		}
	}
	if err := s.checkEnd(); err != nil {
		return nil, err
	}
	if err := s.checkCut(); err != nil {
		return nil, err
	}
	return &s.out, nil
}

// checkEnd refuses a stream that is shorter than when it was closed.
func (s *scanner) checkEnd() error {
	end, closed, err := readBounds(s.fs, s.dir, endName, endMagic)
	if err != nil || !closed {
		return err
	}
	s.out.closed = true
	if end.salt != s.out.first.salt {
		return &CorruptionError{Dir: s.dir, Segment: endName, Err: errSalt}
	}
	l := s.out.last
	if c := s.out.chain; c.next != end.seq || c.prevHash != end.prevHash {
		return &CorruptionError{Dir: l.dir, Segment: l.name, Offset: l.end, Seq: c.next,
			Err: fmt.Errorf("%w (frame %d)", errNotTheEnd, end.seq-1)}
	}
	return nil
}

// checkCut refuses a last segment that was cut inside a frame. No crash does that: the file keeps
// its prepared length until roll or the end cuts it behind its last frame. A torn write leaves
// sectors of that frame and zeros, so a length that can be read is the right one and fits into the
// file. Only a write that went beyond the prepared space may have left less; its file is not short.
func (s *scanner) checkCut() error {
	l := s.out.last
	if s.out.closed || l.size >= s.prepared || !errors.Is(l.bad, errTruncated) {
		return nil
	}
	return &CorruptionError{Dir: l.dir, Segment: l.name, Offset: l.end, Seq: s.out.chain.next, Err: errCutOff}
}

// unfinished handles a stream without a FIRST file: its creation was not finished, which is
// the case only as long as no frame was written.
func (s *scanner) unfinished(gens []generation) (*streamScan, error) {
	missing := &CorruptionError{Dir: s.dir, Segment: firstName, Err: errMissing}
	for _, g := range gens {
		s.out.old = append(s.out.old, g.num)
		if g.num != 1 || len(g.segments) > 1 {
			return nil, missing
		}
		for _, seq := range g.segments {
			if err := s.read(g.num, seq); err != nil {
				return nil, err
			}
			if !allZero(s.buf) {
				return nil, missing
			}
		}
	}
	s.out.fresh = true
	s.out.chain = chain{next: 1}
	return &s.out, nil
}

// arrange sorts the generations into those to read and those to remove, and refuses gaps.
func (s *scanner) arrange(gens []generation) ([]generation, error) {
	for len(gens) > 0 && gens[0].num < s.out.first.gen {
		s.out.old = append(s.out.old, gens[0].num)
		gens = gens[1:]
	}
	if n := len(gens); n > 0 && len(gens[n-1].segments) == 0 {
		s.out.empty = append(s.out.empty, gens[n-1].num)
		gens = gens[:n-1]
	}
	want := s.out.first.gen
	for _, g := range gens {
		if g.num != want || len(g.segments) == 0 {
			break
		}
		want++
	}
	if want != s.out.first.gen+uint64(len(gens)) || len(gens) == 0 {
		return nil, &CorruptionError{Dir: genPath(s.dir, want), Err: errMissing}
	}
	return gens, nil
}

func (s *scanner) generation(g generation, newest bool) error {
	info := GenInfo{Gen: g.num, FirstSeq: s.out.chain.next, prevHash: s.out.chain.prevHash}
	for i, seq := range g.segments {
		if seq != s.out.chain.next {
			return &CorruptionError{Dir: genPath(s.dir, g.num), Segment: segmentName(seq), Seq: s.out.chain.next, Err: s.gap()}
		}
		end, err := s.segment(g.num, seq, newest && i == len(g.segments)-1)
		if err != nil {
			return err
		}
		info.Bytes += end
	}
	info.LastSeq = s.out.chain.next - 1
	s.out.gens = append(s.out.gens, info)
	return nil
}

// gap names the segment before, too: it may have lost its end.
func (s *scanner) gap() error {
	if s.before == "" {
		return errGap
	}
	return fmt.Errorf("%w: %s", errGap, s.before)
}

func (s *scanner) segment(gen, seq uint64, last bool) (end int64, err error) {
	if err := s.read(gen, seq); err != nil {
		return 0, err
	}
	dir, name := genPath(s.dir, gen), segmentName(seq)
	s.before = filepath.Join(dir, name)
	visit := func(off int, h header, records []byte) error {
		return s.frame(gen, name, int64(off), h, records)
	}
	n, bad, err := s.out.chain.scan(s.buf, visit)
	if err != nil {
		return 0, err
	}
	damage := &CorruptionError{Dir: dir, Segment: name, Offset: int64(n), Seq: s.out.chain.next, Err: bad}
	if bad != nil && !last {
		return 0, damage
	}
	if last {
		tail := s.buf[n:]
		if bad != nil && (errors.Is(bad, errVersion) || classifyTail(s.out.chain.salt, tail, s.out.chain.next) == tailDurable) {
			damage.Err = fmt.Errorf("%w; %w", bad, errWasDurable)
			return 0, damage
		}
		s.out.last = lastSegment{dir: dir, name: name, end: int64(n), size: int64(len(s.buf)), kept: s.buf[:n], tail: tail, bad: bad}
	}
	return int64(n), nil
}

// read takes a segment file into the scan's buffer.
func (s *scanner) read(gen, seq uint64) error {
	dir, name := genPath(s.dir, gen), segmentName(seq)
	buf, err := vfs.ReadFile(s.fs, filepath.Join(dir, name), s.buf, maxSegmentFileBytes)
	if errors.Is(err, vfs.ErrTooLarge) {
		return &CorruptionError{Dir: dir, Segment: name, Seq: seq, Err: errSegmentSize}
	}
	if err != nil {
		return fmt.Errorf("wal: read %s: %w", filepath.Join(dir, name), err)
	}
	s.buf = buf
	return nil
}

// listGenerations lists the names that look like generations, in order; other names are not ours.
func listGenerations(fsys vfs.FS, dir string) ([]generation, error) {
	list, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var gens []generation
	for _, e := range list {
		num, ok := parseGenName(e.Name)
		if !ok || !e.Dir {
			continue
		}
		files, err := fsys.ReadDir(filepath.Join(dir, e.Name))
		if err != nil {
			return nil, err
		}
		g := generation{num: num}
		for _, f := range files { // equal length, so name order is number order
			if seq, ok := parseSegmentName(f.Name); ok && !f.Dir {
				g.segments = append(g.segments, seq)
			}
		}
		gens = append(gens, g)
	}
	return sortGenerations(gens), nil
}
