package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/internal/vfs"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
)

// process is a host with real goroutines.
type process struct {
	host *Host
	stop func() error
}

func runHost(t *testing.T, fs vfs.FS, dir string, change func(*Config)) *process {
	t.Helper()
	r := &benchReceiver{}
	cfg := Config{Shards: 3, Workers: 2, Node: 7, Incarnation: table.NewIncarnation(7, 1), Meta: &soleRows(1, 7)[0], FS: fs, Dir: dir,
		Topics: benchTopics{&timer.Topic{ID: 1, Name: "t", Policy: timer.DefaultPolicy()}}, Dispatcher: r, Machine: &fakeMachine{},
		Observer: benchObserver{}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	select {
	case <-h.Started():
	case err := <-done:
		t.Fatal(err)
	}
	h.Place(soleRows(cfg.Shards+1, cfg.Node))
	for h.NotReady(false) != nil {
		runtime.Gosched()
	}
	return &process{h, sync.OnceValue(func() error { cancel(); return <-done })}
}

// TestRunAndStop: every goroutine ends, and every waiter is answered.
func TestRunAndStop(t *testing.T) {
	defer goleak.VerifyNone(t)
	fs, ctx := memfs.New(), context.Background()
	p := runHost(t, fs, "data", nil)
	const clients = 8
	var wait sync.WaitGroup
	acked := make([][]string, clients)
	for c := range clients {
		wait.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprint("c", c, "-", i)
				_, err := p.host.Do(timer.ShardOf(&timer.Topic{Name: "t"}, id, 3), &timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: 1 << 41}}, i%2 == 0)
				if err != nil {
					if !errors.Is(err, timer.ErrStopped) && !errors.Is(err, timer.ErrUnknown) && !errors.Is(err, timer.ErrNoLeader) {
						t.Error(err)
					}
					return
				}
				acked[c] = append(acked[c], id)
				if i == 50 && c == 0 {
					go func() { _ = p.stop() }()
				}
			}
		})
	}
	wait.Wait()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if _, err := p.host.Propose(nil); !errors.Is(err, timer.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
	if err := p.host.NotReady(false); !errors.Is(err, timer.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
	p.host.Drain(ctx)
	again := runHost(t, fs, "data", func(c *Config) { c.Meta, c.Incarnation = nil, table.NewIncarnation(7, 2) })
	for _, list := range acked {
		for _, id := range list {
			if v, err := again.host.Timer(timer.ShardOf(&timer.Topic{Name: "t"}, id, 3), 1, id); err != nil || v == nil {
				t.Fatalf("I1: %s is gone: %v", id, err)
			}
		}
	}
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}

// callDone is a receiver that answers when the test does.
type callDone struct {
	benchReceiver
	calls chan func(delivery.Outcome)
}

func (c *callDone) Acquire(scheduler.Destination, *timer.Topic, delivery.Ask) (delivery.Permit, delivery.Verdict) {
	return c, delivery.Verdict{}
}

func (c *callDone) Start(_ delivery.Permit, _ *scheduler.Delivery, done func(delivery.Outcome)) {
	c.calls <- done
}

// jumpingClock is the machine's, and jumps ahead where the test asks.
type jumpingClock struct {
	Clock
	ahead atomic.Int64
}

func (c *jumpingClock) Mono() time.Duration { return c.Clock.Mono() + time.Duration(c.ahead.Load()) }

func (c *jumpingClock) Look() clocks.Moment {
	m := c.Clock.Look()
	m.Mono += time.Duration(c.ahead.Load())
	return m
}

// TestDrainWithoutAMajority: a node that ends waits for its calls, but not for ever until what they
// came to is recorded: when all nodes stop, nobody is left who could take it from the last one.
func TestDrainWithoutAMajority(t *testing.T) {
	fs, clock, r := memfs.New(), &jumpingClock{}, &callDone{calls: make(chan func(delivery.Outcome), 1)}
	p := runHost(t, fs, "data", func(c *Config) {
		clock.Clock = clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
		c.Clock, c.Dispatcher = clock, r
	})
	if _, err := p.host.Do(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: 1}}, true); err != nil {
		t.Fatal(err)
	}
	done := <-r.calls
	drained, looks := make(chan struct{}), func() {
		for range 100 {
			p.host.onWorkers(func(*worker) {})
		}
	}
	go func() {
		defer close(drained)
		p.host.Drain(context.Background())
	}()
	clock.ahead.Add(int64(2 * recordTime))
	looks()
	select {
	case <-drained:
		t.Error("it does not wait for a call that runs")
	default:
	}
	majority := make(chan struct{})
	fs.SetHook(func(_ int, op memfs.Op, _ string) error {
		if op == memfs.OpSync {
			<-majority
		}
		return nil
	})
	done(delivery.Outcome{Status: 200})
	looks()
	clock.ahead.Add(int64(2 * recordTime))
	select {
	case <-drained:
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
	close(majority)
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// failSyncs makes every sync of a file fail from now on, on any goroutine.
func failSyncs(fs *memfs.FS, err error) {
	fs.SetHook(func(_ int, op memfs.Op, _ string) error {
		if op == memfs.OpSync {
			return err
		}
		return nil
	})
}

// TestRunFails: a storage error ends Run with that error at any time.
func TestRunFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	broken := errors.New("input/output error")
	for name, strike := range map[string]func(fs *memfs.FS, p *process){
		"while it serves": func(fs *memfs.FS, p *process) {
			failSyncs(fs, broken)
			_, err := p.host.Do(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: 1 << 41}}, true)
			if err == nil {
				t.Error("acknowledged")
			}
		},
		"at the end": func(fs *memfs.FS, _ *process) {
			failSyncs(fs, broken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			p := runHost(t, fs, "data", nil)
			strike(fs, p)
			if err := p.stop(); !errors.Is(err, broken) {
				t.Errorf("Run ended with %v", err)
			}
		})
	}
}

// TestTwoHosts: two hosts of one process share nothing.
func TestTwoHosts(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	a := runHost(t, vfs.OS{}, filepath.Join(dir, "a"), nil)
	b := runHost(t, vfs.OS{}, filepath.Join(dir, "b"), func(c *Config) { c.Node, c.Incarnation, c.Meta = 8, table.NewIncarnation(8, 1), &soleRows(1, 8)[0] })
	add := func(p *process, id string) {
		t.Helper()
		got, err := p.host.Do(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: 1 << 41}}, false)
		if err != nil || got.Code != timer.Created || got.Timer == nil || got.Timer.ID != id {
			t.Errorf("%+v, %v", got, err)
		}
	}
	add(a, "x")
	add(b, "x")
	add(b, "y")
	if v, err := a.host.Timer(1, 1, "y"); err != nil || v != nil {
		t.Errorf("a has b's timer: %+v, %v", v, err)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	add(b, "z")
	if err := b.stop(); err != nil {
		t.Error(err)
	}
}

// TestMissingGroup: an empty directory of a bootstrapped node is damage.
func TestMissingGroup(t *testing.T) {
	r := makeHarness(t, memfs.New(), nil)
	r.starts = 1
	if err := r.open(); !Damaged(err) || !strings.Contains(err.Error(), "wal is missing") {
		t.Errorf("%v", err)
	}
	if err := r.fs.MkdirAll("data/wal"); err != nil {
		t.Fatal(err)
	}
	if err := r.open(); !Damaged(err) || !strings.Contains(err.Error(), "nothing of the meta group") {
		t.Errorf("%v", err)
	}
	r.starts = 0
	r.mustOpen() // the lock is free, and the directory still empty
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{Shards: 0, Node: 1}, {Shards: 65536, Node: 1}, {Shards: 1}, {Shards: 1, Node: 1 << 40}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	h, err := New(Config{Shards: 1, Node: 1, Workers: 64})
	if err != nil || len(h.workers) != 2 || h.cfg.MaxQueued != 20_000 || h.cfg.Clock.UntilWall(time.Now().Add(48*time.Hour).UnixMilli()) != time.Hour {
		t.Errorf("%+v, %v", h, err)
	}
}
