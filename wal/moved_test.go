package wal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"carillon/internal/vfs"
)

// TestDirectoryGoesUnderARunningStream: a directory, or a file in it, that is not the one any more
// that is being written ends the stream within a second, and nothing is acknowledged after.
func TestDirectoryGoesUnderARunningStream(t *testing.T) {
	segment := func(dir string) string { return filepath.Join(genPath(dir, 1), segmentName(1)) }
	for name, spoil := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+"-moved") },
		"replaced by a copy": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.CopyFS(dir, os.DirFS(dir+"-moved")))
		},
		"its parent deleted": func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"a file in its place": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, vfs.FilePerm))
		},
		"its lock deleted":    func(dir string) error { return os.Remove(filepath.Join(dir, vfs.LockName)) },
		"its segment deleted": func(dir string) error { return os.Remove(segment(dir)) },
		"its segment replaced": func(dir string) error {
			return errors.Join(os.Rename(segment(dir), segment(dir)+"-moved"), os.WriteFile(segment(dir), nil, vfs.FilePerm))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := filepath.Join(t.TempDir(), "data", "wal"), time.Duration(0)
			opt := small()
			opt.Monotonic = func() time.Duration { return now }
			s, err := Open(vfs.OS{}, dir, opt, nil)
			must(t, err)
			add := func() (acked error, stepped error) {
				acked = errors.New("not called")
				must(t, s.Submit(frameOf(1), true, func(_ Position, err error) { acked = err }))
				_, stepped = s.Step()
				return acked, stepped
			}
			for range 3 {
				now += diskSampleEvery
				if acked, stepped := add(); acked != nil || stepped != nil {
					t.Fatal(acked, stepped)
				}
			}
			must(t, spoil(dir))
			now += diskSampleEvery
			if acked, stepped := add(); !errors.Is(acked, errMoved) || !errors.Is(stepped, errMoved) {
				t.Errorf("acknowledged: %v; step: %v", acked, stepped)
			}
			if err := s.Close(); !errors.Is(err, errMoved) {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestMovedDirectoryHasAllThatWasAcknowledged: no segment is begun in a directory that took the place
// of one that was moved.
func TestMovedDirectoryHasAllThatWasAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	s, err := Open(vfs.OS{}, dir, small(), nil)
	must(t, err)
	must(t, os.Rename(dir, dir+"-moved"))
	acked := 0
	for err = nil; err == nil && acked < 1000; {
		must(t, s.Submit(frameOf(acked), true, func(_ Position, err error) {
			if err == nil {
				acked++
			}
		}))
		_, err = s.Step()
	}
	if !errors.Is(err, errMoved) || acked == 0 || !errors.Is(s.Close(), errMoved) {
		t.Fatal(acked, err)
	}
	g := &got{}
	s, err = Open(vfs.OS{}, dir+"-moved", small(), collect(t, g))
	must(t, err)
	if len(g.data) != acked {
		t.Errorf("%d frames of %d", len(g.data), acked)
	}
	must(t, s.Close())
}

// TestSegmentsThatFollowAreFollowed: a stream that goes from segment to segment, and drops
// generations, stays where it is.
func TestSegmentsThatFollowAreFollowed(t *testing.T) {
	now := time.Duration(0)
	opt := small()
	opt.Monotonic = func() time.Duration { return now }
	s, err := Open(vfs.OS{}, filepath.Join(t.TempDir(), "wal"), opt, nil)
	must(t, err)
	for i := range 300 {
		now += diskSampleEvery
		must(t, s.Submit(frameOf(i), true, nil))
		_, err := s.Step()
		must(t, err)
		if i == 200 {
			must(t, s.DropBefore(s.Generation()))
		}
	}
	if s.Generation() < 3 {
		t.Errorf("only %d generations", s.Generation())
	}
	must(t, s.Close())
}
