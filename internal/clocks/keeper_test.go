package clocks

import (
	"testing"
	"time"
)

const (
	year    = 365 * 24 * time.Hour
	startUs = int64(1_800_000_000_000_000)
)

// fake is a machine with three clocks that tests can set.
type fake struct {
	wall, mono, boot time.Duration
	absurdUs         int64 // of the wall clock, beyond what a Duration can say
}

func (f *fake) Read() Reading {
	return Reading{WallUs: startUs + f.wall.Microseconds() + f.absurdUs, Mono: f.mono, Boot: f.boot}
}
func (f *fake) Boot() time.Duration { return f.boot }

// pass advances all three clocks.
func (f *fake) pass(d time.Duration) { f.wall, f.mono, f.boot = f.wall+d, f.mono+d, f.boot+d }

// run advances time in steps and reads the clocks after each, as turns do.
func (f *fake) run(k *Keeper, d time.Duration) (m Moment) {
	for ; d > 0; d -= 50 * time.Millisecond {
		f.pass(min(d, 50*time.Millisecond))
		m = k.Look()
	}
	return m
}

func (f *fake) wallMs() int64 { return startUs/1000 + f.wall.Milliseconds() }

func newFake() (*fake, *Keeper) {
	f := &fake{mono: time.Hour, boot: 2 * time.Hour}
	return f, NewKeeper(Config{Source: f})
}

// A step shows in the first reading after it, and the trusted time goes on.
func TestStepIsSeenAtOnce(t *testing.T) {
	for _, by := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond, time.Second, -time.Second, 5 * time.Minute, -5 * time.Minute,
		time.Hour, -time.Hour, 10 * year, -10 * year} {
		f, k := newFake()
		f.run(k, time.Minute)
		before := f.wallMs()
		f.wall += by
		f.pass(time.Millisecond)
		m := k.Look()
		if m.Trust != Held || m.WallMs != before+1 {
			t.Errorf("step by %s: trust %d, time moved by %d ms", by, m.Trust, m.WallMs-before)
		}
		if s := k.State(); s.Why == "" || s.AheadMs != by.Milliseconds() || s.Steps != 1 {
			t.Errorf("step by %s: %+v", by, s)
		}
	}
}

func TestSlewedClockIsFollowed(t *testing.T) {
	f, k := newFake()
	for range 600 { // 20 ms in each second
		f.wall += 20 * time.Millisecond
		if m := f.run(k, time.Second); m.Trust != Sure || m.WallMs != f.wallMs() {
			t.Fatalf("trust %d, %d ms behind", m.Trust, f.wallMs()-m.WallMs)
		}
	}
}

// A clock that runs a quarter too fast is held for as long as it does.
func TestRunawayClockIsHeld(t *testing.T) {
	f, k := newFake()
	right := f.wallMs()
	for range 60 {
		f.wall += 250 * time.Millisecond
		f.run(k, time.Second)
		k.Judge(1, 1, nil)
	}
	if m := k.Look(); m.Trust != Held || m.WallMs > right+60_000+300 {
		t.Errorf("trust %d, %d ms ahead of the boot clock", m.Trust, m.WallMs-right-60_000)
	}
}

func TestLoneClockIsBelievedWhenSteady(t *testing.T) {
	f, k := newFake()
	f.run(k, time.Minute)
	f.wall += time.Hour
	for passed := time.Duration(0); passed < SteadyFor-100*time.Millisecond; passed += 50 * time.Millisecond {
		if m := f.run(k, 50*time.Millisecond); m.Trust != Held {
			t.Fatalf("believed after %s", passed)
		}
		k.Judge(1, 1, nil)
	}
	f.run(k, 200*time.Millisecond)
	k.Judge(1, 1, nil)
	if m := k.Look(); m.Trust != Sure || m.WallMs != f.wallMs() {
		t.Errorf("trust %d after %s", m.Trust, SteadyFor)
	}
}

func TestStepTakenBackIsOverAtOnce(t *testing.T) {
	f, k := newFake()
	f.run(k, time.Minute)
	f.wall += 10 * year
	f.run(k, 3*time.Second)
	f.wall -= 10 * year
	if m := f.run(k, 50*time.Millisecond); m.Trust != Sure || m.WallMs != f.wallMs() {
		t.Errorf("trust %d, time %d, want %d", m.Trust, m.WallMs, f.wallMs())
	}
}

// A second step before the first has been steady for long enough restarts the wait.
func TestEachStepBeginsTheWaitAnew(t *testing.T) {
	f, k := newFake()
	f.wall += time.Hour
	f.run(k, 8*time.Second)
	f.wall += time.Hour
	f.run(k, 8*time.Second)
	k.Judge(1, 1, nil)
	if m := k.Look(); m.Trust != Held {
		t.Errorf("trust %d 8 s after the last step", m.Trust)
	}
}

// A suspended machine's boot clock shows how long it slept, and the time is trusted at once.
func TestSuspendIsBelievedAtOnce(t *testing.T) {
	f, k := newFake()
	f.run(k, time.Minute)
	before := k.Look()
	f.wall, f.boot = f.wall+time.Hour, f.boot+time.Hour
	m := k.Look()
	if m.Trust != Sure || m.WallMs != f.wallMs() || m.Mono-before.Mono != time.Hour || m.Lease-before.Lease != time.Hour {
		t.Errorf("after an hour's sleep: %+v, before %+v", m, before)
	}
}

// The boot clock of a stopped virtual machine stands still too. Its leases are over all the same,
// for any time that its wall clock shows afterwards.
func TestStoppedMachineLosesItsLeases(t *testing.T) {
	for _, shown := range []time.Duration{time.Minute, 10 * year, -time.Hour} {
		f, k := newFake()
		f.run(k, time.Minute)
		before := k.Look()
		f.wall += shown
		m := k.Look()
		if m.Trust != Held || m.Mono != before.Mono || m.Lease-before.Lease < leasesEnd {
			t.Errorf("after a stop, the wall clock %s ahead: %+v, before %+v", shown, m, before)
		}
		f.wall -= shown
		if again := k.Look(); again.Lease < m.Lease {
			t.Errorf("the lease clock went back: %+v", again)
		}
	}
}

// TestAbsurdSteps: a clock that is set to and fro by hundreds of thousands of years ends all leases
// each time. However often it does, the clock of leases does not go back, and what is past stays
// so.
func TestAbsurdSteps(t *testing.T) {
	f, k := newFake()
	f.run(k, time.Minute)
	before, due := k.Look(), f.wallMs()
	for i := range 200_000 {
		f.absurdUs = 8_000_000_000_000_000_000 - f.absurdUs
		f.pass(time.Millisecond)
		m := k.Look()
		if m.Lease <= before.Lease || i < 10_000 && m.Lease-before.Lease < leasesEnd {
			t.Fatalf("step %d: the clock of leases moved by %s to %s", i, m.Lease-before.Lease, m.Lease)
		}
		if d := k.UntilWall(due); d >= 0 {
			t.Fatalf("step %d: what was due is due in %s", i, d)
		}
		before = m
	}
	f, k = &fake{absurdUs: 8_000_000_000_000_000_000}, nil
	k = NewKeeper(Config{Source: f})
	if d := k.UntilWall(due); d >= 0 {
		t.Errorf("seen from the year 255,000, what was due is due in %s", d)
	}
}

// TestOthersTimeIsNoUndoneStep: a process whose clock was never trusted continues the time of
// another node. A clock that is set to just that time, while nobody is heard, has not been set
// back: it is as unconfirmed as any other.
func TestOthersTimeIsNoUndoneStep(t *testing.T) {
	f := &fake{mono: time.Hour, boot: 2 * time.Hour}
	k := NewKeeper(Config{Source: f, Confirm: true})
	f.run(k, time.Second)
	offset := k.State().RawMs - f.boot.Milliseconds() - 9000
	k.Judge(1, 3, []Peer{{Node: 2, OffsetMs: offset, Heard: f.boot, Sure: true, Steady: time.Minute},
		{Node: 3, OffsetMs: offset + 90_000, Heard: f.boot}})
	if m := k.Look(); m.Trust != Held || m.WallMs != f.wallMs()-9000 {
		t.Fatalf("it does not continue the time of the other: %+v", m)
	}
	f.wall -= 5 * time.Second
	f.run(k, time.Second)
	f.wall -= 4 * time.Second
	if m := f.run(k, time.Second); m.Trust != Held {
		t.Errorf("trust %d in a clock that passes the time of another", m.Trust)
	}
}

// A process that starts while the clock is wrong learns that from the previous one, within one boot
// of the machine.
func TestNextProcessKnowsTheStep(t *testing.T) {
	f, k := newFake()
	f.run(k, time.Minute)
	saved := k.State().Saved
	f.pass(time.Second)
	right := f.wallMs()
	f.wall += 10 * year
	next := NewKeeper(Config{Source: f, Confirm: true, Saved: saved})
	if m := next.Look(); m.Trust != Held || m.WallMs != right {
		t.Errorf("%+v, want the time %d", m, right)
	}
	f.wall -= 10 * year
	if m := next.Look(); m.Trust != Sure {
		t.Errorf("trust %d after the clock was right again", m.Trust)
	}
	if again := NewKeeper(Config{Source: f, Confirm: true, Saved: saved}); again.Look().Trust != Sure || again.State().Steady < time.Minute {
		t.Errorf("a restart on a right clock: %+v", again.State())
	}
}

func TestUntilWall(t *testing.T) {
	f, k := newFake()
	now := f.wallMs()
	if d := k.UntilWall(now + 250); d != 250*time.Millisecond {
		t.Errorf("250 ms ahead: %s", d)
	}
	if d := k.UntilWall(now - 5); d != -5*time.Millisecond {
		t.Errorf("5 ms ago: %s", d)
	}
	if d := k.UntilWall(1 << 47); d != time.Hour {
		t.Errorf("far ahead: %s", d)
	}
	f.wall += 10 * year
	k.Look()
	if d := k.UntilWall(now + 250); d != 250*time.Millisecond {
		t.Errorf("250 ms ahead of what is believed: %s", d)
	}
}

// The machine's clocks are consistent under load, from many goroutines.
func TestSystemIsSteady(t *testing.T) {
	k := NewKeeper(Config{Source: NewSystem()})
	done := make(chan Moment)
	for range 4 {
		go func() {
			last := k.Look()
			for range 20_000 {
				m := k.Look()
				if m.Lease < m.Mono {
					t.Errorf("lease clock %s behind %s", m.Lease, m.Mono)
				}
				last = m
			}
			done <- last
		}()
	}
	for range 4 {
		if m := <-done; m.Trust != Sure {
			t.Errorf("trust %d", m.Trust)
		}
	}
	if s := k.State(); s.Steps != 0 {
		t.Errorf("%d steps seen", s.Steps)
	}
	before := k.Mono()
	now, wall := time.Now(), k.Wall()
	if wall.Before(now.Add(-time.Second)) || wall.After(time.Now().Add(time.Second)) || k.Mono() < before || k.Lease() < before || k.WallMs() < now.UnixMilli() {
		t.Errorf("wall %s, now %s", wall, now)
	}
}

func BenchmarkLook(b *testing.B) {
	k := NewKeeper(Config{Source: NewSystem()})
	b.ReportAllocs()
	for b.Loop() {
		k.Look()
	}
}

func BenchmarkMono(b *testing.B) {
	k := NewKeeper(Config{Source: NewSystem()})
	for b.Loop() {
		k.Mono()
	}
}
