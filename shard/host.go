package shard

import (
	"cmp"
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

	"carillon/internal/clocks"
	"carillon/internal/feature"
	"carillon/internal/vfs"
	"carillon/shard/events"
	"carillon/shard/idle"
	"carillon/shard/raftlog"
	"carillon/shard/retention"
	"carillon/shard/scheduler"
	"carillon/shard/silence"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/wal"
)

// Config configures a Host. Fields without a default are required.
type Config struct {
	Shards  int // timer shards, P; more with Grow
	Workers int // event loops; default half of GOMAXPROCS (docs/adr/0007), at most Shards+1
	// Loaders is the number of goroutines that load snapshots and replay the log, one group at a
	// time each; default GOMAXPROCS, at most Shards+1.
	Loaders int
	Node    uint64 // this node's id, below 2^40, never 0
	Name    string // this node's name, for people
	// NodeName returns another node's name for log messages, "" if it is unknown. It may be called
	// from any goroutine. nil: no name is known.
	NodeName    func(node uint64) string
	Incarnation table.Incarnation // this process: see NewIncarnation
	Seed        uint64            // of the jitter
	// Meta is the first assignment of the meta group. A fresh data directory gets this node's
	// replica of the group. nil: the directory must hold that replica already.
	Meta *Assignment

	FS  vfs.FS
	Dir string
	Log wal.Options

	Clock Clock // default: the machine's
	// ManualClock: Clock is a clocks.Manual. See ClockMoved.
	ManualClock bool
	Topics      scheduler.Topics
	Dispatcher  scheduler.Dispatcher
	Peers       Peers            // default: none
	Placement   Placement        // default: assignments never change
	Shares      scheduler.Shares // default: all of every limit is this node's
	Shortages   Shortages        // default: only this node's are known
	Machine     Machine          // of the meta group
	Level       feature.Level    // highest that this node may use; default LevelOfBuild
	// Applied is called with each entry that a group has applied and the hash of the resulting
	// state: on workers, and while the log is replayed. nil: not called.
	Applied func(id timer.ShardID, index, hash uint64)
	// Agreed returns the feature level that may be proposed, as this node knows it. It may be
	// called from any goroutine. Default: Level.
	Agreed   func() feature.Level
	Observer Observer
	History  events.History // default: none is kept
	Watcher  events.Watcher // default: none; without a History it gets only clients' changes
	Logger   *slog.Logger
	Zones    *recurrence.Zones  // default: the release's
	Describe scheduler.Describe // makes the payloads of outcomes; default: they are empty objects

	// Ready is called when timers of a pulled topic are ready in a led shard, with at most how
	// many, and again as long as they are. It is called on workers and must not block. nil: not
	// called.
	Ready func(topic timer.TopicID, timers int)

	// NewLeader is called when this node's replica of a group has another leader, maybe itself. It
	// is called on workers and must not block. nil: not called.
	NewLeader func(id timer.ShardID, node uint64)

	// Vet is called after the log is read, before anything is written, with the meta group's
	// commands in the log that the machine has not applied. Its error ends the start. nil: not
	// called.
	Vet func(tail iter.Seq[[]byte]) error

	// Block, if given, replaces the blocking wait of a client's call. It passes to register a
	// function that ends the wait, and returns once that function was called. It is for a driver
	// (stepping.go) whose clients are tasks that run one at a time on the goroutine that takes the
	// turns. nil: the call's goroutine blocks.
	Block func(register func(wake func()))

	// MaxQueued bounds the client operations that one worker holds; default 20,000.
	MaxQueued int
	// RetainBytes is how much applied log a group keeps in memory for followers that were briefly
	// away; default 4 MiB, but no more than an eighth of MemoryLimit for all groups together. For a
	// follower that is active but behind, a group keeps up to 16 times as much, but no more than an
	// eighth of MemoryLimit.
	RetainBytes int
	// SnapshotLogBytes is after how much log a group writes a snapshot; default 32 MiB. A group
	// with a larger state writes one after as much log as state.
	SnapshotLogBytes int64
	// FrameBytes is the size at which a worker closes a frame of the log and opens another; default
	// 8 MiB.
	FrameBytes int
	// UnsyncedBytes is how many bytes of a worker may wait for the disk before it drops entries
	// from leaders; default 64 MiB.
	UnsyncedBytes int
	// MemoryLimit is how many bytes the node's groups may hold (see Memory) before adds are
	// refused; default no limit.
	MemoryLimit int64
	// MemoryUse returns how many bytes the process uses in all; MemoryLimit then applies to that
	// too. Each worker calls it at its start and at each tick: at the fastest, adds take some tens
	// of megabytes meanwhile. nil: only the groups' memory counts.
	MemoryUse func() int64
}

// Observer receives events for metrics. Its methods are called on several goroutines and must be
// quick.
type Observer interface {
	scheduler.Observer
	Command(kind timer.Kind, code timer.Code)
	Outcome(topic timer.TopicID, o *table.Outcome)
	// DeadReplaced reports dead letters that newer ones of their ids replaced.
	DeadReplaced(n int)
	Frame(operations int)
	Elected()
	Snapshot(took time.Duration)
	SnapshotSent(bytes int64)     // to another node, which has received it
	SnapshotReceived(bytes int64) // from another node; it became the group's state
}

// Time limits of client operations.
const (
	waitLimit   = 1500 * time.Millisecond // until it is proposed; then 503, within 2 s
	commitGrace = 8 * time.Second         // … until it is committed; then its outcome is unknown
	// readLimit bounds a read that a majority has confirmed within waitLimit, from its arrival.
	readLimit = 5 * time.Second
)

// Host runs all raft groups of a node on a few workers. New starts nothing; Run recovers, serves
// and blocks. Do, DoAll, Timer, List, Counts and Propose may be called from any goroutine once
// Started is closed.
type Host struct {
	clients       // what clients ask for
	driver        // its turns, in place of Run
	snapshotFiles // in the data directory
	groupTable
	*silence.Watch // of other nodes

	cfg     Config
	origin  uint64 // marks this process's own raft entries
	workers []*worker
	stream  *wal.Stream
	opened  uint64 // frames in the log when this process opened it

	started    chan struct{}
	stopped    chan struct{} // closed when no operation will be answered any more
	draining   atomic.Bool
	background sync.WaitGroup
	jobs       atomic.Int32 // goroutines that write or remove snapshots
	failure    chan error   // capacity 1
	halting    sync.Once
	ended      atomic.Bool   // the host has failed: nothing more is written or sent
	memory     atomic.Int64  // bytes that the groups hold; see Memory
	arriving   atomic.Int64  // … of which states from other nodes that are being read back
	process    atomic.Int64  // bytes that the process uses, as of a worker's last tick
	pinnable   atomic.Uint64 // closed log generations that a group may hold back
	limits     *scheduler.Limits
	waiters    sync.Pool // of *waiter whose calls have ended
	refused    [refusals]atomic.Int64
	zoneFaults sync.Map     // names that were logged
	lostAt     atomic.Int64 // monotonic ns at which a lost majority was logged; 0: never
	cordoned   atomic.Bool
	manual     *idle.Finder // of a manual clock; nil: time passes by itself
}

// New checks the configuration and creates the groups.
func New(cfg Config) (*Host, error) {
	cfg.setDefaults()
	if err := cfg.level(); err != nil {
		return nil, err
	}
	if cfg.Shards < 1 || cfg.Shards > 65535 {
		return nil, fmt.Errorf("shard: %d shards; 1–65535 are allowed", cfg.Shards)
	}
	if cfg.Node == 0 || cfg.Node >= 1<<40 {
		return nil, fmt.Errorf("shard: node id %d; 1–2^40 are allowed", cfg.Node)
	}
	h := &Host{cfg: cfg, origin: uint64(cfg.Incarnation), started: make(chan struct{}), stopped: make(chan struct{}), failure: make(chan error, 1)}
	h.clients, h.driver, h.snapshotFiles, h.groupTable.h = clients{h}, driver{h}, snapshotFiles{h: h}, h
	h.Watch = silence.New(silentAfter, maxLookGap)
	h.limits = scheduler.NewLimits(cfg.Shares)
	if cfg.ManualClock {
		h.limits, h.manual = scheduler.NewManualLimits(), idle.New(cfg.Workers)
	}
	for i := range cfg.Workers {
		h.workers = append(h.workers, &worker{host: h, number: i, box: newMailbox(cfg.MaxQueued), out: frameWriter{queueable: queueable(cfg.Log.QueueFrames, cfg.Workers)}})
	}
	var groups []*replica
	for i := range cfg.Shards + 1 {
		r := h.newReplica(timer.ShardID(i))
		r.join()
		groups = append(groups, r)
	}
	h.groups.Store(&groups)
	h.known.Store(int32(cfg.Shards))
	return h, nil
}

// newReplica makes a group without a replica on this node.
func (h *Host) newReplica(id timer.ShardID) *replica {
	w := h.workers[int(id)%len(h.workers)]
	r := &replica{shard: id, w: w, store: &raftlog.Storage{Conf: &pb.ConfState{}}, turn: turnState{wakeMs: math.MaxInt64}}
	if id == Meta {
		r.machine = &metaGroup{g: r, machine: h.cfg.Machine}
	} else {
		r.machine = newTimerShard(r, &h.cfg, h.limits)
	}
	return r
}

// join adds a group to its worker's.
func (r *replica) join() {
	r.w.groups = append(r.w.groups, r)
	if s, ok := r.machine.(*timerShard); ok {
		r.w.shards = append(r.w.shards, s)
	}
}

// setDefaults sets fields that were not given to their defaults.
func (c *Config) setDefaults() {
	c.Workers = min(cmp.Or(c.Workers, max(1, runtime.GOMAXPROCS(0)/2)), c.Shards+1)
	c.Loaders = min(cmp.Or(c.Loaders, runtime.GOMAXPROCS(0)), c.Shards+1)
	c.Log.Replayers = c.Loaders
	c.Log.QueueFrames = cmp.Or(c.Log.QueueFrames, wal.DefaultQueueFrames)
	c.MaxQueued = cmp.Or(c.MaxQueued, 20_000)
	c.RetainBytes = cmp.Or(c.RetainBytes, retainBytes)
	c.SnapshotLogBytes = cmp.Or(c.SnapshotLogBytes, snapshotLogBytes)
	c.FrameBytes = cmp.Or(c.FrameBytes, frameBytes)
	c.UnsyncedBytes = cmp.Or(c.UnsyncedBytes, unsyncedBytes)
	c.Zones = cmp.Or(c.Zones, recurrence.Release)
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
	if c.Describe == nil {
		c.Describe = func(*timer.Topic, *timer.Timer, []timer.HistoryAttempt) []byte { return []byte("{}") }
	}
}

// level checks Level and sets the defaults of Level and Agreed.
func (c *Config) level() error {
	c.Level = cmp.Or(c.Level, feature.LevelOfBuild)
	if c.Level < feature.LevelFirst || c.Level > feature.LevelOfTests {
		return fmt.Errorf("shard: feature level %d; %d–%d are allowed", c.Level, feature.LevelFirst, feature.LevelOfTests)
	}
	if level := c.Level; c.Agreed == nil {
		c.Agreed = func() feature.Level { return level }
	}
	return nil
}

// mayRead returns an error if an entry needs a higher feature level than this host's.
func (h *Host) mayRead(data []byte) error {
	if level := feature.EntryLevel(data); level > h.cfg.Level {
		return fmt.Errorf("%w: it needs feature level %d, this node's release has %d; start the newer release again", feature.ErrNewer, level, h.cfg.Level)
	}
	return nil
}

func (h *Host) agreed() feature.Level { return min(h.cfg.Level, h.cfg.Agreed()) }

// Started returns a channel that is closed once the host has recovered and takes operations.
func (h *Host) Started() <-chan struct{} { return h.started }

// Open recovers from the log. It is for a driver that steps the host instead of calling Run.
func (h *Host) Open() error {
	if err := h.recover(); err != nil {
		return err
	}
	for _, w := range h.workers {
		w.lastTick = h.cfg.Clock.Mono().Truncate(raftTick)
		w.weigh()
	}
	h.sum() // else the first tick would write snapshots, as if the log had to be short
	close(h.started)
	return nil
}

// Run recovers from the log and serves until the context ends or the storage fails; it returns nil
// only in the first case. Call Drain before ending the context to let running calls end.
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
	cancel() // workers stop first, so that nothing new is written or answered
	loops.Wait()
	for _, w := range h.workers {
		w.abandon()
	}
	close(h.stopped)
	h.background.Wait()
	stopStream() // it still writes the frames that it was given
	stream.Wait()
	if err == nil {
		select {
		case err = <-h.failure: // the last frames may have failed
		default:
		}
	}
	return err
}

// fail stops the host. After a storage error nothing more may be acknowledged (I20).
func (h *Host) fail(err error) {
	h.ended.Store(true)
	select {
	case h.failure <- err:
	default:
	}
}

// housekeep drops log generations that no group needs and sums up the memory, once a second.
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
			h.cfg.Logger.Error("old log generations could not be removed; the node tries again", "error", err)
		}
	}
}

// sum adds up the workers' memory. It sets the disk reserve for the largest snapshot, and how many
// log generations a group may hold back.
func (h *Host) sum() {
	memory, replicas, largest := int64(0), int64(0), int64(0)
	for _, w := range h.workers {
		memory += w.sample.memory.Load()
		replicas += w.sample.replicas.Load()
		largest = max(largest, w.sample.largest.Load())
	}
	h.stream.SetReserve(uint64(largest))
	h.pinnable.Store(retention.Pinnable(memory, replicas, h.stream.GenBytes()))
}

// inBackground runs a job that may take long on its own goroutine. Run waits for it before it
// returns.
func (h *Host) inBackground(job func()) {
	h.jobs.Add(1)
	h.background.Go(func() {
		defer h.jobs.Add(-1)
		job()
	})
}

// dropLog removes log generations that no group needs.
func (h *Host) dropLog() error {
	needed := uint64(math.MaxUint64)
	for _, w := range h.workers {
		needed = min(needed, w.needed.Load())
	}
	return h.stream.DropBefore(needed)
}

// abandon answers all waiting operations, because the node stops.
func (w *worker) abandon() {
	for _, e := range w.box.close() {
		if e, waits := e.(request); waits {
			e.refuse(timer.ErrStopped)
		}
	}
	for _, c := range w.afterWork {
		c.wait.done()
	}
	for _, r := range w.groups {
		if r.raft == nil {
			continue
		}
		r.stepDown()
		r.reads.fail(timer.ErrStopped)
		r.machine.refuse(timer.ErrStopped)
	}
	if w.snapshot != nil {
		w.snapshot.feed.Abort()
	}
}

// call is an event that runs a function on a worker.
type call struct {
	fn   func(w *worker)
	wait *waiter
	// late is run in place of fn, after the work of a turn: once, and where it returns false once
	// more, with last. See runAfterWork.
	late func(w *worker, last bool) (done bool)
}

func (c *call) handle(w *worker) {
	if c.late != nil {
		w.afterWork = append(w.afterWork, lateCall{c, w.timers.WallMs + 1, w.now.Mono, false})
		return
	}
	c.fn(w)
	c.wait.done()
}

func (c *call) refuse(error) { c.wait.done() } // its function is not run

// onWorkers runs fn on every worker, possibly at once, and waits for all. A stopped worker is
// skipped.
func (h *Host) onWorkers(fn func(w *worker)) { callWorkers(h, call{fn: fn}) }

// inTurn runs fn on every worker, on one at a time, and waits for all.
func (h *Host) inTurn(fn func(w *worker)) {
	var mu sync.Mutex
	h.onWorkers(func(w *worker) {
		mu.Lock()
		defer mu.Unlock()
		fn(w)
	})
}

func callWorkers(h *Host, c call) {
	wait := h.newWaiter(len(h.workers) + 1)
	c.wait = wait
	for _, w := range h.workers {
		if w.box.put(&c, math.MaxInt) != nil {
			wait.done()
		}
	}
	wait.done()
	h.await(wait)
}
