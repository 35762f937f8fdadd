package sim

import (
	"fmt"
	"time"

	"carillon/clocks"
	"carillon/timer"
)

// clockFaults are what goes wrong with clocks. They are drawn from a stream of their own.
type clockFaults struct {
	steps  float64 // a second, of the whole cluster: wall clocks are set
	sleeps float64 // … a machine sleeps
	// stops is how many of the sleeps are of a virtual machine that is stopped: its boot clock stands still too.
	stops        float64
	longestSleep time.Duration
}

// ClockCounts say what a run did to clocks.
type ClockCounts struct {
	Steps, Far, Many int // clocks that were set, by more than a minute, and several at once
	Sleeps, Stops    int
	Held, Misled     int // beats in which a clock was not believed, and in which a wrong one was, as must be
	SetBack          int // replicas whose clock went back
}

const (
	tenYears = 10 * 365 * 24 * time.Hour
	// rightWithin is how far a clock may be off and count as right.
	rightWithin = 300 * time.Millisecond
	// sureWithin is how far what a process is sure of may be off: two clocks that agree, and what a clock may slew.
	sureWithin = 2 * time.Second
	// behindWithin is how much farther it may be behind: a slow beat makes another clock look so.
	behindWithin = 5 * time.Second
)

// clockwise draws a run's faults of clocks. One run of six is dense with them, in a cluster of any size.
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

// mistime draws what of it happens now.
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

// stepClocks sets the wall clocks of one machine, of two or of all, off by up to ten years, or right again.
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

// setClock puts a machine's wall clock so far off.
func (n *node) setClock(off time.Duration) {
	w := n.w
	if n.clock.step == off {
		return
	}
	for _, other := range w.nodes { // what this clock said until now may be what another goes by
		other.confirmed()
	}
	w.counts.Steps++
	w.counts.Far += int(b2u(off > time.Minute || off < -time.Minute))
	n.clock.step, n.clock.touched, n.clock.frozen = off, w.now, false
	w.note(n, "step", 0, uint64(off), "")
	n.wake(0)
}

// sleep has a machine stand still: its monotonic clock does so too, and its boot clock if it is one that others can stop. When it goes on
// its wall clock is right, or as far off as it was.
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

// wakeClocks has a machine's clocks go on after its sleep, if it sleeps.
func (n *node) wakeClocks() {
	c := &n.clock
	if !c.asleep {
		return
	}
	c.monoStopped += n.w.now - c.asleepAt
	if c.bootAsleep {
		c.bootStopped += n.w.now - c.asleepAt
		c.touched, c.frozen = n.w.now, false // if it stood still by all its clocks nobody could tell
	}
	c.asleep = false
}

// off is how far a machine's wall clock is from what is right.
func (n *node) off() time.Duration { return n.clock.wall() - n.w.now }

func (n *node) isRight() bool { return n.off().Abs() <= rightWithin }

// foundOut is how long it may take until a process knows that more than half of the clocks are others than its own.
const foundOut = 3 * time.Second

// rightOnes says whether more than half of the machines in use have a right clock, and have had one for long enough.
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

// mayBeMisled says whether a process may be sure of a clock that is wrong: it has been as it is for long enough, or since the machine began,
// or one that has is as wrong; and no more than half of the members' clocks are right, or it does not hear as many, or only just does.
func (n *node) mayBeMisled() bool {
	w := n.w
	if w.now-n.clock.touched < clocks.SteadyFor-500*time.Millisecond && n.bootedAt < n.clock.touched && !n.confirmed() &&
		(n.believedOff-n.off()).Abs() > sureWithin { // else it is what it was before
		return false
	}
	if !w.rightOnes() || !n.hearsRight() || w.now-n.resumedAt < 500*time.Millisecond {
		n.misledUntil = w.now + foundOut
	}
	return w.now < n.misledUntil
}

// confirmed says that another machine's clock is as wrong, or was lately.
func (n *node) confirmed() bool {
	for _, other := range n.w.nodes {
		if other != n && !other.gone && (other.off()-n.off()).Abs() <= sureWithin {
			n.confirmedAt, n.confirmedOff = n.w.now, n.off()
		}
	}
	return n.confirmedAt > 0 && n.w.now-n.confirmedAt <= foundOut && (n.confirmedOff-n.off()).Abs() <= sureWithin
}

// hearsRight says whether the process hears, of more than half of the members, that they go by a clock that is right.
func (n *node) hearsRight() bool {
	return n.member != nil && n.member.ClockRight(func(id uint64) bool { return n.w.node(id).isRight() })
}

// checkClock holds what a process is sure of against what is right. It is told how far off the time is that the process goes by.
func (n *node) checkClock() (wrong time.Duration) {
	w := n.w
	m := n.keeper.Look()
	wrong = msOf(m.WallMs-epochMs) - w.now
	if m.Trust != clocks.Sure {
		w.counts.Held++
		return wrong
	}
	within := sureWithin + time.Duration(float64(w.now)*w.swarm.drift)
	if wrong <= within && wrong >= -within-behindWithin {
		return wrong
	}
	if !n.mayBeMisled() {
		w.violate("clock", "node %d is sure of a time that is %s off, %s after its clock was set: %s", n.id, wrong, w.now-n.clock.touched, w.clockwork())
	}
	w.counts.Misled++
	n.believedOff = wrong
	w.checker.misled = w.now
	return wrong
}

// rightClocks ends all that is wrong with clocks.
func (w *World) rightClocks() {
	for _, n := range w.nodes {
		n.wakeClocks()
		if n.clock.frozen {
			n.clock.frozen, n.clock.touched = false, w.now
		}
		if n.clock.step != 0 {
			n.setClock(0)
		}
	}
}

// believedIn is how long it may take until the clocks are believed, which are right now: if more than half of them were right lately, and their
// processes knew it, that is at once; else they must be steady first.
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

// checkShardClocks holds every shard's clock against what is right, when all is well.
func (w *World) checkShardClocks() {
	for _, n := range w.nodes {
		for id := timer.ShardID(1); n.host != nil && int(id) <= w.swarm.shards; id++ {
			if n.host.Progress(id).Replica == 0 {
				continue
			}
			if ahead := msOf(n.host.Table(id).ClockMs()-epochMs) - w.now; ahead > sureWithin+time.Second {
				w.violate("clock", "node %d: the clock of shard %d is still %s ahead: %s", n.id, id, ahead, w.clockwork())
			}
		}
	}
}

// stamped holds what a timer says of its past against what is right, when all is well.
func (w *World) stamped(t *timer.Timer) {
	latest := epochMs + (w.now + sureWithin + time.Second).Milliseconds()
	if t != nil && max(t.CreatedMs, t.UpdatedMs, t.EndedMs) > latest {
		w.violate("clock", "timer %s says that it was made at %d, changed at %d and ended at %d; it is %d now",
			t.ID, t.CreatedMs, t.UpdatedMs, t.EndedMs, epochMs+w.now.Milliseconds())
	}
}

// clockwork is how all clocks stand, for a report.
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

// mayGoByClock holds something that a process does because of the time, which was not to be before dueMs.
func (n *node) mayGoByClock(id string, dueMs int64) {
	w := n.w
	if trust := n.keeper.Look().Trust; trust != clocks.Sure {
		w.violate("I4", "node %d starts %s though it does not believe its clock (%d)", n.id, id, trust)
	}
	early := msOf(dueMs-epochMs) - w.now
	if early > sureWithin+time.Duration(float64(w.now)*w.swarm.drift) && !n.mayBeMisled() {
		w.violate("I4", "node %d starts %s %s before it is due: %s", n.id, id, early, w.clockwork())
	}
}

// skippedAhead is how many series wait for an occurrence that is ahead because a leader with a wrong clock skipped the first ones: that its
// owner did not ask for that cannot be told.
func (w *World) skippedAhead() (n int64) {
	if w.checker.misled == 0 {
		return 0
	}
	for _, k := range w.checker.features.names {
		first := w.checker.features.ids[k].first
		if k.topic != featureTopic || first == nil || first.every == 0 || first.catchUp != timer.CatchUpSkip {
			continue
		}
		id := w.place(k.topic, k.id)
		if leader := w.leader(id); leader != nil {
			now := leader.host.Table(id).Read(k.topic, k.id)
			_, last := w.checker.times.shown(id, first.asked, w.now)
			n += int64(b2u(now != nil && now.State == timer.Scheduled && now.NextMs > epochMs+w.now.Milliseconds() && now.NextMs <= last+first.every+timeSlack.Milliseconds()))
		}
	}
	return n
}
