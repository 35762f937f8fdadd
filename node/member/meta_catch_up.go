package member

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/timer/encoding"
)

const (
	indexTimeout = 900 * time.Millisecond // one try: there is time for a second
	appliedPoll  = 2 * time.Millisecond
)

// CatchUp returns when this node's copy of the meta group's state has everything that was decided
// before the call. An object that the copy lacks then does not exist. An error leaves it unknown:
// the meta group's leader could not be asked, or its entries did not arrive within a second and a
// half.
func (m *metaClient) CatchUp(ctx context.Context) error {
	ctx, cancel := m.tasks.WithTimeout(ctx, task.RetryTime)
	defer cancel()
	hint, b := uint64(0), task.NewBackoff(m.tasks, m.tasks.Now())
	for turn := 0; ; turn++ {
		index, err := m.metaIndex(ctx, hint, turn)
		if err == nil {
			return m.awaitApplied(ctx, index)
		}
		moved, _ := errors.AsType[timer.NotLeaderError](err)
		hint = moved.Leader
		if !b.Wait(ctx, hint != 0 && turn == 0) {
			return timer.ErrNoLeader
		}
	}
}

// order has the meta group decide what an operator asks for. It returns when this node's copy shows
// it, so that whoever looks here next does not take the order for one that has been carried out.
func (m *metaClient) order(ctx context.Context, cmd ring.Command) error {
	_, err := m.Propose(ctx, cmd)
	if err == nil {
		_ = m.CatchUp(ctx) // it is decided all the same
	}
	return err
}

// metaIndex is the newest index of the meta group's state, from its leader, after a majority has
// confirmed that it leads.
func (m *metaClient) metaIndex(ctx context.Context, hint uint64, turn int) (uint64, error) {
	if m.host.Leads(shard.Meta) {
		return m.host.Confirm(shard.Meta)
	}
	leader := m.metaLeader(hint, turn)
	if leader == 0 {
		return 0, timer.ErrNoLeader
	}
	ctx, cancel := m.tasks.WithTimeout(ctx, indexTimeout)
	defer cancel()
	answer, err := m.peers.Call(ctx, leader, methodIndex, nil)
	if err != nil {
		return 0, err
	}
	return decodeIndex(answer)
}

// awaitApplied waits until an entry is in this node's copy.
func (l *local) awaitApplied(ctx context.Context, index uint64) error {
	for l.host.Applied(shard.Meta) < index {
		if !l.tasks.Sleep(ctx, appliedPoll) {
			return timer.ErrNoLeader
		}
	}
	return nil
}

// An answer to methodIndex: 0 and the index, or 1 and the node that leads, 0 if none is known;
// uvarints.
const (
	indexKnown = iota
	indexElsewhere
)

func (m *metaClient) answerIndex(_ context.Context) ([]byte, error) {
	index, err := m.host.Confirm(shard.Meta)
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok {
		return binary.AppendUvarint([]byte{indexElsewhere}, moved.Leader), nil
	}
	if err != nil {
		return nil, err
	}
	return binary.AppendUvarint([]byte{indexKnown}, index), nil
}

func decodeIndex(b []byte) (uint64, error) {
	r := encoding.Reader{Rest: b}
	kind, v := r.Number(indexElsewhere, "kind of an index"), r.Uvarint()
	if err := r.Close(); err != nil {
		return 0, err
	}
	if kind == indexElsewhere {
		return 0, timer.NotLeaderError{Leader: v}
	}
	return v, nil
}
