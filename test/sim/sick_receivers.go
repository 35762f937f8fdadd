package sim

import (
	"fmt"
	"math"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// The sick topic's receiver is down again and again, for longer than its breaker stays open, and
// its timers have few attempts. Three rules hold. Attempts never exceed the policy's, and each
// counted attempt was a call, because an open breaker uses up none (I17, see spent). A retry does
// not start before the policy's backoff is over (I17, see paced). And a healthy topic is not
// affected (I16, see proveApart).
const sickName = "sick"

var sickTopic = timer.TopicID(len(topicNames) + 1)

// sickPolicy lets a timer use up its attempts within seconds.
func sickPolicy(p *timer.Policy) {
	p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = 5, 100, 1600
	p.Breaker, p.OwnBreaker = timer.Breaker{Failures: 3, WindowMs: 10_000, OpenMs: 1500, Probes: 1}, true
}

// sickness is the state of that topic's receiver.
type sickness struct {
	down  bool
	hangs bool // while down, it takes calls and never answers
}

// status is the receiver's answer; 0: none.
func (s *sickness) status() int {
	switch {
	case !s.down:
		return 200
	case s.hangs:
		return 0
	}
	return 503
}

// sicken makes the receiver fail and recover, and a client add timers for it.
func (w *World) sicken() {
	if w.swarm.sickThink == 0 {
		return
	}
	var turn func()
	turn = func() {
		if w.calm {
			return
		}
		s := &w.sick
		s.down, s.hangs = !s.down, w.chance.IntN(2) == 0
		least, most := 100*time.Millisecond, 2*time.Second
		if s.down {
			most = 8 * time.Second
		}
		w.after(w.chance.between(least, most), turn)
	}
	w.after(0, turn)
	c := &client{w: w, number: len(w.clients)}
	w.clients = append(w.clients, c)
	var next func()
	next = func() {
		if c.done {
			return
		}
		o := w.sickAdd(w.chance.between(-50*time.Millisecond, time.Second))
		o.then = func(bool) { w.after(w.chance.between(w.swarm.sickThink/4, 2*w.swarm.sickThink), next) }
		c.start(o)
	}
	w.after(0, next)
}

// sickAdd is an add to the sick topic.
func (w *World) sickAdd(due time.Duration) *operation {
	o := &operation{number: w.checker.nextOp(), topic: sickTopic}
	o.id = fmt.Sprintf("i%d", o.number)
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + (w.now + due).Milliseconds(), dies: true}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

// spentKey identifies the calls that an outcome may belong to. It is unique within a shard only, so
// calls of two shards may share one: an observer is not told the shard.
type spentKey struct {
	topic      timer.TopicID
	seq, fence uint64
	slot       timer.Handle
}

// attemptChecker checks the attempts of all topics.
type attemptChecker struct {
	calls map[spentKey][]*call
	last  map[timerKey]*call

	// inFlight holds timers with a cancel that was answered `in_flight`, and the fence of the
	// attempt that was running. No later attempt may start.
	inFlight map[timerKey]uint64
}

func newAttemptChecker() attemptChecker {
	return attemptChecker{calls: map[spentKey][]*call{}, last: map[timerKey]*call{}, inFlight: map[timerKey]uint64{}}
}

// cancelled records the answer that a call is running and no further one will start.
func (b *attemptChecker) cancelled(k timerKey, fence uint64) {
	if known, before := b.inFlight[k]; !before || fence < known {
		b.inFlight[k] = fence
	}
}

// begun checks an attempt of any topic against the answered cancels.
func (b *attemptChecker) begun(n *node, k timerKey, fence uint64, id string) {
	if running, cancelled := b.inFlight[k]; cancelled && fence > running {
		n.w.violate("I5", "node %d begins an attempt of %s under fence %d after a cancel was answered `in_flight` under fence %d", n.id, id, fence, running)
	}
}

// started checks a call of any topic when it is sent.
func (b *attemptChecker) started(c *call) {
	w, j, p := c.node.w, &c.delivery.Job, &c.delivery.Topic.Policy
	if j.Attempts > p.MaxAttempts {
		w.violate("I17", "node %d makes attempt %d of %s, the limit is %d", c.node.id, j.Attempts, j.ID, p.MaxAttempts)
	}
	b.begun(c.node, keyOfCall(&c.delivery), j.Fence, j.ID)
	key := spentKey{j.Topic, j.Seq, j.Fence, j.Handle}
	b.calls[key] = append(b.calls[key], c)
	b.paced(c)
	before := b.last[keyOfCall(&c.delivery)]
	w.checker.successes.started(before, c)
	b.last[keyOfCall(&c.delivery)] = c
	if j.Topic == sickTopic && before != nil && j.Attempts <= before.delivery.Job.Attempts {
		w.violate("I3", "attempt %d of %s starts after attempt %d", j.Attempts, j.ID, before.delivery.Job.Attempts)
	}
}

// paced checks that a retry keeps the backoff that a leader decided. The last attempt in the
// timer's table says whether that decision counts. An attempt is retried at once if its end was
// never reported, or if it was counted and never made because its process died: the decision was
// about the attempt before.
func (b *attemptChecker) paced(c *call) {
	w, j := c.node.w, &c.delivery.Job
	before := b.last[keyOfCall(&c.delivery)]
	if before == nil || before.nextMs == 0 || before.delivery.Job.Version != j.Version || j.Attempts != before.delivery.Job.Attempts+1 {
		return
	}
	tbl := c.node.host.Table(c.node.holderAt(&c.delivery))
	firedMs, next := before.wallMs, before.nextMs
	backs := w.checker.times.backs(c.delivery.Shard, before.judged)
	for _, b := range backs {
		if before.kept { // otherwise its end may not have been reported
			firedMs = min(firedMs, b.toMs)
		}
		if before.endedMs > b.toMs { // the rest of the wait counts from the new time
			next = min(next, b.toMs+max(0, next-b.fromMs))
		}
	}
	// A client asked for this attempt, which is possible only between two attempts. Without that
	// only a clock that is set back changes the time.
	if asked := before.delivery.Job.AskedMs; j.AskedMs > asked || j.AskedMs < asked && len(backs) == 0 {
		next = min(next, j.AskedMs)
	}
	if d := tbl.Due(j.Handle); d.FiredMs > before.wallMs || d.FiredMs < firedMs {
		return
	}
	// The occurrence of a series was ahead by a wrong clock. As that was set back it got another due
	// time, at which it goes whatever it waited for.
	if j.DueMs < before.delivery.Job.DueMs && len(backs) > 0 {
		next = min(next, j.DueMs)
	}
	// The leader's clock was set back after the decision, and before its entry was applied: the
	// shard's clock has not reached the end of the attempt yet, and the table never had this
	// decision. The wait counts from a time that is not known. Where the table had it, backs knows
	// that time.
	if !before.kept && w.checker.times.of(c.delivery.Shard).clock < before.endedMs && c.letGoMs < before.endedMs {
		return
	}
	if c.letGoMs < next {
		w.violate("I17", "node %d makes attempt %d of %s %d ms before its backoff is over", c.node.id, j.Attempts, j.ID, next-c.letGoMs)
	}
}

// spent checks an outcome that a leader reports: there was a call, and a retry waits as the policy
// says.
func (b *attemptChecker) spent(n *node, topic timer.TopicID, out *table.Outcome) {
	if out.Kind == table.Release || out.ByConsumer {
		return
	}
	var calls []*call
	for _, c := range b.calls[spentKey{topic, out.Seq, out.Fence, out.Handle}] {
		if c.wallMs == out.StartedMs {
			calls = append(calls, c)
		}
	}
	for _, c := range b.calls[spentKey{topic, out.Seq, out.Fence, out.Handle}] {
		if len(calls) == 0 && n.mayBeginAnew(c, out) {
			calls = []*call{c}
		}
	}
	if len(calls) == 0 {
		n.w.violate("I17", "node %d counts an attempt of timer number %d under fence %d (%s), but there was no call", n.id, out.Seq, out.Fence, out.Err)
	}
	if out.Kind != table.RetryLater || len(calls) > 1 {
		return
	}
	c := calls[0]
	p := &c.delivery.Topic.Policy
	least := min(float64(p.MaxBackoffMs), float64(p.MinBackoffMs)*math.Pow(p.Multiplier, float64(c.delivery.Job.Attempts-1))) * (1 - p.Jitter)
	if wait := out.NextMs - out.EndedMs; float64(wait) < math.Floor(least) {
		n.w.violate("I17", "node %d tries %s again %d ms after attempt %d, the policy asks for at least %.0f", n.id, c.delivery.Job.ID, wait, c.delivery.Job.Attempts, least)
	}
	if c.nextMs == 0 || out.NextMs < c.nextMs { // a new leader may have decided again
		c.nextMs, c.endedMs, c.judged, c.kept = out.NextMs, out.EndedMs, n.w.now, false
		if n.w.checker.misled > 0 {
			c.keeps(out.Handle, 20*time.Millisecond)
		}
	}
}

// keeps records whether the decision about a call's retry has reached its shard's table.
func (c *call) keeps(h timer.Handle, wait time.Duration) {
	w, next := c.node.w, c.nextMs
	w.after(wait, func() {
		id := w.holder(c.delivery.Job.Topic, c.delivery.Job.ID)
		if leader := w.leader(id); leader != nil && c.nextMs == next {
			d := leader.host.Table(id).Due(h)
			c.kept = d.Seq == c.delivery.Job.Seq && d.State == timer.Scheduled && d.FiredMs == c.wallMs && d.NextMs == next
		}
		if !c.kept && wait < time.Second {
			c.keeps(h, 2*wait)
		}
	})
}

// mayBeginAnew reports whether an outcome may belong to a call although their start times differ.
// The reporting process may use another time than the calling one did, and then corrects the start
// together with the end.
func (n *node) mayBeginAnew(c *call, out *table.Outcome) bool {
	w := n.w
	behind, ahead := w.checker.times.off(c.delivery.Shard, c.begun, w.now)
	off := msOf(n.keeper.Look().WallMs-epochMs) - w.now // its first turn may report by that time
	behind, ahead = min(behind, c.lowest, off), max(ahead, c.highest, off)
	by := msOf(out.StartedMs - c.wallMs).Abs()
	return by <= ahead-behind+w.now-c.begun+timeSlack && ahead-behind > sureWithin-timeSlack
}

// checkSick checks that each timer of the sick topic was delivered, or is dead after all its
// attempts.
func (f *featureChecker) checkSick(w *World) {
	for _, k := range f.names {
		n, at := f.ids[k], w.holder(k.topic, k.id)
		if k.topic != sickTopic || !n.first.acked {
			continue
		}
		switch now := w.leader(at).host.Table(at).Read(sickTopic, k.id); {
		case now == nil && w.mayBeForgotten(at, n.since, true):
		case now == nil:
			w.violate("I1", "timer %s was acknowledged and is gone", k.id)
		case now.State == timer.Done && len(n.first.over) == 0:
			w.violate("I1", "timer %s is done, but was never delivered", k.id)
		case now.State == timer.Dead:
			var p timer.Policy
			if sickPolicy(&p); now.Attempts != p.MaxAttempts {
				w.violate("I17", "timer %s is dead after %d attempts, expected %d", k.id, now.Attempts, p.MaxAttempts)
			}
		case now.State != timer.Done:
			w.violate("I14", "timer %s is in state %d with %d attempts, expected an ended timer", k.id, now.State, now.Attempts)
		}
	}
}
