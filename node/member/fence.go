package member

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard/table"
)

// What a process that seems to be gone left behind may be taken over early only by a decision of
// the meta group: see docs/adr/0048.

const (
	fenceEach   = 50 * time.Millisecond
	fencePause  = 500 * time.Millisecond // between two proposals, at most
	fenceFor    = 3 * time.Second        // after the process refused last: it is not taken for gone
	fenceWithin = time.Minute            // most leases are over by then
	refusesIn   = 300 * time.Millisecond // a voter's answer
)

// fences are the requests of this node's shards.
type fences struct {
	mu      sync.Mutex
	running context.Context // nil: the member does not run yet
	// By process: those who wait for the next decision. One that is under way does not count: it
	// may have begun before their leadership.
	asks map[table.Incarnation][]func(error)
}

// Restarted implements shard.Placement.
func (m *Member) Restarted(owner table.Incarnation) bool {
	return m.State.NewestStart(owner.Node()) > owner.Start()
}

// Fence implements shard.Placement.
func (m *Member) Fence(owner table.Incarnation, then func(error)) {
	f := &m.fences
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		m.tasks.Go(func() { then(errNotYet) })
		return
	}
	waiting, busy := f.asks[owner]
	f.asks[owner] = append(waiting, then)
	if ctx := f.running; !busy {
		m.tasks.Go(func() { m.runFence(ctx, owner) })
	}
}

func (f *fences) begin(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running, f.asks = ctx, map[table.Incarnation][]func(error){}
}

// next takes those who wait for a decision about a process; none: there is nothing more to do.
func (f *fences) next(owner table.Incarnation) []func(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.asks[owner]
	if len(list) == 0 {
		delete(f.asks, owner)
		return nil
	}
	f.asks[owner] = nil
	return list
}

func (m *Member) runFence(ctx context.Context, owner table.Incarnation) {
	for list := m.fences.next(owner); list != nil; list = m.fences.next(owner) {
		err := m.fence(ctx, owner)
		for _, then := range list {
			then(err)
		}
	}
}

// fence has the meta group decide that a process is gone, once this node finds it so.
func (m *Member) fence(ctx context.Context, owner table.Incarnation) error {
	cmd := ring.Command{Verb: ring.Fence, NodeID: owner.Node(), Starts: owner.Start()}
	pause, end := fenceEach, m.tasks.Now()+fenceWithin
	for until := m.tasks.Now() + fenceFor; m.tasks.Now() < min(until, end); {
		if m.peers.Refuses(ctx, owner.Node(), owner.Start()) {
			until = m.tasks.Now() + fenceFor
			if _, err := m.Propose(ctx, cmd); err == nil {
				m.log.Warn("a process is taken for gone: what it had in flight may be called again", "node", m.NameOf(owner.Node()), "start", owner.Start())
				return nil
			}
			pause = min(2*pause, fencePause)
		}
		if !m.tasks.Sleep(ctx, pause) {
			break
		}
	}
	return ring.ErrNotGone
}

// witness adds to a fence the meta group's voters that find the process gone now; an error says
// that they are no majority. Only its leader asks them, when the command has come: so what they say
// is true of a time after the request.
func (m *Member) witness(cmd *ring.Command) error {
	ctx, cancel := m.tasks.WithTimeout(m.context(), refusesIn)
	defer cancel()
	question := binary.AppendUvarint(binary.AppendUvarint(nil, cmd.NodeID), uint64(cmd.Starts))
	var mu sync.Mutex
	cmd.Refused = nil
	voters, all := m.State.MetaVoters(), task.NewGroup(m.tasks)
	for _, voter := range voters {
		if voter == cmd.NodeID {
			continue
		}
		all.Go(func() {
			if m.findsGone(ctx, voter, cmd, question) {
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

func (m *Member) findsGone(ctx context.Context, voter uint64, cmd *ring.Command, question []byte) bool {
	if voter == m.id {
		return m.peers.Refuses(ctx, cmd.NodeID, cmd.Starts)
	}
	answer, err := m.peers.Call(ctx, voter, methodRefuses, question)
	return err == nil && len(answer) == 1 && answer[0] == 1
}

func (m *Member) context() context.Context {
	m.fences.mu.Lock()
	defer m.fences.mu.Unlock()
	if m.fences.running == nil {
		return context.Background()
	}
	return m.fences.running
}

var errBadQuestion = errors.New("malformed question about a process")

// answerRefuses says whether a process refuses this node's connections, and is not heard.
func (m *Member) answerRefuses(ctx context.Context, body []byte) ([]byte, error) {
	node, n := binary.Uvarint(body)
	starts, k := binary.Uvarint(body[max(n, 0):])
	if n <= 0 || k <= 0 || n+k != len(body) || starts > 1<<32-1 {
		return nil, errBadQuestion
	}
	if m.peers.Refuses(ctx, node, uint32(starts)) {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}
