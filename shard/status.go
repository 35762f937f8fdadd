package shard

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// replicaPublic is the part of a replica's status that other goroutines may read without asking its
// worker. It may be a turn old.
type replicaPublic struct {
	leader       atomic.Uint64                      // node; 0: unknown
	serves       atomic.Bool                        // this node leads and has taken over
	present      atomic.Bool                        // this node has a replica
	takes        atomic.Bool                        // commands may come here; see Host.Takes
	lowDisk      atomic.Pointer[timer.LowDiskError] // why this leader refuses adds; nil: it does not
	applied      atomic.Uint64                      // index of the last applied entry
	bytes        atomic.Int64                       // of the state, as of the last tick
	full         atomic.Bool                        // … and whether it takes no more
	divided      atomic.Uint32                      // see table.DividedOf
	awaitedSince atomic.Int64                       // monotonic ns since which timers wait here for this child's first replica; 0: none do
	unrest       atomic.Pointer[unrest]             // see settleFor
}

// publish updates r.public.
func (r *replica) publish() {
	leader := r.leaderNode()
	before := r.public.leader.Load()
	if leader != before {
		r.public.changes(r.w.now.Mono, r.lacks(before))
	}
	r.public.leader.Store(leader)
	r.public.serves.Store(r.serving)
	r.public.present.Store(r.raft != nil)
	if r.raft != nil || !r.awaitsCreation() {
		r.public.awaitedSince.Store(0)
	}
	r.public.takes.Store(!r.notLeading() || r.awaitsLeader())
	r.public.applied.Store(r.applied)
	if s, ok := r.machine.(*timerShard); ok {
		r.public.divided.Store(uint32(s.table.DividedOf()))
	}
	if leader != before && leader != 0 && r.w.host.cfg.NewLeader != nil {
		r.w.host.cfg.NewLeader(r.shard, leader)
	}
}

// Leads reports whether this node leads the group and serves.
func (h *Host) Leads(id timer.ShardID) bool { return h.resolve(id).public.serves.Load() }

// Takes reports whether commands for the group may be sent to this node: it leads, is about to
// serve, or will soon know the leader and name it.
func (h *Host) Takes(id timer.ShardID) bool { return h.resolve(id).public.takes.Load() }

// Leader returns the node that leads the group, by what this node's replica knows. The host may
// have yet to grow for it.
func (h *Host) Leader(id timer.ShardID) (node uint64, ok bool) {
	if int(id) > h.Shards() {
		return 0, false
	}
	node = h.resolve(id).public.leader.Load()
	return node, node != 0
}

// Applied returns the index of the last entry in this node's copy of the group's state.
func (h *Host) Applied(id timer.ShardID) uint64 { return h.group(id).public.applied.Load() }

// Size returns the memory that this node's copy of a group's state takes, and whether it is full,
// so that the adds of its shard are refused.
func (h *Host) Size(id timer.ShardID) (bytes int64, full bool) {
	public := &h.group(id).public
	return public.bytes.Load(), public.full.Load()
}

// LogEnd returns the number of frames that this node's log had on disk when the process began, and
// the number now. Both count the frames of all processes.
func (h *Host) LogEnd() (opened, synced uint64) { return h.opened, h.stream.Synced() }

// Confirm makes a majority confirm that this node leads the group. It returns an applied index that
// covers everything committed before the call.
func (h *Host) Confirm(id timer.ShardID) (index uint64, err error) {
	err = h.read(id, false, func(*timerShard, int) bool {
		index = h.group(id).applied
		return true
	})
	return index, err
}

// GroupStatus is the status of a group on this node.
type GroupStatus struct {
	Group    timer.ShardID
	Replica  uint64 // 0: none here, or stopped; then only Fault may be set
	Leader   uint64 // node; 0: unknown
	Leads    bool
	Term     uint64
	Applied  uint64
	Voters   []uint64
	Learners []uint64
	Joint    bool
	Compared uint64            // last entry after which the replicas compared their states
	Fault    string            // why the replica is stopped or not trusted; empty: no fault is known
	Timers   int               // scheduled, leased and dead
	Hash     uint64            // of the state, equal on all replicas; 0: the meta group
	Behind   map[uint64]uint64 // on the leader: entries that each active replica lacks
}

// Groups returns the status of all groups.
func (h *Host) Groups() []GroupStatus {
	out := make([]GroupStatus, len(h.all()))
	h.inTurn(func(w *worker) {
		for _, r := range w.groups {
			out[r.shard] = r.status()
		}
	})
	return out
}

func (r *replica) status() GroupStatus {
	s := GroupStatus{Group: r.shard}
	s.Fault = r.fault()
	if s.Fault == "" && r.compare.differs {
		s.Fault = "replicas have different states, and none of these has a majority"
	}
	if r.raft == nil {
		return s
	}
	basic := r.raft.BasicStatus()
	s.Replica, s.Leader, s.Leads, s.Term = r.id, nodeOf(basic.Lead), r.leader, basic.GetTerm()
	s.Applied, s.Compared = r.applied, r.compare.last
	s.Voters, s.Learners, s.Joint = r.store.Conf.Voters, r.store.Conf.Learners, len(r.store.Conf.VotersOutgoing) > 0
	r.machine.status(&s)
	if r.leader {
		s.Behind = map[uint64]uint64{}
		last := r.store.Last()
		r.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
			if id == r.id || pr.RecentActive {
				s.Behind[id] = last - min(pr.Match, last)
			}
		})
	}
	return s
}

// fault describes the fault of this replica. It is empty if none is known.
func (r *replica) fault() string {
	switch {
	case r.stopped != nil:
		return r.stopped.Error()
	case r.wrong.why != nil:
		return fmt.Sprintf("shard %d: %v", r.shard, r.wrong.why)
	}
	return ""
}

// Fault describes a fault of one of this node's replicas: it is stopped, or its state is wrong.
// Such a node should lead nothing. The description is empty if no fault is known.
func (h *Host) Fault() string {
	for _, w := range h.workers {
		if text := w.sample.fault.Load(); text != nil && *text != "" {
			return *text
		}
	}
	return ""
}

// Stats are the host's gauges.
type Stats struct {
	timer.Counts       // timers of led shards; Waiting for a leader also those of replicas that know of none
	Overdue      int64 // due and not called yet
	UnknownZone  int64 // … of which in a time zone that this node lacks
	Leads        int
	Faults       int // replicas that are stopped, or whose state is wrong or differs
	FullShards   int // replicas that have room for no more timers
	MemoryBytes  int64
	Memory       Memory
	Queued       int64 // client operations that are not answered yet

	// SealedBy counts the sealed header values of callbacks by their key. Equal values count once
	// per shard.
	SealedBy map[string]int64
}

func (h *Host) Stats() Stats {
	var s Stats
	s.Memory.Arrivals = h.arriving.Load()
	h.inTurn(func(w *worker) {
		s.Queued += w.queued.Load()
		m := w.holds()
		s.Memory.add(&m)
		for _, r := range w.groups {
			r.stats(&s)
		}
	})
	walkLeaders(h, func(l *timerShard, at *int) bool {
		same := *at
		l.scheduler.View.Overdue(&same, func(_ timer.TopicID, timers, _ int64) { s.Overdue += timers })
		return l.scheduler.View.Waiting(at, &s.Waiting)
	})
	return s
}

func (r *replica) stats(s *Stats) {
	if r.leader {
		s.Leads++
	}
	if r.fault() != "" || r.compare.differs {
		s.Faults++
	}
	if r.public.full.Load() {
		s.FullShards++
	}
	r.machine.stats(s)
}

// walkLeaders looks at the shards that this node leads, a slice of one of them in each event, so
// that turns stay short. look continues at the cursor, and reports whether the shard is done. It runs
// on one worker after the other: no worker waits for another.
func walkLeaders[Cursor any](h *Host, look func(s *timerShard, at *Cursor) (done bool)) {
	for _, w := range h.workers {
		var at Cursor
		shard := 0
		for more := true; more; {
			err := h.onWorker(w, func(w *worker) {
				for more = false; shard < len(w.shards); shard++ {
					s := w.shards[shard]
					if more = s.scheduler.Leads() && !look(s, &at); more {
						return
					}
					at = *new(Cursor)
				}
			})
			if err != nil { // it has stopped
				break
			}
		}
	}
}

// DueFor counts the due timers in the destination queues of the shards that this node leads, by
// destination. Of a serial topic only the first timer of each key is in a queue.
func (h *Host) DueFor() map[scheduler.Destination]int {
	sum := map[scheduler.Destination]int{}
	walkLeaders(h, func(l *timerShard, at *scheduler.DueCursor) bool { return l.scheduler.View.DueFor(at, sum) })
	return sum
}

// Held returns how many leases of a topic with a limit this node has acquired or inherited, and
// that have not ended.
func (h *Host) Held(id timer.TopicID) int { return h.limits.Held(id) }

// KeyWeights returns the weights, together, of a topic's keys with something due on this node, if
// the topic has a limit and its keys take turns.
func (h *Host) KeyWeights(id timer.TopicID) int { return h.limits.KeyWeights(id) }

// Indexes of Fired: the result of an attempt.
const (
	FiredSuccess = iota
	FiredRetry
	FiredDead

	firedResults
)

// Fired counts attempts by result.
type Fired [firedResults]uint64

func (f *Fired) add(o *Fired) {
	for i := range f {
		f[i] += o[i]
	}
}

// maxFiredTopics bounds the topics that a worker counts between two calls of TakeActivity. Attempts
// of further topics count for topic 0.
const maxFiredTopics = 4096

// fired reports an attempt's outcome to the observer and counts its result for the topic.
func (w *worker) fired(topic timer.TopicID, o *table.Outcome) {
	w.host.cfg.Observer.Outcome(topic, o)
	result := FiredSuccess
	switch o.Kind {
	case table.Ack:
	case table.RetryLater:
		result = FiredRetry
	case table.Kill:
		result = FiredDead
	default:
		return // the attempt has no result: its lease was released, accepted or extended
	}
	n := w.firedBy[topic]
	if n == nil {
		if len(w.firedBy) >= maxFiredTopics {
			topic = 0
		}
		if n = w.firedBy[topic]; n == nil {
			if w.firedBy == nil {
				w.firedBy = map[timer.TopicID]*Fired{}
			}
			n = new(Fired)
			w.firedBy[topic] = n
		}
	}
	n[result]++
}

// TopicActivity is a topic's activity in the shards that this node leads.
type TopicActivity struct {
	Fired    Fired // since the previous call of TakeActivity
	Overdue  int64 // timers that are due now and not called yet
	OldestMs int64 // how long the oldest of them has been due
}

// Activity is the activity of all shards that this node leads.
type Activity struct {
	// Topics holds the topics with activity. Attempts beyond maxFiredTopics are under topic 0.
	Topics map[timer.TopicID]*TopicActivity
	Totals timer.Counts // timers of all topics
}

func (a *Activity) of(id timer.TopicID) *TopicActivity {
	t := a.Topics[id]
	if t == nil {
		t = &TopicActivity{}
		a.Topics[id] = t
	}
	return t
}

// TakeActivity returns the attempts since the previous call and the timers that are overdue now. It
// must have only one caller, because each call resets the attempts.
func (h *Host) TakeActivity() Activity {
	a := Activity{Topics: map[timer.TopicID]*TopicActivity{}}
	h.inTurn(func(w *worker) {
		for id, n := range w.firedBy {
			a.of(id).Fired.add(n)
		}
		w.firedBy = nil
		for _, s := range w.shards {
			if s.scheduler.Leads() {
				c := s.scheduler.View.Totals()
				a.Totals.Add(&c)
			}
		}
	})
	walkLeaders(h, func(s *timerShard, at *int) bool {
		return s.scheduler.View.Overdue(at, func(id timer.TopicID, timers, oldestMs int64) {
			if id == table.CanaryTopic {
				return
			}
			t := a.of(id)
			t.Overdue += timers
			t.OldestMs = max(t.OldestMs, oldestMs)
		})
	})
	return a
}
