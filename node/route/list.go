package route

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"carillon/internal/order"
	"carillon/shard/wire"
	"carillon/timer"
)

// A page of many topics looks at so many slots of all shards together (Config.SearchSlots), but at
// so many of each at least: there is no index of ids alone.
const (
	searchSlots = 4 << 20
	leastSlots  = 4 << 10
)

// Bounds of the bytes of one node's page.
const (
	leastShare = 64 << 10 // of the first, however many nodes there are
	anyTimer   = 1 << 20  // of a further one: any timer fits
)

// List gives a page of the timers of all shards. It may end before the limit: see timer.Page. One
// that has no timers, but More, found no room for the next one, or came to the end of its range.
//
// Each node is asked for a page of all shards that it leads, which is about its share of what is
// wanted, and again only where that is used up. So a page takes a call for each node, reads O(page
// + nodes) timers, and holds little more in memory than it answers. One of many topics is of a
// range of slots, which all its pages keep, however many shards there are by then.
func (r *Router) List(ctx context.Context, q *timer.Query) (timer.Page, error) {
	for {
		l := listing{Router: r, query: *q, of: r.shards()}
		if slots := &l.query.Slots; q.ManyTopics() && slots.To == 0 {
			each := max(r.cfg.SearchSlots/l.of, min(r.cfg.SearchSlots, leastSlots))
			slots.To = timer.Handle(min(uint64(slots.From)+uint64(each), math.MaxUint32))
		}
		page, err := l.page(ctx)
		if err == nil {
			if page.Slots = l.query.Slots; page.More && page.Next == timer.RangeEnd {
				page.Slots = timer.SlotRange{From: l.query.Slots.To}
			}
			return page, nil
		}
		l.leaveOut()
		l.giveBack(page.Timers)
		if !errors.Is(err, timer.ErrShards) {
			return timer.Page{}, err
		}
	}
}

// listing is one request for a page.
type listing struct {
	*Router
	query timer.Query
	of    int                   // shards that there are
	first order.Heap[*nodePage] // those that are not at their end, by what comes first
	left  int                   // timers that are still wanted
}

// nodePage is what is left of one node's page, of some shards.
type nodePage struct {
	ids   []timer.ShardID
	page  timer.Page
	key   timer.SortKey  // of the page's first; where it has none, of what comes next
	after *timer.SortKey // the last that was taken
	size  int            // of the next page, in timers
	whole bool           // it had room for any timer, and none was taken of it
	place int            // in the heap
}

func (p *nodePage) Before(o *nodePage) bool { return p.key.Compare(o.key) < 0 }
func (p *nodePage) Place() *int             { return &p.place }

// page asks for pages, and takes the first timers of all, until it has what is wanted.
func (l *listing) page(ctx context.Context) (out timer.Page, err error) {
	l.left = max(l.query.Limit, 1)
	bytes := 0
	if err := l.fill(ctx, allShards(l.of), l.query.After, 0, false); err != nil {
		return out, err
	}
	for l.left > 0 && l.first.Len() > 0 && (l.query.Bytes == 0 || bytes < l.query.Bytes) {
		p := l.first.First()
		switch {
		case len(p.page.Timers) > 0:
			bytes += l.take(p, &out)
		case p.key == timer.RangeEnd: // so all others are there, too
			return l.end(out), nil
		case !p.whole:
			l.first.Remove(p)
			if err := l.fill(ctx, p.ids, p.after, p.size, true); err != nil {
				return out, err
			}
		case len(out.Timers) == 0 && l.leaveOut(): // what others had was the room that is missing
			l.first.Remove(p)
			if err := l.fill(ctx, p.ids, p.after, 1, true); err != nil {
				return out, err
			}
		default:
			return l.end(out), nil
		}
	}
	return l.end(out), nil
}

// end ends the answer before the first timer that was not taken.
func (l *listing) end(out timer.Page) timer.Page {
	if l.first.Len() > 0 {
		out.More, out.Next = true, l.first.First().key
		l.leaveOut()
	}
	return out
}

// take moves the first timer of a node's page to the answer, and returns its size.
func (l *listing) take(p *nodePage, out *timer.Page) int {
	t, last := p.page.Timers[0], p.key
	out.Timers = append(out.Timers, t)
	if p.page.Timers = p.page.Timers[1:]; p.page.Waits != nil {
		out.Waits = append(out.Waits, p.page.Waits[0])
		p.page.Waits = p.page.Waits[1:]
	}
	l.left--
	p.after, p.whole = &last, false
	switch {
	case len(p.page.Timers) > 0:
		p.key = l.query.SortKey(p.page.Timers[0])
	case p.page.More:
		p.key = p.page.Next
	default:
		l.first.Remove(p)
		return t.Size()
	}
	l.first.Fix(p)
	return t.Size()
}

// leaveOut ends the pages before the timers that were not taken, and gives back their room. any:
// there were some.
func (l *listing) leaveOut() (any bool) {
	for i := range l.first.Len() {
		if p := l.first.At(i); len(p.page.Timers) > 0 {
			l.giveBack(p.page.Timers)
			p.page.Cut(&l.query, 0)
			any = true
		}
	}
	return any
}

func (l *listing) giveBack(list []*timer.Timer) {
	for _, t := range list {
		if l.query.Room != nil {
			l.query.Room.GiveBack(t.Size())
		}
	}
}

// fill asks for the next pages of some shards, of so many timers each; 0: as many as are likely to
// be among those that are wanted.
func (l *listing) fill(ctx context.Context, ids []timer.ShardID, after *timer.SortKey, size int, whole bool) error {
	var mu sync.Mutex
	g := gathering{Router: l.Router, of: l.of}
	g.ask = func(ctx context.Context, node uint64, ids []timer.ShardID) ([]timer.ShardID, error) {
		q := l.query
		q.After, q.Limit = after, min(size, l.left)
		if size == 0 {
			q.Limit = l.likely(len(ids))
		}
		if q.Bytes > 0 {
			q.Bytes = max(q.Bytes*len(ids)/l.of, leastShare)
			if whole {
				q.Bytes = max(q.Bytes, anyTimer)
			}
		}
		asked, err := l.ask(ctx, node, ids, &q)
		page, led := asked.Page, asked.led
		if err != nil || len(led) == 0 {
			return nil, err
		}
		p := &nodePage{ids: led, page: page, after: after, size: 4 * q.Limit, whole: whole, key: page.Next}
		if len(page.Timers) > 0 {
			p.key = q.SortKey(page.Timers[0])
		}
		if len(page.Timers) > 0 || page.More {
			mu.Lock()
			l.first.Push(p)
			mu.Unlock()
		}
		return led, nil
	}
	return g.all(ctx, ids)
}

// likely is how many of the timers that are wanted are in some shards, or fewer: that is about
// Poisson distributed, and rarely over 3 deviations above the mean.
func (l *listing) likely(shards int) int {
	mean := float64(l.left) * float64(shards) / float64(l.of)
	return min(int(mean+3*math.Sqrt(mean))+1, l.left)
}

// ask has one node answer, and returns the shards that it answered for.
func (l *listing) ask(ctx context.Context, node uint64, ids []timer.ShardID, q *timer.Query) (ledPage, error) {
	method, slots := methodList, []byte(nil)
	if q.Slots != (timer.SlotRange{}) {
		method, slots = methodSlots, wire.AppendSlots(nil, q.Slots)
	}
	p, err := readAt(ctx, l.Router, node, &reading[ledPage]{
		of: l.of,
		here: func() (p ledPage, err error) {
			p.Page, p.led, err = l.host.List(l.ledOf(ids), q)
			return p, err
		},
		method: method, within: scanCallIn,
		ask: func() []byte { return wire.AppendQuery(slots, ids, q) },
		take: func(answer []byte) (p ledPage, err error) {
			p.led, p.Page, err = wire.DecodePage(answer)
			for i, t := range p.Timers {
				if q.Room != nil && !q.Room.Take(t.Size()) {
					p.Cut(q, i)
					break
				}
			}
			return p, err
		},
	})
	if err == nil && (q.Waits && len(p.Waits) != len(p.Timers) || !within(p.led, ids)) {
		err = timer.ErrUnknown
	}
	return p, err
}

// ledPage is a node's page, and the shards that it is of.
type ledPage struct {
	timer.Page
	led []timer.ShardID
}

// within reports whether some shards are among others, which are in ascending order.
func within(some, ids []timer.ShardID) bool {
	for _, id := range some {
		if _, known := slices.BinarySearch(ids, id); !known {
			return false
		}
	}
	return true
}

func (r *Router) serveList(slots timer.SlotRange, body []byte) ([]byte, error) {
	ids, q, err := wire.DecodeQuery(body)
	if err != nil {
		return nil, err
	}
	q.Slots = slots
	page, led, err := r.host.List(r.ledOf(ids), q)
	return wire.AppendPage(nil, led, page, q), err
}
