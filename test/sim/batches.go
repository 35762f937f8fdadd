package sim

import (
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/timer"
)

// batches has topics of other workloads call many timers at once. These workloads' own rules judge
// each timer of a call as if it had been called alone: none is lost or called twice, each retry
// keeps its backoff, and each limit holds. It draws from a stream of its own and is on in half of
// the runs.
type batches struct {
	w      *World
	chance chance
	topics map[timer.TopicID]*timer.Batch
}

// longestGather is short enough for the rules that ask for punctual calls.
const longestGather = 500 * time.Millisecond

func (w *World) drawBatches() *batches {
	c := newChance(w.cfg.Seed, 53)
	b := &batches{w: w, chance: c, topics: map[timer.TopicID]*timer.Batch{}}
	on := c.IntN(2) == 0 && w.cfg.script == nil
	for _, id := range []timer.TopicID{1, 2, featureTopic, fewTopic, pacedTopic, spreadTopic, briefTopic, contentTopic, bulkTopic, mergingTopic, sickTopic, perKeyTopic} {
		batch := &timer.Batch{Max: 2 + c.IntN(1+c.IntN(30)), ByKey: c.IntN(4) == 0}
		if wait := c.between(0, longestGather); id != 1 && c.IntN(4) > 0 { // proveApart wants punctual calls of it
			batch.WaitMs = wait.Milliseconds()
		}
		if c.IntN(2) == 0 && on {
			b.topics[id] = batch
		}
	}
	return b
}

// shape sets a topic's policy.
func (b *batches) shape(id timer.TopicID, p *timer.Policy) { p.Batch = b.topics[id] }

// batchCall is one call of many timers. For the checkers each timer has a call of its own; they
// share the permit and the receiver's status.
type batchCall struct {
	permit *permit
	calls  []*call
	done   func([]delivery.Outcome)
}

// StartBatch implements scheduler.Dispatcher.
func (d *dispatcher) StartBatch(to delivery.Permit, j *scheduler.BatchCall, done func([]delivery.Outcome)) {
	g := &batchCall{permit: to.(*permit), done: done}
	g.permit.use()
	if d.n.silent() {
		return
	}
	for i := range j.Jobs {
		g.calls = append(g.calls, d.newCall(g.permit, &scheduler.Delivery{Topic: j.Topic, Shard: j.Shard, Job: j.Jobs[i], Own: j.Own, Deadline: j.Deadline}))
	}
	d.w.batches.judge(g)
	d.soon(g.begin)
}

// judge checks which timers a call has. By key, those without one share a call with each other.
func (b *batches) judge(g *batchCall) {
	w, first := b.w, &g.calls[0].delivery
	w.counts.Batches++
	w.counts.Batched += len(g.calls)
	policy := first.Topic.Policy.Batch
	if policy == nil || len(g.calls) > policy.Max {
		w.violate("batch", "node %d calls for %d timers of %s at once, its policy is %+v", g.calls[0].node.id, len(g.calls), first.Topic.Name, policy)
	}
	key, hasKey := timer.KeyOf(first.Job.ID)
	seen := map[uint64]bool{}
	for _, c := range g.calls {
		j := &c.delivery.Job
		own, has := timer.KeyOf(j.ID)
		if j.Attempts != 1 || policy.ByKey && (has != hasKey || has && own != key) || j.Target != first.Job.Target || seen[j.Seq] {
			w.violate("batch", "node %d calls for attempt %d of %s together with %s", c.node.id, j.Attempts, j.ID, first.Job.ID)
		}
		seen[j.Seq] = true
	}
}

// begin sends the call, unless it would outlast its lease.
func (g *batchCall) begin() {
	c, w := g.calls[0], g.permit.d.w
	for _, c := range g.calls {
		c.wallMs, c.begun = c.node.keeper.WallMs(), w.now
	}
	if c.late() || !w.keys.opens(c.node, c.delivery.Topic) {
		g.end(func(*call) delivery.Outcome { return delivery.Outcome{NotSent: true} })
		return
	}
	for _, c := range g.calls {
		w.checker.started(c)
	}
	took, status, heard := c.answers()
	failed := map[*call]bool{}
	for _, c := range g.calls {
		failed[c] = status == 200 && !w.calm && w.batches.chance.IntN(6) == 0
	}
	w.after(took, func() {
		for _, c := range g.calls {
			if c.ended = true; !failed[c] {
				c.arrived(status)
			}
		}
		if c.node.life == c.life {
			c.node.do(func() {
				g.end(func(c *call) delivery.Outcome {
					out := outcomeOf(status, heard)
					if failed[c] && heard {
						out.Err = "failed"
					}
					if out.Status >= 300 {
						out.Answer = w.checker.answers.given(w, &c.delivery.Job, status)
					}
					return out
				})
			})
		}
	})
}

// end reports how the attempts ended to the host.
func (g *batchCall) end(outcome func(*call) delivery.Outcome) {
	var list []delivery.Outcome
	whole := outcome(g.calls[0])
	for _, c := range g.calls {
		a := outcome(c)
		c.record(&a)
		list = append(list, a)
	}
	g.permit.answered(&whole)
	g.done(list)
	g.calls[0].node.wake(0)
}
