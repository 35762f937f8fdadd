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

	"carillon/shard/record"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
)

// Meta is the group of topics, nodes and placement.
const Meta timer.ShardID = 0

// group is this node's replica of one raft group: a timer shard, or the meta group. Only its
// worker's goroutine uses it, without locks.
type group struct {
	id      timer.ShardID
	w       *worker
	replica uint64 // its id; 0: this node has none
	raft    *raft.RawNode
	store   *storage
	machine machine // a shard of timers, or the meta group
	public  groupPublic

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
func (g *group) newRaft() error {
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        g.replica,
		ElectionTick:              10,
		HeartbeatTick:             1,
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
	g.election.leaderless, g.election.since = true, g.w.now.Mono
	return nil
}

// soleVoter reports whether this replica is the only voter. It can then campaign at once.
func (g *group) soleVoter() bool {
	return len(g.store.conf.Voters) == 1 && g.store.conf.Voters[0] == g.replica && len(g.store.conf.VotersOutgoing) == 0
}

// work is the group's part of a turn.
func (g *group) work() {
	if g.raft == nil {
		g.refuseAll()
		return
	}
	g.machine.run()
	g.tryPropose()
	g.transfer.trySend(g)
	g.reads.ask(g)
	g.collect()
	if g.pipeline.gathering && !g.pipeline.gathers(g) && g.raft != nil {
		g.tryPropose() // the entry that was on its way has been applied
		g.collect()
	}
	if g.raft == nil {
		return // an applied entry stopped the group
	}
	if len(g.pipeline.proposals)+g.machine.waits() == 0 {
		g.pipeline.sendHeld(g)
	}
	g.reads.serve(g)
	g.turn.wakeMs = g.machine.nextWake()
	g.publish()
}

// tick does the group's periodic work, once in tickInterval.
func (g *group) tick() {
	g.pipeline.sendHeld(g)
	g.expire(g.w.now.Mono)
	g.compare.tick(g)
	g.membership.reconcile(g)
	if g.pipeline.refusedUntil != 0 && g.w.now.Mono >= g.pipeline.refusedUntil {
		g.pipeline.refusedUntil = 0
		g.w.touch(g)
	}
	if g.machine.waits() > 0 && g.notLeading() && !g.awaitsLeader() {
		g.refuseAll()
	}
	g.machine.tick()
}

// collect handles raft's output: soft state, reads, and messages to the log, to the state machine
// and to peers.
func (g *group) collect() {
	for g.raft != nil && g.raft.HasReady() {
		rd := g.raft.Ready()
		if rd.SoftState != nil {
			g.election.leadChanged(g, rd.SoftState.Lead)
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
					return // the group is stopped
				}
				g.step(m.Responses)
			default:
				g.send(m)
			}
		}
	}
	// Raft did not install it: its leader was deposed, or the log has caught up by itself.
	g.snapshots.incoming = nil
}

// append adds the entries and the state that raft wants durable to this turn's frame. The responses
// are sent when the frame is on disk.
func (g *group) append(m *pb.Message) {
	a := appended{group: g, entries: m.Entries, responses: m.Responses}
	if m.Snapshot != nil {
		g.snapshots.install(g, m.Snapshot)
		a.mark, a.installed, a.sync = true, true, true
	}
	if m.Term != nil {
		// A new commit index alone need not be durable: it can be learned again.
		a.sync = a.sync || m.GetTerm() != g.written.hard.Term || m.GetVote() != g.written.hard.Vote
		g.written.hard = record.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
		g.written.dirty = true
	}
	a.spare = !a.sync && len(m.Entries) > 0 && g.membership.spare(g)
	a.sync = a.sync || len(m.Entries) > 0
	g.w.append(a)
}

// step delivers the responses of the log and the state machine to raft, or to peers.
func (g *group) step(responses []*pb.Message) {
	for _, m := range responses {
		if m.GetTo() != g.replica {
			g.send(m)
			continue
		}
		err := g.raft.Step(m)
		if errors.Is(err, raft.ErrStepPeerNotFound) {
			continue // its own removal was committed and applied before its disk answered
		}
		if err != nil {
			panic(fmt.Sprintf("shard %d: raft refused a local response: %v", g.id, err))
		}
	}
}

// durable handles the group's part of a frame that is now on disk.
func (g *group) durable(a *appended, pos wal.Position) {
	if a.tombstone != 0 {
		g.leftovers.add(g, a.tombstone)
		if g.replica == 0 {
			g.files.tomb, g.files.restating = pos.Gen, false
			return
		}
	}
	if a.replica != g.replica {
		return // the part is of an earlier replica
	}
	if a.installs != g.snapshots.installs {
		// A snapshot was installed meanwhile. Its leader has other entries, or none, in place of
		// these.
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
	if g.raft == nil { // the group is stopped
		g.w.countEntries(g)
		return
	}
	g.step(a.responses)
	g.w.touch(g)
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
