package sim

import (
	"fmt"
	"time"

	"carillon/internal/clocks"
	"carillon/timer"
)

// clockFaults are the rates of clock faults. They are drawn from a stream of their own.
type clockFaults struct {
	steps  float64 // per second in the whole cluster: wall clocks are set
	sleeps float64 // … a machine sleeps
	// stops is the share of sleeps in which a virtual machine is stopped, and its boot clock with
	// it.
	stops        float64
	longestSleep time.Duration
}

// ClockCounts count the clock faults of a run.
type ClockCounts struct {
	// clock settings; those by more than a minute; those of several clocks at once
	Steps, Far, Many int
	Sleeps, Stops    int
	// checks with an untrusted clock; checks with a wrong clock that had to be trusted
	Held, Misled int
	SetBack      int // replicas whose clock went back
}

const (
	tenYears = 10 * 365 * 24 * time.Hour
	// rightWithin is the largest error of a clock that counts as right.
	rightWithin = 300 * time.Millisecond
	// sureWithin bounds the error of a time that a process is sure of: two clocks that agree, and
	// their slew.
	sureWithin = 2 * time.Second
	// behindWithin is how much further behind that time may be: a slow heartbeat makes another
	// clock look late.
	behindWithin = 5 * time.Second
)

// clockwise draws the clock faults of a run. One run in six is dense with them, with clusters of
// one to five nodes.
func (s *swarm) clockwise(c chance) {
	s.clocks = clockFaults{steps: s.steps, sleeps: c.seldom(0.1), stops: c.Float64(), longestSleep: c.between(time.Second, 40*time.Second)}
	if c.IntN(6) > 0 {
		return
	}
	s.nodes = [...]int{1, 2, 3, 5}[c.IntN(4)]
	s.replicas = min(3, s.nodes)
	s.clocks.steps, s.clocks.sleeps = 0.02+0.3*c.Float64(), c.seldom(0.3)
	s.think, s.clients = c.between(10*time.Millisecond, 200*time.Millisecond), 3+c.IntN(6)
	s.partitions, s.pauses, s.crashes, s.powerCuts = c.seldom(0.1), 0, c.seldom(0.2), c.seldom(0.02)
	s.diskErrors, s.full, s.rots, s.wipes, s.moves = 0, 0, 0, 0, 0
	s.longestDown = c.between(50*time.Millisecond, 3*time.Second)
	s.ailments = ailments{}
}

// mistime draws the clock faults that happen now.
func (w *World) mistime() {
	if w.calm {
		return
	}
	f := &w.swarm.clocks
	if w.times.hit(f.steps * nemesisEach.Seconds()) {
		w.stepClocks()
	}
	if w.times.hit(f.sleeps * nemesisEach.Seconds()) {
		if n := w.inUse(w.times); n.up {
			n.sleep(w.times.between(50*time.Millisecond, f.longestSleep))
		}
	}
	w.after(nemesisEach, w.mistime)
}

// stepClocks sets the wall clocks of one, two or all machines wrong by up to ten years, or right.
func (w *World) stepClocks() {
	r := w.times
	by := [...]time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 5 * time.Minute, time.Hour, tenYears}[r.IntN(6)]
	if r.IntN(3) == 0 {
		by = r.between(0, by)
	}
	if r.IntN(2) == 0 {
		by = -by
	}
	if r.IntN(4) == 0 {
		by = 0
	}
	many := [...]int{1, 1, 1, 2, 99}[r.IntN(5)]
	several := many > 1
	for _, at := range r.Perm(len(w.nodes)) {
		if n := w.nodes[at]; !n.gone && many > 0 {
			many--
			n.setClock(by)
		}
	}
	w.counts.Many += int(b2u(several))
}

// setClock sets the error of a machine's wall clock. Nothing runs on a machine that sleeps, so
// nothing sets its clock.
func (n *node) setClock(off time.Duration) {
	w := n.w
	if n.clock.step == off || n.clock.asleep {
		return
	}
	for _, other := range w.nodes { // until now other processes may have used this clock
		other.confirmed()
	}
	w.checker.limits.lateUntil = w.now + partFor
	w.counts.Steps++
	w.counts.Far += int(b2u(off > time.Minute || off < -time.Minute))
	n.clock.left.off, n.clock.left.at = n.off(), w.now
	n.clock.move(func() { n.clock.step, n.clock.frozen = off, false })
	w.note(n, "step", 0, uint64(off), "")
	n.wake(0)
}

// sleep suspends a machine. Its monotonic clock stands still; so does its boot clock if a
// hypervisor stops the machine. Afterwards its wall clock is right, or as wrong as before.
func (n *node) sleep(d time.Duration) {
	w := n.w
	if !n.pause(d) {
		return
	}
	stopped := w.times.hit(w.swarm.clocks.stops)
	w.counts.Sleeps++
	w.counts.Stops += int(b2u(stopped))
	w.note(n, "sleep", b2u(stopped), uint64(d.Milliseconds()), "")
	n.clock.asleep, n.clock.bootAsleep, n.clock.asleepAt = true, stopped, w.now
}

// wakeClocks resumes the clocks of a machine that sleeps.
func (n *node) wakeClocks() {
	c := &n.clock
	if !c.asleep {
		return
	}
	c.move(func() {
		c.monoStopped += n.w.now - c.asleepAt
		if c.bootAsleep {
			c.bootStopped += n.w.now - c.asleepAt
			c.frozen = false
		}
		c.asleep = false
	})
}

// off is the error of a machine's wall clock.
func (n *node) off() time.Duration { return n.clock.wall() - n.w.now }

func (n *node) isRight() bool { return n.off().Abs() <= rightWithin }

// foundOut bounds how long a process needs to notice that most clocks disagree with its own.
const foundOut = 3 * time.Second

// rightOnes reports whether more than half of the machines in use have had a right clock for
// foundOut.
func (w *World) rightOnes() bool {
	right, all := 0, 0
	for _, n := range w.nodes {
		if !n.gone {
			all++
			right += int(b2u(n.isRight()))
		}
	}
	if 2*right <= all {
		w.wrongAt = w.now
	}
	return w.now-w.wrongAt > foundOut
}

// mayBeMisled reports whether a process may trust a wrong clock. The clock must have been steady
// for long enough, or since boot, or must agree with another clock that was. And the process must
// lack a majority of right clocks: there is none, or it does not hear it, or it has heard it only
// since foundOut.
func (n *node) mayBeMisled() bool {
	w := n.w
	slewed := (n.off() - n.beganOff).Abs() <= clocks.Slew // since the process began; so it has seen no step
	if w.now-n.clock.touched < clocks.SteadyFor-500*time.Millisecond && n.bootedAt < n.clock.touched && !n.confirmed() && !slewed &&
		(n.believedOff-n.off()).Abs() > sureWithin && (n.trustedLead-n.clock.lead()).Abs() > clocks.Slew { // otherwise the clock is as it was before
		return false
	}
	if !w.rightOnes() || !n.hearsRight() || w.now-n.resumedAt < 500*time.Millisecond {
		n.misledUntil = w.now + foundOut
	}
	return w.now < n.misledUntil
}

// confirmed reports whether another machine's clock has the same error, or had it within foundOut.
// This one may have got it after the other lost it: it has heard of the other's clock before.
func (n *node) confirmed() bool {
	lately := func(at, off time.Duration) bool {
		return at > 0 && n.w.now-at <= foundOut && (off-n.off()).Abs() <= sureWithin
	}
	had := false
	for _, other := range n.w.nodes {
		if other == n || other.gone {
			continue
		}
		had = had || lately(other.clock.left.at, other.clock.left.off)
		if (other.off() - n.off()).Abs() <= sureWithin {
			n.confirmedAt, n.confirmedOff = n.w.now, n.off()
		}
	}
	return had || lately(n.confirmedAt, n.confirmedOff)
}

// hearsRight reports whether the process hears from more than half of the members that their clocks
// are right.
func (n *node) hearsRight() bool {
	return n.member != nil && n.member.ClockRight(func(id uint64) bool { return n.w.node(id).isRight() })
}

// passOver forgets that the wall clock was touched, if it was wrong by as much before the process
// stood still and is again: the process cannot know, and takes its clock for steady.
func (n *node) passOver() {
	if n.clock.touched > n.lookedAt && n.resumedAt > n.clock.touched && (n.off()-n.lookedOff).Abs() <= rightWithin {
		n.clock.steadiness = n.lookedSteady
	}
	n.lookedAt, n.lookedOff, n.lookedSteady = n.w.now, n.off(), n.clock.steadiness
}

// checkClock checks the time that a process trusts. It returns the error of the time that the
// process uses.
func (n *node) checkClock() (wrong time.Duration) {
	w := n.w
	n.passOver()
	m := n.keeper.Look()
	wrong = msOf(m.WallMs-epochMs) - w.now
	if m.Trust != clocks.Sure {
		w.counts.Held++
		return wrong
	}
	within := sureWithin + time.Duration(float64(w.now)*w.swarm.drift)
	if wrong <= within && wrong >= -within-behindWithin {
		n.trustedLead = n.clock.lead()
		return wrong
	}
	if !n.mayBeMisled() {
		w.violate("clock", "node %d trusts a time that is wrong by %s, %s after its clock was set: %s", n.id, wrong, w.now-n.clock.touched, w.clockwork())
	}
	w.counts.Misled++
	n.believedOff, n.trustedLead = wrong, n.clock.lead()
	w.checker.misled = w.now
	return wrong
}

// rightClocks ends all clock faults.
func (w *World) rightClocks() {
	for _, n := range w.nodes {
		n.wakeClocks()
		if n.clock.frozen {
			n.clock.move(func() { n.clock.frozen = false })
		}
		if n.clock.step != 0 {
			n.setClock(0)
		}
	}
}

// believedIn bounds how long processes need to trust their clocks, which are right now. They trust
// them at once if more than half were right and trusted recently; otherwise the clocks must be
// steady first.
func (w *World) believedIn() time.Duration {
	steady, all := 0, 0
	for _, n := range w.nodes {
		if n.gone {
			continue
		}
		all++
		lately := n.clock.touched != 0 && w.now-n.clock.touched < clocks.SteadyFor
		steady += int(b2u(!lately && n.up && n.keeper.Look().Trust != clocks.Held))
	}
	if 2*steady > all {
		return 0
	}
	return clocks.SteadyFor + time.Second
}

// checkShardClocks checks every shard's clock, when nothing is wrong any more.
func (w *World) checkShardClocks() {
	for _, n := range w.nodes {
		for id := timer.ShardID(1); n.host != nil && int(id) <= w.shards(); id++ {
			if n.host.Progress(id).Replica == 0 {
				continue
			}
			if ahead := msOf(n.host.Table(id).ClockMs()-epochMs) - w.now; ahead > sureWithin+time.Second {
				w.violate("clock", "node %d: the clock of shard %d is still %s ahead: %s", n.id, id, ahead, w.clockwork())
			}
		}
	}
}

// stamped checks a timer's timestamps, when nothing is wrong any more.
func (w *World) stamped(t *timer.Timer) {
	latest := epochMs + (w.now + sureWithin + time.Second).Milliseconds()
	if t != nil && max(t.CreatedMs, t.UpdatedMs, t.EndedMs) > latest {
		w.violate("clock", "timer %s says that it was made at %d, changed at %d and ended at %d; it is %d now",
			t.ID, t.CreatedMs, t.UpdatedMs, t.EndedMs, epochMs+w.now.Milliseconds())
	}
}

// clockwork prints the state of all clocks, for a report.
func (w *World) clockwork() (text string) {
	for _, n := range w.nodes {
		if n.keeper != nil && !n.gone {
			s := n.keeper.State()
			s.Saved = nil
			text += fmt.Sprintf("\nnode %d: up %v, wall clock %s off since %s, %+v", n.id, n.up, n.off(), w.now-n.clock.touched, s)
		}
	}
	return text
}

// mayGoByClock checks an action that a process must not take before dueMs (due, or asked for).
func (n *node) mayGoByClock(id string, dueMs int64) {
	w := n.w
	if trust := n.keeper.Look().Trust; trust != clocks.Sure {
		w.violate("I4", "node %d starts %s although it does not trust its clock (trust %d)", n.id, id, trust)
	}
	early := msOf(dueMs-epochMs) - w.now
	if early > sureWithin+time.Duration(float64(w.now)*w.swarm.drift) && !n.mayBeMisled() {
		w.violate("I4", "node %d starts %s %s before it is due: %s", n.id, id, early, w.clockwork())
	}
}

// skippedAhead counts the series that wait for a future occurrence because a leader with a wrong
// clock skipped the first ones. An owner may have asked for that, and the checker cannot tell. A
// Fire runs such an occurrence, and the next one is later still. It also counts occurrences that
// the wrong clock called, that died, and that a client has redriven: a redrive keeps the due time,
// and no attempt may start before it. A further attempt is 1 ms later, see table.Due.NotBefore.
func (w *World) skippedAhead() (n int64) {
	if w.checker.misled == 0 {
		return 0
	}
	for _, k := range w.checker.features.names {
		if k.topic != featureTopic {
			continue
		}
		known := w.checker.features.ids[k]
		first := known.first
		if first == nil || first.every == 0 {
			continue
		}
		id := w.holder(k.topic, k.id)
		leader := w.leader(id)
		if leader == nil {
			continue
		}
		_, last := w.checker.times.shown(id, first.asked, w.now)
		last += timeSlack.Milliseconds()
		// A redriven occurrence waits beside its series.
		table := leader.host.Table(id)
		for h, _ := table.Lookup(k.topic, k.id); h != 0; h = table.NextLive(h) {
			now := table.CopyWith(h, false)
			if now.State != timer.Scheduled || now.NextMs <= epochMs+w.now.Milliseconds() {
				continue
			}
			_, called := first.starts[now.DueMs]
			switch {
			case first.catchUp == timer.CatchUpSkip:
				n += int64(b2u(now.NextMs <= last+(1+known.fires)*first.every))
			case known.redriven && called && now.Occurrence == 0 && now.NextMs == now.DueMs+int64(min(now.Attempts, 1)):
				n += int64(b2u(now.NextMs <= last))
			}
		}
	}
	return n
}
