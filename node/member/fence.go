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
	"carillon/timer"
)

// What a process that seems to be gone left behind may be taken over early only by a decision of
// the meta group: see docs/adr/0048.

const (
	fenceEach = 50 * time.Millisecond
	fenceFor  = 3 * time.Second        // then the process is not taken for gone
	refusesIn = 300 * time.Millisecond // a voter's answer
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
	ctx, cancel := m.tasks.WithTimeout(ctx, fenceFor)
	defer cancel()
	cmd := ring.Command{Verb: ring.Fence, NodeID: owner.Node(), Starts: owner.Start()}
	for {
		if m.peers.Refuses(ctx, owner.Node(), owner.Start()) {
			_, err := m.Propose(ctx, cmd)
			if err == nil {
				m.log.Warn("a process is taken for gone: what it had in flight may be called again", "node", m.NameOf(owner.Node()), "start", owner.Start())
				return nil
			}
			if !errors.Is(err, ring.ErrNotGone) && !errors.Is(err, timer.ErrUnknown) && !refused(err) {
				return err
			}
		}
		if !m.tasks.Sleep(ctx, fenceEach) {
			return ring.ErrNotGone
		}
	}
}

// witness adds to a fence the meta group's voters that find the process gone now. Only its leader
// asks them, when the command has come: so what they say is true of a time after the request.
func (m *Member) witness(cmd *ring.Command) {
	ctx, cancel := m.tasks.WithTimeout(m.context(), refusesIn)
	defer cancel()
	question := binary.AppendUvarint(binary.AppendUvarint(nil, cmd.NodeID), uint64(cmd.Starts))
	var mu sync.Mutex
	cmd.Refused = nil
	all := task.NewGroup(m.tasks)
	for _, voter := range m.State.MetaVoters() {
		if voter == cmd.NodeID {
			continue
		}
		all.Go(func() {
			gone := false
			if voter == m.id {
				gone = m.peers.Refuses(ctx, cmd.NodeID, cmd.Starts)
			} else {
				answer, err := m.peers.Call(ctx, voter, methodRefuses, question)
				gone = err == nil && len(answer) == 1 && answer[0] == 1
			}
			if gone {
				mu.Lock()
				cmd.Refused = append(cmd.Refused, voter)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(cmd.Refused)
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
