package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/transport/peer"
)

// Times of a proposal, from its begin.
const (
	// Then a command that surely was not carried out is ErrNoLeader.
	proposeFor   = 1500 * time.Millisecond
	answerIn     = 1900 * time.Millisecond // then a command that was sent is ErrUnknown
	firstPause   = 10 * time.Millisecond   // before the second try; doubling
	longPause    = 100 * time.Millisecond
	ownTopicEach = 2 * time.Millisecond
)

// proposal answers of the meta group travel as JSON: they are few.
type proposalAnswer struct {
	Reply  ring.Reply `json:"reply"`
	Fault  int        `json:"fault,omitempty"` // 1 + index in metaFaults; -1: only a text
	Text   string     `json:"text,omitempty"`
	Moved  bool       `json:"moved,omitempty"` // not the leader
	Leader uint64     `json:"leader,omitempty"`
}

// metaFaults are the errors that keep their identity between nodes. The order is part of the
// protocol.
var metaFaults = []error{
	timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic, timer.ErrNotEmpty,
	timer.ErrTooManyTopics, ring.ErrNotFounded, ring.ErrFounded, ring.ErrOtherCluster, ring.ErrBadCluster, ring.ErrTooManyNodes, ring.ErrUnknownNode,
	ring.ErrStale, ring.ErrRemoved, ring.ErrNameTaken, ring.ErrLastNode, ring.ErrInUse, ring.ErrBadState, ring.ErrUnknownGroup, ring.ErrEpoch,
	ring.ErrMoving, ring.ErrBadPlacement, ring.ErrBadNode,
	ring.ErrTooOld, timer.ErrFeatureLevel, ring.ErrMalformed, ring.ErrMajority, ErrNotDrained, ring.ErrTurn, ring.ErrNotGone,
	timer.ErrTopicVersion,
}

// fault is an error with another node's text and a known identity.
type fault struct {
	kind error
	text string
}

func (f fault) Error() string { return f.text }
func (f fault) Unwrap() error { return f.kind }

func (a *proposalAnswer) fail(err error) {
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok {
		a.Moved, a.Leader = true, moved.Leader
		return
	}
	a.Fault, a.Text = -1, err.Error()
	for i, known := range metaFaults {
		if errors.Is(err, known) {
			a.Fault = 1 + i
			return
		}
	}
}

func (a *proposalAnswer) err() error {
	switch {
	case a.Moved:
		return timer.NotLeaderError{Leader: a.Leader}
	case a.Fault == 0:
		return nil
	case a.Fault > 0 && a.Fault <= len(metaFaults):
		return fault{metaFaults[a.Fault-1], a.Text}
	}
	return errors.New(a.Text)
}

// refused says of an error that nothing was done, and that another node, or this one soon, may do
// it.
func refused(err error) bool {
	return errors.Is(err, timer.ErrNoLeader) || errors.Is(err, timer.ErrRecovering) || errors.Is(err, peer.ErrNotSent)
}

// Propose has the meta group decide a command, wherever its leader is. A command that surely was
// not carried out is tried again for a second and a half. The reply's error is returned.
func (m *Member) Propose(ctx context.Context, cmd ring.Command) (ring.Reply, error) {
	select {
	case <-m.host.Started():
	default:
		return ring.Reply{}, timer.ErrRecovering
	}
	data := cmd.Encode()
	hint, pause := uint64(0), firstPause
	until := m.tasks.Now() + proposeFor
	for turn := 0; ; turn++ {
		r, err := m.proposeOnce(ctx, data, hint, turn)
		if !refused(err) {
			return r, err
		}
		moved, _ := errors.AsType[timer.NotLeaderError](err)
		if hint = moved.Leader; hint != 0 && turn == 0 {
			continue
		}
		if m.tasks.Now()+pause > until || !m.tasks.Sleep(ctx, pause) {
			return ring.Reply{}, timer.ErrNoLeader
		}
		pause = min(2*pause, longPause)
	}
}

func (m *Member) proposeOnce(ctx context.Context, data []byte, hint uint64, turn int) (ring.Reply, error) {
	if m.host.Leads(shard.Meta) {
		return m.decide(data)
	}
	leader := m.metaLeader(hint, turn)
	if leader == 0 {
		return ring.Reply{}, timer.ErrNoLeader
	}
	ctx, cancel := m.tasks.WithTimeout(ctx, answerIn)
	defer cancel()
	body, err := m.peers.Call(ctx, leader, methodPropose, data)
	if err != nil {
		if errors.Is(err, peer.ErrNotSent) {
			return ring.Reply{}, err
		}
		return ring.Reply{}, timer.ErrUnknown
	}
	var a proposalAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return ring.Reply{}, timer.ErrUnknown
	}
	if err := a.err(); err != nil {
		return a.Reply, err
	}
	a.Reply.Topic = m.awaitTopic(ctx, a.Reply.Topic)
	return a.Reply, nil
}

// metaLeader is another node that may lead the meta group; 0: none is known. turn counts the tries.
func (m *Member) metaLeader(hint uint64, turn int) uint64 {
	leader, known := m.host.Leader(shard.Meta)
	switch {
	case hint != 0:
		leader = hint
	case !known:
		row, _ := m.State.Row(shard.Meta)
		others := m.others()
		switch {
		case len(row.Replicas) > 0:
			leader = row.Replicas[turn%len(row.Replicas)].Node
		case len(others) > 0: // this node's copy is empty still
			leader = others[turn%len(others)].ID
		}
	}
	if leader == m.id {
		return 0
	}
	return leader
}

// awaitTopic waits until this node's own copy of the topics shows the leader's latest decision, so
// that the next request here sees it, and returns the topic: the leader's answer is without
// secrets. When the context ends first, the answer has to do.
func (m *Member) awaitTopic(ctx context.Context, t *timer.Topic) *timer.Topic {
	for t != nil {
		if mine, ok := m.State.Named(t.Name); ok && (mine.ID > t.ID || mine.ID == t.ID && mine.UpdatedMs >= t.UpdatedMs) {
			return mine
		}
		if !m.tasks.Sleep(ctx, ownTopicEach) {
			return t
		}
	}
	return t
}

// decide is for the meta group's leader. Its hearing of the nodes goes into the log with a command
// that takes one away, so that two of them together take no more than one may. A node that comes
// with the name of one that is gone replaces it. One that registers is there, although it cannot be
// heard before it has its place.
func (m *Member) decide(data []byte) (ring.Reply, error) {
	var cmd ring.Command
	if err := json.Unmarshal(data, &cmd); err != nil {
		return ring.Reply{}, err
	}
	switch cmd.Verb {
	case ring.Remove:
		if err := m.judge(&cmd); err != nil {
			return ring.Reply{}, err
		}
		return m.apply(cmd.Encode())
	case ring.Fence:
		if err := m.witness(&cmd); err != nil {
			return ring.Reply{}, err
		}
		return m.apply(cmd.Encode())
	case ring.Register:
		return m.admit(&cmd, data)
	}
	return m.apply(data)
}

// apply has the meta group's machine apply a command. The reply's error is returned.
func (m *Member) apply(data []byte) (ring.Reply, error) {
	v, err := m.host.Propose(data)
	if err != nil {
		return ring.Reply{}, err
	}
	r := v.(ring.Reply)
	return r, r.Err
}

// judge adds this node's knowledge to a removal.
func (m *Member) judge(cmd *ring.Command) error {
	ago, _ := m.silence(cmd.NodeID)
	cmd.Heard, cmd.Down = m.there(), cmd.NodeID != m.id && ago >= suspectFor
	if n, known := m.State.Node(cmd.NodeID); known && n.State == ring.NodeMember && !cmd.Force && !cmd.Down {
		return ErrNotDrained
	}
	return nil
}

// there are the members that are there as far as this node knows, itself among them.
func (m *Member) there() []uint64 { return append(m.HeardNodes(), m.id) }

func (m *Member) admit(cmd *ring.Command, data []byte) (ring.Reply, error) {
	r, err := m.apply(data)
	if errors.Is(err, ring.ErrNameTaken) && r.Node != nil && !cmd.Replace && cmd.Node != nil && m.replaces(cmd.Node, r.Node) {
		cmd.Replace, cmd.Heard = true, m.there()
		r, err = m.apply(cmd.Encode())
	}
	if err == nil && cmd.Node != nil {
		m.liveness.touch(m.clock.Mono(), cmd.Node.ID, cmd.Node.Starts)
	}
	return r, err
}

// replaces reports that the node with the name is gone: it is silent, or the new one is where it
// was.
func (m *Member) replaces(new, old *ring.Node) bool {
	ago, heard := m.silence(old.ID)
	return old.ID != m.id && (new.Peer == old.Peer && (!heard || ago > heartbeatEach*2) || ago > suspectFor)
}

func (m *Member) answerProposal(_ context.Context, body []byte) []byte {
	var a proposalAnswer
	if !m.host.Leads(shard.Meta) {
		leader, _ := m.host.Leader(shard.Meta)
		a.fail(timer.NotLeaderError{Leader: leader})
	} else if r, err := m.decide(body); err != nil {
		r.Err = nil
		a.Reply = r
		a.fail(err)
	} else {
		a.Reply = r
	}
	if t := a.Reply.Topic; t != nil {
		bare := *t
		bare.Policy = *ring.WithoutSecrets(&t.Policy)
		a.Reply.Topic = &bare
	}
	out, err := json.Marshal(a)
	if err != nil {
		return fmt.Appendf(nil, `{"fault":-1,"text":%q}`, err.Error())
	}
	return out
}
