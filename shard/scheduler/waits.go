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
		if d.InBackoff(now) {
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
	return timer.Wait{For: timer.WaitLeader}
}

// unexplainedMs is how long a due timer may be on its way to its call before it is said to wait for
// the leader.
const unexplainedMs = 1000

// gateOf returns the gate that keeps a due timer.
func (v *view) gateOf(h timer.Handle, d *table.Due) timer.Wait {
	now := v.now.WallMs
	if !v.HasZone(h, d) {
		name, _ := v.table.Zone(h)
		return timer.Wait{For: timer.WaitZone, On: name}
	}
	t := v.topic(d.Topic)
	if t == nil {
		return timer.Wait{}
	}
	if !v.mayStart() {
		return timer.Wait{For: timer.WaitLeader}
	}
	if t.Paused {
		return timer.Wait{For: timer.WaitPaused, On: t.Name}
	}
	q := v.topics.byID[d.Topic]
	if q == nil || q.topic == nil {
		return timer.Wait{} // it is just coming out of the wheel
	}
	if open, _ := v.windows.inWindow(q); !open {
		return timer.Wait{For: timer.WaitWindow, On: t.Name}
	}
	if d.NextMs+v.due.spread(q, d, h) > now {
		return timer.Wait{For: timer.WaitSpread}
	}
	if w := v.keys.waitOf(q, h); w.For != timer.NoWait {
		if w.On != "" && w.On == v.table.ID(h) {
			w.On = "another occurrence of " + w.On
		}
		return w
	}
	if q.pulled() {
		if cause := v.limits.refusal(q); cause != timer.NoWait {
			return timer.Wait{For: cause, On: t.Name}
		}
		return timer.Wait{For: timer.WaitConsumer}
	}
	return v.laneWait(q, h, d)
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
	at := v.cfg.Dispatcher.State(n.dest, q.topic)
	if at.Breaker != delivery.BreakerClosed {
		return timer.Wait{For: timer.WaitBreaker, On: breakerText(&at, v.now.WallMs)}
	}
	if cause := v.limits.refusal(q); cause != timer.NoWait {
		return timer.Wait{For: cause, On: q.topic.Name}
	}
	if n.state == gathering {
		return timer.Wait{For: timer.WaitBatch, On: q.topic.Name}
	}
	cause, starting := q.onWay(n.state, v.now.WallMs)
	switch {
	case n.state == waiting, n.state == shut:
		cause = timer.WaitSlots
	case q.entries[n.state] <= starting:
		return timer.Wait{}
	}
	switch cause {
	case timer.WaitSlots:
		return timer.Wait{For: cause, On: at.Name}
	case timer.WaitLeader:
		return timer.Wait{For: cause}
	}
	return timer.Wait{For: cause, On: q.topic.Name}
}

// onWay returns what the timers of a topic's ready queues wait for, but for those that start with
// the next leases, and how many these are.
func (q *topicQueue) onWay(state queueState, nowMs int64) (cause timer.WaitCause, starting int) {
	switch class := state - open; {
	case state == granted: // it has waited for its receiver until now
		return timer.WaitSlots, leastProposed
	case state < open || state >= waiting:
	case q.credits[class] != nil:
		return timer.WaitSlots, leastProposed
	case q.asks[class]:
		return timer.WaitSlots, 0
	}
	return q.gate.of(nowMs), leastProposed
}

// countWaiting adds a topic's due timers that are not started to the sum of what they wait for.
// Those that are about to start wait for nothing: as many as the next leases take, unless the first
// has been on its way for unexplainedMs. Cost: O(1).
func (v *view) countWaiting(q *topicQueue, sum *timer.Waiting) {
	all := timer.NoWait // what every timer of the topic waits for
	switch open, _ := v.windows.inWindow(q); {
	case q.topic == nil, !v.mayStart():
		all = timer.WaitLeader
	case q.topic.Paused:
		all = timer.WaitPaused
	case !open:
		all = timer.WaitWindow
	default:
		if all = v.limits.refusal(q); all == timer.NoWait && q.pulled() {
			all = timer.WaitConsumer
		}
	}
	count := func(cause timer.WaitCause, entries int) {
		if all == timer.WaitLeader || all == timer.WaitPaused || all == timer.WaitWindow || cause == timer.NoWait {
			cause = all
		}
		if cause != timer.NoWait {
			sum[cause] += int64(entries)
		}
	}
	inLine := func(cause timer.WaitCause, entries int) {
		if all != timer.NoWait {
			cause = all
		}
		sum[cause] += int64(entries)
	}
	inLine(timer.WaitKey, q.inLine[full])
	inLine(timer.WaitKeyRate, q.inLine[spent])
	behind := [states]int{}
	if q.mode.serial {
		inLine(timer.WaitKey, q.inLine[free])
	} else { // they wait for what most of those that are let out wait for
		behind[q.crowded()] = q.inLine[free]
	}
	count(timer.WaitLeader, q.movingEntries)
	for state := granted; state < waiting; state++ {
		cause, starting := q.onWay(state, v.now.WallMs)
		n, first := q.entries[state]+behind[state], q.heapOf(state)
		if all != timer.NoWait {
			cause = timer.NoWait
		} else if first.Len() > 0 && first.First().head().dueMs > v.now.WallMs-unexplainedMs {
			n -= min(n, starting)
		}
		count(cause, n)
	}
	count(timer.WaitNoCallback, q.entries[stuck]+behind[stuck])
	count(timer.WaitBreaker, q.entries[shut]+behind[shut])
	count(timer.WaitBatch, q.entries[gathering]+behind[gathering])
	if all == timer.NoWait {
		count(timer.WaitSlots, q.entries[waiting]+behind[waiting])
	} else {
		count(timer.NoWait, q.entries[waiting]+behind[waiting])
	}
}

// crowded is the state of most of a topic's timers that are let out.
func (d *destinations) crowded() queueState {
	most := open
	for state := granted; state < states; state++ {
		if d.entries[state] > d.entries[most] {
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
