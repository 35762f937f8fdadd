package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"carillon/internal/vfs"
)

// Report is the result of Verify. Bytes counts verified frames and snapshot data.
type Report struct {
	Streams     int
	Generations int
	Frames      uint64
	Records     uint64
	Snapshots   int
	Bytes       int64
	Problems    []error  // damage, or files that could not be read; each names file and offset
	Notes       []string // harmless: tails that the next open cuts off, leftovers
}

// Verify reads every stream and snapshot at or below dir and checks every byte of them,
// changing nothing. The error joins the report's problems. A stream in use may show the
// tail that is just being written as a note.
func Verify(fsys vfs.FS, dir string) (Report, error) {
	s := &survey{fs: fsys}
	if err := s.walk(dir, 0); err != nil {
		s.problem(err)
	}
	return s.report, errors.Join(s.report.Problems...)
}

// maxDepth bounds the directories that a survey descends.
const maxDepth = 8

// survey walks a directory tree read-only; the hooks, if set, get each file that it meets.
type survey struct {
	fs       vfs.FS
	report   Report
	frame    func(gen uint64, segment string, off int64, h header, records []byte)
	stream   func(dir string)
	scanned  func(dir string, found *streamScan)
	snapshot func(path string, r *SnapshotReader)
	trouble  func(err error)
	remark   func(note string)
}

func (s *survey) problem(err error) {
	s.report.Problems = append(s.report.Problems, err)
	if s.trouble != nil {
		s.trouble(err)
	}
}

func (s *survey) addNote(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	s.report.Notes = append(s.report.Notes, n)
	if s.remark != nil {
		s.remark(n)
	}
}

func (s *survey) walk(dir string, depth int) error {
	list, err := s.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("wal: list %s: %w", dir, err)
	}
	if isStream(list) {
		s.readStream(dir)
		return nil
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name)
		switch {
		case e.Dir && depth < maxDepth:
			if err := s.walk(path, depth+1); err != nil {
				s.problem(err)
			}
		case strings.HasSuffix(e.Name, snapshotSuffix):
			s.readSnapshot(dir, e.Name)
		case isUnfinished(e.Name):
			s.addNote("%s: snapshot that was not finished", path)
		}
	}
	return nil
}

// isStream recognises a stream directory by its FIRST file or a generation in it.
func isStream(list []vfs.DirEntry) bool {
	for _, e := range list {
		if _, gen := parseGenName(e.Name); e.Dir && gen || !e.Dir && (e.Name == firstName || e.Name == endName) {
			return true
		}
	}
	return false
}

func (s *survey) readStream(dir string) {
	s.report.Streams++
	if s.stream != nil {
		s.stream(dir)
	}
	sc := scanner{fs: s.fs, dir: dir, prepared: leastSegmentBytes}
	sc.frame = func(gen uint64, segment string, off int64, h header, records []byte) error {
		n, _ := checkRecords(records)
		s.report.Frames++
		s.report.Records += uint64(n)
		s.report.Bytes += int64(frameHeaderBytes + len(records))
		if s.frame != nil {
			s.frame(gen, segment, off, h, records)
		}
		return nil
	}
	found, err := sc.scan()
	if err != nil {
		s.problem(err)
		return
	}
	s.report.Generations += len(found.gens)
	s.describeTail(found)
	s.describeBroken(dir, found)
	if s.scanned != nil {
		s.scanned(dir, found)
	}
}

func (s *survey) describeTail(found *streamScan) {
	l := found.last
	path := filepath.Join(l.dir, l.name)
	if cut := trimZeros(l.tail); len(cut) > 0 {
		s.addNote("%s: torn tail of %d bytes at offset %d (%v): the next open cuts it off", path, len(cut), l.end, l.bad)
	} else if l.end < l.size {
		s.addNote("%s: %d bytes of prepared space from offset %d", path, l.size-l.end, l.end)
	}
	for _, gen := range found.old {
		s.addNote("generation %d was dropped: the next open removes its files", gen)
	}
}

func (s *survey) describeBroken(dir string, found *streamScan) {
	for _, g := range found.gens {
		list, err := s.fs.ReadDir(genPath(dir, g.Gen))
		if err != nil {
			continue // gone since the scan
		}
		for _, e := range list {
			if strings.HasSuffix(e.Name, brokenSuffix) {
				s.addNote("%s: %d bytes cut off by an earlier open", filepath.Join(genPath(dir, g.Gen), e.Name), e.Bytes)
			}
		}
	}
}

func (s *survey) readSnapshot(dir, name string) {
	r, err := OpenSnapshot(s.fs, dir, name)
	if errors.Is(err, ErrNoSnapshot) {
		return // a node that runs has removed it since the directory was listed
	}
	if err != nil {
		s.problem(err)
		return
	}
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		s.problem(err)
		return
	}
	s.report.Snapshots++
	s.report.Bytes += n
	if s.snapshot != nil {
		s.snapshot(filepath.Join(dir, name), r)
	}
}
