package clocks

import (
	"testing"
	"time"
)

// fakeNodes is a set of nodes with a Keeper each, which hear each other's clocks.
type fakeNodes struct {
	machines []*fake
	keepers  []*Keeper
	deaf     map[[2]int]bool
}

func newFakeNodes(n int) *fakeNodes {
	c := &fakeNodes{deaf: map[[2]int]bool{}}
	for i := range n {
		f := &fake{mono: time.Hour, boot: time.Duration(i+1) * 7 * time.Hour}
		c.machines = append(c.machines, f)
		c.keepers = append(c.keepers, NewKeeper(Config{Source: f, Confirm: true}))
	}
	return c
}

// run lets time pass; each node judges its clock four times a second.
func (fn *fakeNodes) run(d time.Duration) {
	for ; d > 0; d -= 250 * time.Millisecond {
		for _, f := range fn.machines {
			f.pass(250 * time.Millisecond)
		}
		states := make([]State, len(fn.keepers))
		for i, k := range fn.keepers {
			states[i] = k.State()
		}
		for i, k := range fn.keepers {
			var peers []Peer
			for j, s := range states {
				if i != j && !fn.deaf[[2]int{i, j}] {
					peers = append(peers, Peer{Node: uint64(j + 1), OffsetMs: s.RawMs - fn.machines[i].boot.Milliseconds(), Heard: fn.machines[i].boot,
						Steps: s.Steps, Steady: s.Steady, Sure: s.Trust == Sure})
				}
			}
			k.Judge(uint64(i+1), len(fn.keepers), peers)
		}
	}
}

// sure shows which nodes trust their clock, one mark each.
func (fn *fakeNodes) sure() string {
	text := ""
	for _, k := range fn.keepers {
		text += map[Trust]string{Sure: "+", Held: "-", Unknown: "?"}[k.Look().Trust]
	}
	return text
}

func (fn *fakeNodes) want(t *testing.T, when, want string) {
	t.Helper()
	if got := fn.sure(); got != want {
		t.Errorf("%s: %s, want %s (%s)", when, got, want, fn.keepers[0].State().Why)
	}
}

func (fn *fakeNodes) step(by time.Duration, nodes ...int) {
	for _, n := range nodes {
		fn.machines[n].wall += by
	}
}

func TestClocksAreComparedBeforeTheyAreBelieved(t *testing.T) {
	for n := 1; n <= 5; n++ {
		c := newFakeNodes(n)
		c.want(t, "at first", "?????"[:n])
		c.run(time.Second)
		c.want(t, "after a second", "+++++"[:n])
	}
}

// One of three or five clocks that steps is wrong for as long as it differs; when it is corrected
// it is trusted at once.
func TestMinorityIsWrong(t *testing.T) {
	for _, n := range []int{3, 5} {
		for _, by := range []time.Duration{2 * time.Second, -2 * time.Second, time.Hour, -time.Hour, 10 * year, -10 * year} {
			c := newFakeNodes(n)
			c.run(time.Minute)
			right := c.keepers[0].Look().WallMs
			c.step(by, 0)
			c.want(t, "in the turn of the step", "-++++"[:n])
			c.run(time.Minute)
			c.want(t, "a minute later", "-++++"[:n])
			if got := c.keepers[0].Look().WallMs - right; got < 59_000 || got > 61_000 {
				t.Errorf("the time that it holds moved by %d ms in a minute", got)
			}
			c.step(-by, 0)
			c.run(500 * time.Millisecond)
			c.want(t, "set right", "+++++"[:n])
		}
	}
}

// A clock that was wrong from the begin of the process, and drifts, is detected by the others'
// median.
func TestClockThatWasWrongFromTheBeginning(t *testing.T) {
	c := newFakeNodes(3)
	c.step(-time.Hour, 1)
	c.run(time.Second)
	c.want(t, "wrong at first", "+-+")
	if ms := c.keepers[1].Look().WallMs; ms < c.keepers[0].Look().WallMs-1000 {
		t.Errorf("it does not go by the time that the others have")
	}
	c.step(time.Hour, 1)
	c.run(500 * time.Millisecond)
	c.want(t, "set right", "+++")
}

// Two of three clocks that step together are no majority until they have been steady for long
// enough.
func TestMajorityMustBeSteady(t *testing.T) {
	c := newFakeNodes(3)
	c.run(time.Minute)
	c.step(time.Hour, 0, 1)
	c.want(t, "at the step", "--+")
	c.run(SteadyFor - 500*time.Millisecond)
	c.want(t, "before they are steady", "--+")
	c.run(time.Second)
	c.want(t, "after it", "++-")
	c.step(-time.Hour, 0, 1)
	c.want(t, "set right", "---")
	c.run(500 * time.Millisecond)
	c.want(t, "the one that was never set confirms it", "+++")
}

func TestAllStepAtOnce(t *testing.T) {
	for n := 1; n <= 5; n++ {
		c := newFakeNodes(n)
		c.run(time.Minute)
		all := []int{0, 1, 2, 3, 4}[:n]
		c.step(10*year, all...)
		c.want(t, "at the step", "-----"[:n])
		c.run(5 * time.Second)
		c.want(t, "after five seconds", "-----"[:n])
		c.step(-10*year, all...)
		c.want(t, "taken back", "+++++"[:n])
		c.step(time.Hour, all...)
		c.run(SteadyFor + time.Second)
		c.want(t, "steady", "+++++"[:n])
	}
}

// Of two clocks that differ, the one that was not set continues, for as long as they differ.
func TestOneOfTwo(t *testing.T) {
	c := newFakeNodes(2)
	c.run(time.Minute)
	c.step(10*year, 0)
	c.want(t, "at the step", "-+")
	c.run(time.Minute)
	c.want(t, "a minute later", "-+")
	c.step(-10*year, 0)
	c.run(500 * time.Millisecond)
	c.want(t, "set right", "++")
}

// Of two clocks that differ from the beginning exactly one continues.
func TestTwoThatNeverAgreed(t *testing.T) {
	c := newFakeNodes(2)
	c.step(time.Hour, 1)
	c.run(SteadyFor + time.Second)
	c.want(t, "from the beginning", "+-")
}

// A node that hears no other waits until its clock is steady, and no longer.
func TestCutOff(t *testing.T) {
	c := newFakeNodes(3)
	c.run(time.Minute)
	c.deaf[[2]int{0, 1}], c.deaf[[2]int{0, 2}] = true, true
	c.run(time.Second)
	c.want(t, "cut off", "+++")
	c.step(time.Hour, 0)
	c.run(5 * time.Second)
	c.want(t, "and set", "-++")
	c.run(SteadyFor)
	c.want(t, "steady", "+++")
	clear(c.deaf)
	c.run(500 * time.Millisecond)
	c.want(t, "together again", "-++")
}

// Of three clocks that all differ one continues, and never all.
func TestNoTwoAgree(t *testing.T) {
	c := newFakeNodes(3)
	c.run(time.Minute)
	c.step(time.Hour, 1)
	c.step(-time.Hour, 2)
	c.run(time.Minute)
	c.want(t, "a minute later", "+--")
}

// A time taken from other nodes is not saved for the next process as the node's own.
func TestWhatOthersHaveIsNotSaved(t *testing.T) {
	c := newFakeNodes(3)
	c.run(time.Minute)
	c.step(time.Hour, 1, 2)
	c.run(SteadyFor + time.Second)
	c.want(t, "two of three believe it", "-++")
	c.step(time.Hour, 0)
	next := NewKeeper(Config{Source: c.machines[0], Confirm: true, Saved: c.keepers[0].State().Saved})
	if m := next.Look(); m.Trust != Held {
		t.Errorf("trust %d after its clock was set to what others have", m.Trust)
	}
}

// A clock that others found wrong is not trusted when they are no longer heard, not even by the
// next process, but only after it was set.
func TestWrongStaysWrong(t *testing.T) {
	for n := 2; n <= 3; n++ {
		c := newFakeNodes(n)
		c.run(time.Minute)
		c.step(time.Hour, 0)
		c.run(SteadyFor + time.Second)
		c.want(t, "compared", "-++"[:n])
		for i := 1; i < n; i++ {
			c.deaf[[2]int{0, i}] = true
		}
		c.run(time.Minute)
		c.want(t, "cut off", "-++"[:n])
		c.step(time.Minute, 0)
		c.run(time.Second)
		c.step(-time.Minute, 0)
		c.run(time.Minute)
		c.want(t, "set away and back", "-++"[:n])
		c.keepers[0] = NewKeeper(Config{Source: c.machines[0], Confirm: true, Saved: c.keepers[0].State().Saved})
		c.run(time.Minute)
		c.want(t, "another process", "-++"[:n])
		c.step(-time.Hour, 0)
		c.run(time.Second)
		c.want(t, "set right", "+++"[:n])
	}
}

// A message from before a step that arrives after a newer one is ignored.
func TestOvertakenMessageIsNotMeasured(t *testing.T) {
	var m Measured
	if _, ok := m.OffsetMs(); ok {
		t.Error("something was measured of nobody")
	}
	if !m.Take(time.Second, 5000, 0) || !m.Take(2*time.Second, 3000, 1) || m.Take(3*time.Second, 9000, 0) {
		t.Error("the wrong ones were taken")
	}
	if ms, _ := m.OffsetMs(); ms != 1000 {
		t.Errorf("%d ms", ms)
	}
}

// TestWhatTheMajorityDeniesIsNotBelievedAgain: all nodes trust a wrong time; one clock is set to
// another time, and the others are corrected. When the first one returns to the time that it had
// trusted, the node must not trust it as if its step had been undone. Found by the simulator.
func TestWhatTheMajorityDeniesIsNotBelievedAgain(t *testing.T) {
	c := newFakeNodes(3)
	c.run(time.Second)
	c.step(5*time.Minute, 0, 1, 2)
	c.run(2 * SteadyFor)
	c.want(t, "all five minutes ahead", "+++")
	c.step(-time.Hour, 0)
	c.run(time.Second)
	c.step(-5*time.Minute, 1, 2)
	c.run(2 * SteadyFor)
	c.want(t, "two were put right", "-++")
	c.step(time.Hour, 0)
	c.want(t, "as it was", "-++")
	c.keepers[0] = NewKeeper(Config{Source: c.machines[0], Confirm: true, Saved: c.keepers[0].State().Saved})
	c.want(t, "another process", "-++")
	c.run(2 * SteadyFor)
	c.want(t, "a while later", "-++")
	c.step(-5*time.Minute, 0)
	c.run(time.Second)
	c.want(t, "right", "+++")
}

// A virtual machine is stopped, and its boot clock with it. Its wall clock is then as far from that
// as the others' wall clocks were before. Their reports from before the stop do not confirm it.
func TestReportFromBeforeTheStepIsNoEvidence(t *testing.T) {
	f := &fake{mono: time.Hour, boot: time.Hour, wall: -9 * time.Second}
	k := NewKeeper(Config{Source: f, Confirm: true})
	f.pass(time.Minute)
	others := func(late time.Duration) []Peer {
		offset := k.State().RawMs - f.boot.Milliseconds() + late.Milliseconds()
		p := Peer{OffsetMs: offset, Heard: f.boot, Steady: time.Minute, Sure: true}
		q := p
		p.Node, q.Node = 2, 3
		return []Peer{p, q}
	}
	before := others(9 * time.Second)
	f.pass(250 * time.Millisecond)
	f.wall += 8500 * time.Millisecond // the stop
	k.Judge(1, 3, before)
	if got := k.State(); got.Trust == Sure {
		t.Errorf("reports from before the stop confirm a clock that is wrong by 9 s: %+v", got)
	}
	f.pass(250 * time.Millisecond)
	k.Judge(1, 3, others(9*time.Second))
	if got := k.State(); got.Trust != Held || got.AheadMs != -9000 {
		t.Errorf("the others' time after the stop is not used: %+v", got)
	}
	f.wall += 9 * time.Second
	f.pass(250 * time.Millisecond)
	k.Look()
	k.Judge(1, 3, others(0))
	if got := k.State(); got.Trust == Sure {
		t.Errorf("reports that may have lain in a socket confirm a clock: %+v", got)
	}
	f.pass(250 * time.Millisecond)
	k.Judge(1, 3, others(0))
	if got := k.State(); got.Trust != Sure {
		t.Errorf("reports from after the step do not confirm a right clock: %+v", got)
	}
}

// Reports that lay in the socket of a stopped process are as old as its clock was set back by: they
// agree with it, and confirm nothing.
func TestReportsThatLayInASocketConfirmNothing(t *testing.T) {
	f := &fake{mono: time.Hour, boot: time.Hour}
	k := NewKeeper(Config{Source: f})
	const stop = 9 * time.Second
	f.pass(stop)
	right := k.source.Read().WallUs / 1000
	f.wall -= stop
	report := func(wallMs int64) []Peer {
		p := Peer{Node: 2, OffsetMs: wallMs - f.boot.Milliseconds(), Heard: f.boot, Steady: time.Minute, Sure: true}
		q := p
		q.Node = 3
		return []Peer{p, q}
	}
	k.Look()
	for range 10 { // the first heartbeats that are read after the stop
		f.pass(10 * time.Millisecond)
		k.Judge(1, 3, report(right-stop.Milliseconds()))
		if got := k.State(); got.Trust == Sure {
			t.Fatalf("a clock set back by 9 s is confirmed by reports that are as old: %+v", got)
		}
	}
	f.pass(250 * time.Millisecond)
	k.Judge(1, 3, report(right+350))
	if got := k.State(); got.Trust != Held || got.AheadMs != -stop.Milliseconds() {
		t.Errorf("the others' time after the stop is not used: %+v", got)
	}
	f.wall += stop
	f.pass(10 * time.Millisecond)
	k.Judge(1, 3, report(right+360))
	f.pass(250 * time.Millisecond)
	k.Judge(1, 3, report(right+610))
	if got := k.State(); got.Trust != Sure {
		t.Errorf("reports from after the step do not confirm a right clock: %+v", got)
	}
}
