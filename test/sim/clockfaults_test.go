package sim

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/clocks"
	"carillon/timer"
)

// TestSlewIsNoStep: the checker takes a clock for steady exactly if a process does: also if it was
// set by less than a step (992384), a stop moved it by less (996306), or it stood still for less
// (1070037).
func TestSlewIsNoStep(t *testing.T) {
	const small = clocks.Slew - 10*time.Millisecond
	script := func(w *World) {
		w.lay()
		w.found()
		w.pass(time.Second)
		n := w.nodes[0]
		set := func(by time.Duration) func() { return func() { n.setClock(n.clock.step + by) } }
		stop := func(d time.Duration) func() { return func() { n.sleep(d) } }
		stand := func(d time.Duration) func() {
			return func() {
				n.freeze()
				w.pass(d)
				n.unfreeze(false)
			}
		}
		for i, c := range []struct {
			after time.Duration
			move  func()
			steps bool
		}{
			{0, set(-small), false},
			{0, set(-small), true}, // both within SlewWindow
			{0, set(-small), false},
			{0, set(small), false},
			{0, set(-small), false},
			{clocks.SlewWindow, set(-small), false},
			{0, set(-small), true},
			{clocks.SlewWindow, stop(96 * time.Millisecond), false},
			{0, stop(100 * time.Millisecond), false},
			{0, stop(96 * time.Millisecond), true},
			{0, set(-small), false},
			{0, stop(300 * time.Millisecond), false}, // back to where it was
			{0, stop(300 * time.Millisecond), true},
			{clocks.SlewWindow, stand(236 * time.Millisecond), false}, // (1070037)
			{0, stand(400 * time.Millisecond), true},                  // a process that has nothing to do looks each 100 ms
		} {
			w.pass(c.after)
			steps, touched := n.keeper.State().Steps, n.clock.touched
			c.move()
			w.pass(time.Second)
			if seen := n.keeper.State().Steps > steps; seen != c.steps || n.clock.touched > touched != c.steps {
				t.Errorf("move %d: seen by the process as a step: %t, by the checker: %t, expected %t", i, seen, n.clock.touched > touched, c.steps)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
			representative(p)
			p.calm()
			p.nodes, p.replicas, p.clocks.stops = 1, 1, 1
		}})
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
}

// TestClocksThatAreBelievedAndSetRight: all clocks are wrong for so long that processes must trust
// them, and are then corrected, each time under retries, debounces, series and timers that expire.
// Timers from after the correction, and timers that the wrong time did not touch, must be right.
func TestClocksThatAreBelievedAndSetRight(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	by := [...]time.Duration{5 * time.Minute, -5 * time.Minute, 40 * time.Second, time.Hour, -time.Hour, tenYears}
	seeds := uint64(len(by))
	if os.Getenv("CARILLON_SOAK") != "" {
		seeds *= 4
	}
	if underRace {
		seeds = 2
	}
	misled, back := 0, 0
	for seed := uint64(1); seed <= seeds; seed++ {
		step := by[int(seed)%len(by)]
		r := run(t, Config{Seed: seed, Safety: 75 * time.Second, Change: func(p *Plan) {
			representative(p)
			// Small files and hasty clients are no matter of clocks, and most of the work.
			p.segmentBytes, p.genBytes, p.snapshotBytes, p.think = 64<<10, 256<<10, 1<<20, 100*time.Millisecond
			p.nodes = 1 + 2*int(seed%2)
			p.replicas, p.receiverFails, p.sickThink = p.nodes, 0.4, 100*time.Millisecond
			p.ordeals, p.safety = ordeals{}, 75*time.Second
		}, script: func(w *World) {
			w.featureClients.topics = w.featureClients.topics[:0]
			for topic := rankedTopic; topic < bulkTopic; topic++ {
				w.featureClients.topics = append(w.featureClients.topics, topic)
			}
			w.merging.on = true
			w.after(12*time.Second, func() {
				for _, n := range w.nodes {
					n.setClock(step)
				}
			})
			// one right clock of three does not convince anybody
			w.after(35*time.Second, func() { w.nodes[0].setClock(0) })
			w.after(50*time.Second, w.rightClocks) // now a majority is right
			w.live()
		}})
		misled, back = misled+min(1, r.Counts.Misled), back+min(1, r.Counts.SetBack)
		if r.Err != nil {
			t.Fatalf("seed %d, clocks %s off: %v", seed, step, r.Err)
		}
	}
	if least := int(seeds) / 2; misled < least || back < least {
		t.Errorf("of %d runs %d believed a clock that was wrong, and %d set a shard's clock back", seeds, misled, back)
	}
}

// TestRedrivenAheadOfTime: a wrong clock calls an occurrence of a series long before it is due. It
// dies, and is redriven when the clocks are right. It keeps its due time, so the run does not wait
// for it; nor after an attempt by a clock that is wrong again. It waits for an occurrence that was
// never called.
func TestRedrivenAheadOfTime(t *testing.T) {
	calmly(t, func(w *World) {
		do := clocksAhead(w)
		wrote := &write{op: 1, dueMs: epochMs + w.now.Milliseconds(), payload: `"s1/1"`, every: 1000, count: 3}
		w.swarm.receiverStops = 1
		do(&operation{number: 1, write: wrote, cmd: &timer.Command{Kind: timer.Add, Content: 1}})
		w.pass(5 * time.Second)
		w.rightClocks()
		w.pass(20 * time.Second)
		if n := w.left(); n != 0 {
			t.Fatalf("%d timers are left, expected that all occurrences are dead", n)
		}
		do(&operation{number: 2, cmd: &timer.Command{Kind: timer.Redrive, DueMs: epochMs + w.now.Milliseconds()}})
		w.pass(5 * time.Second)
		waits := func() {
			t.Helper()
			if skipped, left := w.skippedAhead(), w.left(); skipped != 1 || left != 0 {
				t.Errorf("%d occurrences wait for their time and %d timers are left, expected 1 and 0", skipped, left)
			}
		}
		waits()
		w.swarm.receiverStops, w.swarm.receiverFails = 0, 1
		for _, n := range w.nodes {
			n.setClock(200 * time.Second)
		}
		if home := w.holder(featureTopic, "s1"); !w.passUntil(60*time.Second, func() bool {
			leader := w.leader(home)
			return leader != nil && leader.host.Table(home).Read(featureTopic, "s1").LastStatus == 503
		}) {
			t.Fatal("the wrong clock does not call it")
		}
		w.rightClocks()
		w.pass(20 * time.Second)
		waits()
		clear(wrote.starts)
		if w.left() != 1 {
			t.Error("an occurrence that was never called is not waited for")
		}
	})
}

// TestRedrivenBesideItsSeries: an occurrence that a wrong clock called has died, and is redriven
// before the shard's clock is set back. It keeps its due time, and the run does not wait for it
// (seed 1218275). Its series goes by the right clock meanwhile (seed 5730, growing).
func TestRedrivenBesideItsSeries(t *testing.T) {
	calmly(t, func(w *World) {
		do := clocksAhead(w)
		w.swarm.receiverStops = 1
		do(&operation{number: 1, cmd: &timer.Command{Kind: timer.Add, Content: 1}, write: &write{
			op: 1, dueMs: epochMs + w.now.Milliseconds(), payload: `"s1/1"`, every: 1000, count: 1000, catchUp: timer.CatchUpSkip,
		}})
		w.pass(5 * time.Second)
		w.rightClocks()
		do(&operation{number: 2, cmd: &timer.Command{Kind: timer.Redrive, DueMs: epochMs + w.now.Milliseconds()}})
		w.pass(20 * time.Second)
		if skipped := w.skippedAhead(); skipped != 1 {
			t.Errorf("%d occurrences wait for their time, expected the one that is redriven", skipped)
		}
		series := w.leader(w.holder(featureTopic, "s1")).host.Table(w.holder(featureTopic, "s1")).Read(featureTopic, "s1")
		if in := series.NextMs - epochMs - w.now.Milliseconds(); series.Occurrence == 0 || in > 1000 {
			t.Errorf("occurrence %d of the series comes in %d ms", series.Occurrence, in)
		}
	})
}

// calmly runs a script in a cluster without faults but its own.
func calmly(t *testing.T, script func(*World)) {
	synctest.Test(t, func(t *testing.T) {
		r := Run(Config{Seed: 1, Settle: synctest.Wait, script: script, Change: func(p *Plan) {
			representative(p)
			p.calm()
		}})
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
}

// clocksAhead founds a cluster whose clocks are all 200 s ahead. The operations of the function
// that it returns are on one series.
func clocksAhead(w *World) func(*operation) {
	w.lay()
	w.found()
	w.pass(time.Second)
	for _, n := range w.nodes {
		n.setClock(200 * time.Second)
	}
	w.pass(20 * time.Second)
	return func(o *operation) {
		o.topic, o.id, o.then = featureTopic, "s1", func(bool) {}
		w.complete(o)
		(&client{w: w, number: 1}).start(o)
	}
}
