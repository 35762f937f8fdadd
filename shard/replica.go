package shard

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
)

// Meta is the group of topics, nodes and placement.
const Meta timer.ShardID = 0

// replica is this node's replica of one raft group: a timer shard, or the meta group. Only its
// worker's goroutine uses it, without locks.
type replica struct {
	shard   timer.ShardID
	w       *worker
	id      uint64 // its id; 0: this node has none
	raft    *raft.RawNode
	store   *raftlog.Storage
	machine machine // a shard of timers, or the meta group
	public  replicaPublic

	applied      uint64
	appliedTerm  uint64
	leader       bool
	term         uint64
	takeover     bool // the first entry of this term, which begins to serve, is to be made
	serving      bool // … is applied: reads and leases may begin
	servingSince time.Duration
	stopped      error  // why this build cannot read its log further; nil: it can
	tombstone    uint64 // replica ids up to this one are used up on this node

	pipeline   pipeline
	reads      reads
	election   election
	transfer   leadershipTransfer
	membership membership
	compare    comparison // with the states of the other replicas
	wrong      wrongState
	written    written
	files      filesState // where its state is on disk
	snapshots  snapshots
	leftovers  leftovers
	turn       turnState
	awaitUntil time.Duration // a replica is created here before, or its first leader elected; see awaited
}

// machine is the state machine of a group: a shard of timers (timerShard), or the meta group
// (metaGroup). It also makes the group's entries, of the changes that wait for it. Its worker alone
// uses it, but for read.
type machine interface {
	// apply applies a committed entry and answers the operations that it was made of. compares
	// reports whether the entry makes the replicas compare their states. An error means that this
	// build cannot apply the entry.
	apply(e *pb.Entry) (compares bool, err error)
	// afterApply is called when all committed entries are applied.
	afterApply()
	// replay is apply at a start, where no operation waits.
	replay(e *record.Entry) error

	// hash returns the hash of the state, and hashVersion the version of that hash.
	hash() uint64
	hashVersion() byte
	bytes() int64 // memory that the state takes
	slots() int   // that a long read visits
	// save starts to save the state, read reads what a save has written, on any goroutine, and
	// replace makes a state that was read the current one.
	save() timer.Saving
	read(r io.Reader) (state any, hash uint64, err error)
	replace(state any)
	clear() // forgets the state of a removed replica

	// propose makes one entry of the changes that wait, if this replica may.
	propose()
	hasWork() bool // propose has something to do
	waits() int    // client operations that are not proposed
	// prompt reports that nothing of the group waits a moment for something that may follow: no
	// change for others, no frame for others, and no operation for the next leader.
	prompt() bool
	refuse(err error)         // answers all operations that are not proposed
	expire(now time.Duration) // answers operations whose deadline has passed

	run()            // does its part of a turn
	nextWake() int64 // wall ms at which it needs a turn
	tick()           // does its periodic work
	tickRemoved()    // … on a node without a replica
	end()            // ends a leadership, and fails its proposals
	doubt()          // this process was suspended; see replica.doubt
	drain()          // a transfer of the leadership begins
	unstarted() int  // leases whose calls have not started
	scanLeases()     // processes of other nodes have ended, perhaps
	receive(kind byte, from uint64, body []byte)
	status(to *GroupStatus)
	stats(to *Stats)
}

// turnState is what a worker's turns have of a group.
type turnState struct {
	touched, again, stalled, scans bool   // it is in the worker's list: dirty, again, stalled, scans
	late                           bool   // its scheduler had no time in this turn
	hadTime                        uint64 // the last turn in which it had
	wakeMs                         int64  // wall ms at which its wheel or a destination queue needs a turn
	counted                        int    // bytes of its log that memoryCount.entries includes
}

// written is what a group has handed to the log.
type written struct {
	hard  record.HardState // latest from raft
	end   uint64           // last entry
	dirty bool             // hard is not in the log yet: the next frame carries it
}

// newRaft starts the raft node on the replica's recovered or initial state.
func (r *replica) newRaft() error {
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        r.id,
		ElectionTick:              electionTicks,
		HeartbeatTick:             1,
		Storage:                   r.store,
		Applied:                   r.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  16 << 20,
		MaxUncommittedEntriesSize: mostUncommitted + table.MaxBatchBytes,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          64 << 20,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{r.w.host.cfg.Logger.With("shard", uint32(r.shard)), r.w.host},
	})
	if err != nil {
		return fmt.Errorf("shard %d: start raft: %w", r.shard, err)
	}
	r.raft = node
	r.public.unrest.Store(&unrest{changed: r.w.now.Mono, first: true})
	r.public.present.Store(true)
	r.election.leaderless, r.election.since = true, r.w.now.Mono
	return nil
}

// soleVoter reports whether this replica is the only voter. It can then campaign at once.
func (r *replica) soleVoter() bool {
	return len(r.store.Conf.Voters) == 1 && r.store.Conf.Voters[0] == r.id && len(r.store.Conf.VotersOutgoing) == 0
}

// work is the group's part of a turn.
func (r *replica) work() {
	if r.raft == nil {
		if !r.awaitsLeader() {
			r.refuseAll()
		}
		return
	}
	r.machine.run()
	r.tryPropose()
	r.transfer.trySend(r)
	r.reads.ask(r)
	r.collect()
	if r.pipeline.gathering && !r.pipeline.gathers(r) && r.raft != nil {
		r.tryPropose() // the entry that was on its way has been applied
		r.collect()
	}
	if r.raft == nil {
		return // an applied entry stopped the group
	}
	if len(r.pipeline.proposals)+r.machine.waits() == 0 {
		r.pipeline.sendHeld(r)
	}
	r.reads.serve(r)
	r.turn.wakeMs = r.machine.nextWake()
	r.w.soonest.include(r)
	r.publish()
}

// tick does the group's periodic work, once in tickInterval.
func (r *replica) tick() {
	r.pipeline.sendHeld(r)
	r.expire(r.w.now.Mono)
	r.reads.askAgain(r)
	r.compare.tick(r)
	r.membership.reconcile(r)
	if r.pipeline.refusedUntil != 0 && r.w.now.Mono >= r.pipeline.refusedUntil {
		r.pipeline.refusedUntil = 0
		r.w.touch(r)
	}
	if r.machine.waits() > 0 && r.notLeading() && !r.awaitsLeader() {
		r.refuseAll()
	}
	r.machine.tick()
}

// collect handles raft's output: soft state, and messages to the log, to the state machine
// and to peers.
func (r *replica) collect() {
	for r.raft != nil && r.raft.HasReady() {
		rd := r.raft.Ready()
		if rd.SoftState != nil {
			r.election.leadChanged(r, rd.SoftState.Lead)
			r.roleChanged(rd.SoftState.RaftState == raft.StateLeader)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				r.append(m)
			case raft.LocalApplyThread:
				r.apply(m.Entries)
				if r.raft == nil {
					return // the group is stopped
				}
				r.step(m.Responses)
			default:
				r.send(m)
			}
		}
	}
	// Raft did not install it: its leader was deposed, or the log has caught up by itself.
	r.snapshots.incoming = nil
}

// stop ends a group whose log this build cannot continue: the next entry is of a newer release, or
// malformed. The replica neither votes nor acknowledges, and the others continue without it. Its
// files stay as they are, so that a build that can read them can continue from there. The node's
// other groups are not affected, not even at a start.
func (r *replica) stop(why error) {
	r.w.host.cfg.Logger.Error("a replica is stopped: this release cannot read its log. No data is lost: start the release that wrote it",
		"shard", uint32(r.shard), "why", why)
	r.stopped = why
	r.stepDown()
	r.refuseAll()
	r.w.abortSnapshot(r)
	r.raft, r.wrong.why, r.snapshots.incoming = nil, nil, nil
	r.turn.wakeMs = math.MaxInt64
	r.publish()
}

// raftLogger writes raft's log lines to slog. Raft's Info becomes Debug, because raft logs every
// step of each shard's elections.
type raftLogger struct {
	log  *slog.Logger
	host *Host
}

// notYetVoter is what raft warns of where a replica should stand for the leadership before it has
// the state that makes it a voter. That is as it should be: another one stands, and it itself
// later.
const notYetVoter = "%x is unpromotable and can not campaign"

// lostMajority is what raft warns of at each leader that hears from no majority. A node that is cut
// off loses all of its leaderships at once, up to thousands: one line in lostEvery stands for all.
const (
	lostMajority = "%x stepped down to follower since quorum is not active"
	lostEvery    = time.Minute
)

// replicaID matches a replica in raft's log lines.
var replicaID = regexp.MustCompile(`\b[0-9a-f]{7,16}\b`)

// named replaces the ids of replicas with the names of their nodes.
func (l raftLogger) named(text string) string {
	return replicaID.ReplaceAllStringFunc(text, func(hex string) string {
		id, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || l.host.cfg.NodeName == nil {
			return hex
		}
		return cmp.Or(l.host.cfg.NodeName(nodeOf(id)), hex)
	})
}

// nodeName returns the name of a node for people, or its id if the name is not known.
func (h *Host) nodeName(node uint64) string {
	name := ""
	if h.cfg.NodeName != nil {
		name = h.cfg.NodeName(node)
	}
	return cmp.Or(name, fmt.Sprintf("%010x", node))
}

func (l raftLogger) Debug(v ...any)                 { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Debugf(format string, v ...any) {}
func (l raftLogger) Info(v ...any)                  { l.log.Debug(fmt.Sprint(v...)) }

// Infof is called at every step of an election, so it formats only lines that are logged.
func (l raftLogger) Infof(format string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(l.named(fmt.Sprintf(format, v...)))
	}
}
func (l raftLogger) Warning(v ...any) { l.log.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(format string, v ...any) {
	switch format {
	case notYetVoter:
		l.Infof(format, v...)
		return
	case lostMajority:
		now := l.host.cfg.Clock.Mono()
		if at := l.host.lostAt.Load(); at != 0 && now < time.Duration(at)+lostEvery || !l.host.lostAt.CompareAndSwap(at, int64(max(now, 1))) {
			l.Infof(format, v...)
			return
		}
		l.log.Warn("this node led a shard and hears from no majority of its replicas: it leads it no more, and perhaps others; see carillon ctl doctor")
		return
	}
	l.log.Warn(l.named(fmt.Sprintf(format, v...)))
}
func (l raftLogger) Error(v ...any)                 { l.log.Error(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any) { l.log.Error(l.named(fmt.Sprintf(format, v...))) }
func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
