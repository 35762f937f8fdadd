package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"carillon/node/member"
	"carillon/ring"
	"carillon/shard/repair"
	"carillon/transport/peer"
	"carillon/vfs"
	"carillon/wal"
)

// A node that finds its log damaged at its start restores it with the entries that other nodes
// have, before it opens any shard. Until then it is seen and can ask, and can be asked by others
// that do the same; it votes, leads, acknowledges and calls nothing. See docs/adr/0013.

const (
	repairEach  = time.Second
	sayEach     = 10 * time.Second // a reason to wait is logged again
	repairAsk   = time.Minute      // one question: the other reads its log twice
	repairLeast = 10 * time.Second // nobody is given up before: the others may just be starting
	repairFor   = 10 * time.Minute // then the node ends and names the missing entries
)

// mendable says that a host that never began found damage which others may help to repair.
func (p *process) mendable(c *core, err error) bool {
	select {
	case <-c.host.Started():
		return false
	default:
	}
	if _, damaged := errors.AsType[*wal.CorruptionError](err); !damaged {
		return false
	}
	return len(p.cfg.Join) > 0 || len(p.others()) > 0
}

// others are the addresses of the nodes of this cluster, as far as gossip and the founding plan
// know them.
func (p *process) others() map[uint64]string {
	id := p.self.Identity()
	found := map[uint64]string{}
	if id.AcceptedPlan != nil && id.AcceptedPlan.ClusterID == id.ClusterID {
		for _, n := range id.AcceptedPlan.Nodes {
			found[n.ID] = n.Peer
		}
	}
	for _, m := range p.members.List() {
		if m.Cluster == id.ClusterID && m.State == ring.MemberAlive {
			found[m.ID] = m.Peer
		}
	}
	delete(found, id.NodeID)
	return found
}

// repair restores the log, or says why that cannot be.
func (p *process) repair(ctx context.Context, cause error) (frames uint64, err error) {
	p.self.Wait("the log is damaged; it is read for what is left: " + cause.Error())
	m, err := repair.New(p.fsys, p.cfg.DataDir, p.self.Identity().Shards)
	if err != nil {
		return 0, unmended(cause, err)
	}
	damages := strings.Join(m.Damages(), "; ")
	p.log.Error("the log is damaged; it is being repaired with what other nodes have of it", "damage", damages, "missing", m.Lost())
	// It may have a part of the entries that it asks for.
	answer, err := repair.Answer(p.fsys, p.cfg.DataDir, p.self.Identity().Shards, m.Questions())
	if err == nil {
		_, err = m.Take(answer)
	}
	if err != nil {
		return 0, fmt.Errorf("%w; it cannot be repaired: %w", cause, err)
	}
	if err := p.gather(ctx, m); err != nil {
		return 0, fmt.Errorf("%w; it cannot be repaired: %w", cause, err)
	}
	if err := m.Write(p.clock.WallMs()); err != nil {
		return 0, unmended(cause, err)
	}
	p.log.Info("the log is repaired; what could not be read is kept in .broken files", "damage", damages)
	return m.Frames(), nil
}

// unmended tells the operator how to go on with a log that could not be repaired. Entries that the
// disk does not read now are not known to be lost.
func unmended(cause, err error) error {
	if vfs.IsReadFailure(err) {
		return fmt.Errorf("%w; it cannot be repaired while this cannot be read: %w", cause, err)
	}
	return fmt.Errorf("%w; it cannot be repaired with what others have (%w): empty the data directory and join again", cause, err)
}

// gather asks the other nodes, again and again, until nothing is missing.
func (p *process) gather(ctx context.Context, m *repair.Repairer) error {
	said := member.NewNotice(p.tasks, sayEach)
	tick := time.NewTicker(repairEach)
	defer tick.Stop()
	begun, spent := p.clock.Mono(), map[uint64]int{}
	for m.Missing() > 0 {
		state := fmt.Sprintf("the log is damaged, and is being repaired; %d entries are missing (%s); asked: %s", m.Missing(), m.Lost(), p.namesOf(p.others()))
		p.self.Wait(state)
		said.Say(func() { p.log.Warn("repairing the log", "waiting", state) })
		asked, answered := p.askForEntries(ctx, m, spent)
		waited := p.clock.Mono() - begun
		switch {
		case m.Missing() == 0:
			return nil
		case waited > repairFor, waited > repairLeast && asked > 0 && answered == asked:
			return fmt.Errorf("%d entries are missing (%s), and %d of %d nodes that were asked have no more of them: "+
				"start those that are down, or empty the data directory and join again if the others serve", m.Missing(), m.Lost(), answered, asked)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// askForEntries asks each of the others for all that is missing; it says how many there are, and
// how many of them have no more. spent says how much was missing when one had no more: it may have
// ended since, for the same reason.
func (p *process) askForEntries(ctx context.Context, m *repair.Repairer, spent map[uint64]int) (asked, answered int) {
	others := p.others()
	for id, addr := range others {
		for m.Missing() > 0 {
			taken, err := p.askOne(ctx, id, addr, m)
			if err != nil {
				p.log.Debug("a node was asked for lost entries in vain", "node", cmp.Or(p.self.NameOf(id), fmt.Sprintf("%010x", id)), "error", err)
				break
			}
			if taken == 0 {
				spent[id] = m.Missing()
				break
			}
		}
	}
	for id := range others {
		if left, ok := spent[id]; ok && left == m.Missing() {
			answered++
		}
	}
	return len(others), answered
}

func (p *process) askOne(ctx context.Context, id uint64, addr string, m *repair.Repairer) (taken int, err error) {
	ctx, cancel := context.WithTimeout(ctx, repairAsk)
	defer cancel()
	reply, from, err := p.peers.CallAddr(ctx, addr, methodRepair, m.Questions())
	if err != nil {
		return 0, err
	}
	if from.Node != id || from.Cluster != p.self.Identity().ClusterID {
		return 0, fmt.Errorf("node %010x of cluster %q answers in its place", from.Node, from.Cluster)
	}
	return m.Take(reply)
}

func (p *process) namesOf(nodes map[uint64]string) string {
	var names []string
	for _, addr := range nodes {
		names = append(names, addr)
	}
	if len(names) == 0 {
		return "nobody, as no other node of the cluster is seen"
	}
	return strings.Join(names, ", ")
}

// answerRepair gives another node of the cluster those of its lost entries that this one's log has.
func (p *process) answerRepair(from peer.Hello, body []byte) ([]byte, error) {
	id := p.self.Identity()
	if id.ClusterID == "" || from.Cluster != id.ClusterID {
		return nil, fmt.Errorf("it is of cluster %q, this node of %q", from.Cluster, id.ClusterID)
	}
	if p.self.NameOf(from.Node) == "" {
		return nil, fmt.Errorf("node %010x is not known in this cluster", from.Node)
	}
	if p.self.Removed(from.Node) {
		return nil, ring.ErrRemoved
	}
	if !p.answering.TryLock() {
		return nil, errors.New("another node's question is being answered")
	}
	defer p.answering.Unlock()
	return repair.Answer(p.fsys, p.cfg.DataDir, id.Shards, body)
}
