package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"carillon/timer"
	"carillon/timer/bulk"
)

// Timers of bulkTopic are due so far ahead that none fires before the last bulk change of a run,
// which makes all of them due at once. So their fate depends on client operations alone.
const (
	bulkAhead = 3 * time.Hour
	bulkShift = 2 * time.Minute // the largest reschedule, either way
)

var bulkLabels = []string{"a", "b", "c"}

// pickBulk draws an operation on one of these timers.
func (v *featureClients) pickBulk() *operation {
	w, r, b := v.w, v.chance, v.w.checker.bulks
	due := bulkAhead + r.between(0, time.Hour)
	if len(b.names) == 0 || r.IntN(3) > 0 {
		number := w.checker.ops + 1
		o := v.add(bulkTopic, fmt.Sprintf("%c%d", "xy"[r.IntN(2)], number), due)
		labels := slices.DeleteFunc(slices.Clone(bulkLabels), func(string) bool { return r.IntN(2) == 0 })
		o.write.labels = labels
		o.write.more = func(s *timer.Spec) { s.Labels = labels }
		w.complete(o)
		return o
	}
	o := &operation{number: w.checker.nextOp(), topic: bulkTopic, id: b.names[len(b.names)-1-r.IntN(min(len(b.names), 40))], astray: r.IntN(5) == 0}
	o.shard = w.place(bulkTopic, o.id)
	switch r.IntN(5) {
	case 0:
		o.cmd = &timer.Command{Kind: timer.Cancel, Topic: bulkTopic, ID: o.id}
	case 1, 2:
		at := epochMs + (w.now + due).Milliseconds()
		o.cmd = &timer.Command{Kind: timer.Modify, Topic: bulkTopic, ID: o.id, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: at}}}
	}
	return o
}

// sweep is one bulk change that a client requests from a node. It may be abandoned.
type sweep struct {
	v      *featureClients
	number uint64
	labels []string
	bulk   bulk.Update
	move   bulk.Move // for a reschedule

	began, ended time.Duration
	complete     bool
	broken       bool // abandoned, or it did not finish
	cancel       func()
	err          error
	then         func()
}

// bulk draws a bulk change. Usually one runs at a time, now and then two.
func (v *featureClients) bulk() {
	w, r := v.w, v.chance
	if v.parting {
		return
	}
	s := v.newSweep(timer.Query{IDPrefix: []string{"", "", "x", "y"}[r.IntN(4)]})
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
		s.bulk.Plan = bulk.CancelEach(bulkTopic)
	case 1:
		s.move = bulk.Move{By: bulk.MoveAt, Ms: ahead()}
	case 2:
		s.move = bulk.Move{By: bulk.MoveNotBefore, Ms: ahead()}
	default:
		s.move = bulk.Move{By: bulk.MoveShift, Ms: r.between(-bulkShift, bulkShift).Milliseconds()}
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

func (v *featureClients) newSweep(q timer.Query) *sweep {
	s := &sweep{v: v, number: v.w.checker.nextOp(), cancel: func() {}}
	q.Topic, q.States, q.WithoutPayload = bulkTopic, 1<<timer.Scheduled|1<<timer.Leased, true
	s.bulk.Query = q
	return s
}

// begin requests the bulk change from some node. If that node ends, the change stops where it is.
func (s *sweep) begin() {
	w := s.v.w
	s.began = w.now
	w.note(nil, "bulk", s.number, uint64(s.move.By), "")
	w.counts.Bulks++
	w.checker.bulks.began(s)
	n := w.inUse(s.v.chance)
	life := n.life
	w.operator(n, func(ctx context.Context, n *node) error {
		ctx, s.cancel = n.tasks.WithTimeout(ctx, sweepTime)
		return n.router.Bulk(ctx, &s.bulk)
	}, s.end)
	var look func()
	look = func() {
		switch {
		case s.complete, s.broken:
		case n.life != life:
			s.giveUp()
		default:
			w.after(time.Second, look)
		}
	}
	w.after(time.Second, look)
}

// sweepTime is how long a bulk change may take.
const sweepTime = time.Minute

// end records the result of the bulk change.
func (s *sweep) end(err error) {
	w := s.v.w
	if s.err = err; err != nil {
		s.giveUp()
		return
	}
	if s.broken {
		return
	}
	s.complete, s.ended = true, w.now
	w.note(nil, "bulk done", s.number, uint64(s.bulk.Changed.Load()), "")
	w.checker.bulks.done(w, s)
	if s.then != nil {
		s.then()
	}
}

// giveUp abandons the bulk change. Requests that it has sent may still take effect.
func (s *sweep) giveUp() {
	if s.broken || s.complete {
		return
	}
	s.broken = true
	s.cancel()
	if s.then != nil {
		s.then()
	}
}

// lastSweep moves all timers of a query, on a healthy cluster. A node that still waits for its
// place in the cluster serves nobody; then another node is asked a second later.
func (v *featureClients) lastSweep(q timer.Query, m bulk.Move) *sweep {
	for tries := 1; ; tries++ {
		s := v.newSweep(q)
		s.move, s.bulk.Plan = m, m.Each(bulkTopic, 1<<45)
		s.begin()
		v.w.passUntil(40*time.Second, func() bool { return s.complete || s.broken })
		if s.complete || !errors.Is(s.err, timer.ErrRecovering) || tries == 10 {
			return s
		}
		v.w.pass(time.Second)
	}
}

// settleAll makes all remaining timers due by one last bulk change and checks them against the
// requests. It runs when nothing is wrong and no request is on its way.
func (v *featureClients) settleAll() {
	w := v.w
	if !v.visit(bulkTopic) {
		return
	}
	still := func(s *sweep) bool { return !s.broken } // it may have many pages of one timer each
	if !w.passUntil(2*time.Minute, func() bool { return !slices.ContainsFunc(w.checker.bulks.running, still) }) {
		w.violate("I14", "a bulk change from before the repair does not end")
	}
	if !w.passUntil(healLimit, w.serving) { // a leadership may be on its way to another node
		w.violate("I14", "not all groups have a leader: %s", w.describe())
	}
	pending := w.checker.bulks.look(w)
	now := bulk.Move{By: bulk.MoveAt, Ms: epochMs + w.now.Milliseconds()}
	s := v.lastSweep(timer.Query{}, now)
	if !s.complete {
		w.violate("I14", "a bulk change fails on a healthy cluster: %v", s.err)
	}
	if m, c, k := s.bulk.Matched.Load(), s.bulk.Changed.Load(), s.bulk.Skipped.Load(); m != pending || c != pending || k != 0 {
		w.violate("bulk", "a bulk change of all %d timers, without other operations, reports %d matched, %d changed, %d skipped", pending, m, c, k)
	}
	w.checker.bulks.finalMs = now.Ms
	again := v.lastSweep(timer.Query{IDPrefix: "x"}, now)
	if c := again.bulk.Changed.Load(); c != 0 || !again.complete {
		w.violate("bulk", "a repeated bulk change changes %d timers again, expected 0", c)
	}
}
