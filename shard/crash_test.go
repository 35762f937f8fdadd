package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/memfs"
	"carillon/test/sim/forged"
	"carillon/timer"
)

// promised is the acknowledged state of each timer: its lowest possible version, and whether it was
// cancelled.
type promised map[string]lastAck

type lastAck struct {
	version   uint32
	cancelled bool
}

// crashPoint is a disk after a power cut, with all that had been acknowledged by then.
type crashPoint struct {
	fs       *memfs.FS
	promised promised
	starts   map[string]int // started calls by timer
	at       string
}

// TestI10EveryCrashPoint cuts the power before every single disk operation. Unsynced data is lost,
// kept or torn. Everything acknowledged is recovered, and every started call is counted.
func TestI10EveryCrashPoint(t *testing.T) {
	runs := scripts(t, 4)
	points := 0
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			list := crashPoints(t, rng)
			points += len(list)
			for _, p := range list {
				p.check(t)
				if t.Failed() {
					t.Fatalf("seed %d: power cut before %s", seed, p.at)
				}
			}
		})
	}
	t.Logf("%d crash points", points)
	if points < 100*runs {
		t.Errorf("only %d crash points in %d runs", points, runs)
	}
}

// crashPoints runs a host through adds, changes, calls, snapshots and log rotations.
func crashPoints(t *testing.T, rng *rand.Rand) (list []crashPoint) {
	told, starts := promised{}, map[string]int{}
	r := makeHarness(t, memfs.New(), func(c *Config) { c.Log.GenBytes, c.Log.SegmentBytes = 8<<10, 2<<10 })
	r.bubble = true
	r.calls.auto = 200
	r.calls.onStart = func(c *fakeCall) { starts[c.Job.ID]++ }
	var open []*pending
	look := func() {
		keep := open[:0]
		for _, p := range open {
			if !p.answered() {
				keep = append(keep, p)
				continue
			}
			told.learn(p)
		}
		open = keep
	}
	r.fs.SetHook(func(n int, op memfs.Op, name string) error {
		if !op.Changes() {
			return nil
		}
		if strings.Contains(name, "snapshots/") {
			r.gate.Pass()
		}
		if rng.IntN(3) == 0 {
			return nil
		}
		keep := func() int { return 50 * rng.IntN(3) }
		fs := r.fs.CrashClone(rng, memfs.CrashOptions{KeepData: keep(), KeepSize: keep(), KeepNames: keep(), BlockBytes: 512, Garbage: rng.IntN(2) == 0})
		look()
		p := crashPoint{fs: fs, promised: promised{}, starts: map[string]int{}, at: fmt.Sprintf("operation %d, %v %s", n, op, name)}
		for id, v := range told {
			p.promised[id] = v
		}
		for id, v := range starts {
			p.starts[id] = v
		}
		list = append(list, p)
		return nil
	})
	r.mustOpen()
	defer r.abort()
	for n := range 60 {
		id := fmt.Sprint("t", rng.IntN(n+1))
		due := r.clock.wallMs + rng.Int64N(3000)
		cmd := timer.Command{Kind: timer.Cancel, Topic: 1, ID: id}
		switch {
		case n%2 == 0:
			cmd = timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", n), Spec: &timer.Spec{DueMs: due, Payload: forged.Payload(uint64(n)), PayloadKind: timer.BinaryPayload}}
		case n%3 == 0:
			cmd = timer.Command{Kind: timer.Modify, Topic: 1, ID: id, Patch: &timer.Patch{Spec: timer.Spec{DueMs: due}, Due: true}}
		}
		open = append(open, r.mustSubmit(cmd))
		for range rng.IntN(4) {
			r.turn()
			look()
		}
		r.step(time.Duration(rng.IntN(100)) * time.Millisecond)
		if n%15 == 14 && r.host.workers[0].snapshot == nil {
			r.host.workers[0].beginSnapshot(r.host.group(1 + 0))
			synctest.Wait()
			r.runIdle()
			_ = r.host.dropLog()
		}
	}
	r.runIdle()
	look()
	r.fs.SetHook(nil)
	return list
}

func (p promised) learn(a *pending) {
	if a.op.err != nil {
		return
	}
	v := p[a.cmd.ID]
	switch a.op.result.Code {
	case timer.Created:
		v.version = max(v.version, 1)
	case timer.OK:
		v.version = max(v.version, a.op.result.Timer.Version)
	case timer.Prevented:
		v.cancelled = true
	default:
		return
	}
	p[a.cmd.ID] = v
}

// check opens the disk and verifies it.
func (p *crashPoint) check(t *testing.T) {
	r := makeHarness(t, p.fs, func(c *Config) {
		c.Log.GenBytes, c.Log.SegmentBytes = 8<<10, 2<<10
		if c.Meta = nil; len(p.promised) == 0 { // the node was never ready
			c.Meta = &soleRows(1, c.Node)[0]
		}
	})
	r.bubble, r.starts = true, 1
	r.clock.wallMs += 10_000
	r.topics = fakeTopics{} // nothing fires
	if err := r.open(); err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer r.abort()
	for id, want := range p.promised {
		v := r.table().Read(1, id)
		switch {
		case v == nil:
			t.Errorf("I1: %s is gone", id)
		case v.Version < want.version:
			t.Errorf("%s has version %d, %d was acknowledged", id, v.Version, want.version)
		case want.cancelled && v.State != timer.Cancelled:
			t.Errorf("%s is in state %d, its cancel was acknowledged", id, v.State)
		}
	}
	for id, n := range p.starts {
		if v := r.table().Read(1, id); v == nil || v.Attempts < n {
			t.Errorf("I3: %s was called %d times: %+v", id, n, v)
		}
	}
	if err := r.table().Audit(true); err != nil {
		t.Error(err)
	}
}

// TestI20DiskErrors: after a failed write or sync nothing is acknowledged any more, and the host
// stops.
func TestI20DiskErrors(t *testing.T) {
	broken := errors.New("input/output error")
	for _, op := range []memfs.Op{memfs.OpWrite, memfs.OpSync} {
		for nth := 1; nth <= 12; nth++ {
			t.Run(fmt.Sprintf("%v %d", op, nth), func(t *testing.T) {
				r := newHostHarness(t, nil)
				r.fs.FailNth(op, nth, broken)
				var list []*pending
				failedAt := -1
				for i := range 20 {
					list = append(list, r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", i), Spec: &timer.Spec{DueMs: r.clock.wallMs + 5}}))
					r.turn()
					if r.failed != nil && failedAt < 0 {
						failedAt = i
					}
					r.step(time.Millisecond)
				}
				if failedAt < 0 {
					t.Fatal("the fault did not strike")
				}
				acked := map[string]bool{}
				for i, p := range list {
					if p.answered() && p.op.err == nil {
						acked[p.cmd.ID] = true
						if i >= failedAt {
							t.Errorf("%s was acknowledged, the disk failed at %d", p.cmd.ID, failedAt)
						}
					}
				}
				if err := r.failure(); !errors.Is(err, broken) {
					t.Errorf("the host was stopped with %v", err)
				}
				calls := r.calls.take()
				r.fs = r.fs.CrashClone(calm{}, zeroLoss)
				r.abort()
				r.topics = fakeTopics{}
				r.mustOpen()
				for id := range acked {
					if v := r.table().Read(1, id); v == nil {
						t.Errorf("I1: %s is gone", id)
					}
				}
				for _, c := range calls {
					if v := r.table().Read(1, c.Job.ID); v == nil || v.Attempts < c.Job.Attempts {
						t.Errorf("I3: %s was called, its lease is gone: %+v", c.Job.ID, v)
					}
				}
			})
		}
	}
}

// TestLowDisk: while the disk is almost full, adds are refused; cancels, reads and firing continue.
// Adds resume once there is space.
func TestLowDisk(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Log.LowDiskBytes = 1 << 20; c.Log.SegmentBytes = 64 << 10 })
	r.calls.auto = 200
	r.add("fires", 3*time.Second)
	r.add("goes", time.Hour)
	r.fs.SetCapacity(2 << 20)
	r.pass(2 * time.Second)
	r.fs.SetCapacity(1 << 20)
	r.pass(2 * time.Second)
	for _, kind := range []timer.Kind{timer.Add, timer.Put} {
		if _, err := r.try(timer.Command{Kind: kind, ID: "x", Spec: &timer.Spec{DueMs: 1}}); !errors.Is(err, timer.ErrLowDisk) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "goes"}); got.Code != timer.Prevented {
		t.Error(got.Code)
	}
	r.wantCalls("fires")
	r.wantState("fires", "done 1")
	r.fs.SetCapacity(0)
	r.pass(2 * time.Second)
	r.add("x", time.Hour)
}

func TestMemoryLimit(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.MemoryLimit = 1 << 20 })
	r.add("a", time.Hour)
	r.host.memory.Store(1<<20 + 1)
	if _, err := r.try(timer.Command{Kind: timer.Add, ID: "x", Spec: &timer.Spec{DueMs: 1}}); !errors.Is(err, timer.ErrMemory) {
		t.Error(err)
	}
	large := timer.Patch{Payload: true, Spec: timer.Spec{PayloadKind: timer.BinaryPayload, Payload: make([]byte, 9000)}}
	if _, err := r.try(timer.Command{Kind: timer.Modify, ID: "a", Patch: &large}); !errors.Is(err, timer.ErrMemory) {
		t.Error("a patch that brings a payload:", err)
	}
	if got := r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: &timer.Patch{Priority: true}}); got.Code != timer.OK {
		t.Error(got.Code)
	}
	if got := r.do(timer.Command{Kind: timer.Cancel, ID: "a"}); got.Code != timer.Prevented {
		t.Error(got.Code)
	}
}

// TestMemoryOfTheProcessCounts: memory used by the rest of the process counts toward the limit.
func TestMemoryOfTheProcessCounts(t *testing.T) {
	used := int64(900)
	r := newHostHarness(t, func(c *Config) { c.MemoryLimit, c.MemoryUse = 1<<30, func() int64 { return used << 20 } })
	r.add("a", time.Hour)
	used = 1100
	r.pass(tickInterval)
	if _, err := r.try(timer.Command{Kind: timer.Add, ID: "x", Spec: &timer.Spec{DueMs: 1}}); !errors.Is(err, timer.ErrMemory) {
		t.Error(err)
	}
	used = 900
	r.pass(tickInterval)
	r.add("x", time.Hour)
}

// TestFoundingCrash: a power cut during the bootstrap of the groups leaves a directory on which
// they can be bootstrapped again.
func TestFoundingCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var disks []*memfs.FS
	r := makeHarness(t, memfs.New(), nil)
	r.fs.SetHook(func(_ int, op memfs.Op, _ string) error {
		if op.Changes() {
			for _, keep := range []int{0, 50, 100} {
				disks = append(disks, r.fs.CrashClone(rng, memfs.CrashOptions{KeepData: keep, KeepSize: keep, KeepNames: keep}))
			}
		}
		return nil
	})
	r.mustOpen()
	r.fs.SetHook(nil)
	for i, fs := range disks {
		again := makeHarness(t, fs, func(c *Config) { c.Shards, c.Meta = 1, &soleRows(1, c.Node)[0] })
		if err := again.open(); err != nil {
			t.Fatalf("disk %d of %d: %v", i, len(disks), err)
		}
		again.add("a", 0)
		again.wantCalls("a")
	}
}
