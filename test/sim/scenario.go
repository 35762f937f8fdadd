package sim

import (
	"context"
	"fmt"
	"time"

	"carillon/timer"
)

// ordeals are the rates of scenarios: faults in several steps, or at moments that chance seldom
// hits. Three runs in eight have none. They are drawn from a stream of their own, so that they
// change no other run.
type ordeals struct {
	// parting is the share of membership changes, applied by a leader or answered by a removed
	// replica, after which a process ends soon.
	parting float64

	// Rates per second in the whole cluster.
	together, loops, ends, flaps, hangs, backs, freezes, storms, brinks, numbers float64

	late float64 // share of frames that arrive again minutes later
}

// ScenarioCounts count the scenarios of a run.
type ScenarioCounts struct {
	// leaders outside of the configuration; commit hints of removed replicas
	Leaving, Words int
	Parted         int // processes ended at a membership change
	Together       int // a paused majority and a crash, but no two of them at once
	// processes that ended right after their start; that ended between two messages
	Looped, Ended  int
	Flapped, Hung  int // links that flapped; disks that hung
	Backs, Freezes int // wall clocks set back, or stopped
	// see storm, brink, number; frames that arrived again minutes later
	Storms, Brinks, Numbers, Again int
}

// any reports whether a run has scenarios.
func (o *ordeals) any() bool { return *o != ordeals{} }

// scenario draws the scenarios of a run.
func (s *swarm) scenario(c chance) {
	o := &s.ordeals
	switch c.IntN(8) {
	case 0, 1, 2:
	case 3, 4:
		s.partings(c)
	case 5: // frames that arrive again after minutes need a run of minutes
		o.late = 0.02 * c.Float64()
		s.safety, s.think = c.between(2*time.Minute, 3*time.Minute), max(s.think, 200*time.Millisecond)
	default:
		o.together, o.loops, o.ends = c.seldom(0.1), c.seldom(0.1), c.seldom(0.3)
		o.flaps, o.hangs = c.seldom(0.1), c.seldom(0.05)
		o.backs, o.freezes = c.seldom(0.05), c.seldom(0.1)
		o.storms, o.brinks = c.seldom(0.1), c.seldom(2)
		if o.numbers = c.seldom(0.1); o.numbers > 0 {
			s.rots, s.wipes = 0, 0 // both would destroy the only replica
		}
	}
}

// partings moves replicas all the time under load, and ends processes at membership changes. One
// replica has then appended, committed or applied entries that others lack. Disks are slow, so that
// followers have a leader's entries before its own disk does.
func (s *swarm) partings(c chance) {
	s.nodes, s.replicas = 3+c.IntN(2), [...]int{1, 2, 2, 3}[c.IntN(4)]
	s.ordeals.parting, s.moves = 0.1+0.4*c.Float64(), 0.3+c.Float64()
	s.ordeals.numbers = c.seldom(0.2)
	s.think, s.clients = c.between(5*time.Millisecond, 100*time.Millisecond), 4+c.IntN(8)
	s.diskLatency, s.delay = c.between(2*time.Millisecond, 40*time.Millisecond), c.between(100*time.Microsecond, 2*time.Millisecond)
	s.slowSync, s.slowestSync = c.seldom(0.1), c.between(50*time.Millisecond, time.Second)
	s.keepNames, s.keepData = 0, 0
	s.longestDown = c.between(50*time.Millisecond, 2*time.Second)
	s.powerCuts, s.crashes, s.partitions, s.pauses = 0, 0, c.seldom(0.1), 0
	s.diskErrors, s.full, s.rots, s.wipes, s.limits, s.bounds.memory = 0, 0, 0, 0, false, 0
}

// undergo draws the scenarios that begin now.
func (w *World) undergo() {
	if w.calm {
		return
	}
	o := &w.swarm.ordeals
	for _, t := range [...]struct {
		perSecond float64
		run       func()
	}{
		{o.together, w.together}, {o.loops, w.loop}, {o.ends, w.endSoon}, {o.flaps, w.flap}, {o.hangs, w.hang},
		{o.backs, w.setBack}, {o.freezes, w.freezeAny}, {o.storms, w.storm}, {o.brinks, w.brink}, {o.numbers, w.number},
	} {
		if w.faultRNG.hit(t.perSecond * nemesisEach.Seconds()) {
			t.run()
		}
	}
	w.after(nemesisEach, w.undergo)
}

// anyUp draws a machine whose process runs; nil: none.
func (w *World) anyUp() *node {
	var there []*node
	for _, n := range w.nodes {
		if n.host != nil && !n.paused && !n.gone {
			there = append(there, n)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[w.faultRNG.IntN(len(there))]
}

// part may end a process at a membership change: usually the leader, otherwise another member of
// the group. It spares the replica that has just learned of its removal.
func (w *World) part(n *node, id timer.ShardID, out bool) {
	if w.calm || !w.faultRNG.hit(w.swarm.ordeals.parting) {
		return
	}
	var there []*node
	for _, m := range w.nodes {
		if m.host != nil && m.host.Progress(id).Replica != 0 && !(out && m == n) {
			there = append(there, m)
		}
	}
	if len(there) == 0 {
		return
	}
	m := there[w.faultRNG.IntN(len(there))]
	if leader := w.leader(id); leader != nil && !(out && leader == n) && w.faultRNG.IntN(4) > 0 {
		m = leader
	}
	life := m.life
	w.after(w.faultRNG.between(0, w.swarm.diskLatency), func() {
		if m.life == life {
			w.counts.Parted++
			m.stop(true)
		}
	})
}

// together pauses a minority, then crashes one of the others with its unsynced data, and then
// pauses the rest while the minority goes on. Writes acknowledged meanwhile are on few disks, and a
// quorum must still find them.
func (w *World) together() {
	var there []*node
	for _, n := range w.nodes {
		if n.host != nil && !n.paused && !n.gone {
			there = append(there, n)
		}
	}
	if len(there) < 3 {
		return
	}
	w.faultRNG.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
	few := (len(there) - 1) / 2
	minority, dies, rest := there[:few], there[few], there[few+1:]
	first, second := w.faultRNG.between(200*time.Millisecond, 4*time.Second), w.faultRNG.between(2*time.Second, 10*time.Second)
	for _, n := range minority {
		n.pause(first)
	}
	w.after(first, func() {
		if w.calm || dies.host == nil || dies.paused {
			return
		}
		w.counts.Together++
		dies.stop(true)
		w.reviveWithin(dies, 300*time.Millisecond)
		for _, n := range rest {
			n.pause(second)
		}
	})
}

// reviveWithin starts a machine's next process soon.
func (w *World) reviveWithin(n *node, d time.Duration) {
	life := n.life
	w.after(w.faultRNG.between(10*time.Millisecond, d), func() {
		if n.life == life && !n.up && !n.gone && !n.held {
			n.start()
		}
	})
}

// loop crashes a process again and again, right after its start or during it.
func (w *World) loop() {
	if n := w.anyUp(); n != nil {
		w.dieAgain(n, 3+w.faultRNG.IntN(10))
	}
}

func (w *World) dieAgain(n *node, left int) {
	if w.calm || left == 0 || !n.up || n.gone {
		return
	}
	w.counts.Looped++
	n.stop(w.faultRNG.IntN(2) == 0)
	life := n.life
	w.after(w.faultRNG.between(10*time.Millisecond, 100*time.Millisecond), func() {
		if n.life != life || n.up || n.gone || n.held {
			return
		}
		if !w.calm && w.faultRNG.IntN(2) == 0 {
			n.crash.left = 1 + w.faultRNG.IntN(8)
		}
		n.start()
		w.after(w.faultRNG.between(0, 400*time.Millisecond), func() { w.dieAgain(n, left-1) })
	})
}

// endSoon ends a process between two messages to others: the first is delivered, the second never
// sent.
func (w *World) endSoon() {
	if n := w.anyUp(); n != nil {
		n.crash.says = 1 + w.faultRNG.IntN(20)
	}
}

// silent reports whether the process ends before its next message. It counts down the messages to
// that end.
func (n *node) silent() bool {
	c := &n.crash
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clone == nil && c.says > 0 && !c.deceit.hasLied() {
		if c.says--; c.says == 0 {
			n.w.counts.Ended++
			c.clone = n.disk.CrashClone(n.w.faultRNG, n.crashOptions())
		}
	}
	return c.clone != nil
}

// flap cuts and repairs a link many times within seconds.
func (w *World) flap() {
	a, b := w.anyUp(), w.anyUp()
	if a == nil || a == b {
		return
	}
	link, oneWay := [2]uint64{a.id, b.id}, w.faultRNG.IntN(2) == 0
	back := [2]uint64{b.id, a.id}
	if w.net.cut[link] || w.net.cut[back] {
		return
	}
	w.counts.Flapped++
	var turn func(left int)
	turn = func(left int) {
		delete(w.net.cut, link)
		delete(w.net.cut, back)
		if left == 0 || w.calm {
			return
		}
		if left%2 == 0 {
			w.net.cut[link] = true
			if !oneWay {
				w.net.cut[back] = true
			}
		}
		w.after(w.faultRNG.between(20*time.Millisecond, 600*time.Millisecond), func() { turn(left - 1) })
	}
	turn(2 * (3 + w.faultRNG.IntN(20)))
}

// hang stops all writes of a disk for a while.
func (w *World) hang() {
	if n := w.anyUp(); n != nil {
		w.counts.Hung++
		n.hungUntil = w.now + w.faultRNG.between(time.Second, 20*time.Second)
		w.note(n, "hang", uint64(n.hungUntil.Milliseconds()), 0, "")
	}
}

// setBack sets a wall clock back about once a second.
func (w *World) setBack() {
	n := w.any()
	each, times := w.faultRNG.between(50*time.Millisecond, 1500*time.Millisecond), 5+w.faultRNG.IntN(15)
	var again func()
	again = func() {
		if w.calm || times == 0 {
			return
		}
		times--
		w.counts.Backs++
		n.setClock(n.clock.step - each)
		w.after(time.Second, again)
	}
	again()
}

// freezeAny stops a wall clock.
func (w *World) freezeAny() {
	n := w.any()
	if n.clock.frozen {
		return
	}
	w.counts.Freezes++
	n.freeze()
	w.after(w.faultRNG.between(100*time.Millisecond, 15*time.Second), func() {
		if n.clock.frozen {
			n.unfreeze(w.faultRNG.IntN(2) == 0 && !w.calm)
		}
	})
}

func (n *node) freeze() {
	n.clock.window()
	if n.isRight() {
		n.clock.touched = n.w.now
	}
	n.clock.frozen, n.clock.frozenAt = true, n.clock.wall()
	n.w.note(n, "freeze", 0, 0, "")
}

// unfreeze lets a wall clock go on, from where it stood or with the true time.
func (n *node) unfreeze(fromThere bool) {
	c := &n.clock
	if fromThere {
		at := c.frozenAt
		c.frozen = false
		c.step -= c.wall() - at
		c.rebase()
	} else {
		c.move(func() { c.frozen = false })
	}
	n.wake(0)
}

// storm makes many timers of all shards due in one millisecond.
func (w *World) storm() {
	w.counts.Storms++
	w.note(nil, "storm", 0, 0, "")
	due := epochMs + (w.now + w.faultRNG.between(200*time.Millisecond, 2*time.Second)).Milliseconds()
	for range 100 + w.faultRNG.IntN(200) {
		c := w.passerBy()
		o := &operation{number: w.checker.nextOp(), topic: 1, then: func(bool) {}}
		o.id = fmt.Sprintf("storm%d", o.number)
		o.shard = timer.ShardOf(&timer.Topic{Name: w.topics[0]}, o.id, w.swarm.shards)
		w.fill(o, timer.Add, time.Duration(due-epochMs)*time.Millisecond-w.now)
		c.start(o)
	}
}

// brink changes and cancels a timer in the very millisecond in which it is due by the leader's
// clock.
func (w *World) brink() {
	id := timer.ShardID(1 + w.faultRNG.IntN(w.swarm.shards))
	leader := w.leader(id)
	if leader == nil || (msOf(leader.keeper.WallMs()-epochMs)-w.now).Abs() > sureWithin {
		return
	}
	w.counts.Brinks++
	o := &operation{number: w.checker.nextOp(), topic: 1, shard: id, to: leader}
	o.id = w.nameIn(w.topics[0], id, fmt.Sprintf("brink%d-", o.number))
	dueMs := leader.keeper.WallMs() + 200 + w.faultRNG.Int64N(400)
	due := leader.keeper.UntilWall(dueMs)
	w.fill(o, timer.Add, time.Duration(dueMs-epochMs)*time.Millisecond-w.now)
	o.then = func(bool) {}
	w.passerBy().start(o)
	for range 1 + w.faultRNG.IntN(4) {
		kind := [...]timer.Kind{timer.Modify, timer.Cancel, timer.Put, 0}[w.faultRNG.IntN(4)]
		later := w.faultRNG.between(-time.Second, time.Second)
		travel := w.swarm.delay + w.faultRNG.between(-3*time.Millisecond, 3*time.Millisecond)
		w.after(due-travel, func() {
			c := &operation{number: w.checker.nextOp(), topic: 1, shard: id, id: o.id, to: leader, then: func(bool) {}}
			w.fill(c, kind, later)
			w.passerBy().start(c)
		})
	}
}

// passerBy is a client for a single operation. It draws from faultRNG.
func (w *World) passerBy() *client {
	return &client{w: w, number: 5000 + w.faultRNG.IntN(1000), own: &w.faultRNG}
}

// number changes the number of replicas of all shards.
func (w *World) number() {
	n := 1 + w.faultRNG.IntN(3)
	w.numbered = w.now
	at := w.inUse(w.faultRNG)
	w.note(at, "replicas", uint64(n), 0, "")
	w.operator(at, func(ctx context.Context, at *node) error { return at.member.SetReplicas(ctx, n) }, func(err error) {
		if err == nil {
			w.counts.Numbers++
			w.swarm.replicas = n
		}
	})
}
