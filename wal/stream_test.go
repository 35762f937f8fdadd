package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

const testDir = "data/log"

// small makes segments and generations change often.
func small() Options {
	return Options{GenBytes: 6000, SegmentBytes: 2048, Salt: func() uint64 { return uint64(testSalt) }, NowMs: func() int64 { return 1700000000000 },
		Monotonic: func() time.Duration { return 0 }}
}

// payload is the body of record i: its number and a body that depends on it. That of each fourth is
// frames, for a reader that looks for frames to find.
func payload(i int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(i))
	if i%4 == 3 {
		b = forge(b, uint64(i)+2, 1)
	}
	for k := range (i*7)%90 + 1 {
		b = append(b, byte(i+k))
	}
	return b
}

func frameOf(i int) *Frame {
	f := NewFrame()
	f.Append(RecordEntries, uint32(i%5), payload(i))
	return f
}

type got struct {
	pos  []Position
	data []int
}

// collect is a replay that checks each record's content and remembers its number.
func collect(t testing.TB, g *got) func(Position, Record) error {
	return func(pos Position, r Record) error {
		if len(r.Data) < 4 {
			return fmt.Errorf("record of %d bytes", len(r.Data))
		}
		i := int(binary.LittleEndian.Uint32(r.Data))
		if !slices.Equal(r.Data, payload(i)) || r.Shard != uint32(i%5) || r.Type != RecordEntries {
			t.Errorf("record %d came back changed", i)
		}
		g.pos = append(g.pos, pos)
		g.data = append(g.data, i)
		return nil
	}
}

func mustOpen(t testing.TB, fsys vfs.FS, opt Options) (*Stream, *got) {
	t.Helper()
	g := &got{}
	s, err := Open(fsys, testDir, opt, collect(t, g))
	if err != nil {
		t.Fatal(err)
	}
	return s, g
}

// appendAll submits records from..to-1, one frame each, several frames per batch.
func appendAll(t testing.TB, s *Stream, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		must(t, s.Submit(frameOf(i), true, func(_ Position, err error) {
			if err != nil {
				t.Errorf("frame of record %d: %v", i, err)
			}
		}))
		if i%3 == 2 || i == to-1 {
			if _, err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// isPrefix fails unless data is 0,1,2,…
func isPrefix(t testing.TB, data []int) {
	t.Helper()
	for i, v := range data {
		if v != i {
			t.Fatalf("record %d at place %d", v, i)
		}
	}
}

func TestReopenReplaysAllInOrder(t *testing.T) {
	fsys := memfs.New()
	total := 0
	for round := range 5 {
		s, g := mustOpen(t, fsys, small())
		isPrefix(t, g.data)
		if len(g.data) != total {
			t.Fatalf("round %d: replayed %d of %d", round, len(g.data), total)
		}
		for i := 1; i < len(g.pos); i++ {
			if g.pos[i].Seq <= g.pos[i-1].Seq || g.pos[i].Gen < g.pos[i-1].Gen {
				t.Fatalf("position %v after %v", g.pos[i], g.pos[i-1])
			}
		}
		appendAll(t, s, total, total+100)
		total += 100
		if round%2 == 0 {
			must(t, s.Close())
			must(t, s.Close())
		} else {
			fsys.Kill()
		}
	}
	s, _ := mustOpen(t, fsys, small())
	if n := len(s.Generations()); n < 3 {
		t.Fatalf("only %d generations: the test does not test turns", n)
	}
}

func TestRunCompletesInOrderAndPositionsMatchReplay(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": memfs.New(), "os": prefixFS{vfs.OS{}, t.TempDir()}, "tidwall": vfs.OS{}} {
		t.Run(name, func(t *testing.T) {
			dir := testDir
			if name == "tidwall" {
				dir = t.TempDir()
			}
			s, err := Open(fsys, dir, small(), nil)
			must(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			ran := make(chan error, 1)
			go func() { ran <- s.Run(ctx) }()
			const writers, each = 8, 50
			var order []Position // written by the writer goroutine only
			byRecord := make([]Position, writers*each)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					f, done := NewFrame(), make(chan error, 1)
					for k := range each {
						i := w*each + k
						f.Reset()
						f.Append(RecordEntries, uint32(i%5), payload(i))
						err := s.Submit(f, i%4 != 0, func(p Position, err error) {
							order = append(order, p)
							byRecord[i] = p
							done <- err
						})
						if err == nil {
							err = <-done
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			cancel()
			must(t, <-ran)
			for i, p := range order {
				if p.Seq != uint64(i+1) {
					t.Fatalf("completion %d was of frame %d", i, p.Seq)
				}
			}
			g := &got{}
			s, err = Open(fsys, dir, small(), collect(t, g))
			must(t, err)
			for k, i := range g.data {
				if byRecord[i] != g.pos[k] {
					t.Fatalf("record %d: done said %v, replay %v", i, byRecord[i], g.pos[k])
				}
			}
			if len(g.data) != writers*each {
				t.Fatalf("replayed %d of %d", len(g.data), writers*each)
			}
			must(t, s.Close())
		})
	}
}

func TestSubmitLimits(t *testing.T) {
	opt := small()
	opt.QueueFrames = 2
	s, _ := mustOpen(t, memfs.New(), opt)
	var failed atomic.Int32
	count := func(_ Position, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	must(t, s.Submit(frameOf(0), true, count))
	must(t, s.Submit(frameOf(1), true, count))
	if err := s.Submit(frameOf(2), true, count); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("third frame in a queue of two: %v", err)
	}
	huge := NewFrame()
	huge.buf = make([]byte, MaxFrameBytes+1)
	if err := s.Submit(huge, true, nil); !errors.Is(err, ErrFrameTooLarge) {
		t.Fatalf("huge frame: %v", err)
	}
	must(t, s.Close())
	if err := s.Submit(frameOf(2), true, count); !errors.Is(err, ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
	if failed.Load() != 0 {
		t.Fatal("close dropped queued frames")
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		fs  vfs.FS
		dir string
	}{"mem": {memfs.New(), testDir}, "os": {vfs.OS{}, t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(c.fs, c.dir, small(), nil)
			must(t, err)
			if _, err := Open(c.fs, c.dir, small(), nil); !errors.Is(err, vfs.ErrLocked) {
				t.Fatalf("second open: %v", err)
			}
			must(t, s.Close())
			s, err = Open(c.fs, c.dir, small(), nil)
			must(t, err)
			must(t, s.Close())
		})
	}
}

func TestReplayErrorStopsOpenAndFreesTheLock(t *testing.T) {
	fsys := memfs.New()
	s, _ := mustOpen(t, fsys, small())
	appendAll(t, s, 0, 10)
	must(t, s.Close())
	stop := errors.New("stop")
	if _, err := Open(fsys, testDir, small(), func(Position, Record) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("open: %v", err)
	}
	_, g := mustOpen(t, fsys, small())
	if len(g.data) != 10 {
		t.Fatalf("replayed %d of 10", len(g.data))
	}
}

func TestFaultsPoison(t *testing.T) {
	eio := syscall.EIO
	for name, set := range map[string]func(*memfs.FS){
		"write":       func(m *memfs.FS) { m.FailNth(memfs.OpWrite, 1, eio) },
		"short write": func(m *memfs.FS) { m.ShortWriteNth(1, 10, eio) },
		"sync":        func(m *memfs.FS) { m.FailNth(memfs.OpSync, 1, eio) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := memfs.New()
			s, _ := mustOpen(t, fsys, small())
			appendAll(t, s, 0, 4)
			set(fsys)
			var results []error
			for i := 4; i < 7; i++ {
				must(t, s.Submit(frameOf(i), true, func(_ Position, err error) { results = append(results, err) }))
			}
			if _, err := s.Step(); !errors.Is(err, eio) {
				t.Fatalf("step: %v", err)
			}
			if len(results) != 3 {
				t.Fatalf("%d of 3 completed", len(results))
			}
			for _, err := range results {
				if !errors.Is(err, eio) {
					t.Fatalf("a waiting frame got %v", err)
				}
			}
			syncs := 0
			fsys.SetHook(func(_ int, op memfs.Op, _ string) error {
				if op == memfs.OpSync || op == memfs.OpWrite {
					syncs++
				}
				return nil
			})
			if err := s.Submit(frameOf(9), true, nil); !errors.Is(err, eio) {
				t.Fatalf("later frame: %v", err)
			}
			if err := s.DropBefore(9); !errors.Is(err, eio) {
				t.Fatalf("drop on a poisoned stream: %v", err)
			}
			if err := s.Close(); !errors.Is(err, eio) || syncs != 0 {
				t.Fatalf("close: %v, and %d writes or syncs after the failure", err, syncs)
			}
			fsys.SetHook(nil)
			_, g := mustOpen(t, fsys, small())
			isPrefix(t, g.data)
			if len(g.data) < 4 {
				t.Fatalf("lost acknowledged frames: %d of 4", len(g.data))
			}
		})
	}
}

func TestRunReturnsTheFailure(t *testing.T) {
	fsys := memfs.New()
	s, _ := mustOpen(t, fsys, small())
	fsys.SetHook(func(n int, op memfs.Op, _ string) error {
		if n > 60 && op == memfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	ran := make(chan error, 1)
	go func() { ran <- s.Run(context.Background()) }()
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		done := make(chan error, 1)
		if err = s.Submit(frameOf(i), true, func(_ Position, err error) { done <- err }); err == nil {
			err = <-done
		}
	}
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("submit: %v", err)
	}
	if err := <-ran; !errors.Is(err, syscall.EIO) {
		t.Fatalf("run: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	fsys := memfs.New()
	opt := small()
	opt.LowDiskBytes = 4096
	now := time.Duration(0)
	opt.Monotonic = func() time.Duration { return now }
	s, _ := mustOpen(t, fsys, opt)
	appendAll(t, s, 0, 5)
	if s.LowDisk() {
		t.Fatal("low on an empty disk")
	}
	sample := func(free int64) bool {
		fsys.SetFree(free)
		now += 2 * diskSampleEvery
		_, err := s.Step()
		must(t, err)
		return s.LowDisk()
	}
	for _, c := range []struct {
		free int64
		low  bool
	}{{5000, false}, {4096, true}, {5000, true}, {5200, false}, {5000, false}} {
		if sample(c.free) != c.low {
			t.Fatalf("free %d: low is %v", c.free, !c.low)
		}
	}
}

// TestFullDiskIsWaitedOut: a log that finds no room writes nothing, acknowledges nothing, and goes
// on by itself when there is some.
func TestFullDiskIsWaitedOut(t *testing.T) {
	for _, left := range []int64{0, 100, 2000, 2047} { // a segment is 2048 bytes
		fsys := memfs.New()
		opt, now, full := small(), time.Duration(0), false
		opt.Monotonic = func() time.Duration { return now }
		opt.Observe.Full = func(lack string) { full = lack != "" }
		s, _ := mustOpen(t, fsys, opt)
		appendAll(t, s, 0, 5)
		fsys.SetFree(left)
		acked, asked := 5, 5
		submit := func(n int) {
			for range n {
				must(t, s.Submit(frameOf(asked), true, func(p Position, err error) {
					if err != nil || p.Seq != uint64(acked+1) {
						t.Errorf("record %d: %v, %v", acked, p, err)
					}
					acked++
				}))
				asked++
			}
		}
		for range 100 {
			submit(3)
			now += roomEvery
			_, err := s.Step()
			must(t, err)
		}
		if !full || acked == asked {
			t.Fatalf("%d bytes left: full is %v, %d of %d acknowledged", left, full, acked, asked)
		}
		cut := fsys.CrashClone(rand.New(rand.NewPCG(1, 1)), memfs.CrashOptions{})
		cut.SetCapacity(0)
		_, g := mustOpen(t, cut, small())
		isPrefix(t, g.data)
		if len(g.data) < acked {
			t.Fatalf("%d acknowledged, %d there after a power cut", acked, len(g.data))
		}
		had := acked
		_, err := s.Step()
		must(t, err)
		fsys.SetCapacity(0)
		if _, err := s.Step(); err != nil || acked != had {
			t.Fatalf("it looks for room before it is time: %v", err)
		}
		now += roomEvery
		_, err = s.Step()
		must(t, err)
		if full || acked != asked {
			t.Fatalf("there is room: full is %v, %d of %d acknowledged", full, acked, asked)
		}
		must(t, s.Close())
		_, g = mustOpen(t, fsys, small())
		isPrefix(t, g.data)
		if len(g.data) != asked {
			t.Fatalf("%d acknowledged, %d there", asked, len(g.data))
		}
	}
}

// TestFullDiskAtTheEnd: a stream that is closed while it waits for room refuses the frames that
// wait, and its contents are whole.
func TestFullDiskAtTheEnd(t *testing.T) {
	fsys := memfs.New()
	s, _ := mustOpen(t, fsys, small())
	appendAll(t, s, 0, 5)
	fsys.SetFree(1000)
	refused, acked := 0, 5
	for i := 5; i < 90; i++ {
		must(t, s.Submit(frameOf(i), true, func(_ Position, err error) {
			if errors.Is(err, errNoRoom) {
				refused++
			} else if err == nil {
				acked++
			}
		}))
		_, err := s.Step()
		must(t, err)
	}
	must(t, s.Close())
	if refused == 0 || refused+acked != 90 {
		t.Fatalf("%d acknowledged, %d refused", acked, refused)
	}
	fsys.SetCapacity(0)
	_, g := mustOpen(t, fsys, small())
	if isPrefix(t, g.data); len(g.data) != acked {
		t.Fatalf("%d acknowledged, %d there", acked, len(g.data))
	}
}

// TestLargeFrameWaitsForRoom: a write that goes beyond a segment is not begun where there is no
// room for all of it.
func TestLargeFrameWaitsForRoom(t *testing.T) {
	fsys := memfs.New()
	opt, now := small(), time.Duration(0)
	opt.Monotonic = func() time.Duration { return now }
	s, _ := mustOpen(t, fsys, opt)
	appendAll(t, s, 0, 5)
	fsys.SetFree(6000)
	big := NewFrame()
	big.Append(RecordEntries, 1, make([]byte, 50_000))
	done := false
	must(t, s.Submit(big, true, func(_ Position, err error) { done = err == nil }))
	for range 5 {
		_, err := s.Step()
		must(t, err)
		now += roomEvery
	}
	if done {
		t.Fatal("written on a full disk")
	}
	fsys.SetCapacity(0)
	_, err := s.Step()
	must(t, err)
	if !done {
		t.Fatal("there is room")
	}
	must(t, s.Close())
}
