package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/transport/peer"
)

// Times of a proposal, from its begin.
const (
	answerTimeout = 1900 * time.Millisecond // then a command that was sent is ErrUnknown
	ownCopyPoll   = 2 * time.Millisecond
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
	timer.ErrTopicVersion, timer.ErrOutcomeTopic, timer.ErrNamed, ring.ErrBadShards, ring.ErrResharding, timer.ErrNamedSerial,
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

// metaClient has the meta group decide commands, and asks it for its newest index, wherever its
// leader is.
type metaClient struct {
	*local
	decisions *decisions
}

// refused reports whether nothing was done, so that another node, or this one a little later, may
// do it.
func refused(err error) bool {
	return errors.Is(err, timer.ErrNoLeader) || errors.Is(err, timer.ErrRecovering) || errors.Is(err, peer.ErrNotSent)
}

// Propose has the meta group decide a command, wherever its leader is. A command that surely was
// not carried out is tried again for a second and a half. The reply's error is returned.
func (m *metaClient) Propose(ctx context.Context, cmd ring.Command) (ring.Reply, error) {
	if !m.hasRead() {
		return ring.Reply{}, timer.ErrRecovering
	}
	data := cmd.Encode()
	hint, b := uint64(0), task.NewBackoff(m.tasks, m.tasks.Now())
	for turn := 0; ; turn++ {
		r, err := m.proposeOnce(ctx, data, hint, turn)
		if !refused(err) {
			return r, err
		}
		moved, _ := errors.AsType[timer.NotLeaderError](err)
		hint = moved.Leader
		if !b.Wait(ctx, hint != 0 && turn == 0) {
			return ring.Reply{}, timer.ErrNoLeader
		}
	}
}

// proposers is how many of many commands are on their way at once: so they share fsyncs.
const proposers = 16

// proposeAll has the meta group decide commands that do not depend on each other, about in order,
// until done returns false.
func (m *metaClient) proposeAll(ctx context.Context, commands []ring.Command, done func(*ring.Command, error) (more bool)) {
	task.Lanes(m.tasks, proposers, len(commands), func(i int) bool {
		_, err := m.Propose(ctx, commands[i])
		return done(&commands[i], err)
	})
}

func (m *metaClient) proposeOnce(ctx context.Context, data []byte, hint uint64, turn int) (ring.Reply, error) {
	if m.host.Leads(shard.Meta) {
		return m.decisions.decide(data)
	}
	leader := m.metaLeader(hint, turn)
	if leader == 0 {
		return ring.Reply{}, timer.ErrNoLeader
	}
	ctx, cancel := m.tasks.WithTimeout(ctx, answerTimeout)
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
func (m *metaClient) metaLeader(hint uint64, turn int) uint64 {
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
func (m *metaClient) awaitTopic(ctx context.Context, t *timer.Topic) *timer.Topic {
	for t != nil {
		if mine, ok := m.State.Named(t.Name); ok && (mine.ID > t.ID || mine.ID == t.ID && isCurrent(mine, t)) {
			return mine
		}
		if !m.tasks.Sleep(ctx, ownCopyPoll) {
			return t
		}
	}
	return t
}

// isCurrent reports whether a copy of a topic is as a decision left it, or later. Most decisions
// make a new version, some at the same millisecond as the one before; others keep the version, and
// change the number of the delivery or the time.
func isCurrent(mine, decided *timer.Topic) bool {
	if mine.Version != decided.Version {
		return mine.Version > decided.Version
	}
	return mine.Turn >= decided.Turn && mine.UpdatedMs >= decided.UpdatedMs
}

func (m *metaClient) answerProposal(_ context.Context, body []byte) []byte {
	var a proposalAnswer
	if !m.host.Leads(shard.Meta) {
		leader, _ := m.host.Leader(shard.Meta)
		a.fail(timer.NotLeaderError{Leader: leader})
	} else if r, err := m.decisions.decide(body); err != nil {
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
