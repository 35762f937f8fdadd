package scheduler

import (
	"fmt"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// Standing is the progress of a timer, as its shard's leader knows it.
type Standing struct {
	timer.Wait
	Seq      uint64 // 0: there is no such timer
	State    timer.State
	Attempts int
}

// Standing looks one timer up in the queues.
func (v *view) Standing(h timer.Handle) Standing {
	d := v.table.Due(h)
	p := Standing{Seq: d.Seq, State: d.State, Attempts: d.Attempts}
	switch {
	case d.State == timer.Scheduled:
		p.Wait = v.waitOf(h, &d)
	case d.State == timer.Leased && v.table.Awaited(h): // of those behind it, which have its id
		p.Wait = timer.Wait{For: timer.WaitOrder}
	}
	return p
}

// WaitOf returns the reason why a scheduled timer waits, also where this replica does not lead.
func (v *view) WaitOf(h timer.Handle) timer.Wait {
	d := v.table.Due(h)
	switch {
	case d.State != timer.Scheduled:
		return timer.Wait{}
	case !v.Leads() && !d.Paused && d.NextMs <= v.now.WallMs:
		return timer.Wait{For: timer.WaitLeader}
	}
	return v.waitOf(h, &d)
}

// waitOf returns the reason why a scheduled timer waits. It changes nothing.
func (v *view) waitOf(h timer.Handle, d *table.Due) timer.Wait {
	now := v.now.WallMs
	if d.Paused {
		return timer.Wait{For: timer.WaitHeld}
	}
	if d.NextMs > now {
		if d.InBackoff(now) || d.PutOff() {
			if text := v.table.RefusedAddress(h); text != "" {
				return timer.Wait{For: timer.WaitRefused, On: text}
			}
			return timer.Wait{For: timer.WaitBackoff}
		}
		return timer.Wait{}
	}
	if d.Behind {
		return timer.Wait{For: timer.WaitOrder}
	}
	if w := v.gateOf(h, d); w.For != timer.NoWait || d.NextMs > now-unexplainedMs {
		return w
	}
	return timer.Wait{For: v.turnOrLeader(d.NextMs)}
}

// unexplainedMs is how long a due timer may be on its way to its call before its wait has a reason,
// and how long a leader may start nothing before timers wait for it.
const unexplainedMs = 1000

// turnOrLeader returns what timers wait for that no gate keeps: for others to start first, or for a
// leader that starts none. The first of them was due at fromMs.
func (v *view) turnOrLeader(fromMs int64) timer.WaitCause {
	if fromMs > v.now.WallMs-unexplainedMs || v.now.Mono-v.leases.pipeline.lastStart < unexplainedMs*time.Millisecond {
		return timer.WaitTurn
	}
	return timer.WaitLeader
}

// gateOf returns the gate that keeps a due timer.
func (v *view) gateOf(h timer.Handle, d *table.Due) timer.Wait {
	now := v.now.WallMs
	if !v.HasZone(h, d) {
		name, _ := v.table.Zone(h)
		return timer.Wait{For: timer.WaitZone, On: name}
	}
	q := v.queueOf(d.Topic)
	switch cause := v.topicGate(q); cause {
	case timer.NoWait:
	case timer.WaitLeader:
		return timer.Wait{For: cause}
	default:
		return timer.Wait{For: cause, On: q.topic.Name}
	}
	if d.NextMs+v.due.spread(q, d, h) > now {
		return timer.Wait{For: timer.WaitSpread}
	}
	if q.queues == nil {
		return timer.Wait{} // it is just coming out of the wheel
	}
	if w := v.keys.waitOf(q, h); w.For != timer.NoWait {
		if w.On != "" && w.On == v.table.ID(h) {
			w.On = "another occurrence of " + w.On
		}
		return w
	}
	if q.pulled() {
		if cause := v.limits.refusal(q); cause != timer.NoWait {
			return timer.Wait{For: cause, On: q.topic.Name}
		}
		return timer.Wait{For: timer.WaitConsumer}
	}
	return v.laneWait(q, h, d)
}

// queueOf returns the queue of a topic; one without timers, if all are in the wheel.
func (v *view) queueOf(topic timer.TopicID) *topicQueue {
	if q := v.topics.byID[topic]; q != nil {
		return q
	}
	return &topicQueue{id: topic, topic: v.topic(topic)}
}

// topicGate returns the gate that keeps all due timers of a topic; they may be kept for longer by
// their spread.
func (v *view) topicGate(q *topicQueue) timer.WaitCause {
	if q.topic == nil || !v.mayStart() {
		return timer.WaitLeader
	}
	if q.topic.Paused {
		return timer.WaitPaused
	}
	if open, _ := v.windows.inWindow(q); !open {
		return timer.WaitWindow
	}
	return timer.NoWait
}

// laneWait returns the reason why a destination queue waits.
func (v *view) laneWait(q *topicQueue, h timer.Handle, d *table.Due) timer.Wait {
	n := q.routes[d.Target]
	if r, many := v.topics.routeOf(q, h, d); many && q.groups[r] != nil {
		n = q.groups[r]
	}
	if n == nil {
		return timer.Wait{}
	}
	return v.queueWait(n)
}

// queueWait returns the reason why the timers of a destination queue wait.
func (v *view) queueWait(n *destQueue) timer.Wait {
	q := n.queue
	if n.dest == nil {
		return timer.Wait{For: timer.WaitNoCallback, On: q.topic.Name}
	}
	if _, own := n.dest.(canaryDest); own {
		return timer.Wait{}
	}
	if n.state == gathering { // whatever comes after it
		return timer.Wait{For: timer.WaitBatch, On: q.topic.Name}
	}
	at := v.cfg.Dispatcher.State(n.dest, q.topic)
	if at.Barred {
		return timer.Wait{For: timer.WaitLeader, On: "its node lacks a key of the topic's secrets"}
	}
	if at.Breaker != delivery.BreakerClosed {
		return timer.Wait{For: timer.WaitBreaker, On: breakerText(&at, v.now.WallMs)}
	}
	if cause := v.limits.refusal(q); cause != timer.NoWait {
		return timer.Wait{For: cause, On: q.topic.Name}
	}
	switch n.state {
	case shut: // its breaker has just closed
		return timer.Wait{For: timer.WaitBreaker, On: at.Name + " (closed)"}
	case waiting:
		return timer.Wait{For: timer.WaitSlots, On: at.Name}
	}
	cause, starting := v.onWay(q, n.state)
	switch {
	case q.standing[n.state] <= starting:
		return timer.Wait{}
	case cause == timer.WaitSlots:
		return timer.Wait{For: cause, On: at.Name}
	case cause == timer.WaitTurn, cause == timer.WaitLeader:
		return timer.Wait{For: cause}
	}
	return timer.Wait{For: cause, On: q.topic.Name}
}

// onWay returns the cause for which the timers of a topic's ready queues wait, and how many of them
// start with the next leases: for these the cause does not hold.
func (v *view) onWay(q *topicQueue, state queueState) (cause timer.WaitCause, starting int) {
	switch class := state - open; {
	case state == granted: // it has waited for its receiver until now
		return timer.WaitSlots, leastProposed
	case state < open || state >= waiting:
	case q.credits[class] != nil:
		return timer.WaitSlots, leastProposed
	case q.asks[class]:
		return timer.WaitSlots, 0
	}
	if cause = q.gate.of(v.now.WallMs); cause == timer.NoWait {
		cause = v.turnOrLeader(q.firstMs(state))
	}
	return cause, leastProposed
}

// firstMs is when the first timer of the queues of a state was due; 0: there is none.
func (d *destinations) firstMs(state queueState) int64 {
	if h := d.heapOf(state); h != nil && h.Len() > 0 {
		return h.First().head().dueMs
	}
	return 0
}

// countWaiting adds a topic's due timers that are not started to the sum of what they wait for.
// Those that are about to start wait for nothing: as many as the next leases take, unless the first
// has been on its way for unexplainedMs. Cost: O(1).
func (v *view) countWaiting(q *topicQueue, sum *timer.Waiting) {
	left := q.dueOrder.Len()
	if left == 0 {
		return // most of many topics have nothing due
	}
	count := func(cause timer.WaitCause, n int) {
		sum[cause] += int64(n)
		left -= n
	}
	if all := v.topicGate(q); all != timer.NoWait {
		count(all, left)
		return
	}
	line := v.keys.inLine(q)
	count(timer.WaitKey, line[full])
	count(timer.WaitKeyRate, line[spent])
	behind := [states]int{}
	if q.mode.serial {
		count(timer.WaitKey, line[free])
	} else { // they wait for what most of those that are let out wait for
		behind[q.crowded()] = line[free]
	}
	refusal := v.limits.refusal(q)
	if q.pulled() {
		if refusal == timer.NoWait {
			refusal = timer.WaitConsumer
		}
		count(refusal, left)
		return
	}
	closed := v.closed(q)
	for state := range states {
		cause, n := refusal, q.standing[state]+behind[state]
		switch {
		case state == stuck:
			cause = timer.WaitNoCallback
		case state == gathering:
			cause = timer.WaitBatch
		case closed != timer.NoWait:
			cause = closed
		case state == shut:
			cause = timer.WaitBreaker
		case refusal != timer.NoWait:
		case state == waiting:
			cause = timer.WaitSlots
		default:
			var starting int
			if cause, starting = v.onWay(q, state); q.firstMs(state) > v.now.WallMs-unexplainedMs {
				starting = min(n, starting)
				left, n = left-starting, n-starting
			}
		}
		count(cause, n)
	}
	count(timer.WaitTurn, left) // they are being queued again
}

// closed is why the only receiver of a topic is not called, though its queue may not have asked
// since; NoWait: it is called, or there are several.
func (v *view) closed(q *topicQueue) timer.WaitCause {
	if len(q.dests) != 1 || q.dests[0].dest == nil || q.id == table.CanaryTopic {
		return timer.NoWait
	}
	switch at := v.cfg.Dispatcher.State(q.dests[0].dest, q.topic); {
	case at.Barred:
		return timer.WaitLeader
	case at.Breaker != delivery.BreakerClosed:
		return timer.WaitBreaker
	}
	return timer.NoWait
}

// crowded is the state of most of a topic's timers that are let out.
func (d *destinations) crowded() queueState {
	most := open
	for state := granted; state < states; state++ {
		if d.standing[state] > d.standing[most] {
			most = state
		}
	}
	return most
}

// breakerText describes a destination in words, with the time of its breaker's next probe.
func breakerText(s *delivery.State, nowMs int64) string {
	if s.Breaker == delivery.BreakerHalfOpen {
		return s.Name + " (half-open, a probe runs)"
	}
	at := time.UnixMilli(nowMs).Add(s.ProbeIn + time.Second - 1).UTC() // rounded up, so that two calls print the same
	return fmt.Sprintf("%s (open, next probe %s)", s.Name, at.Format(time.RFC3339))
}
