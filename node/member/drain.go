package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/ring"
)

// Why an operator's request about a node is refused; package ring has more such errors.
var (
	ErrNotDrained  = errors.New("the node is not drained, and not known to be down")
	ErrNoOtherNode = errors.New("there is no other node")
)

// named finds a member of this name, as the cluster has it now: this node's own copy may be behind,
// and an order that it takes for carried out would be forgotten.
func (m *Member) named(ctx context.Context, name string) (ring.Node, error) {
	if err := m.CatchUp(ctx); err != nil {
		return ring.Node{}, err
	}
	n, ok := m.State.NodeNamed(name)
	if !ok {
		return ring.Node{}, ring.ErrUnknownNode
	}
	return n, nil
}

// Drain has others take over a node's replicas.
func (m *Member) Drain(ctx context.Context, name string) error {
	return m.setState(ctx, name, ring.NodeDraining, ring.NodeDrained)
}

// Resume ends a drain.
func (m *Member) Resume(ctx context.Context, name string) error {
	return m.setState(ctx, name, ring.NodeMember, ring.NodeMember)
}

// setState brings a node into a state, unless it is in that, or in the one that follows.
func (m *Member) setState(ctx context.Context, name string, to, after ring.NodeState) error {
	n, err := m.named(ctx, name)
	if err != nil || n.State == to || n.State == after {
		return err
	}
	return m.order(ctx, ring.Command{Verb: ring.SetState, NodeID: n.ID, State: to})
}

// Remove ends a node's membership. A node that is down may be removed as it is, and with force any
// node: others take over its replicas. With acceptLoss that is so even if none can. The meta
// group's leader judges which nodes are down and which can take over: see decisions.
func (m *Member) Remove(ctx context.Context, name string, force, acceptLoss bool) error {
	n, err := m.named(ctx, name)
	if err != nil {
		return err
	}
	if len(m.State.Nodes()) == 1 {
		return ErrNoOtherNode
	}
	_, err = m.Propose(ctx, ring.Command{Verb: ring.Remove, NodeID: n.ID, Force: force, AcceptLoss: acceptLoss})
	return err
}

// checkRemoval adds to a removal which nodes this one hears. It refuses to remove a member that
// serves, unless forced.
func (d *decisions) checkRemoval(cmd *ring.Command) error {
	ago, _ := d.seen.silence(cmd.NodeID)
	cmd.Heard, cmd.Down = d.seen.live(), cmd.NodeID != d.id && ago >= downAfter
	if n, known := d.State.Node(cmd.NodeID); known && n.State == ring.NodeMember && !cmd.Force && !cmd.Down {
		return notDrained(cmd.NodeID == d.id, ago)
	}
	return nil
}

// notDrained is why a node is not removed that was heard so long ago: it may be up.
func notDrained(self bool, ago time.Duration) error {
	const first = "drain it first and wait until it is drained"
	if self {
		return fmt.Errorf("%w: it answers: %s", ErrNotDrained, first)
	}
	left := (downAfter - ago + time.Second - 1) / time.Second
	return fmt.Errorf("%w: it was last heard %.1f s ago: %s; if it is dead, ask again in %d s, when it counts as down", ErrNotDrained, ago.Seconds(), first, left)
}
