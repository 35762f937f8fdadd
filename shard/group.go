package shard

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"carillon/wal"
)

// group is this node's replica of one raft group: a timer shard, or the meta group. It belongs to one worker's
// goroutine and is not locked.
type group struct {
	id      ID
	w       *worker
	replica uint64
	raft    *raft.RawNode
	store   *storage

	table *Table     // a timer shard's state machine
	meta  *metaGroup // the meta group's

	applied     uint64
	appliedTerm uint64
	leader      bool
	term        uint64
	serving     bool // this term's takeover is applied: reads and leases may begin

	// What waits to be proposed, and what was proposed and is not applied yet, in order.
	waiting   []*op
	takes     []*take
	takeover  bool
	batch     Batch
	items     []item
	number    uint64
	proposals []proposal
	results   []Result

	lead   *lead
	reads  reads
	canary canary
	files  groupFiles // what of it is on disk

	hard      hardState // as raft last gave it
	hardDirty bool      // not in the log yet: it goes along with the next frame

	row       Row    // where its replicas should be, as this node knows it
	epoch     uint32 // of the last row that its membership followed
	confIndex uint64 // of the last change of members
	tombstone uint64 // replica ids up to this one are used up here

	reconcileAt, settledAt, confUntil, servingSince, standAt, agreeAt time.Duration
	giveWord                                                          bool // on the state's hash, in the next entry

	known confKnown // whether the members know of the last change of members

	heir      uint64 // the replica that the leadership is being given to
	heirTold  bool
	heirUntil time.Duration

	wantSnapshot bool     // a follower needs one
	incoming     *arrival // a snapshot from a peer, about to become the state

	public groupPublic

	touched, again, stalled bool // in the worker's lists

	wakeMs int64 // wall ms at which its wheel or a lane wants a turn
}

// proposal is one raft entry of this leader that is not applied yet.
type proposal struct {
	number uint64
	items  []item
	metas  []*metaOp
}

// item is what one item of a batch was for.
type item struct {
	kind   itemKind
	closes bool // it drops timers of a topic by force
	op     *op
	flight *flight
	take   *take
}

type itemKind uint8

const (
	commandItem itemKind = iota
	leaseItem
	outcomeItemKind
	takeoverItem
	silentItem // nothing waits for it
	takeItem
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
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          64 << 20,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{g.w.host.cfg.Logger.With("shard", uint32(g.id))},
	})
	if err != nil {
		return fmt.Errorf("shard %d: start raft: %w", g.id, err)
	}
	g.raft = node
	return nil
}

// soleVoter reports that nobody else has a vote: then there is nothing to wait for before standing for election.
func (g *group) soleVoter() bool {
	return len(g.store.conf.Voters) == 1 && g.store.conf.Voters[0] == g.replica && len(g.store.conf.VotersOutgoing) == 0
}

// work is the group's share of a turn.
func (g *group) work() {
	if g.raft == nil {
		g.refuseAll()
		return
	}
	if g.lead != nil {
		g.lead.run()
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
	g.wakeMs = g.nextWake()
	g.publish()
}

// tick is what a replica does every 50 ms or so.
func (g *group) tick() {
	g.expire(g.w.mono)
	g.tickCanary()
	g.checkHash()
	g.reconcile()
	if g.lead == nil {
		return
	}
	if !g.leader {
		g.table.Advance(g.w.nowMs, wheelBudget) // a follower's wheel stays near the time, so that a takeover finds it there
	}
	g.lead.reportAll()
	g.lead.remind()
	if g.standAt != 0 && g.w.mono >= g.standAt {
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
	return g.takeover || len(g.waiting)+len(g.takes) > 0 || g.lead.active &&
		(len(g.lead.outcomes)+len(g.lead.expires)+len(g.lead.forgets)+len(g.lead.skips)+len(g.lead.overlaps)+len(g.lead.ring) > 0)
}

// nextWake is when something local falls due, in wall ms.
func (g *group) nextWake() int64 {
	if g.lead == nil || !g.lead.active {
		return 1<<63 - 1
	}
	l, at := g.lead, int64(1<<63-1)
	if ms, ok := g.table.NextDue(); ok {
		at = ms - l.lookAhead.Milliseconds()
	}
	if l.held.len() > 0 {
		at = min(at, l.held.top().dueMs)
	}
	at = min(at, l.endWakeMs())
	if l.shut.len() > 0 {
		at = min(at, g.w.nowMs+(l.shut.top().until-g.w.mono+time.Millisecond-1).Milliseconds())
	}
	if l.exact.len() > 0 {
		at = min(at, l.exact.top().dueMs)
	}
	if l.later.len() > 0 {
		at = min(at, l.later.top().dueMs-l.lookAhead.Milliseconds())
	}
	return at
}

// collect takes what raft has to say: soft state, reads, messages to the log, to the state machine and to peers.
func (g *group) collect() {
	for g.raft.HasReady() {
		rd := g.raft.Ready()
		if rd.SoftState != nil {
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
				g.step(m.Responses)
			default:
				g.send(m)
			}
		}
	}
}

// append puts what raft wants durable into this turn's frame. Its responses leave when the frame is on disk.
func (g *group) append(m *pb.Message) {
	a := appended{group: g, entries: m.Entries, responses: m.Responses}
	if m.Snapshot != nil {
		g.install(m.Snapshot)
		a.mark, a.installed, a.sync = true, true, true
	}
	if m.Term != nil {
		// A new commit index alone need not be durable: it can be learnt again.
		a.sync = a.sync || m.GetTerm() != g.hard.term || m.GetVote() != g.hard.vote
		g.hard = hardState{m.GetTerm(), m.GetVote(), m.GetCommit()}
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
		if err := g.raft.Step(m); err != nil {
			panic(fmt.Sprintf("shard %d: raft refused a local response: %v", g.id, err))
		}
	}
}

// durable is told that a frame with entries of this group is on disk.
func (g *group) durable(a *appended, pos wal.Position) {
	if a.tombstone != 0 && g.replica == 0 {
		g.files.tomb, g.files.restating = pos.Gen, false
		g.cleanUp()
		return
	}
	if a.replica != g.replica {
		return // it was of a replica that is gone
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

	g.step(a.responses)
	g.w.touch(g)
}

// apply runs committed entries through the state machine.
func (g *group) apply(ents []*pb.Entry) {
	for _, e := range ents {
		switch {
		case e.GetType() != pb.EntryNormal:
			if err := g.changeMembers(e); err != nil {
				panic(fmt.Sprintf("shard %d: entry %d: %v", g.id, e.GetIndex(), err))
			}
		case len(e.Data) > 0:
			g.applyData(e)
		default:
			g.known.came(e)
		}
		g.applied, g.appliedTerm = e.GetIndex(), e.GetTerm()
		if g.table != nil {
			g.table.Note(g.applied)
		}
	}
	g.compact()
}

// compact drops applied entries from memory that no follower waits for. A group that has other members keeps some in any case.
func (g *group) compact() {
	keep := min(g.applied, g.store.last())
	if !g.soleVoter() || len(g.store.conf.Learners) > 0 {
		keep = min(keep, g.store.retained(g.w.host.cfg.RetainBytes))
		if g.leader && g.store.bytes < laggards*g.w.host.cfg.RetainBytes {
			keep = min(keep, g.behind())
		}
	}
	g.store.compact(keep)
}

// behind is the last entry that all members have which are here, or that the snapshot covers which they are being sent.
func (g *group) behind() uint64 {
	least := g.applied
	if run := g.w.snapshot; run != nil && run.group == g {
		least = min(least, run.mark.index)
	}
	g.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		switch {
		case id == g.replica:
		case pr.State == tracker.StateSnapshot:
			least = min(least, pr.PendingSnapshot)
		case pr.RecentActive:
			least = min(least, pr.Match)
		}
	})
	return least
}

// applyData applies one entry of commands and settles what waited for it.
func (g *group) applyData(e *pb.Entry) {
	if g.meta != nil {
		g.meta.apply(g, e)
		return
	}
	p := g.own(e)
	var want func(int, *Result) bool
	if p != nil {
		want = func(i int, r *Result) bool {
			o := p.items[i].op
			return o != nil && !o.brief && r.Code != Created // see Command.born
		}
	}
	var err error
	g.listen()
	if g.results, err = g.table.Apply(e.Data, want, g.results[:0]); err != nil {
		panic(fmt.Sprintf("shard %d: entry %d cannot be applied: %v", g.id, e.GetIndex(), err))
	}
	if g.table.diverged != nil {
		g.w.host.fail(g.table.diverged)
		return
	}
	g.tell(e.GetIndex())
	if p == nil {
		return
	}
	for i := range p.items {
		g.settle(&p.items[i], &g.results[i])
	}
}

// listen has the table gather what the history is to be told: the table may be another than before, from a snapshot.
func (g *group) listen() {
	if g.w.host.cfg.History != nil {
		g.table.tell()
	}
}

// tell passes on what an entry did.
func (g *group) tell(index uint64) {
	if events := g.table.told(); len(events) > 0 {
		g.w.host.cfg.History.Record(g.id, index, events)
	}
}

// own is the proposal of this leader that the entry is, or nil.
func (g *group) own(e *pb.Entry) *proposal {
	_, origin, number, err := BatchHead(e.Data)
	if err != nil {
		panic(fmt.Sprintf("shard %d: entry %d: %v", g.id, e.GetIndex(), err))
	}
	if origin != g.w.host.origin || len(g.proposals) == 0 || g.proposals[0].number != number {
		return nil
	}
	p := g.proposals[0]
	g.proposals[0] = proposal{}
	g.proposals = g.proposals[1:]
	return &p
}

// settle hands an item's result to who waits for it.
func (g *group) settle(it *item, r *Result) {
	switch it.kind {
	case commandItem:
		if it.op != nil {
			g.settleOp(it.op, r)
		}
	case leaseItem:
		g.lead.leased(it.flight, *r)
	case outcomeItemKind:
		if it.flight != nil {
			g.lead.handOn(it.flight)
			g.lead.settled(it.flight)
		}
		if r.Code == OK {
			g.lead.applied(r.Handle)
		}
	case takeItem:
		if r.Code == OK {
			g.lead.applied(r.Handle)
		}
		it.take.granted(g, r)
	case takeoverItem:
		g.tookOver()
	}
	switch {
	case len(g.lead.claims)+len(g.lead.foreign) == 0:
	case it.closes && r.Handle == 0:
		g.lead.reviewDropped()
	case !it.closes && r.Handle != 0:
		g.lead.review(r.Handle)
	}
}

func (g *group) settleOp(o *op, r *Result) {
	if o.outcome != nil {
		g.settleClaim(o, r)
		return
	}
	if r.Timer != nil {
		g.overlay(r.Timer)
	}
	if r.Code == InFlight && o.cmd.Kind == Add && g.hides(r.Handle) {
		r.Code = Exists
	}
	if r.Code == CancelInFlight && planted("cancel-lies") {
		r.Code = Prevented
	}
	if o.wait != nil {
		g.w.host.cfg.Observer.Command(o.cmd.Kind, r.Code)
	}
	o.answer(*r, nil)
}

// overlay shows a timer as clients know it: a lease whose call has not started is none.
func (g *group) overlay(t *Timer) {
	if t.State != Leased || !g.lead.active {
		return
	}
	if h, ok := g.table.Lookup(t.Topic, t.ID); ok && g.hides(h) && g.lead.flights[h].seq == t.Seq {
		t.State = Scheduled
		t.Attempts--
		t.NextMs = g.lead.flights[h].dueMs
	}
}

// hides reports that a timer's lease is ahead of its time, or is being given back: clients see the timer as scheduled.
func (g *group) hides(h Handle) bool {
	f := g.lead.flights[h]
	return f != nil && f.hidden() && g.table.Live(h, f.seq)
}

// roleChanged begins or ends a reign.
func (g *group) roleChanged(leader bool) {
	term := g.raft.BasicStatus().GetTerm()
	if leader == g.leader && term == g.term {
		return
	}
	g.stepDown()
	g.leader, g.term = leader, term
	if leader {
		g.w.host.cfg.Observer.Elected()
		g.takeover = true
		g.w.touchNext(g)
	}
}

// stepDown ends a reign: what was proposed is unknown, what was not can be tried elsewhere.
func (g *group) stepDown() {
	if g.leader { // before a first reign reads only wait for it
		g.reads.fail(g.notLeader())
	}
	g.leader, g.serving, g.takeover = false, false, false
	g.heir, g.heirTold = 0, false
	if g.lead != nil {
		g.lead.end()
	}
	for _, p := range g.proposals {
		p.fail(ErrUnknown)
	}
	g.proposals = nil
	g.refuseTakes()
	if g.raft != nil && !g.soleVoter() {
		g.refuseAll()
	}
}

// refuseAll answers what waits and was not proposed: this node does not lead the group, another may.
func (g *group) refuseAll() {
	err := g.notLeader()
	for _, o := range g.waiting {
		o.answer(Result{}, err)
	}
	g.waiting = nil
	g.refuseTakes()
	if g.meta != nil {
		for _, o := range g.meta.waiting {
			o.answer(nil, err)
		}
		g.meta.waiting = nil
	}
	g.reads.fail(err)
}

// notLeader says who leads instead, as far as this node knows.
func (g *group) notLeader() error {
	if g.raft == nil {
		return NotLeaderError{}
	}
	leader := nodeOf(g.raft.BasicStatus().Lead)
	if leader == g.w.host.cfg.Node {
		leader = 0
	}
	return NotLeaderError{Leader: leader}
}

// elsewhere reports that an operation has nothing to wait for here: the node has no replica of the group, or one that follows.
func (g *group) elsewhere() bool {
	return g.raft == nil || !g.leader && !g.soleVoter()
}

func (p *proposal) fail(err error) {
	for i := range p.items {
		it := &p.items[i]
		if it.op != nil {
			it.op.answer(Result{}, err)
		}
		if it.take != nil {
			it.take.answer(err)
		}
	}
	for _, o := range p.metas {
		o.answer(nil, err)
	}
}

// expire answers what has waited too long: 503 is better than silence.
func (g *group) expire(now time.Duration) {
	for len(g.waiting) > 0 && g.waiting[0].deadline <= now {
		g.waiting[0].answer(Result{}, g.lateError())
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
	for i := range g.proposals {
		p := &g.proposals[i]
		for j := range p.items {
			if t := p.items[j].take; t != nil && t.deadline+commitGrace <= now {
				t.answer(ErrUnknown)
			}
			if o := p.items[j].op; o != nil {
				if o.deadline+commitGrace > now {
					break
				}
				o.answer(Result{}, ErrUnknown)
				p.items[j].op = nil
			}
		}
	}
	if g.lead != nil {
		g.lead.expire(now)
		g.expireTakes(now)
	}
	g.reads.expire(now)
	if g.meta != nil {
		g.meta.expire(now)
	}
}

func (g *group) lateError() error {
	if g.serving {
		return ErrOverloaded
	}
	return ErrNoLeader
}
