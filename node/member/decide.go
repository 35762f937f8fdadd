package member

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// decisions are made by the meta group's leader about a command before it proposes it: it adds
// what it knows of the nodes.
type decisions struct {
	*local
	seen *observer
}

// decide decides a command on the meta group's leader. What this node knows of the others goes into
// the log with a command that takes a node away, so that two such commands together take no more
// than one may. A node that comes with the name of one that is gone replaces it. One that registers
// counts as present, although it sends no heartbeat before it has its place.
func (d *decisions) decide(data []byte) (ring.Reply, error) {
	var cmd ring.Command
	if err := json.Unmarshal(data, &cmd); err != nil {
		return ring.Reply{}, err
	}
	switch cmd.Verb {
	case ring.Remove:
		if err := d.checkRemoval(&cmd); err != nil {
			return ring.Reply{}, err
		}
		return d.apply(cmd.Encode())
	case ring.Fence:
		if err := d.checkFence(&cmd); err != nil {
			return ring.Reply{}, err
		}
		return d.apply(cmd.Encode())
	case ring.Register:
		return d.register(&cmd, data)
	}
	return d.apply(data)
}

// apply has the meta group's machine apply a command. The reply's error is returned.
func (d *decisions) apply(data []byte) (ring.Reply, error) {
	v, err := d.host.Propose(data)
	if err != nil {
		return ring.Reply{}, err
	}
	r := v.(ring.Reply)
	return r, r.Err
}

func (d *decisions) register(cmd *ring.Command, data []byte) (ring.Reply, error) {
	r, err := d.apply(data)
	if errors.Is(err, ring.ErrNameTaken) && r.Node != nil && !cmd.Replace && cmd.Node != nil && d.replaces(cmd.Node, r.Node) {
		cmd.Replace, cmd.Heard = true, d.seen.live()
		r, err = d.apply(cmd.Encode())
	}
	if err == nil && cmd.Node != nil {
		d.liveness.touch(d.clock.Mono(), cmd.Node.ID, cmd.Node.Starts)
	}
	return r, err
}

// replaces reports that a new node takes the place of the one that has its name, and that this one
// is gone: it is silent, or the new node listens at its address. A member that comes back under the
// name of another, as with a configuration that was copied, replaces nobody.
func (d *decisions) replaces(new, old *ring.Node) bool {
	if _, known := d.State.Node(new.ID); known {
		return false
	}
	ago, heard := d.seen.silence(old.ID)
	return old.ID != d.id && (new.Peer == old.Peer && (!heard || ago > heartbeatInterval*2) || ago > downAfter)
}

// checkFence adds to a fence the meta group's voters that find the process gone now. It refuses the
// fence if they are no majority. Only the leader asks them, after the command has arrived, so their
// answers are newer than the request.
func (d *decisions) checkFence(cmd *ring.Command) error {
	ctx, cancel := d.tasks.WithTimeout(d.context(), voterTimeout)
	defer cancel()
	question := binary.AppendUvarint(binary.AppendUvarint(nil, cmd.NodeID), uint64(cmd.Starts))
	var mu sync.Mutex
	cmd.Refused = nil
	row, _ := d.State.Row(ring.MetaGroup)
	voters, all := row.Nodes(), task.NewGroup(d.tasks)
	for _, voter := range voters {
		if voter == cmd.NodeID {
			continue
		}
		all.Go(func() {
			if d.voterRefused(ctx, voter, cmd, question) {
				mu.Lock()
				cmd.Refused = append(cmd.Refused, voter)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(cmd.Refused)
	if 2*len(cmd.Refused) <= len(voters) {
		return ring.ErrNotGone
	}
	return nil
}

func (d *decisions) voterRefused(ctx context.Context, voter uint64, cmd *ring.Command, question []byte) bool {
	if voter == d.id {
		return d.peers.FindsGone(ctx, cmd.NodeID, cmd.Starts)
	}
	answer, err := d.peers.Call(ctx, voter, methodGone, question)
	return err == nil && len(answer) == 1 && answer[0] == 1
}

// mayReplace is nil if every group has a majority without a node. Only the meta group's leader
// decides, and only after a majority has confirmed that it leads.
func (d *decisions) mayReplace(ctx context.Context, node uint64, body []byte) error {
	if !d.host.Leads(shard.Meta) {
		return d.passReplacementOn(ctx, body)
	}
	index, err := d.host.Confirm(shard.Meta)
	if err == nil {
		err = d.awaitApplied(ctx, index)
	}
	if err != nil {
		return err
	}
	return d.State.MayLose(node, d.seen.live())
}

func (d *decisions) passReplacementOn(ctx context.Context, body []byte) error {
	leader, known := d.host.Leader(shard.Meta)
	if !known || leader == d.id {
		return timer.ErrNoLeader
	}
	answer, err := d.peers.Call(ctx, leader, methodReplace, body)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	var a replaceAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	if a.Why != "" {
		return errors.New(a.Why)
	}
	return nil
}
