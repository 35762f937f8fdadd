package shard

import (
	"cmp"
	"errors"
	"slices"

	"carillon/shard/table"
	"carillon/timer"
)

// listing is one query on some shards of this host. Each worker keeps the first timers of all of
// its shards together, so a page costs O(slots of the shards, or of its range of them, + page ×
// workers).
type listing struct {
	query   *timer.Query
	parts   []listPart
	workers []listOfWorker
}

// listPart is one shard of a listing.
type listPart struct {
	table.Part
	query timer.Query
	asked timer.ShardID
	shard *timerShard
	from  timer.Handle
	read  *read
	left  bool // the shard was divided after the scan, before its timers were copied
}

// listOfWorker is the part of a listing that one worker answers, on its goroutine.
type listOfWorker struct {
	top  table.TopK
	left int // shards that are not scanned to their end
	room timer.Room
	list []listed
	rest table.Rest
}

type listed struct {
	key   timer.SortKey
	timer *timer.Timer
	wait  timer.Wait
}

// anyTimer is more than any timer takes in a page.
const anyTimer = 1 << 20

// List returns a page of the timers in some shards, and those of the shards that have answered:
// this host leads them. A page may be shorter than the limit and still have More. The shards are
// scanned in slices, so that other operations need not wait for it. A timer that changes meanwhile
// may be returned in its old or its new state.
func (c clients) List(ids []timer.ShardID, q *timer.Query) (page timer.Page, led []timer.ShardID, err error) {
	for led = ids; len(led) > 0; {
		l := c.newListing(led, q)
		if led, err = l.ask(c); err != nil {
			return timer.Page{}, nil, err
		}
		if len(led) < len(l.parts) {
			l.giveBack() // what it has may be of a shard that does not answer
			continue
		}
		var noRoom bool
		if page, noRoom = l.page(); len(page.Timers) > 0 || !page.More || noRoom || page.Next == timer.RangeEnd {
			return page, led, nil
		}
		// All that were found are gone by now.
	}
	return timer.Page{}, nil, nil
}

func (c clients) newListing(ids []timer.ShardID, q *timer.Query) *listing {
	l := &listing{query: q, parts: make([]listPart, len(ids)), workers: make([]listOfWorker, len(c.h.workers))}
	busy := 0
	for i, id := range ids {
		p := &l.parts[i]
		p.asked, p.query = id, *q
		p.query.Only = c.h.half(id)
		p.Part = table.Part{Query: &p.query, Number: i}
		p.read = c.newRead(id, func(s *timerShard, budget int) bool { return l.scan(p, s, budget) })
		p.read.long = true
		w := &l.workers[p.read.group.w.number]
		if w.left++; w.left == 1 {
			busy++
		}
	}
	for i := range l.workers {
		l.workers[i].room = roomFor(q, busy)
	}
	return l
}

// ask has the workers answer, and returns the shards that have.
func (l *listing) ask(c clients) (led []timer.ShardID, err error) {
	wait := c.h.newWaiter(len(l.parts) + 1)
	perWorker := make([]partOf[*read], len(l.workers))
	for i := range l.parts {
		r := l.parts[i].read
		r.wait = wait
		n := r.group.w.number
		perWorker[n] = append(perWorker[n], r)
	}
	offerParts(c.h, perWorker)
	wait.done()
	c.h.await(wait)
	return l.answered()
}

// answered returns the shards whose timers are in the page.
func (l *listing) answered() (led []timer.ShardID, err error) {
	for i := range l.parts {
		p := &l.parts[i]
		switch err := p.read.err; {
		case p.left:
		case err == nil:
			led = append(led, p.asked)
		case !refused(err):
			return nil, err
		}
	}
	return led, nil
}

// refused reports of an error that another node may answer.
func refused(err error) bool {
	_, moved := errors.AsType[timer.NotLeaderError](err)
	return moved || errors.Is(err, timer.ErrNoLeader)
}

// scan looks into some slots of a shard. The worker's last shard copies what all of them have.
func (l *listing) scan(p *listPart, s *timerShard, budget int) (done bool) {
	w := &l.workers[s.g.w.number]
	// A timer that is leased ahead of its due time is listed as scheduled.
	p.shard, p.Table, p.Hides = s, s.table, s.scheduler.View.Hides
	if p.from, done = w.top.Scan(&p.Part, p.from, budget); !done {
		return false
	}
	if w.left--; w.left == 0 {
		l.take(w)
	}
	return true
}

// take copies what was found. A shard that was divided since it was scanned for its child has none
// of that any more.
func (l *listing) take(w *listOfWorker) {
	for i := range l.parts {
		if p := &l.parts[i]; w == &l.workers[p.read.group.w.number] {
			p.left = p.shard.division.hasLeft(p.asked)
		}
	}
	var found []table.Found
	found, w.rest = w.top.Take(w.room)
	w.list = make([]listed, len(found))
	for i, f := range found {
		p := &l.parts[f.Part.Number]
		s := p.shard
		s.scheduler.View.Overlay(f.Timer)
		numbered(s, &f.Timer.Origin)
		w.list[i] = listed{key: f.Key, timer: f.Timer}
		if l.query.Waits && f.Timer.State == timer.Scheduled {
			w.list[i].wait = s.scheduler.View.WaitOf(f.Handle)
		}
	}
}

// page merges what the workers have. noRoom: it ends where there was no more room.
func (l *listing) page() (page timer.Page, noRoom bool) {
	var all []listed
	for i := range l.workers {
		w := &l.workers[i]
		all = append(all, w.list...)
		if w.rest.More && (!page.More || w.rest.Next.Compare(page.Next) < 0) {
			page.More, page.Next, noRoom = true, w.rest.Next, w.rest.NoRoom
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return a.key.Compare(b.key) })
	n := 0
	for n < len(all) && n < max(l.query.Limit, 1) && (!page.More || all[n].key.Compare(page.Next) <= 0) {
		n++
	}
	if n < len(all) && (!page.More || all[n].key.Compare(page.Next) < 0) {
		page.More, page.Next = true, all[n].key
	}
	l.leaveOut(all[n:])
	page.Timers = make([]*timer.Timer, n)
	if l.query.Waits {
		page.Waits = make([]timer.Wait, n)
	}
	for i, x := range all[:n] {
		if page.Timers[i] = x.timer; l.query.Waits {
			page.Waits[i] = x.wait
		}
	}
	return page, noRoom
}

func (l *listing) giveBack() {
	for i := range l.workers {
		l.leaveOut(l.workers[i].list)
	}
}

// leaveOut gives back the room of timers that are not answered.
func (l *listing) leaveOut(list []listed) {
	for _, x := range list {
		if l.query.Room != nil {
			l.query.Room.GiveBack(x.timer.Size())
		}
	}
}

// roomFor is the bound of what one of some workers adds to a page: its share of the page's bytes,
// and the room of the whole answer.
func roomFor(q *timer.Query, workers int) timer.Room {
	if q.Bytes == 0 {
		return q.Room
	}
	own := timer.NewAllowance(max(q.Bytes/cmp.Or(workers, 1), min(q.Bytes, anyTimer)))
	if q.Room == nil {
		return own
	}
	return both{own, q.Room}
}

// both is the room within two bounds.
type both struct{ own, answer timer.Room }

func (b both) Take(bytes int) bool { return b.own.Take(bytes) && b.answer.Take(bytes) }

func (b both) GiveBack(bytes int) {
	b.own.GiveBack(bytes)
	b.answer.GiveBack(bytes)
}
