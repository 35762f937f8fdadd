package node

import (
	"context"
	"time"

	"carillon/shard"
)

// Bounds of finding a topic that this node has not heard of.
const (
	lateTopicIn   = 500 * time.Millisecond
	lateTopicEach = 2 * time.Millisecond
)

// lateTopic finds a topic that was made a moment ago at another node: this one may be an entry behind. The meta group's leader has
// applied all that was ever answered; what it knows will be here soon. Nobody to ask: then it counts as unknown.
func (c *core) lateTopic(name string) (*shard.Topic, bool) {
	leader, known := c.host.Leader(shard.Meta)
	if !known || leader == 0 || leader == c.self {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(c.p.running, lateTopicIn)
	defer cancel()
	if answer, err := c.p.peers.Call(ctx, leader, methodTopic, []byte(name)); err != nil || len(answer) != 1 || answer[0] == 0 {
		return nil, false
	}
	tick := time.NewTicker(lateTopicEach)
	defer tick.Stop()
	for {
		if t, ok := c.state.Named(name); ok {
			return t, true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// answerTopic says whether this node knows a topic.
func (c *core) answerTopic(name []byte) []byte {
	if _, ok := c.state.Named(string(name)); ok {
		return []byte{1}
	}
	return []byte{0}
}
