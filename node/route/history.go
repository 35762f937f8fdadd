package route

import (
	"cmp"
	"context"
	"slices"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

// History gives a page of a topic's history over all shards, or over those that the query names,
// and whether there is more. Each shard's is asked of the node that leads it, and of all others
// too: a leader that was filled by a snapshot has nothing of timers that ended before, and an entry
// has the same key on every node that has it. With Sure it is an error if one of them does not
// answer and might have an end that shows that an add was made before (P5). Nodes that are not heard
// are not waited for: where a majority of a shard's replicas has answered, one of them was there
// when a timer ended, unless the shard has moved since or the history of that time is lost there.
//
// What ended in a shard before it was divided stays in its history: a query of some shards is also
// one of those that they were divided from.
func (r *Router) History(ctx context.Context, q *timer.HistoryQuery) ([]*timer.HistoryEntry, bool, error) {
	for {
		of := r.shards()
		list, more, err := r.history(ctx, q, of)
		if of == r.shards() {
			return list, more, err
		}
	}
}

// history is History while there are so many shards.
func (r *Router) history(ctx context.Context, q *timer.HistoryQuery, of int) ([]*timer.HistoryEntry, bool, error) {
	s := historySearch{Router: r, query: q, of: of, targets: map[timer.ShardID]*target{}}
	switch {
	case len(q.Shards) == 1:
		s.left = r.withAncestors([]timer.ShardID{r.shardOf(q.Shards[0], q.Topic, q.ID)})
	case len(q.Shards) > 1:
		s.left = r.withAncestors(q.Shards)
	}
	for id := timer.ShardID(1); len(q.Shards) == 0 && int(id) <= of; id++ {
		s.left = append(s.left, id)
	}
	slices.Sort(s.left)
	s.left = slices.Compact(s.left)
	ctx, cancel := r.tasks.WithTimeout(ctx, task.Forever)
	replicas := s.askReplicas(ctx)
	defer func() {
		cancel()
		replicas.asked.Wait()
	}()
	b := r.newBackoff(r.tasks.Now())
	for {
		if err := s.round(ctx); err != nil {
			return nil, false, err
		}
		if len(s.left) == 0 || s.of != r.shards() {
			break
		}
		if !b.wait(ctx, false) {
			return nil, false, timer.ErrNoLeader
		}
	}
	parts, all := replicas.wait(ctx, s.parts)
	s.parts = append(s.parts, parts...)
	list, more := s.merge()
	if q.Sure && !(all && s.byMajority()) && (len(list) == 0 || list[0].Timer.State == timer.Cancelled) {
		return nil, false, timer.ErrHistory // it may have more, or something newer
	}
	return list, more, nil
}

// byMajority reports whether a majority of the replicas of each shard has answered.
func (s *historySearch) byMajority() bool {
	for id := range s.targets {
		replicas := s.cfg.Cluster.Replicas(id)
		answered := 0
		for _, node := range replicas {
			if slices.ContainsFunc(s.parts, func(p historyPart) bool { return p.node == node && slices.Contains(p.shards, id) }) {
				answered++
			}
		}
		if answered <= len(replicas)/2 {
			return false
		}
	}
	return true
}

// historySearch is one request for history.
type historySearch struct {
	*Router
	query   *timer.HistoryQuery
	of      int             // shards that there are
	left    []timer.ShardID // not answered yet
	targets map[timer.ShardID]*target
	parts   []historyPart
}

// historyPart is one node's answer for some shards.
type historyPart struct {
	node   uint64
	ask    []timer.ShardID
	shards []timer.ShardID // for which it answered
	list   []*timer.HistoryEntry
	more   bool
	err    error
}

// round asks every node once for those of the remaining shards that it may lead.
func (s *historySearch) round(ctx context.Context) error {
	var parts []*historyPart
	for _, id := range s.left {
		t := s.targets[id]
		if t == nil {
			t = &target{}
			s.targets[id] = t
		}
		if t.choose(s.Router, id); t.node == 0 {
			continue
		}
		at := slices.IndexFunc(parts, func(p *historyPart) bool { return p.node == t.node })
		if at < 0 {
			at = len(parts)
			parts = append(parts, &historyPart{node: t.node})
		}
		parts[at].ask = append(parts[at].ask, id)
	}
	all := task.NewGroup(s.tasks)
	for _, p := range parts {
		all.Go(func() { s.askPart(ctx, p, false) })
	}
	all.Wait()
	for _, p := range parts {
		if p.err != nil {
			if !readAgain(p.err) {
				return p.err
			}
			continue
		}
		s.left = slices.DeleteFunc(s.left, func(id timer.ShardID) bool { return slices.Contains(p.shards, id) })
		s.parts = append(s.parts, *p)
	}
	return nil
}

func (s *historySearch) askPart(ctx context.Context, p *historyPart, kept bool) {
	q := *s.query
	q.Shards, q.Kept = p.ask, kept
	if p.node == s.self {
		p.err = s.counting(s.of, func() (err error) {
			p.shards, p.list, p.more, err = s.historyHere(&q)
			return err
		})
		return
	}
	p.err = s.readAt(ctx, p.node, &reading{
		of:     s.of,
		method: methodHistory, within: scanCallIn,
		ask: func() []byte { return wire.AppendHistoryQuery(nil, &q) },
		take: func(answer []byte) (err error) {
			p.shards, p.list, p.more, err = wire.DecodeHistory(answer)
			return err
		},
	})
}

// historyHere answers for those of the query's shards that this node leads, or else for the others.
func (r *Router) historyHere(q *timer.HistoryQuery) (led []timer.ShardID, list []*timer.HistoryEntry, more bool, err error) {
	for _, id := range q.Shards {
		if r.leads(id) != q.Kept {
			led = append(led, id)
		}
	}
	if len(led) == 0 {
		return nil, nil, false, nil
	}
	here := *q
	here.Shards = led
	list, more, err = r.cfg.History.List(&here)
	return led, list, more, err
}

// distinct sorts entries and leaves one of each: that with most of its attempts.
func distinct(list []*timer.HistoryEntry) []*timer.HistoryEntry {
	slices.SortStableFunc(list, func(a, b *timer.HistoryEntry) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Missing(), b.Missing()))
	})
	return slices.CompactFunc(list, func(a, b *timer.HistoryEntry) bool { return a.Key == b.Key })
}

// merge brings the parts into one order. Behind the last entry of a part that has more nothing is
// known.
func (s *historySearch) merge() (list []*timer.HistoryEntry, more bool) {
	var end *timer.HistoryKey
	for i := range s.parts {
		p := &s.parts[i]
		list = append(list, p.list...)
		if n := len(p.list); p.more && n > 0 {
			more = true
			if last := &p.list[n-1].Key; end == nil || last.Compare(*end) < 0 {
				end = last
			}
		}
	}
	list = distinct(list)
	if s.query.Newest {
		return list[max(0, len(list)-1):], false
	}
	n := 0
	for n < len(list) && n < s.query.Limit && (end == nil || list[n].Key.Compare(*end) <= 0) {
		n++
	}
	return list[:n], more || n < len(list)
}

func (r *Router) serveHistory(body []byte) []byte {
	q, err := wire.DecodeHistoryQuery(body)
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	led, list, more, err := r.historyHere(q)
	if err != nil {
		return wire.AppendFailure(nil, err)
	}
	return wire.AppendHistory(nil, led, list, more)
}
