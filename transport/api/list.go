package api

import (
	"container/heap"
	"math"

	"carillon/timer"
)

func (rq *request) listTimers() *problem {
	q := &timer.Query{}
	var p *problem
	if q.States, p = rq.query.states(); p != nil {
		return p
	}
	if q.Labels, p = rq.query.labels(); p != nil {
		return p
	}
	if p := rq.window(q, "due_from", "due_to"); p != nil {
		return p
	}
	if q.IDPrefix, _ = rq.query.value("id_prefix"); !validIDPrefix(q.IDPrefix) {
		return bad(badName, "query: id_prefix is nothing that an id can start with")
	}
	payload, p := rq.query.boolean("payload", true)
	if p != nil {
		return p
	}
	q.WithoutPayload = !payload
	return rq.list(q)
}

// window reads the bounds of the times of a listing.
func (rq *request) window(q *timer.Query, from, to string) (p *problem) {
	if q.FromMs, _, p = rq.query.instant(from); p != nil {
		return p
	}
	var bounded bool
	if q.ToMs, bounded, p = rq.query.instant(to); p != nil {
		return p
	}
	if bounded && q.ToMs == 0 {
		// 0 means unbounded to the engine. Nothing is before 1970: an empty window somewhere else
		// says the same.
		q.FromMs, q.ToMs = 1, 1
	}
	return nil
}

// list answers one page of the timers that the query selects in all shards.
func (rq *request) list(q *timer.Query) *problem {
	limit, p := rq.query.limit()
	if p != nil {
		return p
	}
	topic, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	q.Topic = topic.ID
	listing := listingSum(q)
	if c, given := rq.query.value("cursor"); given {
		var ok bool
		if q.After, ok = parseTimerCursor(c, listing); !ok {
			return bad(badRequest, "query: cursor is not one of this listing")
		}
	}
	q.Room = rq.room(listRoom*rq.s.cfg.Limits.ResponseBytes + rq.s.cfg.Engine.Shards()*leastShare)
	m := newMerge(rq, q, limit+1)
	o := object{b: rq.out()}
	o.name("timers")
	list := array{b: o.b}
	w := rq.timerWriter(topic)
	w.payload = !q.WithoutPayload
	var last timer.SortKey
	n, more := 0, false
	for {
		t := m.next()
		if t == nil {
			break
		}
		if n == limit || n > 0 && len(list.b) > rq.s.cfg.Limits.ResponseBytes {
			more = true
			break
		}
		list.next()
		list.b = appendWait(w.append(list.b, t), m.wait)
		last = keyOf(t, q.ByEnd)
		n++
	}
	if more = more || m.full; m.full && n == 0 && m.err == nil {
		rq.ctx.Response.SwapBody(list.b)
		return fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
	}
	if m.err != nil {
		rq.ctx.Response.SwapBody(list.b)
		return engineFault(m.err)
	}
	o.b = list.end()
	if more {
		o.str("next_cursor", timerCursor(last, listing))
	}
	rq.json(200, o.end())
	return nil
}

func keyOf(t *timer.Timer, byEnd bool) timer.SortKey {
	k := timer.SortKey{SortMs: t.DueMs, ID: t.ID, Seq: t.Seq}
	if byEnd {
		k.SortMs = t.EndedMs
	}
	return k
}

// Bounds of a listing's memory, beside its answer.
const (
	listRoom = 4 // times ResponseBytes, and …
	// For each shard's page; timers beyond it are given when the listing has come to them, …
	leastShare = 64 << 10
	wholeLimit = 8       // so many at a time …
	wholeBytes = 1 << 20 // … and bytes: any timer fits
)

// merge brings the listings of all shards into one order. It asks for small pages and for more of a
// shard only when its page is used up, so that it holds little more in memory than it answers. Each
// further page of a shard may be four times as long: most of what is wanted may be in one shard.
type merge struct {
	rq      *request
	query   timer.Query
	byEnd   bool
	streams []stream
	first   byFirst // the streams that are not at their end
	left    int     // timers that are still wanted
	err     error
	begun   bool
	full    bool       // there is no room for the next timer
	wait    timer.Wait // of the timer that next gave
}

// stream is the rest of one shard's page.
type stream struct {
	id   timer.ShardID
	page []*timer.Timer
	key  timer.SortKey               // of the page's first, or if it is used up of its last
	size int                         // of its next page, in timers
	wait map[*timer.Timer]timer.Wait // why those of the page wait that do
	more bool
	last timer.SortKey
	err  error
}

// byFirst is a heap of streams by the key of their first timer.
type byFirst []*stream

func (h byFirst) Len() int           { return len(h) }
func (h byFirst) Less(i, j int) bool { return h[i].key.Compare(h[j].key) < 0 }
func (h byFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byFirst) Push(s any)        { *h = append(*h, s.(*stream)) }
func (h *byFirst) Pop() any {
	s := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return s
}

// newMerge takes over nothing of q; want is about how many will be taken.
func newMerge(rq *request, q *timer.Query, want int) *merge {
	n := rq.s.cfg.Engine.Shards()
	m := &merge{rq: rq, query: *q, byEnd: q.ByEnd, left: want, streams: make([]stream, n)}
	m.query.Bytes = max(rq.s.cfg.Limits.ResponseBytes/n, leastShare)
	// What a shard has of the page is about Poisson distributed: few have more than 3 deviations above
	// the mean, and are asked again.
	mean := float64(want) / float64(n)
	size := int(mean+3*math.Sqrt(mean)) + 1
	for i := range m.streams {
		m.streams[i].id, m.streams[i].more, m.streams[i].size = timer.ShardID(1+i), true, size
	}
	return m
}

// begin has each shard give its first page.
func (m *merge) begin() {
	m.begun = true
	each(len(m.streams), func(i int) { m.fill(&m.streams[i]) })
	for i := range m.streams {
		s := &m.streams[i]
		if s.err != nil {
			m.err = s.err
		}
		if len(s.page) > 0 {
			m.first = append(m.first, s)
		}
	}
	heap.Init(&m.first)
}

// next is the first timer of all shards, nil at the end or after an error.
func (m *merge) next() *timer.Timer {
	if !m.begun {
		m.begin()
	}
	for m.err == nil && !m.full && len(m.first) > 0 {
		s := m.first[0]
		switch {
		case len(s.page) > 0 && !s.page[0].Short:
			t := s.page[0]
			m.left--
			s.last, m.wait = s.key, s.wait[t]
			if s.page = s.page[1:]; len(s.page) > 0 {
				s.key = keyOf(s.page[0], m.byEnd)
			}
			heap.Fix(&m.first, 0)
			return t
		case len(s.page) > 0:
			m.whole(s)
			heap.Fix(&m.first, 0)
		case s.more:
			m.fill(s)
			m.err = s.err
			heap.Fix(&m.first, 0)
		default:
			heap.Pop(&m.first)
		}
	}
	return nil
}

// whole has the next timers of a shard given whole, for which there was no room in its page.
func (m *merge) whole(s *stream) {
	before := len(s.page)
	q := m.query
	q.Limit, q.Bytes = min(before, wholeLimit), wholeBytes
	more := s.more
	m.ask(s, q)
	if m.err = s.err; m.err != nil {
		return
	}
	s.more = s.more || more || len(s.page) < before
	if len(s.page) > 0 && s.page[0].Short && m.shorten() {
		q.Limit = 1
		if m.ask(s, q); s.err != nil {
			m.err = s.err
			return
		}
		s.more = true
	}
	m.full = len(s.page) > 0 && s.page[0].Short
}

// shorten gives back the room of timers that the listing has not come to; false when there are
// none.
func (m *merge) shorten() (any bool) {
	for i := range m.streams {
		for _, t := range m.streams[i].page {
			if !t.Short {
				m.rq.answer.giveBack(t.Size())
				t.Shorten()
				any = true
			}
		}
	}
	return any
}

// fill asks a shard for its next page.
func (m *merge) fill(s *stream) {
	q := m.query
	q.Limit = max(min(s.size, m.left), 1)
	s.size = 4 * q.Limit
	m.ask(s, q)
}

func (m *merge) ask(s *stream, q timer.Query) {
	if s.last != (timer.SortKey{}) {
		last := s.last
		q.After = &last
	}
	s.page, s.err = m.rq.core.Timers.List(m.rq.s.base, s.id, &q)
	s.more = len(s.page) == q.Limit
	if len(s.page) > 0 {
		s.key = keyOf(s.page[0], m.byEnd)
	}
	if s.wait = nil; s.err == nil {
		s.wait = m.rq.waitsOf(s.id, s.page)
	}
}
