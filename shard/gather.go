package shard

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Gathering. An entry costs three nodes a frame, a sync and two messages each, however many changes
// it has. So while an entry is on its way to the other voters, the changes that arrive wait for it
// to be applied and then share the next one. A leader with nothing on its way proposes at once, and
// one that is alone waits for its own disk instead (see maxFramesAlone).
const (
	// gatherFor is the longest wait. It matters where other voters are far away or slow.
	gatherFor = 10 * time.Millisecond
	// gatherMost is how many client operations do not wait: they make a good entry by themselves.
	gatherMost = 128
)

// gathers reports whether the group's changes wait for the entry that is on its way.
func (p *pipeline) gathers(g *group) bool {
	return len(p.proposals) > 0 && !g.machine.prompt() && !g.soleVoter() && g.machine.waits() < gatherMost && g.w.now.Mono < p.gatherUntil(g)
}

// gatherUntil returns when changes no longer wait for the newest proposal.
func (p *pipeline) gatherUntil(g *group) time.Duration { return p.proposedAt + gatherFor }

// tryPropose proposes the group's changes, unless they gather or too much is on its way to disk.
func (g *group) tryPropose() {
	g.pipeline.gathering = false
	switch {
	case g.pipeline.gathers(g):
		g.pipeline.gathering = g.machine.hasWork()
	case g.w.mayPropose():
		if !g.leader || !g.mayNotLead() {
			g.machine.propose()
		}
	case g.machine.hasWork():
		g.w.stall(g)
	}
}

// holdsBack keeps an append without entries for a moment, if another append will follow it soon:
// that one tells the follower as much, and a follower with nothing to write answers for nothing. At
// the next tick it is sent at the latest, because raft also finds out by such appends what was
// lost.
func (p *pipeline) holdsBack(g *group, m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || g.machine.prompt() {
		return false
	}
	for i, held := range p.held {
		if held.GetTo() == m.GetTo() {
			p.held = append(p.held[:i], p.held[i+1:]...)
			break
		}
	}
	if len(m.Entries) > 0 || !g.leader || len(p.proposals)+g.machine.waits() == 0 {
		return false
	}
	p.held = append(p.held, m)
	return true
}

// sendHeld sends the appends that were held back.
func (p *pipeline) sendHeld(g *group) {
	held := p.held
	p.held = nil
	for _, m := range held {
		g.sendNow(m)
	}
}
