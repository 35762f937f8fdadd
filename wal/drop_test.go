package wal

import (
	"context"
	"errors"
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
