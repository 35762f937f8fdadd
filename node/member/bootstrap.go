package member

import (
	"context"
	"fmt"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	stepEach = 300 * time.Millisecond // of founding and joining
	askFor   = 2 * time.Second
	sayEach  = 10 * time.Second // a reason to wait is logged again

	foundEach = 10 * time.Millisecond // is the meta group led here, and empty? Until it is founded
)

// EnsureMembership makes sure that the node is of a cluster: it has been, or it founds one alone or
// with others, or joins one. It returns when the identity on disk says so, or with an error that
// needs the operator, or when the context ends. A node that replaces a damaged one only joins.
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
		return s.foundTogether(ctx)
	}
	return s.join(ctx)
}

// Found writes down that this node founds the cluster of a plan; its replica of the meta group
// begins with the plan's members.
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

// foundTogether agrees with the other founders on one plan.
func (s *Self) foundTogether(ctx context.Context) error {
	answers := map[uint64]ring.FoundingAnswer{}
	said := NewNotice(s.tasks, sayEach)
	for {
		step, err := s.bootstrapStep(answers)
		switch {
		case err != nil:
			return err
		case step.Found != nil:
			return s.Found(step.Found)
		case step.Join != "":
			s.log.Info("the other founders have a cluster already; joining it", "cluster", step.Join)
			return s.join(ctx)
		case step.Trouble != "":
			s.Wait(step.Trouble)
			said.Say(func() { s.log.Error("the cluster cannot be founded", "reason", step.Trouble) })
		default:
			s.Wait("founding: " + step.Waiting)
			said.Say(func() { s.log.Info("founding", "waiting", step.Waiting) })
		}
		s.askFounders(ctx, step.Ask, answers)
		if !s.tasks.Sleep(ctx, stepEach) {
			return ctx.Err()
		}
	}
}

// bootstrapStep does a step and stores the plan that it accepts before anything leaves this node.
func (s *Self) bootstrapStep(answers map[uint64]ring.FoundingAnswer) (ring.FoundingStep, error) {
	s.bootstrapMu.Lock()
	defer s.bootstrapMu.Unlock()
	f := s.bootstrapLocked()
	step := f.Step(s.gossip.List(), answers)
	if step.Propose == nil {
		return step, nil
	}
	return step, s.Change(func(id *Identity) { id.AcceptedPlan = f.Accepted() })
}

func (s *Self) bootstrapLocked() *ring.Founding {
	if s.bootstrap == nil {
		self := ring.Member{ID: s.id}
		for _, m := range s.gossip.List() {
			if m.ID == s.id {
				self = m
			}
		}
		s.bootstrap = ring.NewFounding(self, s.Identity().AcceptedPlan, func() string { return newClusterID(s.cfg.Random) })
	}
	return s.bootstrap
}

func (s *Self) askFounders(ctx context.Context, ask []uint64, answers map[uint64]ring.FoundingAnswer) {
	s.bootstrapMu.Lock()
	body := []byte("null")
	if plan := s.bootstrapLocked().Accepted(); plan != nil {
		body = plan.Encode()
	}
	s.bootstrapMu.Unlock()
	for _, id := range ask {
		addr := s.AddressOf(id)
		if addr == "" {
			continue
		}
		ctx, cancel := s.tasks.WithTimeout(ctx, askFor)
		reply, from, err := s.peers.CallAddr(ctx, addr, methodFound, body)
		cancel()
		if err != nil || from.Node != id {
			continue
		}
		if a, err := ring.DecodeFoundingAnswer(reply); err == nil {
			answers[id] = a
		}
	}
}

// answerBootstrap is for another founder's question.
func (s *Self) answerBootstrap(body []byte) ([]byte, error) {
	plan, err := ring.DecodeFoundingPlan(body)
	if err != nil {
		return nil, err
	}
	if !s.gossipReady() {
		return nil, errNotYet
	}
	s.bootstrapMu.Lock()
	defer s.bootstrapMu.Unlock()
	f := s.bootstrapLocked()
	answer, persist := f.Accept(plan, s.gossip.List())
	if persist {
		if err := s.Change(func(id *Identity) { id.AcceptedPlan = f.Accepted() }); err != nil {
			s.bootstrap = nil // the disk counts
			return nil, err
		}
	}
	return answer.Encode(), nil
}

// awaitBootstrap gives the meta group its first entries, if this node leads it, and waits until it
// has them.
func (m *Member) awaitBootstrap(ctx context.Context) {
	for {
		known, _, _ := m.State.Cluster()
		switch {
		case known != "" && m.State.Secret() != nil:
			return
		case !m.host.Leads(shard.Meta):
		case known == "":
			m.foundState(ctx)
			m.makeSecret(ctx)
		default: // who founded it did not come to that
			m.makeSecret(ctx)
		}
		if !m.tasks.Sleep(ctx, foundEach) {
			return
		}
	}
}

func (m *Member) foundState(ctx context.Context) {
	id := m.Identity()
	if id.AcceptedPlan == nil { // it joined
		return
	}
	if _, err := m.Propose(ctx, ring.FoundCommand(id.ClusterID, id.Shards, id.Replicas, id.AcceptedPlan.Nodes)); err != nil {
		m.log.Warn("the cluster's founding was not taken yet; it is tried again", "error", err)
	}
}

// makeSecret gives the cluster the secret that receipts are made with, once.
func (m *Member) makeSecret(ctx context.Context) {
	if id, _, _ := m.State.Cluster(); id == "" || m.State.Secret() != nil {
		return
	}
	var receipts [ring.SecretBytes]byte
	m.cfg.Random(receipts[:])
	if _, err := m.Propose(ctx, ring.SecretCommand(receipts, m.cfg.Keys())); err != nil {
		m.log.Warn("the cluster's secret was not kept yet; it is tried again", "error", err)
	}
}

// MarkFounded notes on disk that the first replica is there, once the node serves: from then on it
// is damage if it is missing.
func (m *Member) MarkFounded(ctx context.Context) {
	for !m.Identity().Founded {
		if m.serves() == nil {
			if err := m.Change(func(id *Identity) { id.Founded = true }); err != nil {
				m.log.Error("the founding was not noted; it is tried again at the next start", "error", err)
			}
			return
		}
		if !m.tasks.Sleep(ctx, readyEach) {
			return
		}
	}
}
