package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"carillon/shard"
	"carillon/timer"
)

// topicMakers create and delete topics during faults, and look for them through any node. They draw
// from a stream of their own and are on in half of the runs.
//
// No node may say that a topic does not exist if it was created before the request: a node that
// cannot ask the meta group must not guess (P5).
type topicMakers struct {
	w      *World
	chance chance
	each   time.Duration // between two actions; 0: they are off
	made   []*madeTopic
	names  int
	ended  bool
}

// madeTopic is a topic whose creation was acknowledged. No name is used twice.
type madeTopic struct {
	name string
	id   timer.TopicID
	over bool // its deletion was requested
}

// mostMade is how many such topics exist at once.
const mostMade = 8

func (w *World) drawTopicMakers() *topicMakers {
	m := &topicMakers{w: w, chance: newChance(w.cfg.Seed, 22)}
	if m.chance.IntN(2) == 0 {
		m.each = m.chance.between(200*time.Millisecond, 3*time.Second)
	}
	return m
}

func (m *topicMakers) begin() {
	if m.each > 0 {
		m.w.after(m.chance.between(0, m.each), m.act)
	}
}

// act creates a topic, deletes one, or looks for one.
func (m *topicMakers) act() {
	if m.ended {
		return
	}
	m.w.after(m.chance.between(m.each/2, 2*m.each), m.act)
	switch n := m.chance.IntN(10); {
	case len(m.made) >= mostMade || len(m.made) > 0 && n == 0:
		m.remove(m.chance.IntN(len(m.made)))
	case len(m.made) == 0 || n < 5:
		m.make()
	default:
		m.look(m.made[m.chance.IntN(len(m.made))])
	}
}

// make creates a topic through a node, as an add to it does. Soon after, nodes are asked for it.
func (m *topicMakers) make() {
	m.names++
	t := &madeTopic{name: fmt.Sprintf("made%d", m.names)}
	m.w.operator(m.w.inUse(m.chance), func(ctx context.Context, n *node) error {
		made, err := n.topics.Ensure(ctx, t.name)
		if err == nil {
			t.id = made.ID
		}
		return err
	}, func(err error) {
		if err != nil {
			return // it may have been created, or may be yet
		}
		m.w.note(nil, "made", uint64(t.id), 0, t.name)
		m.made = append(m.made, t)
		for range 4 {
			m.w.after(m.chance.between(0, 400*time.Millisecond), func() { m.look(t) })
		}
	})
}

func (m *topicMakers) remove(at int) {
	t := m.made[at]
	t.over = true
	m.made = append(m.made[:at], m.made[at+1:]...)
	m.w.operator(m.w.inUse(m.chance), func(ctx context.Context, n *node) error {
		_, err := n.topics.Delete(ctx, t.name, timer.TopicChange{})
		return err
	}, func(error) {})
}

// look asks a node for a topic: a random one, or one that wrongly believes to lead the meta group.
func (m *topicMakers) look(t *madeTopic) {
	if t.over || m.ended {
		return
	}
	at, leader := m.w.inUse(m.chance), m.w.metaLeader()
	for _, n := range m.w.nodes {
		if n.host != nil && n != leader && n.host.Leads(shard.Meta) {
			at = n
		}
	}
	var found *timer.Topic
	m.w.operator(at, func(ctx context.Context, n *node) (err error) {
		found, err = n.topic(ctx, t.name)
		return err
	}, func(err error) {
		switch {
		case t.over: // it may be deleted
		case errors.Is(err, timer.ErrNoTopic):
			m.w.violate("P5", "node %d says that there is no topic %s, which was created before the request", at.id, t.name)
		case err == nil && found.ID != t.id:
			m.w.violate("topic", "node %d has topic %s as number %d, expected %d", at.id, t.name, found.ID, t.id)
		}
	})
}
