package node

import (
	"errors"

	"carillon/timer"
	"carillon/transport/api/backend"
)

// engine is the node as its HTTP API sees it. Before the node is of a cluster, has read its log,
// and knows the meta group's state from it or from the others, it answers ErrRecovering: at once,
// so that the client turns to another node.
type engine struct{ p *process }

// core is the node's cluster, once its log is read and it is known where a request belongs.
func (e *engine) core() (*core, error) {
	c := e.p.core.Load()
	if c == nil || !c.started() || c.clusterID() == "" { // one that has just joined waits for its copy of the cluster's state
		return nil, e.p.notYet()
	}
	return c, nil
}

// notYet is why nothing can be answered yet.
func (p *process) notYet() error {
	if text := p.self.Waiting(); text != "" {
		return waits(text)
	}
	return timer.ErrRecovering
}

// waits is ErrRecovering of a node that waits for others before it is of a cluster.
type waits string

func (w waits) Error() string { return "the node is in no cluster yet: " + string(w) }
func (w waits) Unwrap() error { return timer.ErrRecovering }

// Shards is 1 before it is known: nothing can be asked of a shard then.
func (e *engine) Shards() int {
	c := e.p.core.Load()
	if c == nil {
		return max(1, e.p.self.Identity().Shards)
	}
	now, _ := c.member.Shards()
	return now
}

// Leader implements backend.Engine.
func (e *engine) Leader(id timer.ShardID) string {
	c := e.p.core.Load()
	if c == nil {
		return ""
	}
	node := c.router.Decider(id)
	if node == 0 {
		return ""
	}
	n, _ := c.member.State.Node(node)
	return n.HTTP
}

func (e *engine) Core() (*backend.Core, error) {
	c, err := e.core()
	if err != nil {
		return nil, err
	}
	return c.shown, nil
}

func (c *core) show() {
	shown := &backend.Core{Timers: sealedTimers{c.router, c}, Topics: sealedTopics{c.topics, c}, Consumers: c, Cluster: shownCluster{c.member, c}, Live: c.feed, Destinations: c, Backup: c}
	if t := c.p.testClock; t != nil {
		t.core, shown.TestClock = c, t
	}
	c.shown = shown
}

// Ready is the reason why the node does not serve; nil when it does.
func (e *engine) Ready() error {
	if text := e.p.self.Waiting(); text != "" {
		return errors.New(text)
	}
	c := e.p.core.Load()
	if c == nil {
		return timer.ErrRecovering
	}
	return c.member.Ready()
}
