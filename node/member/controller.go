package member

import (
	"context"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	controlInterval  = time.Second // the controller's turn
	resealBatch = 64          // commands in one turn
)

// controller plans the placement and keeps the cluster's secrets, on the meta group's leader.
type controller struct {
	*local
	meta *metaClient
}

// step is the controller's turn: only the meta group's leader has one.
func (c *controller) step(ctx context.Context) {
	if !c.host.Leads(shard.Meta) {
		return
	}
	c.reseal(ctx)
	c.liveness.expect(c.clock.Mono(), c.State.Nodes())
	facts := c.liveness.facts(c.clock.Mono(), c.clock.WallMs(), c.id, c.Health.Why(), c.State.Nodes())
	facts.Wrong = append(facts.Wrong, c.host.Wrong()...)
	facts.ReplaceAfterMs = c.cfg.ReplaceAfter.Milliseconds()
	for _, cmd := range ring.Plan(c.State.View(), facts) {
		if _, err := c.meta.Propose(ctx, cmd); err != nil {
			c.log.Debug("a step of the placement was not taken; it is planned again", "verb", string(cmd.Verb), "shard", uint32(cmd.Group), "error", err)
			return
		}
		c.log.Info("placement", "step", string(cmd.Verb), "shard", uint32(cmd.Group), "to", c.names(cmd.To))
	}
}

func (c *controller) names(list []ring.Replica) (names []string) {
	for _, r := range list {
		n, _ := c.State.Node(r.Node)
		names = append(names, n.Name)
	}
	return names
}

// reseal has the meta group's secrets sealed by this node's first key: on its leader, once a
// second.
func (c *controller) reseal(ctx context.Context) {
	keys := c.cfg.Keys()
	if cmd, lost := c.State.Replacing(keys, c.cfg.Random); lost {
		if _, err := c.meta.Propose(ctx, cmd); err != nil {
			c.log.Debug("the cluster's secret was not made anew; it is tried again", "error", err)
			return
		}
		c.log.Warn("the cluster has a new secret: the key of the one before is lost; receipts of before are void")
	}
	list := c.State.Resealing(keys, resealBatch)
	for _, cmd := range list {
		if _, err := c.meta.Propose(ctx, cmd); err != nil {
			c.log.Debug("a secret was not sealed anew; it is tried again", "topic", cmd.Name, "error", err)
			return
		}
	}
	if len(list) > 0 {
		c.log.Info("sealed secrets of topics anew", "topics", len(list), "key", keys.First())
	}
}

// awaitBootstrap gives the meta group its first entries, if this node leads it, and waits until it
// has them.
func (c *controller) awaitBootstrap(ctx context.Context) {
	for {
		known, _, _ := c.State.Cluster()
		switch {
		case known != "" && c.State.Secret() != nil:
			return
		case !c.host.Leads(shard.Meta):
		case known == "":
			c.foundState(ctx)
			c.makeSecret(ctx)
		default: // who founded it did not come to that
			c.makeSecret(ctx)
		}
		if !c.tasks.Sleep(ctx, foundingPoll) {
			return
		}
	}
}

func (c *controller) foundState(ctx context.Context) {
	id := c.Identity()
	if id.AcceptedPlan == nil { // it joined
		return
	}
	if _, err := c.meta.Propose(ctx, ring.FoundCommand(id.ClusterID, id.Shards, id.Replicas, id.AcceptedPlan.Nodes)); err != nil {
		c.log.Warn("the cluster's founding was not taken yet; it is tried again", "error", err)
	}
}

// makeSecret gives the cluster the secret that receipts are made with, once.
func (c *controller) makeSecret(ctx context.Context) {
	if id, _, _ := c.State.Cluster(); id == "" || c.State.Secret() != nil {
		return
	}
	var receipts [ring.SecretBytes]byte
	c.cfg.Random(receipts[:])
	if _, err := c.meta.Propose(ctx, ring.SecretCommand(receipts, c.cfg.Keys())); err != nil {
		c.log.Warn("the cluster's secret was not kept yet; it is tried again", "error", err)
	}
}
