package shard

import (
	"fmt"
	"math"
	"slices"

	"carillon/timer"
	"carillon/wal"
)

// A node counts the memory of its groups as it grows, and refuses growth when the count exceeds
// Config.MemoryLimit. The memory of the whole process (Config.MemoryUse) is known only after a
// garbage collection, and by then a burst may have filled it.

// Memory is the memory that a host's groups hold, in bytes.
type Memory struct {
	Tables    int64 // timers and their indexes
	Snapshots int64 // copies of state that changed during a snapshot, and chunks not written yet
	Arrivals  int64 // states from other nodes that are not installed yet
	Entries   int64 // of raft logs: not durable, committed or applied yet, or kept for followers
	Frames    int64 // log frames that are not on disk yet
	Messages  int64 // peer messages that no worker has handled yet
}

func (m *Memory) Sum() int64 {
	return m.Tables + m.Snapshots + m.Arrivals + m.Entries + m.Frames + m.Messages
}

func (m *Memory) add(o *Memory) {
	m.Tables += o.Tables
	m.Snapshots += o.Snapshots
	m.Arrivals += o.Arrivals
	m.Entries += o.Entries
	m.Frames += o.Frames
	m.Messages += o.Messages
}

// memoryCount is a worker's count of the memory that its groups hold.
type memoryCount struct {
	tables   int64 // as of the last tick
	part     int   // of the worker's groups, which was counted in the last tick; see worker.parts
	entries  int   // durable entries of the groups' logs
	reported int64 // sum last reported to the host
	pressure pressure
}

// pressure is how close memory use is to the limit.
type pressure uint8

const (
	roomy pressure = iota
	tight          // leaders keep no entries for followers that are behind, but send them snapshots
	over           // growth of the state is refused, and a snapshot that holds much is aborted
)

// Shares of the memory limit. All groups together keep at most 1/memoryShareDivisor of it as
// applied entries for followers, and one group has at most 1/uncommittedShare of it uncommitted. In
// the last 1/memoryShareDivisor memory is tight.
const (
	memoryShareDivisor = 8
	uncommittedShare   = 16
	mostUncommitted    = 64 << 20
)

// Bounds on the applied entries that a group with followers keeps in memory.
const (
	// retainBytes is the default of Config.RetainBytes. Every replica keeps so much for followers
	// that were away for a moment, since it may be the next leader.
	retainBytes = 4 << 20
	// A leader keeps up to laggards times as much for followers that are active but behind. Beyond
	// that it sends them a snapshot.
	laggards = 16
)

// share returns 1/parts of the memory limit, or most if that is less.
func (c *Config) share(parts int64, most int64) int64 { return min(c.MemoryLimit/parts, most) }

// retained returns how many bytes of applied entries a group keeps for followers that were away.
func (h *Host) retained() int {
	return int(h.cfg.share(memoryShareDivisor*int64(len(h.all())), int64(h.cfg.RetainBytes)))
}

// laden reports that the group's unapplied proposals have reached their bound, which the last of
// them may exceed.
func (p *pipeline) laden(r *replica) bool {
	bytes := 0
	for i := range p.proposals {
		bytes += p.proposals[i].bytes
	}
	return int64(bytes) >= r.w.host.cfg.share(uncommittedShare, mostUncommitted)
}

// needed returns the memory that counts against the limit: the groups' or, if it is more, the
// process's.
func (h *Host) needed() int64 { return max(h.memory.Load(), h.process.Load()) }

// pressure looks at how much memory is used, for needed too.
func (h *Host) pressure() pressure {
	if h.cfg.MemoryUse != nil {
		h.process.Store(h.cfg.MemoryUse())
	}
	switch n := h.needed(); {
	case n > h.cfg.MemoryLimit:
		return over
	case h.cfg.near(n):
		return tight
	}
	return roomy
}

// kept returns how many bytes of applied entries a group of the worker keeps: least for followers
// that were away, and up to most for followers that are active but behind.
func (w *worker) kept() (least, most int) {
	least = w.host.retained()
	most = int(w.host.cfg.share(memoryShareDivisor, int64(least)*laggards))
	switch w.held.pressure {
	case tight:
		least /= laggards
	case over:
		least, most = 0, 0
	}
	return least, most
}

// countEntries updates the worker's count of the memory that a group's log holds.
func (w *worker) countEntries(r *replica) {
	w.held.entries += r.store.Held() - r.turn.counted
	r.turn.counted = r.store.Held()
}

// holds returns the memory of the worker's groups, without received states that are being read back
// (see Host.arriving).
func (w *worker) holds() Memory {
	waiting := int64(w.waitingBytes())
	m := Memory{
		Tables:  w.held.tables,
		Entries: int64(w.held.entries) + waiting, // entries of an unsynced frame are in memory twice
		Frames:  waiting, Messages: w.peerBytes.Load(),
	}
	if w.snapshot != nil {
		copies, chunks := w.snapshot.feed.Held()
		m.Snapshots = copies + chunks
	}
	return m
}

// weigh counts the state that was loaded at the start, and what the process uses. Groups without
// work are otherwise not counted before the first tick.
func (w *worker) weigh() {
	largest, replicas := int64(0), int64(0)
	for _, r := range w.groups {
		w.countEntries(r)
		state := r.machine.bytes()
		w.held.tables += state
		largest = max(largest, state)
		if r.raft != nil {
			replicas++
		}
	}
	w.sample.memory.Store(w.held.tables)
	w.sample.largest.Store(largest)
	w.sample.replicas.Store(replicas)
	w.account()
	w.held.pressure = w.host.pressure()
}

// account reports to the host, at the end of a turn, by how much the worker's memory has changed.
// It aborts a snapshot that holds too much when the limit is exceeded.
func (w *worker) account() {
	m := w.holds()
	if sum := m.Sum(); sum != w.held.reported {
		w.host.memory.Add(sum - w.held.reported)
		w.held.reported = sum
	}
	run := w.snapshot
	if run == nil {
		return
	}
	if copies, _ := run.feed.Held(); copies > w.host.cfg.share(memoryShareDivisor, math.MaxInt64) && w.host.pressure() == over {
		w.host.cfg.Logger.Error("a snapshot was stopped: the changes made meanwhile exceed the memory limit; the node tries again",
			"shard", uint32(run.group.shard), "bytes", m.Snapshots, "limit", w.host.cfg.MemoryLimit)
		run.feed.Abort()
	}
}

// admit refuses commands that add to the state while memory or disk is short. Commands that free
// something are admitted.
func (h *Host) admit(r *replica, cmd *timer.Command) error {
	if !grows(cmd) {
		return nil
	}
	if h.needed() > h.cfg.MemoryLimit {
		h.refused[RefusedMemory].Add(1)
		return timer.ErrMemory
	}
	if r.public.full.Load() {
		h.refused[RefusedMemory].Add(1)
		return errFull
	}
	if low := r.public.lowDisk.Load(); low != nil {
		h.refused[RefusedLowDisk].Add(1)
		return *low
	}
	return nil
}

// errFull: a shard's table has room for 16 GiB of small contents.
var errFull = fmt.Errorf("%w: the timer's shard holds as much as one can; more shards make room (carillon ctl shards)", timer.ErrMemory)

// watchFull records, and logs, whether the state takes no more.
func (r *replica) watchFull() {
	s, ok := r.machine.(*timerShard)
	full := ok && s.table.Full()
	if r.public.full.Load() == full {
		return
	}
	r.public.full.Store(full)
	if full {
		r.w.host.cfg.Logger.Error("adds to a shard are refused: it holds as much as one can. More shards make room: carillon ctl shards", "shard", uint32(r.shard), "bytes", r.public.bytes.Load())
	} else {
		r.w.host.cfg.Logger.Info("adds to a shard are accepted again: it has room", "shard", uint32(r.shard))
	}
}

// Reasons for which a host refuses a command that adds to its state.
const (
	RefusedMemory = iota
	RefusedLowDisk
	RefusedOverload // too many operations wait

	refusals
)

// Refused returns how many commands that add to the state were refused, by reason.
func (h *Host) Refused() (n [refusals]int64) {
	for i := range n {
		n[i] = h.refused[i].Load()
	}
	return n
}

// grows reports whether a command adds to the state. A Modify does if its patch has a payload or
// headers.
func grows(c *timer.Command) bool {
	switch c.Kind {
	case timer.Add, timer.Put, timer.Redrive, timer.OpenTopic:
		return true
	case timer.Modify:
		return c.Patch != nil && (len(c.Patch.Spec.Payload) > 0 || len(c.Patch.Spec.Callback.Headers) > 0)
	}
	return false
}

// Shortages reports what other nodes lack. Its methods must be quick.
type Shortages interface {
	// LowDisks returns the other nodes that report a low disk.
	LowDisks() []timer.LowDiskError
	// Tight returns the other nodes that report that their memory is tight.
	Tight() []uint64
}

// near reports whether so much memory is near the limit.
func (c *Config) near(n int64) bool { return n > c.MemoryLimit-c.MemoryLimit/memoryShareDivisor }

// MemoryTight reports whether this node has no memory for more shards: what adds may fill is almost
// used.
func (h *Host) MemoryTight() bool { return h.cfg.near(h.needed()) }

// Disk returns the state of the log's disk. It may be called from any goroutine.
func (h *Host) Disk() wal.Disk { return h.stream.Disk() }

// lowDisk is the error of this node's disk when it is low.
func (c *Config) lowDisk(d wal.Disk) timer.LowDiskError {
	return timer.LowDiskError{Node: c.Node, Name: c.Name, Path: c.Dir, Free: d.Free, Limit: d.Limit, Lack: d.Lack}
}

// LowDisks returns the nodes whose disk is low, this node first.
func (h *Host) LowDisks() (low []timer.LowDiskError) {
	if d := h.Disk(); d.Low {
		low = append(low, h.cfg.lowDisk(d))
	}
	if h.cfg.Shortages != nil {
		low = append(low, h.cfg.Shortages.LowDisks()...)
	}
	return low
}

// updateLowDisks makes a leader refuse adds while the disk of a voter is low. Every voter writes
// the added data, and a voter with a full disk could not even write commands that free something.
// The leader must refuse, because clients' commands do not pass through followers.
func (r *replica) updateLowDisks(low []timer.LowDiskError) {
	i := -1
	if len(low) > 0 && r.leader {
		i = slices.IndexFunc(low, func(e timer.LowDiskError) bool { return r.membership.hasVoter(r, e.Node) })
	}
	if i < 0 {
		if r.public.lowDisk.Load() != nil {
			r.public.lowDisk.Store(nil)
			r.w.touch(r)
		}
		return
	}
	r.public.lowDisk.Store(&low[i])
}

// hasVoter reports whether a replica on the node has a vote, or had one before a joint change that
// is not complete.
func (m *membership) hasVoter(r *replica, node uint64) bool {
	of := func(id uint64) bool { return nodeOf(id) == node }
	return slices.ContainsFunc(r.store.Conf.Voters, of) || slices.ContainsFunc(r.store.Conf.VotersOutgoing, of)
}
