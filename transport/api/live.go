package api

import (
	"context"
	"time"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// Live is the part of a node that shows the API the work of the whole cluster.
type Live interface {
	// Listen begins to hear of events of all nodes. The stream ends with the context.
	Listen(ctx context.Context, w *Watch) EventStream
	// Due counts the timers that come due, over all shards that have a leader.
	Due(ctx context.Context, q *DueQuery) (*Due, error)
	// Stats counts the work of all nodes in the last minute.
	Stats(ctx context.Context) *ClusterStats
}

// DueQuery asks how many timers come due when.
type DueQuery struct {
	Topics   []timer.TopicID
	All      bool // of all topics
	FromMs   int64
	BucketMs int64
	Buckets  int
}

// Due is the answer: scheduled timers by their next attempt.
type Due struct {
	Buckets        []int64
	Overdue, Later int64 // before and behind the buckets
	Shards         int   // that there are, …
	Counted        int   // … and of those that were counted
}

// Minute counts the work of a node in the last minute.
type Minute struct {
	WindowMs int64 `json:"window_ms"` // less than a minute, when the node has only begun

	Added     int64 `json:"added"`
	Changed   int64 `json:"changed"`
	Cancelled int64 `json:"cancelled"`
	Succeeded int64 `json:"succeeded"`
	Retried   int64 `json:"retried"`
	Died      int64 `json:"died"`

	AddedEach []int64 `json:"added_each"` // in each second, the oldest first
	FiredEach []int64 `json:"fired_each"` // attempts that ended
	Late      []int64 `json:"late"`       // first attempts by their lateness, as nodes know it
}

// NodeStats is one node's.
type NodeStats struct {
	Name  string `json:"-"`
	Error string `json:"-"` // why nothing is known

	Minute
	Scheduled int64 `json:"scheduled"` // in the shards that it leads
	Leased    int64 `json:"leased"`
	Dead      int64 `json:"dead"`
	Overdue   int64 `json:"overdue"`
	Leads     int   `json:"leads"`

	Lateness Lateness `json:"-"`
}

// Lateness of first attempts, in ms, rounded up to the buckets of the nodes.
type Lateness struct{ Count, P50, P90, P99, Max int64 }

// ClusterStats are all nodes', in order of name.
type ClusterStats struct {
	Nodes    []NodeStats
	Lateness Lateness // of all together
}

// Bounds of a histogram of due times.
const (
	dueBuckets    = 60
	dueMost       = 1000
	dueSpan       = time.Hour
	dueTopicsMost = 10_000 // that a token sees, unless it sees all
)

// readDue answers how many timers come due from now until a time, in equal parts of it.
func (rq *request) readDue() *problem {
	q := &DueQuery{FromMs: rq.s.nowMs(), Buckets: dueBuckets}
	until, given, p := rq.query.instant("until")
	if p != nil {
		return p
	}
	if !given {
		if p := rq.s.reckons(); p != nil {
			return p
		}
		until = q.FromMs + dueSpan.Milliseconds()
	}
	if until <= q.FromMs {
		return bad(badTime, "query: until must lie ahead")
	}
	if until > timer.MaxMs {
		return bad(badTime, "query: until is beyond all times that timers can have")
	}
	if v, given := rq.query.value("buckets"); given {
		n, ok := strictjson.ParseInteger([]byte(v))
		if !ok || n < 1 || n > dueMost {
			return bad(badRequest, "query: buckets must be 1 to 1000")
		}
		q.Buckets = int(n)
	}
	q.BucketMs = (until - q.FromMs + int64(q.Buckets) - 1) / int64(q.Buckets)
	if p := rq.dueTopics(q); p != nil {
		return p
	}
	d, err := rq.core.Live.Due(rq.s.base, q)
	if err != nil {
		return engineFault(err)
	}
	o := object{b: rq.out()}
	o.integers("counts", d.Buckets)
	o.b = appendTime(o.b, "from", q.FromMs)
	o.b = appendTime(o.b, "until", q.FromMs+q.BucketMs*int64(q.Buckets))
	o.integer("bucket_ms", q.BucketMs)
	o.integer("overdue", d.Overdue)
	o.integer("later", d.Later)
	o.integer("shards", int64(d.Shards))
	o.integer("shards_counted", int64(d.Counted))
	rq.json(200, o.end())
	return nil
}

// dueTopics are the topic that was asked for, or all that the token sees.
func (rq *request) dueTopics(q *DueQuery) *problem {
	if name, given := rq.query.value("topic"); given {
		topic, p := rq.queryTopic(name)
		if p != nil {
			return p
		}
		q.Topics = []timer.TopicID{topic.ID}
		return nil
	}
	if rq.who.seesAll() {
		q.All = true
		return nil
	}
	page, _, more := rq.topicsSeen("", "", dueTopicsMost)
	if more {
		return bad(badRequest, "this token reaches too many topics to count them all: give one, ?topic=")
	}
	for _, t := range page {
		q.Topics = append(q.Topics, t.ID)
	}
	return nil
}

// queryTopic finds the topic that a parameter names; one that is not the token's is not there.
func (rq *request) queryTopic(name string) (*timer.Topic, *problem) {
	if !validTopic(name) {
		return nil, bad(badName, "query: topic is no name of a topic")
	}
	rq.topic = name
	if rq.who != nil && !rq.who.sees(name) {
		return nil, rq.notReached()
	}
	return rq.findTopic(false)
}

func (o *object) integers(name string, list []int64) {
	o.name(name)
	a := array{b: o.b}
	for _, n := range list {
		a.next()
		a.b = appendInt(a.b, n)
	}
	o.b = a.end()
}

// readStats answers with the work of all nodes in the last minute.
func (rq *request) readStats() *problem {
	s := rq.core.Live.Stats(rq.s.base)
	var sum NodeStats
	o := object{b: rq.out()}
	o.name("nodes")
	nodes := array{b: o.b}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		sum.add(n)
		nodes.next()
		node := object{b: nodes.b}
		node.str("name", n.Name)
		if n.Error != "" {
			node.str("error", n.Error)
		} else {
			node.stats(n)
		}
		nodes.b = node.end()
	}
	o.b = nodes.end()
	sum.Lateness = s.Lateness
	o.name("total")
	total := object{b: o.b}
	total.stats(&sum)
	o.b = total.end()
	rq.json(200, o.end())
	return nil
}

// add sums up nodes. Their seconds are about the same.
func (s *NodeStats) add(n *NodeStats) {
	s.WindowMs = max(s.WindowMs, n.WindowMs)
	s.Added += n.Added
	s.Changed += n.Changed
	s.Cancelled += n.Cancelled
	s.Succeeded += n.Succeeded
	s.Retried += n.Retried
	s.Died += n.Died
	s.AddedEach, s.FiredEach = addLatest(s.AddedEach, n.AddedEach), addLatest(s.FiredEach, n.FiredEach)
	s.Scheduled += n.Scheduled
	s.Leased += n.Leased
	s.Dead += n.Dead
	s.Overdue += n.Overdue
	s.Leads += n.Leads
}

// addLatest adds two series that end now.
func addLatest(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = append([]int64(nil), b...), a
	}
	for i := range b {
		a[len(a)-len(b)+i] += b[i]
	}
	return a
}

func (o *object) stats(s *NodeStats) {
	o.integer("window_ms", s.WindowMs)
	rate := func(name string, n int64) {
		v := 0.0
		if s.WindowMs > 0 {
			v = float64(n*1000) / float64(s.WindowMs)
		}
		o.float(name, float64(int64(v*100+0.5))/100)
	}
	rate("adds_per_second", s.Added)
	rate("fired_per_second", s.Succeeded+s.Retried+s.Died)
	o.integer("added", s.Added)
	o.integer("changed", s.Changed)
	o.integer("cancelled", s.Cancelled)
	o.name("fired")
	f := object{b: o.b}
	f.integer("success", s.Succeeded)
	f.integer("retry", s.Retried)
	f.integer("dead", s.Died)
	o.b = f.end()
	o.name("lateness_ms")
	l := object{b: o.b}
	l.integer("count", s.Lateness.Count)
	if s.Lateness.Count > 0 {
		l.integer("p50", s.Lateness.P50)
		l.integer("p90", s.Lateness.P90)
		l.integer("p99", s.Lateness.P99)
		l.integer("max", s.Lateness.Max)
	}
	o.b = l.end()
	o.integer("scheduled", s.Scheduled)
	o.integer("leased", s.Leased)
	o.integer("dead", s.Dead)
	o.integer("overdue", s.Overdue)
	o.integer("leads", int64(s.Leads))
	o.integers("added_each_second", s.AddedEach)
	o.integers("fired_each_second", s.FiredEach)
}
