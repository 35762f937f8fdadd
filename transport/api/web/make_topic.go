package web

import (
	"strings"
	"sync"

	"carillon/timer"
)

// DefaultMaxTopics is how many topics a token's adds may make when its entry has no number: a tenth
// of the cluster's own bound.
const DefaultMaxTopics = 10_000

// topicsMade bounds the topics that a token's adds make, by how many there are that it sees and
// that adds have made. So the bound holds across nodes and restarts, and a topic that goes away
// makes room; tokens that see the same topics share it.
type topicsMade struct {
	Most int

	mu  sync.Mutex
	now int // under way
}

// makeTopic makes the request's topic, if its token may.
func (rq *Request) makeTopic() (*timer.Topic, *Problem) {
	p := rq.Who
	if p != nil {
		if !p.May(ScopeTopics) {
			return rq.LateTopic(rq.mayNotMake())
		}
		if !rq.beginTopic() {
			return rq.LateTopic(Failf(429, "quota", "there are %d topics that adds have made and this token sees, as many as it may make (max_topics)", p.Making.Most))
		}
		defer func() {
			p.Making.mu.Lock()
			p.Making.now--
			p.Making.mu.Unlock()
		}()
	}
	t, err := rq.Core.Topics.Ensure(rq.Base, rq.Topic)
	if err != nil {
		return nil, Fault(err)
	}
	return t, nil
}

func (rq *Request) mayNotMake() *Problem {
	return Failf(404, UnknownTopic, "there is no topic %s, and this token may not make topics (scope topics)", rq.Topic)
}

// beginTopic counts one that is being made, if there is room for it.
func (rq *Request) beginTopic() bool {
	p := rq.Who
	p.Making.mu.Lock()
	defer p.Making.mu.Unlock()
	left := p.Making.Most - p.Making.now
	for _, prefix := range widest(p.Prefixes) {
		if left > 0 {
			left -= rq.Core.Topics.Count(prefix, left, func(t *timer.Topic) bool { return t.AutoCreated && p.Sees(t.Name) })
		}
	}
	if left <= 0 {
		return false
	}
	p.Making.now++
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
