package member

import (
	"context"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	controlEach  = time.Second // the controller's turn
	resealAtOnce = 64          // commands in one turn
)

// control is the controller's turn: only the meta group's leader has one.
func (m *Member) control(ctx context.Context) {
	if !m.host.Leads(shard.Meta) {
		return
	}
	m.reseal(ctx)
	m.liveness.expect(m.clock.Mono(), m.State.Nodes())
	facts := m.liveness.facts(m.clock.Mono(), m.clock.WallMs(), m.id, m.Health.Why(), m.State.Nodes())
	facts.Wrong = append(facts.Wrong, m.host.Wrong()...)
	facts.ReplaceAfterMs = m.cfg.ReplaceAfter.Milliseconds()
	for _, cmd := range ring.Plan(m.State.View(), facts) {
		if _, err := m.Propose(ctx, cmd); err != nil {
			m.log.Debug("a step of the placement was not taken; it is planned again", "verb", string(cmd.Verb), "shard", uint32(cmd.Group), "error", err)
			return
		}
		m.log.Info("placement", "step", string(cmd.Verb), "shard", uint32(cmd.Group), "to", m.names(cmd.To))
	}
}

func (m *Member) names(list []ring.Replica) (names []string) {
	for _, r := range list {
		n, _ := m.State.Node(r.Node)
		names = append(names, n.Name)
	}
	return names
}

// reseal has the meta group's secrets sealed by this node's first key: on its leader, once a
// second.
func (m *Member) reseal(ctx context.Context) {
	keys := m.cfg.Keys()
	if cmd, lost := m.State.Replacing(keys, m.cfg.Random); lost {
		if _, err := m.Propose(ctx, cmd); err != nil {
			m.log.Debug("the cluster's secret was not made anew; it is tried again", "error", err)
			return
		}
		m.log.Warn("the cluster has a new secret: the key of the one before is lost; receipts of before are void")
	}
	list := m.State.Resealing(keys, resealAtOnce)
	for _, cmd := range list {
		if _, err := m.Propose(ctx, cmd); err != nil {
			m.log.Debug("a secret was not sealed anew; it is tried again", "topic", cmd.Name, "error", err)
			return
		}
	}
	if len(list) > 0 {
		m.log.Info("sealed secrets of topics anew", "topics", len(list), "key", keys.First())
	}
}
