package sim

import (
	"context"
	"fmt"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// pausing is the workload of windowTopic in the runs in which that has no window, and its checker.
// A client pauses and resumes its timers. One whose pause was answered is not called until somebody
// asks to resume it. At the end all are resumed, and must be called.
type pausing struct {
	featureChecker
	crew
	last  []string
	held  map[string]*heldTimer
	names []string // of held, in order
	over  bool     // all are being resumed
}

// heldTimer is the checker's knowledge of one timer.
type heldTimer struct {
	surely  bool // a pause was answered, and no resume has been asked for since
	resumes int  // with an unknown outcome: they may still take effect
	began   map[uint64]bool
}

func (w *World) drawPausing() *pausing {
	c := newChance(w.cfg.Seed, 59)
	return &pausing{
		featureChecker: newFeatureChecker(),
		crew:           crew{w: w, chance: c, think: c.between(20*time.Millisecond, 300*time.Millisecond)}, held: map[string]*heldTimer{},
	}
}

func (p *pausing) begin() { p.employ(7500, 1, p.pick) }

// pick draws an operation: an add, or one on one of the last timers.
func (p *pausing) pick() *operation {
	w, r := p.w, &p.chance
	o := &operation{number: w.checker.nextOp(), topic: windowTopic, astray: r.IntN(5) == 0}
	n := r.IntN(12)
	if len(p.last) == 0 || n < 4 {
		o.id = fmt.Sprintf("h%d", o.number)
		p.last = append(p.last, o.id)
		p.last = p.last[max(0, len(p.last)-6):]
		due := w.now + r.between(-50*time.Millisecond, 2*time.Second)
		o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + due.Milliseconds()}
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
		w.complete(o)
		return o
	}
	o.id = p.last[r.IntN(len(p.last))]
	switch {
	case n < 8:
		o.cmd = &timer.Command{Kind: timer.Pause}
	case n < 10:
		o.cmd = &timer.Command{Kind: timer.Resume}
	case n == 10:
		o.cmd = &timer.Command{Kind: timer.Fire, DueMs: epochMs + w.now.Milliseconds()}
	}
	w.complete(o)
	return o
}

// of returns what is known of a timer.
func (p *pausing) of(id string) *heldTimer {
	h := p.held[id]
	if h == nil {
		h = &heldTimer{began: map[uint64]bool{}}
		p.held[id] = h
		p.names = append(p.names, id)
	}
	return h
}

func (p *pausing) called(o *operation) {
	p.featureChecker.called(o)
	h := p.of(o.id)
	if o.cmd != nil && o.cmd.Kind == timer.Resume {
		h.surely = false
		h.resumes++
	}
	h.began[o.number] = h.surely
}

func (p *pausing) refused(o *operation) {
	p.featureChecker.refused(o)
	if o.cmd != nil && o.cmd.Kind == timer.Resume {
		p.of(o.id).resumes--
	}
}

func (p *pausing) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	p.featureChecker.answered(w, o, r, t)
	h := p.of(o.id)
	if h.surely && h.began[o.number] && t != nil && !t.Paused {
		w.violate("paused", "operation %d on %s is answered with a timer in state %d that is not paused, but it was before", o.number, o.id, t.State)
	}
	if o.cmd == nil {
		return
	}
	switch {
	case o.cmd.Kind == timer.Resume:
		h.resumes--
		if t != nil && t.Paused && r.Code == timer.OK {
			w.violate("paused", "the resume of %s is answered with a paused timer", o.id)
		}
	case o.cmd.Kind == timer.Pause && r.Code == timer.OK:
		if t == nil || !t.Paused {
			w.violate("paused", "the pause of %s is answered with %+v", o.id, t)
		}
		w.counts.Paused++
		h.surely = h.resumes == 0 && !p.over
	}
}

func (p *pausing) mayStart(c *call, _ *table.Table) {
	if h := p.held[c.delivery.Job.ID]; h != nil && h.surely {
		p.w.violate("paused", "node %d starts %s, which is paused", c.node.id, c.delivery.Job.ID)
	}
}

// done ends the client and resumes all timers. A pause may still be on its way: they are resumed
// again later.
func (p *pausing) done() {
	p.crew.done()
	p.over = true
	for _, h := range p.held {
		h.surely = false
	}
	for _, later := range [...]time.Duration{0, 2 * time.Second, 5 * time.Second, 15 * time.Second} {
		p.w.after(later, func() {
			for _, id := range p.names {
				p.resume(id)
			}
		})
	}
}

// resume asks one machine after another to resume a timer, until one has done so.
func (p *pausing) resume(id string) {
	cmd := &timer.Command{Kind: timer.Resume, Topic: windowTopic, ID: id}
	p.w.operator(p.w.any(), func(ctx context.Context, n *node) error {
		_, err := n.router.Do(ctx, p.w.place(windowTopic, id), cmd, true)
		return err
	}, func(err error) {
		if err != nil {
			p.w.after(500*time.Millisecond, func() { p.resume(id) })
		}
	})
}

func (p *pausing) checkEnd(w *World) { p.ends(w, noneDead(w)) }
