package member

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/peer"
)

// doors are the Peers of node 1: who finds the process 2.7 gone.
type doors struct {
	Peers
	closed []uint64
}

func (d *doors) FindsGone(_ context.Context, node uint64, starts uint32) bool {
	return node == 2 && starts == 7 && slices.Contains(d.closed, 1)
}

func (d *doors) Call(_ context.Context, voter uint64, method uint8, body []byte) ([]byte, error) {
	if method != methodGone {
		return nil, peer.ErrNotSent
	}
	return (&fences{local: &local{Self: &Self{peers: &doors{closed: []uint64{b2u(slices.Contains(d.closed, voter))}}}}}).answerGone(context.Background(), body)
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// metaHost leads the meta group, and applies what it is given.
type metaHost struct {
	Host
	state *ring.State
	made  int // entries
}

func (h *metaHost) Started() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
func (h *metaHost) Leads(id timer.ShardID) bool { return id == shard.Meta }
func (h *metaHost) Propose(cmd []byte) (any, error) {
	h.made++
	return h.state.Apply(int64(h.made), cmd)
}

func fenceMember(t *testing.T, ctx context.Context) (*Member, *doors, *metaHost) {
	t.Helper()
	began := time.Now()
	d, s := &doors{}, ring.NewState(nil, nil)
	h := &metaHost{state: s}
	self := &Self{id: 1, tasks: task.NewGoroutines(func() time.Duration { return time.Since(began) }), peers: d, log: slog.New(slog.DiscardHandler)}
	self.identity.Store(&Identity{NodeID: 1})
	m := newMember(self, s)
	m.Attach(h)
	var nodes []ring.Node
	for i := range uint64(3) {
		nodes = append(nodes, ring.Node{ID: i + 1, Name: string(rune('a' + i)), Starts: 7})
	}
	found := ring.FoundCommand("c", 4, 3, nodes)
	if r, err := s.Apply(1, found.Encode()); err != nil || r.(ring.Reply).Err != nil {
		t.Fatal(r, err)
	}
	m.refreshed.Store(&nodes)
	m.member.Store(m)
	m.running.Store(&ctx)
	return m, d, h
}

// TestFenceAsksTheVoters: the meta group's leader proposes a fence only when a majority of the
// voters finds the process gone at that moment, and makes no entry before.
func TestFenceAsksTheVoters(t *testing.T) {
	m, d, h := fenceMember(t, t.Context())
	cmd := ring.Command{Verb: ring.Fence, NodeID: 2, Starts: 7, Refused: []uint64{1, 3}}
	for _, closed := range [][]uint64{nil, {1}, {3}} {
		d.closed = closed
		if _, err := m.decisions.decide(cmd.Encode()); !errors.Is(err, ring.ErrNotGone) {
			t.Errorf("%v find it gone: %v", closed, err)
		}
	}
	if h.made != 0 {
		t.Errorf("%d entries were made", h.made)
	}
	d.closed = []uint64{1, 3}
	if _, err := m.decisions.decide(cmd.Encode()); err != nil {
		t.Error(err)
	}
	if n, _ := m.State.Node(2); n.Fenced != 7 {
		t.Errorf("the record of the process: %+v", n)
	}
}

// TestFenceIsDecidedAfterEachRequest: one that comes while a decision is under way waits for the
// next. A process that does not refuse is soon not taken for gone.
func TestFenceIsDecidedAfterEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m, d, h := fenceMember(t, ctx)
		owner, got := table.NewIncarnation(2, 7), make(chan error, 3)
		then := func(err error) { got <- err }
		m.Fence(owner, func(err error) {
			d.closed = []uint64{1, 3}
			m.Fence(owner, then) // while the decision that was begun before is told
			then(err)
		})
		if err := <-got; !errors.Is(err, ring.ErrNotGone) {
			t.Errorf("a process that does not refuse: %v", err)
		}
		if err := <-got; err != nil || h.made != 1 {
			t.Errorf("a process that refuses: %v, %d entries", err, h.made)
		}
		if m.Restarted(owner) || !m.Restarted(table.NewIncarnation(2, 6)) {
			t.Error("which processes were followed by another is wrong")
		}
		synctest.Wait()
	})
}

// TestRegistrationAnswersForTheEnd: who asks for a fence waits no longer when the next process of
// the node has registered, and proposes nothing.
func TestRegistrationAnswersForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m, _, h := fenceMember(t, ctx)
		got := make(chan error, 1)
		m.Fence(table.NewIncarnation(2, 7), func(err error) { got <- err })
		<-time.After(time.Second)
		next := ring.Node{ID: 2, Name: "b", Starts: 8}
		if _, err := h.Propose((&ring.Command{Verb: ring.Register, Node: &next}).Encode()); err != nil {
			t.Fatal(err)
		}
		began, made := time.Now(), h.made
		if err := <-got; err != nil || time.Since(began) > fenceMaxPause || h.made != made {
			t.Errorf("%v after %v, %d entries", err, time.Since(began), h.made-made)
		}
	})
}
