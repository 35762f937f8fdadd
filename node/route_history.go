package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// localPast is what a router needs of the node's own history.
type localPast interface {
	list(q *shard.HistoryQuery) (page []*shard.HistoryEntry, more bool, err error)
}

// History gives a page of a topic's history over all shards, or over those that the query names, and whether there is more. Each
// shard's is asked of the node that leads it, and of all others too: a leader that was filled by a snapshot has nothing of what ended
// before, and an entry has the same key on every node that has it.
func (r *router) History(ctx context.Context, q *shard.HistoryQuery) ([]*shard.HistoryEntry, bool, error) {
	s := search{router: r, query: q, left: map[shard.ID]*aim{}}
	for _, id := range q.Shards {
		s.left[id] = &aim{}
	}
	for id := shard.ID(1); len(q.Shards) == 0 && int(id) <= r.shards; id++ {
		s.left[id] = &aim{}
	}
	ctx, cancel := context.WithCancel(ctx)
	k := s.askKeepers(ctx)
	defer func() {
		cancel()
		k.asked.Wait()
	}()
	p := patience{begin: time.Now()}
	for {
		if err := s.round(ctx); err != nil {
			return nil, false, err
		}
		if len(s.left) == 0 {
			break
		}
		if !p.wait(ctx, false) {
			return nil, false, shard.ErrNoLeader
		}
	}
	s.parts = append(s.parts, k.wait(ctx, s.parts)...)
	list, more := s.merge()
	return list, more, nil
}

// search is one request for history.
type search struct {
	*router
	query *shard.HistoryQuery
	left  map[shard.ID]*aim // not answered yet
	parts []part
}

// part is what one node answered for some shards.
type part struct {
	node   uint64
	ask    []shard.ID
	shards []shard.ID // for which it answered
	list   []*shard.HistoryEntry
	more   bool
	err    error
}

// round asks every node once for what it may lead of what is left.
func (s *search) round(ctx context.Context) error {
	byNode := map[uint64]*part{}
	for id, a := range s.left {
		if a.take(s.router, id); a.node == 0 {
			continue
		}
		if byNode[a.node] == nil {
			byNode[a.node] = &part{node: a.node}
		}
		byNode[a.node].ask = append(byNode[a.node].ask, id)
	}
	var wg fan.Group
	for _, p := range byNode {
		slices.Sort(p.ask)
		wg.Go(func() { s.askPart(ctx, p, false) })
	}
	wg.Wait()
	for _, p := range byNode {
		if p.err != nil {
			if !readAgain(p.err) {
				return p.err
			}
			continue
		}
		for _, id := range p.shards {
			delete(s.left, id)
		}
		s.parts = append(s.parts, *p)
	}
	return nil
}

func (s *search) askPart(ctx context.Context, p *part, kept bool) {
	q := *s.query
	q.Shards, q.Kept = p.ask, kept
	if p.node == s.self {
		p.shards, p.list, p.more, p.err = s.historyHere(&q)
		return
	}
	p.err = s.readAt(ctx, p.node, &reading{
		method: methodHistory, within: scanCallIn,
		ask: func() []byte { return shard.AppendHistoryQuery(nil, &q) },
		take: func(answer []byte) (err error) {
			p.shards, p.list, p.more, err = shard.DecodeHistory(answer)
			return err
		},
	})
}

// historyHere answers for those of the query's shards that this node leads, or else for the others.
func (r *router) historyHere(q *shard.HistoryQuery) (led []shard.ID, list []*shard.HistoryEntry, more bool, err error) {
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
	list, more, err = r.past.list(&here)
	return led, list, more, err
}

// distinct sorts entries and leaves one of each: that with most of its attempts.
func distinct(list []*shard.HistoryEntry) []*shard.HistoryEntry {
	slices.SortStableFunc(list, func(a, b *shard.HistoryEntry) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Missing(), b.Missing()))
	})
	return slices.CompactFunc(list, func(a, b *shard.HistoryEntry) bool { return a.Key == b.Key })
}

// merge brings the parts into one order. Behind the last entry of a part that has more nothing is known.
func (s *search) merge() (list []*shard.HistoryEntry, more bool) {
	var end *shard.HistoryKey
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

func (r *router) serveHistory(body []byte) []byte {
	q, err := shard.DecodeHistoryQuery(body)
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	led, list, more, err := r.historyHere(q)
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	return shard.AppendHistory(nil, led, list, more)
}
