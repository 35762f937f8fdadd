package member

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

const (
	controlInterval = time.Second            // the controller's turn
	growthInterval  = 100 * time.Millisecond // … and how soon the next shard is divided
	resealBatch     = 64                     // commands in one turn
)

// controller plans the placement and keeps the cluster's secrets, on the meta group's leader.
type controller struct {
	*local
	seen    *observer
	meta    *metaClient
	missing *rareLog                   // of founders
	rings   ring.Rings                 // of its plans
	moves   atomic.Pointer[ring.Moves] // as of its last turn; nil: it has had none
}

// run gives the controller its turns: one each controlInterval, and one as soon as a shard has been
// divided.
func (c *controller) run(ctx context.Context) {
	c.step(ctx)
	for last, seen := c.tasks.Now(), 0; ; {
		pause := controlInterval
		if _, on := c.State.Resharding(); on {
			pause = growthInterval
		}
		if !c.tasks.Sleep(ctx, pause) {
			return
		}
		r, _ := c.State.Resharding()
		if now := c.tasks.Now(); now-last >= controlInterval || !r.Dividing && r.Done != seen {
			last, seen = now, r.Done
			c.step(ctx)
		}
	}
}

// step is the controller's turn: only the meta group's leader has one.
func (c *controller) step(ctx context.Context) {
	if !c.host.Leads(shard.Meta) {
		c.moves.Store(nil)
		return
	}
	c.reseal(ctx)
	c.liveness.expect(c.clock.Mono(), c.State.Nodes())
	own := ring.NodeFacts{Alive: true, Unfit: c.Health.Why(), LowDisk: c.host.Disk().Low}
	facts := c.liveness.facts(c.clock.Mono(), c.clock.WallMs(), c.id, own, c.State.Nodes())
	facts.Wrong = append(facts.Wrong, c.host.Wrong()...)
	facts.ReplaceAfterMs = c.cfg.ReplaceAfter.Milliseconds()
	facts.Leaders, facts.Bytes = c.seen.Leaders(), c.sizes.all(c.clock.Mono())
	maps.Copy(facts.Bytes, c.largeShards(c.seen.leads()))
	commands, moves := ring.Plan(c.State.View(), facts, &c.rings)
	c.moves.Store(&moves)
	c.meta.proposeAll(ctx, commands, func(cmd *ring.Command, err error) (more bool) {
		if err != nil {
			c.log.Debug("a placement step was refused; it is planned again", "verb", string(cmd.Verb), "shard", uint32(cmd.Group), "error", err)
			return false
		}
		c.log.Info("the placement changes", "step", string(cmd.Verb), "shard", uint32(cmd.Group), "to", c.names(cmd.To))
		return true
	})
}

func (c *controller) names(list []ring.Replica) (names []string) {
	for _, r := range list {
		n, _ := c.State.Node(r.Node)
		names = append(names, n.Name)
	}
	return names
}

// reseal has the meta group's secrets sealed by this node's first key.
func (c *controller) reseal(ctx context.Context) {
	keys := c.cfg.Keys()
	if cmd, lost := c.State.Replacing(keys, c.cfg.Random); lost {
		if _, err := c.meta.Propose(ctx, cmd); err != nil {
			c.log.Debug("the cluster's secret could not be replaced; retrying", "error", err)
			return
		}
		c.log.Warn("the cluster has a new secret, since the key of the former one is lost; earlier receipts are void")
	}
	list := c.State.Resealing(keys, resealBatch)
	for _, cmd := range list {
		if _, err := c.meta.Propose(ctx, cmd); err != nil {
			c.log.Debug("a topic's secret could not be resealed; retrying", "topic", cmd.Name, "error", err)
			return
		}
	}
	if len(list) > 0 {
		c.log.Info("resealed the secrets of topics", "topics", len(list), "key", keys.First())
	}
}

// awaitBootstrap waits until the meta group has its first entries. It proposes them if this node
// leads the group.
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
		default: // its founder ended before that
			c.makeSecret(ctx)
		}
		if !c.tasks.Sleep(ctx, foundingPoll) {
			return
		}
	}
}

// foundState proposes the meta group's first entry once all founders have connected to this node: so
// each of them has stored the plan.
func (c *controller) foundState(ctx context.Context) {
	id := c.Identity()
	if id.AcceptedPlan == nil { // it joined
		return
	}
	var missing []string
	for _, n := range id.AcceptedPlan.Nodes {
		if _, _, met := c.peers.Met(n.ID); !met && n.ID != c.id {
			missing = append(missing, n.Name)
		}
	}
	if len(missing) > 0 {
		c.missing.do(func() {
			c.log.Warn("the cluster is founded when these founders have connected; if one has lost its data directory, or belongs to another cluster, "+
				"stop all founders, empty their data directories and start them again", "missing", missing)
		})
		return
	}
	if _, err := c.meta.Propose(ctx, ring.FoundCommand(id.ClusterID, id.Shards, id.Replicas, id.AcceptedPlan.Nodes)); err != nil {
		c.log.Warn("the cluster's founding was not accepted yet; retrying", "error", err)
	}
}

// makeSecret gives the cluster the secret of its receipts, once.
func (c *controller) makeSecret(ctx context.Context) {
	if id, _, _ := c.State.Cluster(); id == "" || c.State.Secret() != nil {
		return
	}
	var receipts [ring.SecretBytes]byte
	c.cfg.Random(receipts[:])
	if _, err := c.meta.Propose(ctx, ring.SecretCommand(receipts, c.cfg.Keys())); err != nil {
		c.log.Warn("the cluster's secret was not stored yet; retrying", "error", err)
	}
}

const (
	movesTimeout  = 250 * time.Millisecond
	movesInterval = 500 * time.Millisecond // one question in this time, whoever wants to know
	movesLast     = 3 * time.Second        // for how long an answer counts where the next one does not come
)

// shownMoves are the moves of replicas as operators see them. Only the meta group's leader knows
// them; others ask it.
type shownMoves struct {
	mu      sync.Mutex
	askedAt time.Duration // 0: never
	knownAt time.Duration
	last    ring.Moves
}

// Moves is what moves between nodes and what waits, as of the controller's last turn; all zero where
// nothing does, or the meta group's leader does not answer.
func (m *Member) Moves(ctx context.Context) ring.Moves {
	if m.host.Leads(shard.Meta) {
		return m.Planned()
	}
	s := &m.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := m.tasks.Now(); s.askedAt == 0 || now-s.askedAt >= movesInterval {
		moves, err := m.askMoves(ctx)
		s.askedAt = m.tasks.Now()
		if err == nil || s.askedAt-s.knownAt >= movesLast {
			s.last, s.knownAt = moves, s.askedAt
		}
	}
	return s.last
}

func (m *Member) askMoves(ctx context.Context) (moves ring.Moves, err error) {
	leader, known := m.host.Leader(shard.Meta)
	if !known || !m.isUp(leader) {
		return ring.Moves{}, timer.ErrNoLeader
	}
	ctx, cancel := m.tasks.WithTimeout(ctx, movesTimeout)
	defer cancel()
	answer, err := m.peers.Call(ctx, leader, methodMoves, nil)
	if err == nil {
		err = json.Unmarshal(answer, &moves)
	}
	return moves, err
}

// Planned is Moves on the meta group's leader; all zero elsewhere.
func (m *Member) Planned() ring.Moves {
	if moves := m.controller.moves.Load(); moves != nil {
		return *moves
	}
	return ring.Moves{}
}
