package route

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

// History gives a page of a topic's history over all shards, or over those that the query names,
// and whether there is more. Each shard's is asked of the node that leads it, and of all others
// too: a leader that was filled by a snapshot has nothing of timers that ended before, and an entry
// has the same key on every node that has it. With Sure it is an error if one of them does not
// answer and might have an end that shows that an add was made before (P5). Nodes that are not
// heard are not waited for: where a majority of a shard's replicas has answered, one of them was
// there when a timer ended, unless the shard has moved since or the history of that time is lost
// there.
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
	s := historySearch{gathering: gathering{Router: r, of: of}, query: q, led: map[timer.ShardID]bool{}}
	switch {
	case len(q.Shards) == 1:
		s.ids = r.withAncestors([]timer.ShardID{r.shardOf(q.Shards[0], q.Topic, q.ID)})
	case len(q.Shards) > 1:
		s.ids = r.withAncestors(q.Shards)
	default:
		s.ids = allShards(of)
	}
	slices.Sort(s.ids)
	s.ids = slices.Compact(s.ids)
	all := s.askAll(ctx)
	s.ask = func(ctx context.Context, node uint64, ids []timer.ShardID) ([]timer.ShardID, error) {
		return s.askNode(ctx, node, ids, false, scanCallIn)
	}
	if err := s.all(ctx, slices.DeleteFunc(slices.Clone(s.ids), func(id timer.ShardID) bool { return s.led[id] })); err != nil {
		return nil, false, err
	}
	list, more := s.merge()
	if q.Sure && !(all && s.byMajority()) && (len(list) == 0 || list[0].Timer.State == timer.Cancelled) {
		return nil, false, timer.ErrHistory // it may have more, or something newer
	}
	return list, more, nil
}

// byMajority reports whether a majority of the replicas of each shard has answered.
func (s *historySearch) byMajority() bool {
	for _, id := range s.ids {
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
	gathering
	query *timer.HistoryQuery
	ids   []timer.ShardID

	mu    sync.Mutex
	parts []historyPart
	led   map[timer.ShardID]bool // answered by a node that led them
}

// historyPart is one node's answer for some shards.
type historyPart struct {
	node   uint64
	shards []timer.ShardID
	list   []*timer.HistoryEntry
	more   bool
}

// Bounds of asking nodes that do not lead.
const (
	replicaCallIn = time.Second // then a node's part is left out, or the query fails: see Sure
	maxReplicas   = 63          // so many other nodes are asked at most
)

// askAll asks each node once, for all shards: those that are likely to lead them, this one, and all
// that it hears. all: each of these has answered.
func (s *historySearch) askAll(ctx context.Context) (all bool) {
	within := map[uint64]time.Duration{s.self: replicaCallIn}
	nodes := s.cfg.Cluster.LiveNodes()
	for _, node := range nodes[:min(len(nodes), maxReplicas)] {
		within[node] = replicaCallIn
	}
	leading := s.byNode(s.ids)
	for i := range leading {
		within[leading[i].node] = scanCallIn
	}
	var silent atomic.Bool
	work := task.NewGroup(s.tasks)
	for _, node := range slices.Sorted(maps.Keys(within)) {
		work.Go(func() {
			if _, err := s.askNode(ctx, node, s.ids, true, within[node]); err != nil {
				silent.Store(true)
			}
		})
	}
	work.Wait()
	return !silent.Load()
}

// askNode asks a node for the history of the shards that it leads; with kept it also gives what it
// has of the others. led are the shards that it led.
func (s *historySearch) askNode(ctx context.Context, node uint64, ids []timer.ShardID, kept bool, within time.Duration) (led []timer.ShardID, err error) {
	q := *s.query
	q.Shards, q.Kept = ids, kept
	p, err := readAt(ctx, s.Router, node, &reading[historyPart]{
		of:     s.of,
		here:   func() (historyPart, error) { return s.historyHere(&q) },
		method: methodHistory, within: within,
		ask: func() []byte { return wire.AppendHistoryQuery(nil, &q) },
		take: func(answer []byte) (p historyPart, err error) {
			p.shards, p.list, p.more, err = wire.DecodeHistory(answer)
			return p, err
		},
	})
	if err != nil {
		return nil, err
	}
	led, p.node = p.shards, node
	if kept {
		p.shards = ids
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, p)
	for _, id := range led {
		s.led[id] = true
	}
	return led, nil
}

// historyHere answers for those of the query's shards that this node leads, and with Kept for the
// others, too. The part's shards are those that it leads.
func (r *Router) historyHere(q *timer.HistoryQuery) (p historyPart, err error) {
	here := *q
	if p.shards = r.ledOf(q.Shards); !q.Kept {
		here.Shards = p.shards
	}
	if len(here.Shards) > 0 {
		p.list, p.more, err = r.cfg.History.List(&here)
	}
	return p, err
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

func (r *Router) serveHistory(body []byte) ([]byte, error) {
	q, err := wire.DecodeHistoryQuery(body)
	if err != nil {
		return nil, err
	}
	p, err := r.historyHere(q)
	return wire.AppendHistory(nil, p.shards, p.list, p.more), err
}
