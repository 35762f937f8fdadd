package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/transport/peer"
)

const (
	stepEach  = 300 * time.Millisecond // of founding and joining
	askFor    = 2 * time.Second
	sayEach   = 10 * time.Second // a reason to wait is logged again
	joinTries = 3                // members asked in one step
)

// belong makes sure that the node is of a cluster: it has been, or it founds one alone or with others, or joins one. It returns when the
// identity on disk says so, or with an error that needs the operator, or when the context ends.
func (p *process) belong(ctx context.Context) error {
	switch {
	case p.identity().ClusterID != "":
		return nil
	case p.identity().Promise == nil && p.cfg.BootstrapExpect == 1 && len(p.cfg.Join) == 0:
		self, err := p.self()
		if err != nil {
			return err
		}
		return p.found(&ring.FoundingPlan{ClusterID: newClusterID(), Shards: p.cfg.Shards, Replicas: p.cfg.Replicas, Nodes: []ring.Node{self}})
	case p.identity().Promise != nil || p.cfg.BootstrapExpect > 1:
		return p.foundTogether(ctx)
	}
	return p.join(ctx)
}

// found writes down that this node founds the cluster of a plan; its replica of the meta group begins with the plan's members.
func (p *process) found(plan *ring.FoundingPlan) error {
	scratch := ring.NewState(nil, nil)
	command := ring.FoundCommand(plan.ClusterID, plan.Shards, plan.Replicas, plan.Nodes)
	if r := scratch.Apply(0, command.Encode()).(ring.Reply); r.Err != nil {
		return fmt.Errorf("node: found the cluster: %w", r.Err)
	}
	row, _ := scratch.Row(ring.MetaGroup)
	meta := row.ForHost()
	return p.change(func(id *identity) {
		id.ClusterID, id.Shards, id.Replicas, id.Promise, id.Meta = plan.ClusterID, plan.Shards, plan.Replicas, plan, &meta
	})
}

// foundTogether agrees with the other founders on one plan.
func (p *process) foundTogether(ctx context.Context) error {
	answers := map[uint64]ring.FoundingAnswer{}
	said := newNotice(sayEach)
	tick := time.NewTicker(stepEach)
	defer tick.Stop()
	for {
		step, err := p.foundingStep(answers)
		switch {
		case err != nil:
			return err
		case step.Found != nil:
			return p.found(step.Found)
		case step.Join != "":
			p.log.Info("the other founders have a cluster already; joining it", "cluster", step.Join)
			return p.join(ctx)
		case step.Trouble != "":
			p.stage(step.Trouble)
			said.say(func() { p.log.Error("the cluster cannot be founded", "reason", step.Trouble) })
		default:
			p.stage("founding: " + step.Waiting)
			said.say(func() { p.log.Info("founding", "waiting", step.Waiting) })
		}
		p.askFounders(ctx, step.Ask, answers)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// foundingStep does a step and stores what it promises before anything leaves this node.
func (p *process) foundingStep(answers map[uint64]ring.FoundingAnswer) (ring.FoundingStep, error) {
	p.foundingMu.Lock()
	defer p.foundingMu.Unlock()
	f := p.foundingLocked()
	step := f.Step(p.members.List(), answers)
	if step.Propose == nil {
		return step, nil
	}
	return step, p.change(func(id *identity) { id.Promise = f.Accepted() })
}

func (p *process) foundingLocked() *ring.Founding {
	if p.founding == nil {
		self := ring.Member{ID: p.nodeID}
		for _, m := range p.members.List() {
			if m.ID == p.nodeID {
				self = m
			}
		}
		p.founding = ring.NewFounding(self, p.identity().Promise, newClusterID)
	}
	return p.founding
}

func (p *process) askFounders(ctx context.Context, ask []uint64, answers map[uint64]ring.FoundingAnswer) {
	p.foundingMu.Lock()
	body := []byte("null")
	if plan := p.foundingLocked().Accepted(); plan != nil {
		body = plan.Encode()
	}
	p.foundingMu.Unlock()
	for _, id := range ask {
		addr := p.addressOf(id)
		if addr == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askFor)
		reply, from, err := p.peers.CallAddr(ctx, addr, methodFound, body)
		cancel()
		if err != nil || from.Node != id {
			continue
		}
		if a, err := ring.DecodeFoundingAnswer(reply); err == nil {
			answers[id] = a
		}
	}
}

// answerFounding is for another founder's question.
func (p *process) answerFounding(body []byte) ([]byte, error) {
	plan, err := ring.DecodeFoundingPlan(body)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.members.Ready():
	default:
		return nil, errNotYet
	}
	p.foundingMu.Lock()
	defer p.foundingMu.Unlock()
	f := p.foundingLocked()
	answer, persist := f.Accept(plan, p.members.List())
	if persist {
		if err := p.change(func(id *identity) { id.Promise = f.Accepted() }); err != nil {
			p.founding = nil // what is on disk counts
			return nil, err
		}
	}
	return answer.Encode(), nil
}

// joinAnswer tells a node that wants to join what it joins, and its place in the meta group once it has one.
type joinAnswer struct {
	ClusterID string     `json:"cluster_id"`
	Shards    int        `json:"shards"`
	Replicas  int        `json:"replicas"`
	Meta      *shard.Row `json:"meta,omitempty"`
}

// join asks members that gossip knows to let this node in, until its place in the meta group is known.
func (p *process) join(ctx context.Context) error {
	said := newNotice(sayEach)
	tick := time.NewTicker(stepEach)
	defer tick.Stop()
	for {
		answer, err := p.askToJoin(ctx)
		switch {
		case err != nil:
			p.stage("joining: " + err.Error())
			said.say(func() { p.log.Warn("joining", "waiting", err.Error()) })
		case answer.Meta == nil:
			p.stage("joining: waiting for a place in the meta group")
		default:
			return p.change(func(id *identity) {
				id.ClusterID, id.Shards, id.Replicas, id.Meta = answer.ClusterID, answer.Shards, answer.Replicas, answer.Meta
			})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (p *process) askToJoin(ctx context.Context) (*joinAnswer, error) {
	self, err := p.self()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("no member of a cluster is seen yet at %v", p.cfg.Join)
	tries := 0
	for _, m := range p.members.List() {
		if m.Cluster == "" || m.ID == p.nodeID || m.State != ring.MemberAlive || tries == joinTries {
			continue
		}
		tries++
		ctx, cancel := context.WithTimeout(ctx, askFor)
		reply, _, callErr := p.peers.CallAddr(ctx, m.Peer, methodJoin, body)
		cancel()
		if callErr != nil {
			err = fmt.Errorf("node %s (%s) does not let this node in: %w", m.Name, m.Peer, callErr)
			continue
		}
		var a joinAnswer
		if err = json.Unmarshal(reply, &a); err == nil {
			return &a, nil
		}
	}
	return nil, err
}

// answerJoin lets a node in. It can only ask for itself: its certificate, where there are any, says who that is.
func (p *process) answerJoin(ctx context.Context, from peer.Hello, body []byte) ([]byte, error) {
	c := p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	var n ring.Node
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("node: join: %w", err)
	}
	if n.ID != from.Node || n.Name != from.Name {
		return nil, fmt.Errorf("node: join: %s (%010x) asks in the name of %s (%010x)", from.Name, from.Node, n.Name, n.ID)
	}
	if _, err := c.propose(ctx, ring.Command{Verb: ring.Register, Node: &n}); errors.Is(err, ring.ErrRemoved) {
		return nil, wasRemoved{}
	} else if err != nil {
		return nil, err
	}
	var a joinAnswer
	a.ClusterID, a.Shards, a.Replicas = c.state.Cluster()
	if row, ok := c.state.Row(ring.MetaGroup); ok && row.Names(n.ID) {
		meta := row.ForHost()
		a.Meta = &meta
	}
	return json.Marshal(a)
}

// wasRemoved tells a node that the cluster has removed it: it may not have heard.
type wasRemoved struct{}

const removedCode = 1

func (wasRemoved) Error() string { return ring.ErrRemoved.Error() }

// PeerCode makes it known on the other side.
func (wasRemoved) PeerCode() byte { return removedCode }

// askWhetherRemoved is for a node that hears nothing of its cluster's leader: others may have removed it meanwhile.
func (c *core) askWhetherRemoved(ctx context.Context) bool {
	self, err := c.p.self()
	if err != nil {
		return false
	}
	body, err := json.Marshal(self)
	if err != nil {
		return false
	}
	for _, n := range c.state.Nodes() {
		if n.ID == c.self || c.p.addressOf(n.ID) == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askFor)
		_, from, err := c.p.peers.CallAddr(ctx, c.p.addressOf(n.ID), methodJoin, body)
		cancel()
		if remote, ok := errors.AsType[*peer.RemoteError](err); ok && remote.Code == removedCode && c.believesRemoval(n, from) {
			return true
		}
	}
	return false
}

// believesRemoval says whether a word that this node was removed may end it: it must come from the member that was asked, and from
// one that has proven that it is a node.
func (c *core) believesRemoval(asked ring.Node, from peer.Hello) bool {
	if from.Node != asked.ID || from.Cluster != c.p.identity().ClusterID {
		return false
	}
	if c.p.proven() {
		return true
	}
	c.unproven.say(func() {
		c.p.log.Warn("another node says that the cluster has removed this one. Without a key (--gossip-key) that could be anybody, so this node "+
			"goes on and is not heard by the others; if it was removed, stop it", "node", asked.Name)
	})
	return false
}

// self is this node as it registers.
func (p *process) self() (ring.Node, error) {
	select {
	case <-p.members.Ready():
	default:
		return ring.Node{}, errors.New("gossip is not bound yet")
	}
	return ring.Node{
		ID: p.nodeID, Name: p.cfg.Name, HTTP: p.reachable(p.http), Peer: p.reachable(p.peer), Gossip: p.members.Addr(),
		Zone: p.cfg.Zone, Version: p.cfg.Version, Starts: p.identity().Starts,
	}, nil
}

// reachable is a listener's address as others use it; none is "".
func (p *process) reachable(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil || p.cfg.Advertise == "" {
		return ln.Addr().String()
	}
	_ = host
	return net.JoinHostPort(p.cfg.Advertise, port)
}

// admit says which nodes may speak to this one: strangers only in single questions, others when they are members. As long as this node's
// copy of the members is empty, the cluster's id is all that it can ask for. Who has joined while this node was away, others vouch for.
func (p *process) admit(h peer.Hello) error {
	if err := p.misnamed(h); err != nil {
		return err
	}
	if h.Lane == peer.LaneOnce {
		return nil
	}
	id := p.identity().ClusterID
	if id == "" || h.Cluster != id {
		return fmt.Errorf("it is of cluster %q, this node of %q", h.Cluster, id)
	}
	c := p.core.Load()
	if c == nil {
		return errNotYet
	}
	if known, _, _ := c.state.Cluster(); known == "" {
		return nil
	}
	n, ok := c.state.Node(h.Node)
	if !ok {
		_, ok = p.vouchedFor(h.Node)
	}
	switch {
	case !ok:
		p.strangers.Store(true)
		return fmt.Errorf("node %010x is not a member", h.Node)
	case n.State == ring.NodeRemoved:
		return ring.ErrRemoved
	}
	return nil
}

// misnamed refuses who speaks under an id that is known to have another name. It holds where there are certificates: the name is what a
// certificate proves, so one node's cannot speak for another.
func (p *process) misnamed(h peer.Hello) error {
	if p.cfg.PeerCert == "" {
		return nil
	}
	if name := p.nameOf(h.Node); name != "" && name != h.Name {
		return fmt.Errorf("node %010x is %s, not %s", h.Node, name, h.Name)
	}
	return nil
}

// nameOf is a node's name as far as it is known: by the cluster's record, else by the founding plan, else by gossip.
func (p *process) nameOf(node uint64) string {
	if node == p.nodeID {
		return p.cfg.Name
	}
	if c := p.core.Load(); c != nil {
		if n, ok := c.state.Node(node); ok {
			return n.Name
		}
	}
	if n, ok := p.vouchedFor(node); ok {
		return n.Name
	}
	if id := p.identity(); id.Promise != nil {
		for _, n := range id.Promise.Nodes {
			if n.ID == node {
				return n.Name
			}
		}
	}
	for _, m := range p.members.List() {
		if m.ID == node {
			return m.Name
		}
	}
	return ""
}

// notice keeps a line that is repeated from flooding the log.
type notice struct {
	each time.Duration
	last time.Time
}

func newNotice(each time.Duration) *notice { return &notice{each: each} }

func (n *notice) say(what func()) {
	if now := time.Now(); now.Sub(n.last) >= n.each {
		n.last = now
		what()
	}
}
