package wal

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

func TestDropBeforeRemovesWholeGenerations(t *testing.T) {
	fsys := memfs.New()
	opt := small()
	s, _ := mustOpen(t, fsys, opt)
	appendAll(t, s, 0, 300)
	before := s.Generations()
	if len(before) < 4 {
		t.Fatalf("%d generations", len(before))
	}
	must(t, s.DropBefore(3))
	must(t, s.DropBefore(3))
	if s.Generations()[0].Gen != 3 {
		t.Fatalf("oldest is %d", s.Generations()[0].Gen)
	}
	must(t, s.DropBefore(1<<60)) // never the one being written
	if g := s.Generations(); len(g) != 1 || g[0].Gen != s.Generation() {
		t.Fatalf("left %v", g)
	}
	first := s.Generations()[0].FirstSeq
	appendAll(t, s, 300, 310)
	must(t, s.Close())
	if err := s.DropBefore(9); !errors.Is(err, ErrClosed) {
		t.Fatalf("drop after close: %v", err)
	}
	_, g := mustOpen(t, fsys, opt)
	if len(g.data) == 0 || g.data[0] != int(first)-1 || g.data[len(g.data)-1] != 309 {
		t.Fatalf("%d records back, first frame %d", len(g.data), first)
	}
}

// TestDropIsTriedAgain: files of a generation that could not be removed are removed by the next
// drop, not only at the next start.
func TestDropIsTriedAgain(t *testing.T) {
	fsys := memfs.New()
	s, _ := mustOpen(t, fsys, small())
	appendAll(t, s, 0, 300)
	list := s.Generations()
	last := list[len(list)-1].Gen
	for _, gen := range []uint64{list[1].Gen, last} {
		broken := genPath(s.dir, gen-1) + "/"
		fsys.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpRemove && strings.HasPrefix(name, broken) {
				return syscall.EIO
			}
			return nil
		})
		if err := s.DropBefore(gen); !errors.Is(err, syscall.EIO) {
			t.Fatalf("dropped before %d: %v", gen, err)
		}
	}
	left, err := listGenerations(fsys, s.dir)
	must(t, err)
	if len(left) != 2 {
		t.Fatalf("one that cannot be removed keeps others: %v", left)
	}
	fsys.SetHook(nil)
	must(t, s.DropBefore(last))
	left, err = listGenerations(fsys, s.dir)
	must(t, err)
	if len(left) != 1 || left[0].num != last {
		t.Fatalf("left on disk: %v", left)
	}
	must(t, s.Close())
}

func TestDropWhileAppending(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(vfs.OS{}, dir, small(), nil)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	dropped := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				dropped <- nil
				return
			default:
			}
			if err := s.DropBefore(s.Generation()); err != nil {
				dropped <- err
				return
			}
		}
	}()
	for i := range 600 {
		done := make(chan error, 1)
		must(t, s.Submit(frameOf(i), i%8 == 0, func(_ Position, err error) { done <- err }))
		must(t, <-done)
	}
	close(stop)
	must(t, <-dropped)
	cancel()
	must(t, <-ran)
	g := &got{}
	s, err = Open(vfs.OS{}, dir, small(), collect(t, g))
	must(t, err)
	must(t, s.Close())
	if n := len(g.data); n == 0 || g.data[n-1] != 599 || g.data[0] != 600-n {
		t.Fatalf("%d records back", n)
	}
}
