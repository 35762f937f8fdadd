package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/transport/api"
)

const (
	foundEach      = 10 * time.Millisecond // is the meta group led here, and empty? Until it is founded
	controlEach    = time.Second           // the controller's turn, on the meta group's leader
	registerEach   = 3 * time.Second
	foundAgainEach = 200 * time.Millisecond // until the cluster knows of this start
	forgetAfter    = 2 * time.Second        // a removed node is still spoken to for so long: it is to learn that it was removed
	clockLimitMs   = 1000                   // farther than this from the others' median, a node's clock is off
	slowSync       = 500 * time.Millisecond // an fsync is slow
	hungSync       = time.Second            // one fsync of this length is enough
	unfitHold      = 10 * time.Second       // a node that was unfit stays so for this long, so that leaderships do not flap
)

// core is the node once it is of a cluster: its shards, and its copy of what the cluster has agreed on.
type core struct {
	p      *process
	self   uint64
	host   *shard.Host
	state  *ring.State
	past   *past
	router *router

	placed  chan struct{}     // rows, nodes or their addresses have changed; capacity 1
	settled chan ring.Command // to be told to the meta group
	may     mayLead           // who may lead
	unfit   string            // why this node should not, by the last beat
	shares  *ring.Shares      // of what topics may do in the whole cluster
	once    sync.Once

	unproven notice        // of a removal that is not believed
	removed  chan struct{} // closed when the cluster has removed this node
}

// Settled implements shard.Placement.
func (c *core) Settled(group shard.ID, epoch uint32) {
	select {
	case c.settled <- ring.Command{Verb: ring.Settled, Group: group, Epoch: epoch}:
	default: // it is said again
	}
}

// MayLead implements shard.Placement.
func (c *core) MayLead(node uint64) bool { return c.may.has(node) }

// hint lists who may lead a shard.
func (c *core) hint(id shard.ID) []uint64 {
	var out []uint64
	now := c.p.clock.Mono()
	for _, n := range c.state.Nodes() {
		if h, ago, ok := c.p.pulse.last(now, n.ID); ok && ago < suspectFor {
			if _, leads := slices.BinarySearch(h.beat.Leads, id); leads {
				out = append(out, n.ID)
			}
		}
	}
	if row, ok := c.state.Row(id); ok {
		for _, r := range row.Replicas {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
		for _, r := range row.Leaving {
			if !slices.Contains(out, r.Node) {
				out = append(out, r.Node)
			}
		}
	}
	return out
}

// run does what a member does beside its shards, until the context ends.
func (c *core) run(ctx context.Context) {
	var work group
	work.Go(func() { c.follow(ctx) })
	work.Go(func() { c.tellSettled(ctx) })
	work.Go(func() { every(ctx, beatEach, c.beat) })
	work.Go(func() { c.awaitFounding(ctx) })
	work.Go(func() { every(ctx, controlEach, func() { c.control(ctx) }) })
	work.Go(func() { c.introduce(ctx) })
	work.Go(func() { every(ctx, vouchEach, func() { c.askAboutStrangers(ctx) }) })
	work.Go(func() { every(ctx, tendEach, c.router.tend) })
	work.Wait()
}

// every does something at once and then again and again, until the context ends.
func every(ctx context.Context, each time.Duration, do func()) {
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look makes follow look again.
func (c *core) look() {
	select {
	case c.placed <- struct{}{}:
	default:
	}
}

// follow brings the host in line with this node's copy of the placement, and the callbacks' guard with the members.
func (c *core) follow(ctx context.Context) {
	gone := map[uint64]bool{}
	for {
		c.p.guard.learn(c.state.Nodes(), c.p.members.List())
		c.p.peers.Review(c.p.misnamed) // those who were let in before their names were known
		if c.p.peer == nil && len(c.state.Nodes()) > 1 {
			c.p.fail(errPortsClosed)
		}
		rows := c.state.Rows()
		list := make([]shard.Row, len(rows))
		for i := range rows {
			list[i] = rows[i].ForHost()
		}
		c.host.Place(list)
		for _, n := range c.state.Removed() {
			if gone[n.ID] {
				continue
			}
			gone[n.ID] = true
			if n.ID == c.self {
				c.leave()
				continue
			}
			c.p.pulse.forget(n.ID)
			time.AfterFunc(forgetAfter, func() { c.p.peers.Forget(n.ID) })
		}
		select {
		case <-ctx.Done():
			return
		case <-c.placed:
		}
	}
}

// alone reports that there are other members and none of them is heard.
func (c *core) alone() bool {
	nodes := c.state.Nodes()
	for _, n := range nodes {
		if n.ID != c.self && c.hears(n.ID) {
			return false
		}
	}
	return len(nodes) > 1
}

// leave ends the process: the cluster has removed the node.
func (c *core) leave() { c.once.Do(func() { close(c.removed) }) }

func (c *core) tellSettled(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case cmd := <-c.settled:
			if row, ok := c.state.Row(cmd.Group); ok && (row.Settled || row.Epoch != cmd.Epoch) {
				continue
			}
			if _, err := c.propose(ctx, cmd); err != nil {
				c.p.log.Debug("a settled move was not noted; it is said again", "shard", uint32(cmd.Group), "error", err)
			}
		}
	}
}

// beat tells the others how this node is, and takes stock of them.
func (c *core) beat() {
	now := c.p.clock.Mono()
	c.p.health.lacksKey(c.lacksKey())
	unfit := c.p.health.unfit(now, c.p.pulse)
	c.say(unfit)
	me, member := c.state.Node(c.self)
	aside := c.p.stopping.Load() || unfit != "" || member && me.State != ring.NodeMember
	c.host.StepAside(aside)
	b := beat{WallMs: c.p.clock.WallMs(), Starts: c.p.identity().Starts, Aside: aside, Unfit: unfit, Leads: c.leads()}
	b.Says = c.share(b.WallMs, b.Leads)
	frame := b.encode()
	may := map[uint64]bool{c.self: !aside}
	for _, n := range c.state.Nodes() {
		if n.ID == c.self {
			continue
		}
		c.p.peers.Send(n.ID, slices.Clone(frame))
		h, ago, ok := c.p.pulse.last(now, n.ID)
		may[n.ID] = ok && ago < aliveFor && !h.beat.Aside && n.State == ring.NodeMember
	}
	c.may.set(may)
}

// say tells the operator why this node begins to hand its shards over, and when it may lead again.
func (c *core) say(unfit string) {
	switch {
	case unfit != "" && c.unfit == "":
		c.p.log.Warn("this node hands its shards over to others", "why", unfit)
	case unfit == "" && c.unfit != "":
		c.p.log.Info("this node may lead shards again", "before", c.unfit)
	}
	c.unfit = unfit
}

// leads are the timer shards that this node leads.
func (c *core) leads() (ids []shard.ID) {
	_, shards, _ := c.state.Cluster()
	for id := shard.ID(1); int(id) <= shards; id++ {
		if c.host.Leads(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// control is the controller's turn: only the meta group's leader has one.
func (c *core) control(ctx context.Context) {
	if !c.host.Leads(shard.Meta) {
		return
	}
	c.reseal(ctx)
	facts := c.p.pulse.facts(c.p.clock.Mono(), c.p.clock.WallMs(), c.self, c.p.health.why(), c.state.Nodes())
	for _, cmd := range ring.Plan(c.state.View(), facts) {
		if _, err := c.propose(ctx, cmd); err != nil {
			c.p.log.Debug("a step of the placement was not taken; it is planned again", "verb", string(cmd.Verb), "shard", uint32(cmd.Group), "error", err)
			return
		}
		c.p.log.Info("placement", "step", string(cmd.Verb), "shard", uint32(cmd.Group), "to", c.names(cmd.To))
	}
}

// awaitFounding gives the meta group its first entries, if this node leads it, and waits until it has them.
func (c *core) awaitFounding(ctx context.Context) {
	ctx, founded := context.WithCancel(ctx)
	defer founded()
	every(ctx, foundEach, func() {
		known, _, _ := c.state.Cluster()
		switch {
		case known != "" && c.state.Secret() != nil:
			founded()
		case !c.host.Leads(shard.Meta):
		case known == "":
			c.foundState(ctx)
			c.makeSecret(ctx)
		default: // a cluster of before there were receipts
			c.makeSecret(ctx)
		}
	})
}

func (c *core) foundState(ctx context.Context) {
	id := c.p.identity()
	var nodes []ring.Node
	if id.Promise != nil {
		nodes = id.Promise.Nodes
	} else { // a directory of before there were clusters
		self, err := c.p.self()
		if err != nil {
			return
		}
		nodes = []ring.Node{self}
	}
	if _, err := c.propose(ctx, ring.FoundCommand(id.ClusterID, id.Shards, max(1, id.Replicas), nodes)); err != nil {
		c.p.log.Warn("the cluster's founding was not taken yet; it is tried again", "error", err)
	}
}

// makeSecret gives the cluster the secret that receipts are made with, once.
func (c *core) makeSecret(ctx context.Context) {
	if id, _, _ := c.state.Cluster(); id == "" || c.state.Secret() != nil {
		return
	}
	var secret [ring.SecretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	if _, err := c.propose(ctx, ring.SecretCommand(secret, c.p.vault.keys.Load())); err != nil {
		c.p.log.Warn("the cluster's secret was not kept yet; it is tried again", "error", err)
	}
}

// ready is told by the host what those who pull wait for.
func (c *core) ready(topic shard.TopicID, timers int) { c.router.lounge.ready(topic, timers, false) }

// spawn runs something in the background until the node stops.
func (c *core) spawn(run func(context.Context)) {
	c.p.background.Go(func() { run(c.p.running) })
}

// leaderNodes are the nodes that say that they lead something, this one included.
func (c *core) leaderNodes() (nodes []uint64) {
	now := c.p.clock.Mono()
	for _, n := range c.state.Nodes() {
		if n.ID == c.self {
			continue
		}
		if h, ago, ok := c.p.pulse.last(now, n.ID); ok && ago < suspectFor && len(h.beat.Leads) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	_, shards, _ := c.state.Cluster()
	for id := shard.ID(1); int(id) <= shards; id++ {
		if c.host.Leads(id) {
			return append(nodes, c.self)
		}
	}
	return nodes
}

// heardNodes are the other members that this node hears now.
func (c *core) heardNodes() (nodes []uint64) {
	now := c.p.clock.Mono()
	for _, n := range c.state.Nodes() {
		if _, ago, ok := c.p.pulse.last(now, n.ID); ok && ago < aliveFor && n.ID != c.self {
			nodes = append(nodes, n.ID)
		}
	}
	return nodes
}

// introduce tells the cluster where this node is now, and its version, whenever that has changed.
func (c *core) introduce(ctx context.Context) {
	behind, known := context.WithCancel(ctx)
	defer known()
	every(behind, foundAgainEach, func() {
		c.introduceOnce(ctx)
		if c.current() {
			known()
		}
	})
	every(ctx, registerEach, func() { c.introduceOnce(ctx) })
}

// current reports that this node's copy of what the cluster has agreed on is as new as its process: it leads, or the copy has the
// node's registration of this start, which came after all that was acknowledged before.
func (c *core) current() bool {
	if c.host.Leads(shard.Meta) {
		return true
	}
	known, ok := c.state.Node(c.self)
	return ok && known.Starts == c.p.identity().Starts
}

func (c *core) introduceOnce(ctx context.Context) {
	if c.alone() && c.askWhetherRemoved(ctx) {
		c.leave()
		return
	}
	self, err := c.p.self()
	known, ok := c.state.Node(c.self)
	if err != nil || !ok || known.State == ring.NodeRemoved {
		return
	}
	if known.Name != self.Name && c.p.cfg.PeerCert != "" {
		c.p.fail(fmt.Errorf("node: the cluster knows this node as %s, not as %s: where nodes have certificates they keep their names", known.Name, self.Name))
		return
	}
	self.State, self.JoinedMs, self.SinceMs = known.State, known.JoinedMs, known.SinceMs
	if self == known {
		return
	}
	if _, err := c.propose(ctx, ring.Command{Verb: ring.Register, Node: &self, ClusterID: c.p.identity().ClusterID}); err != nil {
		c.p.log.Warn("the cluster was not told this node's new addresses; it is tried again", "error", err)
	}
}

func (c *core) names(list []ring.Replica) (names []string) {
	for _, r := range list {
		n, _ := c.state.Node(r.Node)
		names = append(names, n.Name)
	}
	return names
}

var _ api.Cluster = (*engine)(nil)
