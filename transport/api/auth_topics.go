package api

import (
	"strings"
	"sync"

	"carillon/timer"
)

// defaultMaxTopics is how many topics a token's adds may make when its entry does not say: a tenth
// of the cluster's own bound.
const defaultMaxTopics = 10_000

// topicsMade bounds the topics that a token's adds make, by how many there are that it sees and that
// adds have made. So the bound holds across nodes and restarts, and a topic that goes away makes
// room; tokens that see the same topics share it.
type topicsMade struct {
	most int

	mu  sync.Mutex
	now int // under way
}

// makeTopic makes the request's topic, if its token may.
func (rq *request) makeTopic() (*timer.Topic, *problem) {
	p := rq.who
	if p != nil {
		if !p.may(scopeTopics) {
			return rq.lateTopic(rq.mayNotMake())
		}
		if !rq.beginTopic() {
			return rq.lateTopic(failf(429, "quota", "there are %d topics that adds have made and this token sees, as many as it may make (max_topics)", p.making.most))
		}
		defer func() {
			p.making.mu.Lock()
			p.making.now--
			p.making.mu.Unlock()
		}()
	}
	t, err := rq.core.Topics.Ensure(rq.s.base, rq.topic)
	if err != nil {
		return nil, engineFault(err)
	}
	return t, nil
}

func (rq *request) mayNotMake() *problem {
	return failf(404, unknownTopic, "there is no topic %s, and this token may not make topics (scope topics)", rq.topic)
}

// beginTopic counts one that is being made, if there is room for it.
func (rq *request) beginTopic() bool {
	p := rq.who
	p.making.mu.Lock()
	defer p.making.mu.Unlock()
	left := p.making.most - p.making.now
	for _, prefix := range widest(p.prefixes) {
		if left > 0 {
			left -= rq.core.Topics.Count(prefix, left, func(t *timer.Topic) bool { return t.AutoCreated && p.sees(t.Name) })
		}
	}
	if left <= 0 {
		return false
	}
	p.making.now++
	return true
}

// widest leaves out each prefix that begins with another one.
func widest(prefixes []string) (out []string) {
next:
	for i, p := range prefixes {
		for k, other := range prefixes {
			if i != k && strings.HasPrefix(p, other) {
				continue next
			}
		}
		out = append(out, p)
	}
	return out
}
