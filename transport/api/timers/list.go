package timers

import (
	"errors"
	"math"

	"carillon/internal/order"
	"carillon/timer"
	"carillon/transport/api/web"
)

// List answers with a page of a topic's timers.
func List(rq *web.Request) *web.Problem {
	q := &timer.Query{}
	var p *web.Problem
	if q.States, p = rq.Query.States(); p != nil {
		return p
	}
	if q.Labels, p = rq.Query.Labels(); p != nil {
		return p
	}
	if p := rq.Window(q, "due_from", "due_to"); p != nil {
		return p
	}
	if q.IDPrefix, _ = rq.Query.Value("id_prefix"); !web.ValidIDPrefix(q.IDPrefix) {
		return web.Bad(web.BadName, "query: id_prefix is nothing that an id can start with")
	}
	payload, p := rq.Query.Boolean("payload", true)
	if p != nil {
		return p
	}
	q.WithoutPayload = !payload
	return Page(rq, q)
}

// Page answers one page of the timers that the query selects in all shards.
func Page(rq *web.Request, q *timer.Query) *web.Problem {
	limit, p := rq.Query.Limit()
	if p != nil {
		return p
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	q.Topic = topic.ID
	listing := listingSum(q)
	if c, given := rq.Query.Value("cursor"); given {
		var ok bool
		if q.After, ok = parseTimerCursor(c, listing); !ok {
			return web.Bad(web.BadRequest, "query: cursor is not one of this listing")
		}
	}
	for range shardsTries {
		p, err := page(rq, topic, q, limit, listing)
		if !errors.Is(err, timer.ErrShards) {
			return p
		}
	}
	return web.Fault(timer.ErrNoLeader)
}

// shardsTries is how often a listing begins again because there are more shards than at its begin.
const shardsTries = 8

// page writes a page. The error is the reason of a problem that is a fault.
func page(rq *web.Request, topic *timer.Topic, q *timer.Query, limit int, listing uint64) (*web.Problem, error) {
	q.Of = rq.Engine.Shards()
	q.Room = rq.Room(listRoom*rq.Limits.ResponseBytes + q.Of*leastShare)
	m := newMerge(rq, q, limit+1)
	o := web.Object{B: rq.Out()}
	o.Name("timers")
	list := web.Array{B: o.B}
	w := NewWriter(rq, topic)
	w.payload = !q.WithoutPayload
	var last timer.SortKey
	n, more := 0, false
	for {
		t := m.next()
		if t == nil {
			break
		}
		if n == limit || n > 0 && len(list.B) > rq.Limits.ResponseBytes {
			more = true
			break
		}
		list.Next()
		list.B = appendWait(w.Append(list.B, t), m.wait)
		if last := lastAttempt(t); q.ByEnd && last != nil {
			list.B = appendAttemptLog(list.B, t, last)
		}
		last = KeyOf(t, q.ByEnd)
		n++
	}
	if more = more || m.full; m.full && n == 0 && m.err == nil {
		rq.Ctx.Response.SwapBody(list.B)
		return web.Fail(503, "overloaded", "answers that have not been read yet take as much memory as they may"), nil
	}
	if m.err != nil {
		rq.Ctx.Response.SwapBody(list.B)
		m.shorten()
		return web.Fault(m.err), m.err
	}
	o.B = list.End()
	if more {
		o.Text("next_cursor", timerCursor(last, listing))
	}
	return rq.JSON(200, o.End()), nil
}

// KeyOf is the place of a timer in a listing.
func KeyOf(t *timer.Timer, byEnd bool) timer.SortKey {
	k := timer.SortKey{SortMs: t.DueMs, ID: t.ID, Seq: t.Seq}
	if byEnd {
		k.SortMs = t.EndedMs
	}
	return k
}

// Bounds of a listing's memory, besides its answer.
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
	rq      *web.Request
	query   timer.Query
	byEnd   bool
	streams []stream
	first   order.Heap[*stream] // the streams that are not at their end, by their first timer
	left    int                 // timers that are still wanted
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

	place int // in the heap
}

func (s *stream) Before(o *stream) bool { return s.key.Compare(o.key) < 0 }
func (s *stream) Place() *int           { return &s.place }

// newMerge takes over nothing of q; want is about how many will be taken.
func newMerge(rq *web.Request, q *timer.Query, want int) *merge {
	n := q.Of
	m := &merge{rq: rq, query: *q, byEnd: q.ByEnd, left: want, streams: make([]stream, n)}
	m.query.Bytes = max(rq.Limits.ResponseBytes/n, leastShare)
	// What a shard has of the page is about Poisson distributed: few have more than 3 deviations
	// above the mean, and are asked again.
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
			m.first.Push(s)
		}
	}
}

// next is the first timer of all shards, nil at the end or after an error.
func (m *merge) next() *timer.Timer {
	if !m.begun {
		m.begin()
	}
	for m.err == nil && !m.full && m.first.Len() > 0 {
		s := m.first.First()
		switch {
		case len(s.page) > 0 && !s.page[0].Short:
			t := s.page[0]
			m.left--
			s.last, m.wait = s.key, s.wait[t]
			if s.page = s.page[1:]; len(s.page) > 0 {
				s.key = KeyOf(s.page[0], m.byEnd)
			}
			m.first.Fix(s)
			return t
		case len(s.page) > 0:
			m.whole(s)
			m.first.Fix(s)
		case s.more:
			m.fill(s)
			m.err = s.err
			m.first.Fix(s)
		default:
			m.first.Remove(s)
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
				m.rq.Answer.GiveBack(t.Size())
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
	s.page, s.err = m.rq.Core.Timers.List(m.rq.Base, s.id, &q)
	s.more = len(s.page) == q.Limit
	if len(s.page) > 0 {
		s.key = KeyOf(s.page[0], m.byEnd)
	}
	if s.wait = nil; s.err == nil {
		s.wait = waitsOf(m.rq, s.id, s.page)
	}
}
