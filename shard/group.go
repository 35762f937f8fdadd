package shard

import (
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
)

// Meta is the group that holds topics, nodes and placement.
const Meta timer.ShardID = 0

// group is this node's replica of one raft group: a timer shard, or the meta group. It belongs to
// one worker's goroutine and is not locked.
type group struct {
	id      timer.ShardID
	w       *worker
	replica uint64
	raft    *raft.RawNode
	store   *storage

	table *table.Table // a timer shard's state machine
	meta  *metaGroup   // the meta group's

	applied     uint64
	appliedTerm uint64
	leader      bool
	term        uint64
	serving     bool // this term's takeover is applied: reads and leases may begin

	// What waits to be proposed, and what was proposed and is not applied yet, in order.
	waiting   []*op
	pulls     []*pullRequest
	takeover  bool
	batch     table.Batch
	items     []item
	number    uint64
	proposals []proposal
	results   []timer.Result

	spareItems []item // empty, for the next proposal

	scheduler *scheduler.Scheduler
	reported  int // reports to members of the row, in turn, while nobody is known to lead
	reads     reads
	canary    canary
	files     logRetention // what of it is on disk

	counted int // bytes of its log in memory, as the worker knows

	leftovers leftovers

	hard      record.HardState // as raft last gave it
	end       record.EntryID   // the last entry that was handed to the log
	creation  *record.Mark     // how the replica began; nil: it was read from a snapshot
	hardDirty bool             // not in the log yet: it goes along with the next frame

	row       Assignment // where its replicas should be, as this node knows it
	epoch     uint32     // of the last row that its membership followed
	confIndex uint64     // of the last change of members
	tombstone uint64     // replica ids up to this one are used up here

	reconcileAt, settledAt, confUntil, servingSince, standAt, setClockAt time.Duration

	refusedUntil time.Duration // raft took no proposal: none is made until then; 0: it did

	compare    comparison      // of its state with the other replicas'
	quarantine *quarantine     // its state is wrong; nil: it is not known to be
	damaged    bool            // … because memory has changed by itself
	refills    []refillRequest // replicas that have asked for this one's state
	refilled   uint64          // how often it has got another's
	scrubAt    time.Duration   // when its memory is looked through again
	stopped    error           // this build cannot go on with its log; nil: it can

	leaderless      bool          // nobody leads, as far as raft has said
	leaderlessSince time.Duration // since when

	known           confKnown // whether the members know of the last change of members
	commitHintsSent uint64    // said as a witness

	transferee    uint64 // the replica that the leadership is being given to
	transferSent  bool
	transferUntil time.Duration

	installs     uint64            // snapshots from peers that have become the state
	wantSnapshot bool              // a follower needs one
	incoming     *receivedSnapshot // a snapshot from a peer, about to become the state

	public groupPublic

	touched, again, stalled bool // in the worker's lists

	wakeMs int64 // wall ms at which its wheel or a destination queue wants a turn
}

// proposal is one raft entry of this leader that is not applied yet.
type proposal struct {
	number uint64
	bytes  int
	items  []item
	metas  []*metaOp
}

// item is what one item of a batch was for.
type item struct {
	kind      itemKind
	closes    bool         // it drops timers of a topic by force,
	from      timer.Handle // behind this one
	op        *op
	scheduled scheduler.Item // what the scheduler has put there, if it is of its
	pull      *pullRequest
}

type itemKind uint8

const (
	commandItem itemKind = iota
	ofScheduler
	takeoverItem
	silentItem // nothing waits for it
	pullItem
)

// newRaft starts the raft node on what was recovered.
func (g *group) newRaft() error {
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        g.replica,
		ElectionTick:              20,
		HeartbeatTick:             2,
		Storage:                   g.store,
		Applied:                   g.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  16 << 20,
		MaxUncommittedEntriesSize: mostUncommitted + table.MaxBatchBytes,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          64 << 20,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{g.w.host.cfg.Logger.With("shard", uint32(g.id)), g.w.host},
	})
	if err != nil {
		return fmt.Errorf("shard %d: start raft: %w", g.id, err)
	}
	g.raft = node
	g.leaderless, g.leaderlessSince = true, g.w.now.Mono
	return nil
}

// soleVoter reports that nobody else has a vote: then there is nothing to wait for before standing
// for election.
func (g *group) soleVoter() bool {
	return len(g.store.conf.Voters) == 1 && g.store.conf.Voters[0] == g.replica && len(g.store.conf.VotersOutgoing) == 0
}

// work is the group's share of a turn.
func (g *group) work() {
	if g.raft == nil {
		g.refuseAll()
		return
	}
	if g.scheduler != nil {
		g.scheduler.Run()
	}
	if g.w.mayPropose() {
		g.propose()
	} else if g.hasWork() {
		g.w.stall(g)
	}
	g.tryHandOver()
	g.reads.ask(g)
	g.collect()
	if g.raft == nil {
		return // what was applied removed it
	}
	g.reads.serve(g)
	g.wakeMs = math.MaxInt64
	if g.scheduler != nil {
		g.wakeMs = g.scheduler.NextWake()
	}
	g.publish()
}

// tick is what a replica does every 50 ms or so.
func (g *group) tick() {
	g.expire(g.w.now.Mono)
	g.tickCanary()
	g.tickCompare()
	g.tickQuarantine()
	g.reconcile()
	if g.refusedUntil != 0 && g.w.now.Mono >= g.refusedUntil {
		g.refusedUntil = 0
		g.w.touch(g)
	}
	if len(g.waiting) > 0 && g.notLeading() && !g.awaitsLeader() {
		g.refuseAll()
	}
	if g.scheduler == nil {
		return
	}
	if !g.leader && g.w.sure() {
		g.table.Advance(g.w.now.WallMs, scheduler.WheelBudget) // a follower's wheel stays near the time, so that a takeover finds it there
	}
	g.scheduler.Tick()
	if g.standAt != 0 && g.w.now.Mono >= g.standAt {
		g.standAt = 0
		if g.raft.BasicStatus().Lead == raft.None {
			_ = g.raft.Campaign()
		}
	}
}

func (g *group) hasWork() bool {
	if g.meta != nil {
		return len(g.meta.waiting) > 0
	}
	return g.takeover || len(g.waiting)+len(g.pulls) > 0 || g.scheduler.HasProposals()
}

// collect takes what raft has to say: soft state, reads, messages to the log, to the state machine
// and to peers.
func (g *group) collect() {
	for g.raft != nil && g.raft.HasReady() {
		rd := g.raft.Ready()
		if rd.SoftState != nil {
			g.leadChanged(rd.SoftState.Lead)
			g.roleChanged(rd.SoftState.RaftState == raft.StateLeader)
		}
		for _, rs := range rd.ReadStates {
			g.reads.confirmed(rs.RequestCtx, rs.Index)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				g.append(m)
			case raft.LocalApplyThread:
				g.apply(m.Entries)
				if g.raft == nil {
					return // it cannot go on
				}
				g.step(m.Responses)
			default:
				g.send(m)
			}
		}
	}
	g.incoming = nil // raft has no use for it: its leader was deposed, or the log has come that far by itself
}

// append puts what raft wants durable into this turn's frame. Its responses leave when the frame is
// on disk.
func (g *group) append(m *pb.Message) {
	a := appended{group: g, entries: m.Entries, responses: m.Responses}
	if m.Snapshot != nil {
		g.install(m.Snapshot)
		a.mark, a.installed, a.sync = true, true, true
	}
	if m.Term != nil {
		// A new commit index alone need not be durable: it can be learnt again.
		a.sync = a.sync || m.GetTerm() != g.hard.Term || m.GetVote() != g.hard.Vote
		g.hard = record.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		g.hardDirty = true
	}
	a.sync = a.sync || len(m.Entries) > 0
	g.w.append(a)
}

// step delivers responses of the log and the state machine.
func (g *group) step(responses []*pb.Message) {
	for _, m := range responses {
		if m.GetTo() != g.replica {
			g.send(m)
			continue
		}
		err := g.raft.Step(m)
		if errors.Is(err, raft.ErrStepPeerNotFound) {
			continue // others committed that this replica goes, and it was applied, while its own disk was still at work
		}
		if err != nil {
			panic(fmt.Sprintf("shard %d: raft refused a local response: %v", g.id, err))
		}
	}
}

// durable is told that a frame with entries of this group is on disk.
func (g *group) durable(a *appended, pos wal.Position) {
	if a.tombstone != 0 {
		g.cleanUp(a.tombstone)
		if g.replica == 0 {
			g.files.tomb, g.files.restating = pos.Gen, false
			return
		}
	}
	if a.replica != g.replica {
		return // it was of a replica that is gone
	}
	if a.installs != g.installs {
		// A snapshot has become the state meanwhile, and its leader has other entries in the place
		// of these, or none.
		if a.hard {
			g.files.hardGen = pos.Gen
		}
		return
	}
	if a.create != nil {
		g.files.created, g.files.hardGen, g.files.restating = pos.Gen, pos.Gen, false
	}
	if len(a.entries) > 0 {
		if !g.store.append(a.entries) {
			panic(fmt.Sprintf("shard %d: gap in the log: entry %d after %d", g.id, a.entries[0].GetIndex(), g.store.last()))
		}
		g.files.wrote(pos.Gen, a.entries)
	}
	if a.hard {
		g.files.hardGen = pos.Gen
	}
	if g.raft == nil {
		return // it cannot go on
	}
	g.step(a.responses)
	g.w.touch(g)
}
