package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	"carillon/ring"
)

const (
	joinInterval   = 300 * time.Millisecond // between the steps of founding and joining
	askTimeout     = 2 * time.Second
	noticeInterval = 10 * time.Second // between two log lines with the reason to wait

	foundingPoll = 10 * time.Millisecond // how often the meta group's founding is looked for
)

// EnsureMembership makes this node a member of a cluster: it is one already, or founds a cluster
// alone or with others, or joins one. It returns when the identity on disk has the cluster, or with
// an error that needs the operator, or when the context ends. A node that replaces a damaged one
// only joins.
func (s *Self) EnsureMembership(ctx context.Context) error {
	plan := s.Identity().AcceptedPlan
	switch {
	case s.Identity().ClusterID != "":
		return nil
	case s.Identity().Rejoin != nil:
		return s.join(ctx)
	case plan == nil && s.cfg.BootstrapExpect == 1 && len(s.cfg.Join) == 0:
		self, err := s.describe()
		if err != nil {
			return err
		}
		return s.Found(&ring.FoundingPlan{ClusterID: newClusterID(s.cfg.Random), Shards: s.cfg.Shards, Replicas: s.cfg.Replicas, Nodes: []ring.Node{self}})
	case plan != nil || s.cfg.BootstrapExpect > 1:
		return s.founding.run(ctx)
	}
	return s.join(ctx)
}

// Found stores that this node founds the cluster of a plan. Its replica of the meta group begins
// with the plan's members.
func (s *Self) Found(plan *ring.FoundingPlan) error {
	scratch := ring.NewState(nil, nil)
	command := ring.FoundCommand(plan.ClusterID, plan.Shards, plan.Replicas, plan.Nodes)
	r, err := scratch.Apply(0, command.Encode())
	if err == nil {
		err = r.(ring.Reply).Err
	}
	if err != nil {
		return fmt.Errorf("node: found the cluster: %w", err)
	}
	row, _ := scratch.Row(ring.MetaGroup)
	meta := row.ForHost()
	return s.Change(func(id *Identity) {
		id.ClusterID, id.Shards, id.Replicas, id.AcceptedPlan, id.Meta = plan.ClusterID, plan.Shards, plan.Replicas, plan, &meta
	})
}

// founding is this node as one of several founders; see ring.Founding.
type founding struct {
	*Self
	mu    sync.Mutex
	state *ring.Founding // nil before it is asked for first
}

// run agrees with the other founders on one plan.
func (f *founding) run(ctx context.Context) error {
	answers := map[uint64]ring.FoundingAnswer{}
	notice := newRareLog(f.tasks, noticeInterval)
	for {
		step, err := f.step(answers)
		switch {
		case err != nil:
			return err
		case step.Found != nil:
			return f.Found(step.Found)
		case step.Join != "":
			f.log.Info("the other founders have a cluster already; joining it", "cluster", step.Join)
			return f.join(ctx)
		case step.Trouble != "":
			f.Wait(step.Trouble)
			notice.do(func() { f.log.Error("the cluster cannot be founded", "reason", step.Trouble) })
		default:
			f.Wait("founding: " + step.Waiting)
			notice.do(func() { f.log.Info("the cluster is being founded", "waiting", step.Waiting) })
		}
		f.ask(ctx, step.Ask, answers)
		if !f.tasks.Sleep(ctx, joinInterval) {
			return ctx.Err()
		}
	}
}

// step does a step and stores the plan that it accepts before anything leaves this node.
func (f *founding) step(answers map[uint64]ring.FoundingAnswer) (ring.FoundingStep, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.stateLocked()
	step := state.Step(f.gossip.List(), answers)
	if step.Propose == nil {
		return step, nil
	}
	return step, f.Change(func(id *Identity) { id.AcceptedPlan = state.Accepted() })
}

func (f *founding) stateLocked() *ring.Founding {
	if f.state == nil {
		self := ring.Member{ID: f.id}
		for _, m := range f.gossip.List() {
			if m.ID == f.id {
				self = m
			}
		}
		f.state = ring.NewFounding(self, f.Identity().AcceptedPlan, func() string { return newClusterID(f.cfg.Random) })
	}
	return f.state
}

func (f *founding) ask(ctx context.Context, ask []uint64, answers map[uint64]ring.FoundingAnswer) {
	f.mu.Lock()
	body := []byte("null")
	if plan := f.stateLocked().Accepted(); plan != nil {
		body = plan.Encode()
	}
	f.mu.Unlock()
	for _, id := range ask {
		addr := f.AddressOf(id)
		if addr == "" {
			continue
		}
		ctx, cancel := f.tasks.WithTimeout(ctx, askTimeout)
		reply, from, err := f.peers.CallAddr(ctx, addr, methodFound, body)
		cancel()
		if err != nil || from.Node != id {
			continue
		}
		if a, err := ring.DecodeFoundingAnswer(reply); err == nil {
			answers[id] = a
		}
	}
}

// answer answers another founder.
func (f *founding) answer(body []byte) ([]byte, error) {
	plan, err := ring.DecodeFoundingPlan(body)
	if err != nil {
		return nil, err
	}
	if !f.gossipReady() {
		return nil, errNotYet
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.stateLocked()
	answer, persist := state.Accept(plan, f.gossip.List())
	if persist {
		if err := f.Change(func(id *Identity) { id.AcceptedPlan = state.Accepted() }); err != nil {
			f.state = nil // the disk counts
			return nil, err
		}
	}
	return answer.Encode(), nil
}
