package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/clocks"
	"carillon/shard/feature"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/vfs"
	"carillon/wal"
)

// Config of a Host. The fields without a default must be given.
type Config struct {
	Shards  int    // timer shards, P; fixed when the cluster is founded
	Workers int    // event loops; default half of GOMAXPROCS (docs/adr/0007), at most Shards+1
	Loaders int    // goroutines that load snapshots and replay the log, each a group at a time; default GOMAXPROCS
	Node    uint64 // this node's id, below 2^40, never 0
	Name    string // this node's name, for people
	// NodeName is another node's name for the log, "" if it is not known; nil: none is. It may be
	// called from any goroutine.
	NodeName    func(node uint64) string
	Incarnation table.Incarnation // this process: see NewIncarnation
	Seed        uint64            // of the jitter
	Meta        *Assignment       // the data directory is fresh: make this node's replica of the meta group; nil: it must be there

	FS  vfs.FS
	Dir string
	Log wal.Options

	Clock      Clock // default: the machine's
	Topics     scheduler.Topics
	Dispatcher scheduler.Dispatcher
	Peers      Peers            // default: nobody
	Placement  Placement        // default: rows never change
	Shares     scheduler.Shares // default: everything is this node's
	Disks      Disks            // default: this node's alone
	Machine    Machine          // of the meta group
	Level      feature.Level    // the highest that this node understands, or is to; default LevelOfBuild
	// Applied is told of each entry that a group has applied, and the hash of its state then. It
	// is called on workers. nil: nobody watches.
	Applied  func(id timer.ShardID, index, hash uint64)
	Agreed   func() feature.Level // the level that may be proposed, as this node knows it; it may be called on any goroutine; default Level
	Observer Observer
	History  History // default: none is kept
	Watcher  Watcher // default: nobody looks on; without a History there is little to see
	Logger   *slog.Logger
	Zone     func(name string) (*time.Location, error) // reads a time zone; default: of the machine, or else of the binary

	// Ready is told that timers of a topic that is pulled are ready in a led shard, how many at
	// most, and told again as long as they are. It is called on workers and must not block. nil:
	// nobody listens.
	Ready func(topic timer.TopicID, timers int)

	// Vet is asked when the log is read, before anything begins on it, and given the meta group's
	// commands that the log has and the machine has not applied yet. Its error ends the start. nil:
	// nobody is asked.
	Vet func(tail iter.Seq[[]byte]) error

	// Block, if given, is how a client's call waits: it hands register what ends the wait, and
	// returns when that was called. It is for a driver (stepping.go) whose clients are tasks that
	// run one at a time, on the goroutine that takes the turns too. nil: the call's goroutine
	// blocks.
	Block func(register func(wake func()))

	// MaxQueued bounds the client operations that one worker holds; default 20,000.
	MaxQueued int
	// RetainBytes is how much applied log a group with followers keeps in memory, for one that was
	// away for a moment; default 4 MiB. For one that is here and behind it keeps sixteen times as
	// much. Less where that comes to more than an eighth of MemoryLimit.
	RetainBytes int
	// SnapshotLogBytes is after how much log a group writes a snapshot, if that is more than its
	// state; default 32 MiB.
	SnapshotLogBytes int64
	// FrameBytes is how full a frame of the log is when a worker begins another; default 8 MiB.
	FrameBytes int
	// UnsyncedBytes is how much of a worker's may wait for the disk before entries from leaders are
	// dropped; default 64 MiB.
	UnsyncedBytes int
	// MemoryLimit is how many bytes the node's groups hold (see Memory) before it refuses adds;
	// default no limit.
	MemoryLimit int64
	// MemoryUse is how many bytes the process needs, groups and all else; any goroutine. nil: only
	// what groups hold is known.
	MemoryUse func() int64
}

// Observer is told what happens, for metrics. Calls come from several goroutines and must be quick.
type Observer interface {
	Command(kind timer.Kind, code timer.Code)
	Outcome(o *table.Outcome)
	Expired() // given up without another attempt
	Frame(operations int)
	Lateness(ms int64, held bool) // of a first attempt; held: a gate kept it, not this host
	Elected()
	Snapshot(took time.Duration)
	SnapshotSent(bytes int64)     // to another node, which has taken it
	SnapshotReceived(bytes int64) // from another node, and it is the state now
}

// Time limits of client operations.
const (
	waitLimit   = 1500 * time.Millisecond // to be proposed: no leader or too busy means 503 within 2 s
	commitGrace = 8 * time.Second         // to be committed; then the outcome is unknown
	readLimit   = 5 * time.Second         // for a read to be served, once a majority has confirmed the leader (within waitLimit)
)

// Host runs all of a node's raft groups on a few workers. New starts nothing; Run recovers, serves
// and blocks. Do, DoAll, Timer, List, Counts and Propose may be called from any goroutine once
// Started is closed.
type Host struct {
	cfg     Config
	origin  uint64 // marks this process's own raft entries
	workers []*worker
	groups  []*group // by ID
	stream  *wal.Stream
	opened  uint64 // the last frame of the log as this process found it

	started    chan struct{}
	stopped    chan struct{} // closed when nothing more will be answered
	draining   atomic.Bool
	background sync.WaitGroup
	jobs       atomic.Int32 // goroutines that write or remove snapshots
	failure    chan error   // capacity 1
	halting    sync.Once
	ended      atomic.Bool   // it has failed: nothing is written, and nobody is told anything, any more
	memory     atomic.Int64  // that the groups hold; see Memory
	arriving   atomic.Int64  // of that, states from other nodes that are being read back
	pinnable   atomic.Uint64 // closed generations that a group may hold back
	gone       goneOwners
	limits     *scheduler.Limits
	refused    [refusals]atomic.Int64
	zones      *recurrence.Zones
	cordoned   atomic.Bool
}

// New checks the configuration and lays out the groups.
func New(cfg Config) (*Host, error) {
	cfg.setDefaults()
	if err := cfg.level(); err != nil {
		return nil, err
	}
	if cfg.Shards < 1 || cfg.Shards > 65535 {
		return nil, fmt.Errorf("shard: %d shards are out of 1–65535", cfg.Shards)
	}
	if cfg.Node == 0 || cfg.Node >= 1<<40 {
		return nil, fmt.Errorf("shard: node id %d is out of 1–2^40", cfg.Node)
	}
	cfg.RetainBytes = int(cfg.share(shareth*int64(cfg.Shards+1), int64(cfg.RetainBytes)))
	h := &Host{cfg: cfg, origin: uint64(cfg.Incarnation), started: make(chan struct{}), stopped: make(chan struct{}), failure: make(chan error, 1)}
	h.zones = recurrence.NewZones(cfg.Zone)
	h.limits = scheduler.NewLimits(cfg.Shares)
	for range cfg.Workers {
		h.workers = append(h.workers, &worker{host: h, box: newMailbox(cfg.MaxQueued), queueable: queueable(cfg.Log.QueueFrames, cfg.Workers)})
	}
	for i := range cfg.Shards + 1 {
		w := h.workers[i%cfg.Workers]
		g := &group{id: timer.ShardID(i), w: w, store: &storage{conf: &pb.ConfState{}}, wakeMs: math.MaxInt64}
		if g.id == Meta {
			g.meta = &metaGroup{machine: cfg.Machine}
		} else {
			g.scheduler = scheduler.New(scheduler.Config{
				Shard: g.id, Owner: cfg.Incarnation, Seed: cfg.Seed, Dispatcher: cfg.Dispatcher, Topics: cfg.Topics,
				Observer: cfg.Observer, Ready: cfg.Ready, Limiters: h.limits, Zones: h.zones,
			}, schedulerEnv{g}, &w.now)
			g.setTable(table.New(g.id, 0))
		}
		w.groups = append(w.groups, g)
		h.groups = append(h.groups, g)
	}
	return h, nil
}

// setDefaults fills in what was left out.
func (c *Config) setDefaults() {
	if c.Workers <= 0 {
		c.Workers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	c.Workers = min(c.Workers, c.Shards+1)
	if c.Loaders <= 0 {
		c.Loaders = runtime.GOMAXPROCS(0)
	}
	c.Loaders = min(c.Loaders, c.Shards+1)
	c.Log.Replayers = c.Loaders
	if c.MaxQueued <= 0 {
		c.MaxQueued = 20_000
	}
	if c.RetainBytes <= 0 {
		c.RetainBytes = retainBytes
	}
	if c.SnapshotLogBytes <= 0 {
		c.SnapshotLogBytes = snapshotLogBytes
	}
	if c.Log.QueueFrames <= 0 {
		c.Log.QueueFrames = wal.DefaultQueueFrames
	}
	if c.FrameBytes <= 0 {
		c.FrameBytes = frameBytes
	}
	if c.UnsyncedBytes <= 0 {
		c.UnsyncedBytes = unsyncedBytes
	}
	if c.MemoryLimit <= 0 {
		c.MemoryLimit = math.MaxInt64
	}
	if c.Clock == nil {
		c.Clock = clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})
	}
	if c.Peers == nil {
		c.Peers = noPeers{}
	}
	if c.Ready == nil {
		c.Ready = func(timer.TopicID, int) {}
	}
	if c.Placement == nil {
		c.Placement = staticPlacement{}
	}
	if c.Zone == nil {
		c.Zone = recurrence.LoadZone
	}
}

// Started is closed when the host has recovered and takes operations.
func (h *Host) Started() <-chan struct{} { return h.started }

// Open recovers from the log. It is for those who drive the host by hand, with Turn, instead of
// calling Run.
func (h *Host) Open() error {
	if err := h.recover(); err != nil {
		return err
	}
	for _, w := range h.workers {
		w.lastTick = h.cfg.Clock.Mono()
		w.weigh()
	}
	close(h.started)
	return nil
}

// Run recovers from the log and serves until the context ends or the storage fails; it returns nil
// only in the first case. Whoever wants calls that run to end first calls Drain before.
func (h *Host) Run(ctx context.Context) error {
	if err := h.Open(); err != nil {
		close(h.stopped)
		if h.stream != nil {
			_ = h.stream.Close()
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streamCtx, stopStream := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStream()
	var loops, stream sync.WaitGroup
	stream.Go(func() {
		if err := h.stream.Run(streamCtx); err != nil && !errors.Is(err, context.Canceled) {
			h.fail(err)
		}
	})
	for _, w := range h.workers {
		loops.Go(func() { w.run(ctx) })
	}
	h.background.Go(func() { h.housekeep(ctx) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-h.failure:
	}
	cancel() // the workers first: nothing new is written or answered
	loops.Wait()
	for _, w := range h.workers {
		if err == nil {
			w.lastManifest()
		}
		w.abandon()
	}
	close(h.stopped)
	h.background.Wait()
	stopStream() // what was handed over is written
	stream.Wait()
	if err == nil {
		select {
		case err = <-h.failure: // the log's last words
		default:
		}
	}
	return err
}

// fail stops the host: after a storage error nothing more may be acknowledged (I20).
func (h *Host) fail(err error) {
	h.ended.Store(true)
	select {
	case h.failure <- err:
	default:
	}
}

// housekeep drops log generations that no group needs, and keeps the sum of the memory.
func (h *Host) housekeep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.sum()
		if err := h.dropLog(); err != nil {
			h.cfg.Logger.Error("old log generations could not be removed; they are tried again", "error", err)
		}
	}
}

// sum adds up what the workers hold, and what follows from it.
func (h *Host) sum() {
	memory, replicas, largest := int64(0), int64(0), int64(0)
	for _, w := range h.workers {
		memory += w.memory.Load()
		replicas += w.replicas.Load()
		largest = max(largest, w.largest.Load())
	}
	h.stream.SetReserve(uint64(largest))
	h.pinnable.Store(pinnable(memory, replicas, h.stream.GenBytes()))
}

// inBackground runs what may take long on a goroutine of its own.
func (h *Host) inBackground(job func()) {
	h.jobs.Add(1)
	h.background.Go(func() {
		defer h.jobs.Add(-1)
		job()
	})
}

// dropLog removes the generations that no group needs.
func (h *Host) dropLog() error {
	needed := uint64(math.MaxUint64)
	for _, w := range h.workers {
		needed = min(needed, w.needed.Load())
	}
	return h.stream.DropBefore(needed)
}

// abandon answers everything that waits: the node stops.
func (w *worker) abandon() {
	for _, e := range w.box.close() {
		switch e := e.(type) {
		case *op:
			e.answer(timer.Result{}, timer.ErrStopped)
		case opList:
			for _, o := range e {
				o.answer(timer.Result{}, timer.ErrStopped)
			}
		case *metaOp:
			e.answer(nil, timer.ErrStopped)
		case *read:
			e.answer(timer.ErrStopped)
		case pullList:
			for _, t := range e {
				t.answer(timer.ErrStopped)
			}
		case posted:
			e(true)
		case *call:
			e.wait.done() // its function is not run
		}
	}
	for _, g := range w.groups {
		if g.raft == nil {
			continue
		}
		g.stepDown()
		g.reads.fail(timer.ErrStopped)
		for _, o := range g.waiting {
			o.answer(timer.Result{}, timer.ErrStopped)
		}
		g.waiting = nil
		if g.meta != nil {
			for _, o := range g.meta.waiting {
				o.answer(nil, timer.ErrStopped)
			}
		}
	}
	if w.snapshot != nil {
		w.snapshot.abort()
	}
}

// call runs a function on a worker.
type call struct {
	fn   func(w *worker)
	wait *waiter
}

func (c *call) handle(w *worker) {
	c.fn(w)
	c.wait.done()
}

// onWorkers runs fn on every worker, one after the other or at once, and waits for all.
func (h *Host) onWorkers(fn func(w *worker)) {
	wait := h.newWaiter(len(h.workers) + 1)
	for _, w := range h.workers {
		if w.box.put(&call{fn, wait}, math.MaxInt) != nil {
			wait.done()
		}
	}
	wait.done()
	h.await(wait)
}
