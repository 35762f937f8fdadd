package shard

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Bounds on what one group has in raft's pipeline. Beyond them client operations wait, and time out if they must.
const (
	maxBatchBytes = 4 << 20
	maxPipelined  = 64
)

// propose makes one raft entry of all that the group has to say in this turn: outcomes first, since they end
// flights, then clients' commands, then leases.
func (g *group) propose() {
	if g.meta != nil {
		g.meta.propose(g)
		return
	}
	if !g.leader || len(g.proposals) >= maxPipelined {
		return // waiting operations time out by themselves
	}
	g.batch.Reset(g.w.nowMs, g.w.host.origin, g.number+1)
	g.items = nil
	if g.takeover {
		g.takeover = false
		g.batch.Takeover(uint64(g.w.host.cfg.Owner))
		g.items = append(g.items, item{kind: takeoverItem})
	}
	if g.serving {
		g.proposeOutcomes()
		g.proposeCommands()
		if !g.w.host.draining.Load() {
			g.lead.lease(&g.batch)
		}
	}
	if len(g.items) == 0 {
		return
	}
	g.number++
	g.w.operations += len(g.items)
	g.w.proposed += g.batch.Size()
	p := proposal{number: g.number, items: g.items}
	if err := g.raft.Propose(slices.Clone(g.batch.Bytes())); err != nil {
		// Not the leader any more: raft says so in its next soft state, and the reign ends there.
		p.fail(ErrUnknown)
		return
	}
	g.proposals = append(g.proposals, p)
}

func (g *group) proposeOutcomes() {
	l := g.lead
	n := 0
	for ; n < len(l.outcomes) && g.batch.Size() < maxBatchBytes; n++ {
		g.batch.Outcome(&l.outcomes[n].Outcome)
		g.items = append(g.items, item{kind: outcomeItemKind, flight: l.outcomes[n].flight})
	}
	if n < len(l.outcomes) {
		g.w.touchNext(g)
	}
	left := copy(l.outcomes, l.outcomes[n:])
	clear(l.outcomes[left:])
	l.outcomes = l.outcomes[:left]
	for _, e := range l.expires {
		g.batch.Expire(e.handle, e.seq, e.rev, g.w.nowMs+l.retention(e.handle))
		g.items = append(g.items, item{kind: silentItem})
		g.w.host.cfg.Observer.Expired()
	}
	for _, e := range l.forgets {
		g.batch.Forget(e.handle, e.seq)
		g.items = append(g.items, item{kind: silentItem})
	}
	l.expires, l.forgets = l.expires[:0], l.forgets[:0]
}

func (g *group) proposeCommands() {
	n := 0
	for ; n < len(g.waiting) && g.batch.Size() < maxBatchBytes; n++ {
		g.proposeCommand(g.waiting[n])
		g.waiting[n] = nil
	}
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	} else {
		g.w.touchNext(g)
	}
}

// proposeCommand adds one command. A lease whose call has not started is given back first, so that the command
// finds the timer scheduled: cancelled means cancelled, even a millisecond before its time (I5).
func (g *group) proposeCommand(o *op) {
	if o.cmd.Kind != Add {
		if h, ok := g.table.Lookup(o.cmd.Topic, o.cmd.ID); ok {
			switch f := g.lead.flights[h]; {
			case f == nil || !g.table.Live(h, f.seq):
			case f.phase == proposed:
				f.revoked = true
				if len(f.waiting) == 0 {
					g.lead.blocked = append(g.lead.blocked, f)
				}
				f.waiting = append(f.waiting, o)
				return
			case f.phase == held:
				f.permit.Cancel()
				f.phase = returned
				g.batch.Outcome(&Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: Release})
				g.items = append(g.items, item{kind: outcomeItemKind, flight: f})
			}
		}
	}
	o.proposed = true
	cmd := o.cmd
	if (cmd.Kind == Fire || cmd.Kind == Redrive) && cmd.DueMs == 0 {
		now := *cmd // "at once" is by this clock: the table's never goes back, and may once have been far ahead
		now.DueMs = g.w.nowMs
		cmd = &now
	}
	g.batch.Command(cmd)
	g.items = append(g.items, item{kind: commandItem, op: o})
}

// tookOver begins the reign: the takeover is applied, so the table holds all that former leaders committed.
func (g *group) tookOver(r *Result) {
	g.serving = true
	w := g.w
	rule := orphanRule{waitUntil: w.mono + maxLease}
	if sameNode(r.Owner, w.host.cfg.Owner) {
		rule.ownFrom = r.OwnerFrom
	}
	g.lead.begin(rule)
	g.canary.begin(w.mono)
	w.touchNext(g)
}

// Owner names a process of a node: the node's id and how often it has started.
type Owner uint64

// NewOwner packs a node id (below 2^40) and a start count.
func NewOwner(node uint64, start uint32) Owner { return Owner(node<<24 | uint64(start&0xffffff)) }

// sameNode reports that both are processes of one node.
func sameNode(a, b Owner) bool { return a != 0 && a>>24 == b>>24 }

// confChange decodes a membership change entry.
func confChange(e *pb.Entry) (pb.ConfChangeI, error) {
	if e.GetType() == pb.EntryConfChange {
		var cc pb.ConfChange
		return &cc, proto.Unmarshal(e.Data, &cc)
	}
	var cc pb.ConfChangeV2
	return &cc, proto.Unmarshal(e.Data, &cc)
}
