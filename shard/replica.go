package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
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
	files      logRetention // where its state is on disk
	snapshots  snapshots
	leftovers  leftovers
	turn       turnState
	awaitUntil time.Duration // a replica is born here before, or its first leader elected; see awaited
}

// turnState is what a worker's turns have of a group.
type turnState struct {
	touched, again, stalled bool  // it is in the worker's list: dirty, again, stalled
	hadTime, late           bool  // its scheduler had time in this turn; had none
	wakeMs                  int64 // wall ms at which its wheel or a destination queue needs a turn
	counted                 int   // bytes of its log that memoryCount.entries includes
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

// append adds the entries and the state that raft wants durable to this turn's frame. The responses
// are sent when the frame is on disk.
func (r *replica) append(m *pb.Message) {
	a := appended{group: r, entries: m.Entries, responses: m.Responses}
	if m.Snapshot != nil {
		r.snapshots.install(r, m.Snapshot)
		a.mark, a.installed, a.sync = true, true, true
	}
	if m.Term != nil {
		// A new commit index alone need not be durable: it can be learned again.
		a.sync = a.sync || m.GetTerm() != r.written.hard.Term || m.GetVote() != r.written.hard.Vote
		r.written.hard = record.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		r.written.dirty = true
	}
	a.spare = !a.sync && len(m.Entries) > 0 && r.membership.spare(r)
	a.sync = a.sync || len(m.Entries) > 0
	r.w.append(a)
}

// step delivers the responses of the log and the state machine to raft, or to peers.
func (r *replica) step(responses []*pb.Message) {
	for _, m := range responses {
		if m.GetTo() != r.id {
			r.send(m)
			continue
		}
		err := r.raft.Step(m)
		if errors.Is(err, raft.ErrStepPeerNotFound) {
			continue // its own removal was committed and applied before its disk answered
		}
		if err != nil {
			panic(fmt.Sprintf("shard %d: raft refused a local response: %v", r.shard, err))
		}
	}
}

// durable handles the group's part of a frame that is now on disk.
func (r *replica) durable(a *appended, pos wal.Position) {
	if a.tombstone != 0 {
		r.leftovers.add(r, a.tombstone)
		if r.id == 0 {
			r.files.tomb, r.files.restating = pos.Gen, false
			return
		}
	}
	if a.replica != r.id {
		return // the part is of an earlier replica
	}
	if a.installs != r.snapshots.installs {
		// A snapshot was installed meanwhile. Its leader has other entries, or none, in place of
		// these.
		if a.hard {
			r.files.hardGen = pos.Gen
		}
		return
	}
	if a.create != nil {
		r.files.created, r.files.hardGen, r.files.restating = pos.Gen, pos.Gen, false
	}
	if len(a.entries) > 0 {
		if !r.store.Append(a.entries) {
			panic(fmt.Sprintf("shard %d: gap in the log: entry %d after %d", r.shard, a.entries[0].GetIndex(), r.store.Last()))
		}
		r.files.wrote(pos.Gen, a.entries)
	}
	if a.hard {
		r.files.hardGen = pos.Gen
	}
	if r.raft == nil { // the group is stopped
		r.w.countEntries(r)
		return
	}
	r.step(a.responses)
	r.w.touch(r)
}

// raftLogger writes raft's log lines to slog. Raft's Info becomes Debug, because raft logs every
// step of each shard's elections.
type raftLogger struct {
	log  *slog.Logger
	host *Host
}

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
	l.log.Warn(l.named(fmt.Sprintf(format, v...)))
}
func (l raftLogger) Error(v ...any)                 { l.log.Error(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any) { l.log.Error(l.named(fmt.Sprintf(format, v...))) }
func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
