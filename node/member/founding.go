package member

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	notice := newRareLog(s.tasks)
	for s.Identity().ClusterID == "" {
		level, waiting, err := s.membershipStep(ctx)
		switch {
		case err != nil:
			return err
		case waiting == "":
			continue
		}
		s.Wait(waiting)
		notice.do(func() { s.log.Log(ctx, level, "this node is in no cluster yet", "reason", waiting) })
		if !s.tasks.Sleep(ctx, joinInterval) {
			return ctx.Err()
		}
	}
	return nil
}

// membershipStep founds or joins a cluster, or returns what the node waits for.
func (s *Self) membershipStep(ctx context.Context) (level slog.Level, waiting string, err error) {
	alone := s.cfg.BootstrapExpect == 1 && len(s.cfg.Join) == 0
	switch {
	case s.Identity().Rejoin != nil || s.cfg.BootstrapExpect == 1 && !alone:
	case alone:
		self, err := s.describe()
		if err != nil {
			return 0, "", err
		}
		return 0, "", s.Found(&ring.FoundingPlan{ClusterID: NewClusterID(s.cfg.Random), Shards: s.cfg.Shards, Replicas: s.cfg.Replicas, Nodes: []ring.Node{self}})
	default:
		list := s.gossip.List()
		self := slices.IndexFunc(list, func(m ring.Member) bool { return m.ID == s.id })
		step := ring.NextFounding(list[self], list, func() string { return NewClusterID(s.cfg.Random) })
		switch {
		case step.Begin != nil:
			return 0, "", s.Found(step.Begin)
		case step.Trouble != "":
			return slog.LevelError, "the cluster cannot be founded: " + step.Trouble, nil
		case step.Join == "":
			return slog.LevelInfo, "founding: " + step.Waiting, nil
		}
	}
	waiting, err = s.join(ctx)
	return slog.LevelWarn, waiting, err
}

// Found stores the plan of a cluster that this node founds, with the other nodes of the plan. Its
// replica of the meta group begins with them.
func (s *Self) Found(plan *ring.FoundingPlan) error {
	scratch := ring.NewState(nil, nil)
	command := ring.FoundCommand(plan.ClusterID, plan.Shards, plan.Replicas, plan.Nodes)
	r, err := scratch.Apply(0, command.Encode())
	if err == nil {
		err = r.(ring.Reply).Err
	}
	if err == nil && !plan.Has(s.id) {
		err = fmt.Errorf("its plan has no node %010x", s.id)
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
