package sim

import (
	"fmt"
	"math"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// The sick topic's receiver is down again and again, for longer than its breaker stays open, and its timers have few attempts. What is held:
// attempts never exceed the policy's, and each that counts was a call: a breaker that is open burns none (I17, see spent); the next one does
// not start before what the policy's backoff asks for (I17, see paced); and a healthy topic does not feel any of it (I16, see proveApart).
const sickName = "sick"

var sickTopic = timer.TopicID(len(topicNames) + 1)

// sickPolicy makes it die of attempts within seconds.
func sickPolicy(p *timer.Policy) {
	p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = 5, 100, 1600
	p.Breaker, p.OwnBreaker = timer.Breaker{Failures: 3, WindowMs: 10_000, OpenMs: 1500, Probes: 1}, true
}

// sickness is how that topic's receiver is.
type sickness struct {
	down  bool
	hangs bool // down: it takes calls and never answers
}

// status is what the receiver answers; 0: nothing.
func (s *sickness) status() int {
	switch {
	case !s.down:
		return 200
	case s.hangs:
		return 0
	}
	return 503
}

// sicken has the receiver fall ill and recover, and a client add timers for it.
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
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + (w.now + due).Milliseconds()}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

// spentKey names a call as its outcome does. Numbers are a shard's own, so two shards may have one in common.
type spentKey struct{ seq, fence uint64 }

// attemptChecker is what is known of attempts, of all topics.
type attemptChecker struct {
	calls map[spentKey][]*call
	last  map[timerKey]*call
	sick  map[string]*sickTimer
	names []string // of those, in order

	// inFlight has the timers of which a cancel was answered with a running attempt, and that one's fence: none starts after it.
	inFlight map[timerKey]uint64
}

// sickTimer is what is known of a timer in the sick topic.
type sickTimer struct {
	shard     timer.ShardID
	since     time.Duration
	acked     bool
	attempts  int // of the last call
	delivered bool
}

func newAttemptChecker() attemptChecker {
	return attemptChecker{calls: map[spentKey][]*call{}, last: map[timerKey]*call{}, sick: map[string]*sickTimer{}, inFlight: map[timerKey]uint64{}}
}

// asked and answered note adds to the sick topic.
func (b *attemptChecker) asked(o *operation) {
	b.sick[o.id] = &sickTimer{shard: o.shard, since: o.began}
	b.names = append(b.names, o.id)
}

func (b *attemptChecker) answered(o *operation) { b.sick[o.id].acked = true }

// cancelled notes that a client was told that a call is running and that no further one starts.
func (b *attemptChecker) cancelled(k timerKey, fence uint64) {
	if known, before := b.inFlight[k]; !before || fence < known {
		b.inFlight[k] = fence
	}
}

// begun checks an attempt, of any topic, against the cancels that were answered.
func (b *attemptChecker) begun(n *node, k timerKey, fence uint64, id string) {
	if running, cancelled := b.inFlight[k]; cancelled && fence > running {
		n.w.violate("I5", "node %d begins an attempt of %s under fence %d after a cancel was answered `in_flight` under fence %d", n.id, id, fence, running)
	}
}

// started checks a call that goes out, of any topic.
func (b *attemptChecker) started(c *call) {
	w, j, p := c.node.w, &c.delivery.Job, &c.delivery.Topic.Policy
	if j.Attempts > p.MaxAttempts {
		w.violate("I17", "node %d makes attempt %d of %s, and %d are allowed", c.node.id, j.Attempts, j.ID, p.MaxAttempts)
	}
	b.begun(c.node, timerKey{c.delivery.Shard, j.Seq}, j.Fence, j.ID)
	key := spentKey{j.Seq, j.Fence}
	b.calls[key] = append(b.calls[key], c)
	b.paced(c)
	w.checker.successes.started(b.last[timerKey{c.delivery.Shard, j.Seq}], c)
	b.last[timerKey{c.delivery.Shard, j.Seq}] = c
	if j.Topic != sickTopic {
		return
	}
	t := b.sick[j.ID]
	if t == nil || string(j.Payload) != `"`+j.ID+`"` {
		w.violate("I2", "node %d delivers %s of %s, which nobody wrote", c.node.id, j.Payload, j.ID)
	}
	if j.Attempts <= t.attempts {
		w.violate("I3", "attempt %d of %s starts after attempt %d", j.Attempts, j.ID, t.attempts)
	}
	t.attempts = j.Attempts
}

// paced checks that a retry keeps the backoff that was decided on. What a timer's table knows of its last attempt says whether that decision
// counts: an attempt whose end was never heard of is tried again at once. So is one that was counted and, as its process died, never made: the
// decision was for that one.
func (b *attemptChecker) paced(c *call) {
	w, j := c.node.w, &c.delivery.Job
	before := b.last[timerKey{c.delivery.Shard, j.Seq}]
	if before == nil || before.nextMs == 0 || before.delivery.Job.Version != j.Version || j.Topic == featureTopic || j.Attempts != before.delivery.Job.Attempts+1 {
		return
	}
	tbl := c.node.host.Table(c.delivery.Shard)
	firedMs, next := before.wallMs, before.nextMs
	for _, b := range w.checker.times.backs(c.delivery.Shard, before.judged) {
		if before.kept { // else the end may not have been heard of
			firedMs = min(firedMs, b.toMs)
		}
		if before.endedMs > b.toMs { // what is left of the wait counts from there
			next = min(next, b.toMs+max(0, next-b.fromMs))
		}
	}
	if d := tbl.Due(j.Handle); d.FiredMs > before.wallMs || d.FiredMs < firedMs {
		return
	}
	if c.letGoMs < next {
		w.violate("I17", "node %d makes attempt %d of %s %d ms before its backoff is over", c.node.id, j.Attempts, j.ID, next-c.letGoMs)
	}
}

// spent checks an attempt that a leader says has ended: it was a call, and a retry waits as the policy says.
func (b *attemptChecker) spent(n *node, out *table.Outcome) {
	if out.Kind == table.Release || out.ByConsumer {
		return
	}
	var calls []*call
	for _, c := range b.calls[spentKey{out.Seq, out.Fence}] {
		if c.wallMs == out.StartedMs {
			calls = append(calls, c)
		}
	}
	for _, c := range b.calls[spentKey{out.Seq, out.Fence}] {
		if len(calls) == 0 && n.mayBeginAnew(c, out) {
			calls = []*call{c}
		}
	}
	if len(calls) == 0 {
		n.w.violate("I17", "node %d counts an attempt of timer number %d under fence %d (%s), and there was no call", n.id, out.Seq, out.Fence, out.Err)
	}
	if out.Kind != table.RetryLater || len(calls) > 1 {
		return
	}
	c := calls[0]
	p := &c.delivery.Topic.Policy
	least := min(float64(p.MaxBackoffMs), float64(p.MinBackoffMs)*math.Pow(p.Multiplier, float64(c.delivery.Job.Attempts-1))) * (1 - p.Jitter)
	if wait := out.NextMs - out.EndedMs; float64(wait) < math.Floor(least) {
		n.w.violate("I17", "node %d tries %s again %d ms after attempt %d, the policy asks for %.0f", n.id, c.delivery.Job.ID, wait, c.delivery.Job.Attempts, least)
	}
	if c.nextMs == 0 || out.NextMs < c.nextMs { // a new leader may have judged it anew
		c.nextMs, c.endedMs, c.judged, c.kept = out.NextMs, out.EndedMs, n.w.now, false
		if n.w.checker.misled > 0 {
			c.keeps(out.Handle, 20*time.Millisecond)
		}
	}
}

// keeps looks whether what was decided of a call's retry is in its shard's table, as long as it may be on its way there.
func (c *call) keeps(h timer.Handle, wait time.Duration) {
	w, id, next := c.node.w, c.delivery.Shard, c.nextMs
	w.after(wait, func() {
		if leader := w.leader(id); leader != nil && c.nextMs == next {
			d := leader.host.Table(id).Due(h)
			c.kept = d.Seq == c.delivery.Job.Seq && d.State == timer.Scheduled && d.FiredMs == c.wallMs && d.NextMs == next
		}
		if !c.kept && wait < time.Second {
			c.keeps(h, 2*wait)
		}
	})
}

// mayBeginAnew says whether an outcome may be of a call that began at another time by its process's clock: who tells of it goes by another time
// than that process did, so the begin was set right as the end was.
func (n *node) mayBeginAnew(c *call, out *table.Outcome) bool {
	w := n.w
	behind, ahead := w.checker.times.off(c.delivery.Shard, c.begun, w.now)
	off := msOf(n.keeper.Look().WallMs-epochMs) - w.now // it may tell in its first turn by that time
	behind, ahead = min(behind, c.lowest, off), max(ahead, c.highest, off)
	by := msOf(out.StartedMs - c.wallMs).Abs()
	return by <= ahead-behind+w.now-c.begun+timeSlack && ahead-behind > sureWithin-timeSlack
}

func (b *attemptChecker) delivered(c *call) { b.sick[c.delivery.Job.ID].delivered = true }

// checkEnd: each timer was delivered, or is dead after all its attempts.
func (b *attemptChecker) checkEnd(w *World) {
	for _, id := range b.names {
		t := b.sick[id]
		if !t.acked {
			continue
		}
		tbl := w.leader(t.shard).host.Table(t.shard)
		switch now := tbl.Read(sickTopic, id); {
		case now == nil && w.mayBeForgotten(t.shard, t.since, true):
		case now == nil:
			w.violate("I1", "timer %s was acknowledged and is gone", id)
		case now.State == timer.Done && !t.delivered:
			w.violate("I1", "timer %s is done, but was never delivered", id)
		case now.State == timer.Dead:
			var p timer.Policy
			if sickPolicy(&p); now.Attempts != p.MaxAttempts {
				w.violate("I17", "timer %s is dead after %d attempts of %d", id, now.Attempts, p.MaxAttempts)
			}
		case now.State != timer.Done:
			w.violate("I14", "timer %s is in state %d with %d attempts; all should be over", id, now.State, now.Attempts)
		}
	}
}
