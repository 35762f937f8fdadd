package member

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/timer"
)

// applying is a host that leads the meta group, and applies commands at once.
type applying struct {
	decider
	state *ring.State
}

func (a applying) Propose(cmd []byte) (any, error) { return a.state.Apply(9, cmd) }

// TestAMemberReplacesNobody: a new node replaces the one that had its name and is gone; a member
// that comes back under the name of another that is down, as with a configuration that was copied,
// does not.
func TestAMemberReplacesNobody(t *testing.T) {
	s := certified(t) // nodes 1 and 2
	m := s.member.Load()
	m.Attach(applying{decider{leads: true}, m.State})
	s.liveness.began -= time.Minute // node 2 is silent
	register := func(id uint64, name string) error {
		_, err := m.Propose(t.Context(), ring.Command{Verb: ring.Register, Node: &ring.Node{ID: id, Name: name, Peer: "127.0.0.1:1"}})
		return err
	}
	if err := register(4, "n4"); err != nil {
		t.Fatal(err)
	}
	if err := register(4, "n2"); !errors.Is(err, ring.ErrNameTaken) {
		t.Errorf("a member takes another one's name: %v", err)
	}
	if n, _ := m.State.Node(2); n.State != ring.NodeMember {
		t.Errorf("%+v", n)
	}
	if err := register(5, "n2"); err != nil {
		t.Errorf("a new node: %v", err)
	}
	if n, _ := m.State.Node(2); n.State != ring.NodeRemoved {
		t.Errorf("%+v", n)
	}
}

// TestNodeUnderAnothersNameEnds: a member that was started with the name of another one is refused
// for ever. It must end: it would lead shards without a call.
func TestNodeUnderAnothersNameEnds(t *testing.T) {
	s := certified(t)
	var ended error
	s.cfg.Name, s.cfg.NamesProven, s.cfg.Fail, s.log = "n2", false, func(err error) { ended = err }, slog.New(slog.DiscardHandler)
	m := s.member.Load()
	m.Attach(applying{decider{leads: true}, m.State})
	s.liveness.touch(s.clock.Mono(), 2, 0)
	m.registration.register(t.Context())
	if !errors.Is(ended, ring.ErrNameTaken) || !strings.Contains(ended.Error(), "knows this node as n1") {
		t.Errorf("%v", ended)
	}
}

// TestOrdersAreNotGuessed: a node that cannot ask the meta group does not answer by its own copy,
// which may be behind, that a drain, the end of one, or a removal is done.
func TestOrdersAreNotGuessed(t *testing.T) {
	for name, order := range map[string]func(context.Context, *Member) error{
		"resume": func(ctx context.Context, m *Member) error { return m.Resume(ctx, "n2") },
		"drain":  func(ctx context.Context, m *Member) error { return m.Drain(ctx, "n1") },
		"remove": func(ctx context.Context, m *Member) error { return m.Remove(ctx, "n9", false, false) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, begun := certified(t), time.Now()
			s.tasks = task.NewGoroutines(func() time.Duration { return time.Since(begun) })
			m := s.member.Load()
			decide(t, m, ring.Command{Verb: ring.SetState, NodeID: 1, State: ring.NodeDraining})
			s.Connect(passing{}, quiet{})
			m.Attach(decider{}) // which knows of a leader that does not answer
			if err := order(t.Context(), m); !errors.Is(err, timer.ErrNoLeader) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
