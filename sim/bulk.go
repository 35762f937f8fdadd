package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/shard"
)

// Timers of bulkTopic are due so far ahead that none is called before the last bulk change of a run, which has all of them due at once. So what
// becomes of each is what clients asked for, and nothing else.
const (
	bulkAhead = 3 * time.Hour
	bulkShift = 2 * time.Minute // at most, either way
)

var bulkLabels = []string{"a", "b", "c"}

// pickBulk draws an operation on one of these timers.
func (v *visitors) pickBulk() *operation {
	w, r, b := v.w, v.chance, v.w.book.bulks
	due := bulkAhead + r.between(0, time.Hour)
	if len(b.names) == 0 || r.IntN(3) > 0 {
		number := w.book.ops + 1
		o := v.add(bulkTopic, fmt.Sprintf("%c%d", "xy"[r.IntN(2)], number), due)
		labels := slices.DeleteFunc(slices.Clone(bulkLabels), func(string) bool { return r.IntN(2) == 0 })
		o.write.labels = labels
		o.write.more = func(s *shard.Spec) { s.Labels = labels }
		w.complete(o)
		return o
	}
	o := &operation{number: w.book.nextOp(), topic: bulkTopic, id: b.names[len(b.names)-1-r.IntN(min(len(b.names), 40))], astray: r.IntN(5) == 0}
	o.shard = w.place(bulkTopic, o.id)
	switch r.IntN(5) {
	case 0:
		o.cmd = &shard.Command{Kind: shard.Cancel, Topic: bulkTopic, ID: o.id}
	case 1, 2:
		at := epochMs + (w.now + due).Milliseconds()
		o.cmd = &shard.Command{Kind: shard.Modify, Topic: bulkTopic, ID: o.id, Patch: &shard.Patch{Due: true, Spec: shard.Spec{DueMs: at}}}
	}
	return o
}

// sweep is one bulk change, done as the API does it: each shard is walked, and what is found is settled a page at a time. It may be given up.
type sweep struct {
	v      *visitors
	c      *client
	number uint64
	labels []string
	bulk   shard.Bulk
	move   shard.Move // of a reschedule

	began, ended time.Duration
	patience     time.Duration
	left         int // shards under way
	complete     bool
	broken       bool // given up
	then         func()
}

// bulk draws a bulk change, one at a time, or two now and then.
func (v *visitors) bulk() {
	w, r := v.w, v.chance
	if v.parting {
		return
	}
	s := v.newSweep(shard.Query{IDPrefix: []string{"", "", "x", "y"}[r.IntN(4)]})
	if r.IntN(2) == 0 || s.bulk.Query.IDPrefix == "" && r.IntN(8) > 0 {
		s.labels = []string{bulkLabels[r.IntN(len(bulkLabels))]}
		s.bulk.Query.Labels = s.labels
	}
	ahead := func() int64 { return epochMs + (w.now + bulkAhead + r.between(0, time.Hour)).Milliseconds() }
	if r.IntN(3) == 0 {
		s.bulk.Query.FromMs = ahead()
	}
	if r.IntN(3) == 0 {
		s.bulk.Query.ToMs = ahead()
	}
	switch r.IntN(6) {
	case 0:
		s.bulk.Plan = shard.CancelEach(bulkTopic)
	case 1:
		s.move = shard.Move{By: shard.MoveAt, Ms: ahead()}
	case 2:
		s.move = shard.Move{By: shard.MoveNotBefore, Ms: ahead()}
	default:
		s.move = shard.Move{By: shard.MoveShift, Ms: r.between(-bulkShift, bulkShift).Milliseconds()}
	}
	if s.bulk.Plan == nil {
		s.bulk.Plan = s.move.Each(bulkTopic, 1<<45)
	}
	s.then = func() { w.after(r.between(v.bulkEach/2, 2*v.bulkEach), v.bulk) }
	if r.IntN(8) == 0 {
		w.after(r.between(0, 2*time.Second), s.giveUp)
	}
	s.begin()
}

func (v *visitors) newSweep(q shard.Query) *sweep {
	s := &sweep{v: v, number: v.w.book.nextOp(), patience: 10 * time.Second}
	s.c = &client{w: v.w, number: 3200 + int(s.number%100), hint: map[shard.ID]uint64{}, own: &v.chance}
	q.Topic, q.States, q.WithoutPayload, q.Limit = bulkTopic, 1<<shard.Scheduled|1<<shard.Leased, true, 1+v.chance.IntN(12)
	s.bulk.Query = q
	return s
}

func (s *sweep) begin() {
	w := s.v.w
	s.began, s.left = w.now, w.swarm.shards
	w.note(nil, "bulk", s.number, uint64(s.move.By), "")
	w.counts.Bulks++
	w.book.bulks.began(s)
	for id := shard.ID(1); int(id) <= w.swarm.shards; id++ {
		s.walk(id, shard.Waypoint{}, w.now+s.patience)
	}
}

// giveUp ends it where it is. What it has sent may yet be done.
func (s *sweep) giveUp() {
	if s.broken || s.complete {
		return
	}
	s.broken = true
	if s.then != nil {
		s.then()
	}
}

// walk takes the next step in one shard.
func (s *sweep) walk(id shard.ID, at shard.Waypoint, until time.Duration) {
	w := s.v.w
	if at.Done() {
		if s.left--; s.left == 0 && !s.broken {
			s.complete, s.ended = true, w.now
			w.note(nil, "bulk done", s.number, uint64(s.bulk.Changed.Load()), "")
			w.book.bulks.done(w, s)
			if s.then != nil {
				s.then()
			}
		}
		return
	}
	var marks []shard.Mark
	next := at
	s.ask(id, func(h *shard.Host, answer func(error)) {
		h.SubmitWalk(id, &s.bulk.Query, at, func(m []shard.Mark, p shard.Waypoint, err error) {
			answer(err)
			if err == nil {
				marks, next = m, p
			}
		})
	}, func(err error) {
		if err != nil {
			s.later(until, func() { s.walk(id, at, until) })
			return
		}
		var todo []*shard.Errand
		for i := range marks {
			if e := s.bulk.Begin(marks[i]); e != nil {
				todo = append(todo, e)
			}
		}
		s.settle(id, todo, w.now+s.patience, func() { s.walk(id, next, w.now+s.patience) })
	})
}

// later tries again after a while, or gives up.
func (s *sweep) later(until time.Duration, do func()) {
	w := s.v.w
	if w.now > until {
		s.giveUp()
		return
	}
	w.after(s.v.chance.between(10*time.Millisecond, 300*time.Millisecond), do)
}

// settle brings some timers of a shard to an end, all at once.
func (s *sweep) settle(id shard.ID, todo []*shard.Errand, until time.Duration, then func()) {
	if s.broken {
		return
	}
	open := len(todo)
	if open == 0 {
		then()
		return
	}
	var again []*shard.Errand
	failed := false
	one := func(e *shard.Errand, turn shard.Turn, err error) {
		failed = failed || err != nil
		if turn != shard.Settled {
			again = append(again, e)
		}
		if open--; open > 0 {
			return
		}
		if !failed {
			s.settle(id, again, s.v.w.now+s.patience, then)
			return
		}
		s.later(until, func() { s.settle(id, again, until, then) })
	}
	for _, e := range todo {
		var result shard.Result
		cmd := e.Command
		s.ask(id, func(h *shard.Host, answer func(error)) {
			h.Submit(id, cmd, true, func(r shard.Result, err error) {
				if err == nil {
					result = r
				}
				answer(err)
			})
		}, func(err error) {
			turn := s.bulk.Take(e, &result, err)
			if turn != shard.Reread {
				one(e, turn, err)
				return
			}
			s.reread(id, e, one)
		})
	}
}

func (s *sweep) reread(id shard.ID, e *shard.Errand, one func(*shard.Errand, shard.Turn, error)) {
	var found *shard.Timer
	s.ask(id, func(h *shard.Host, answer func(error)) {
		h.Ask(id, bulkTopic, e.ID(), func(t *shard.Timer, err error) {
			found = t
			answer(err)
		})
	}, func(err error) {
		if err != nil {
			one(e, shard.Again, err)
			return
		}
		one(e, s.bulk.Reread(e, found), nil)
	})
}

// askedFor is how long a request may take until its outcome counts as unknown.
const askedFor = 3 * time.Second

// ask has a node do something and hears what came of it, once. What was not taken by a leader was surely not done.
func (s *sweep) ask(id shard.ID, do func(h *shard.Host, answer func(error)), then func(error)) {
	w, c := s.v.w, s.c
	n := c.target(&operation{shard: id, tries: s.v.chance.IntN(8)})
	over := false
	hear := func(err error) {
		if over {
			return
		}
		over = true
		var elsewhere shard.NotLeaderError
		switch {
		case err == nil:
			c.hint[id] = n.id
		case errors.As(err, &elsewhere) && elsewhere.Leader != 0:
			c.hint[id] = elsewhere.Leader
		default:
			delete(c.hint, id)
		}
		if !s.broken {
			then(err)
		}
	}
	w.after(askedFor, func() { hear(shard.ErrUnknown) })
	if s.v.chance.hit(w.swarm.loss / 3) {
		return
	}
	life := n.life
	w.after(c.travel(), func() {
		if !n.up {
			hear(shard.ErrNoLeader)
			return
		}
		n.doFrom(1<<40+uint64(c.number), func() {
			if n.host == nil || life != n.life {
				hear(shard.ErrNoLeader)
				return
			}
			if over { // who asked has hung up
				return
			}
			do(n.host, func(err error) {
				if !s.v.chance.hit(w.swarm.loss / 3) {
					w.after(c.travel(), func() { hear(err) })
				}
			})
			n.wake(0)
		})
	})
}

// settleAll has the last bulk change make all that is left due at once, and holds what there is against what was asked for. All is well by then:
// nothing is on its way any more.
func (v *visitors) settleAll() {
	w := v.w
	if !v.visit(bulkTopic) {
		return
	}
	still := func(s *sweep) bool { return !s.broken } // it may have pages of one timer, and many of them
	if !w.passUntil(2*time.Minute, func() bool { return !slices.ContainsFunc(w.book.bulks.running, still) }) {
		w.violate("I14", "a bulk change that was begun before all was mended does not come to its end")
	}
	pending := w.book.bulks.look(w)
	s := v.newSweep(shard.Query{})
	s.patience = 20 * time.Second
	s.move = shard.Move{By: shard.MoveAt, Ms: epochMs + w.now.Milliseconds()}
	s.bulk.Plan = s.move.Each(bulkTopic, 1<<45)
	s.begin()
	if !w.passUntil(40*time.Second, func() bool { return s.complete }) {
		w.violate("I14", "a bulk change does not come to its end though all is well")
	}
	if m, c, k := s.bulk.Matched.Load(), s.bulk.Changed.Load(), s.bulk.Skipped.Load(); m != pending || c != pending || k != 0 {
		w.violate("bulk", "a bulk change of all %d timers, none of which anybody else changed, says that %d matched, %d were changed, %d were skipped", pending, m, c, k)
	}
	w.book.bulks.finalMs = s.move.Ms
	again := v.newSweep(shard.Query{IDPrefix: "x"})
	again.patience, again.move, again.bulk.Plan = s.patience, s.move, s.bulk.Plan
	again.begin()
	w.passUntil(40*time.Second, func() bool { return again.complete })
	if c := again.bulk.Changed.Load(); c != 0 || !again.complete {
		w.violate("bulk", "repeated, a bulk change changes %d timers once more", c)
	}
}
