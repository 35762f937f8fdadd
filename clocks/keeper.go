package clocks

import (
	"fmt"
	"sync"
	"time"
)

const (
	// Slew is by how much the wall clock may move against the boot clock within SlewWindow. More is
	// a step. A clock that a time service slews moves neither on Linux, as it slews both.
	Slew       = 250 * time.Millisecond
	SlewWindow = 10 * time.Second
	// SteadyFor is how long a wall clock that stepped must go with the boot clock to be believed
	// where nobody else can say what time it is.
	SteadyFor = 10 * time.Second
	// leasesEnd is longer than any lease that a node holds itself. A step may hide for how long the whole
	// machine was stopped, so it ends them all.
	leasesEnd = 24 * time.Hour
)

// Saved is what a Keeper leaves to the next process: it has a meaning for one boot of the machine.
type Saved struct {
	OffsetUs int64         // the believed wall clock less the boot clock
	SteadyAt time.Duration // boot clock of the last step
	Wrong    bool          // others found a wall clock to be wrong
	WrongUs  int64         // that one, less the boot clock
	Denied   bool          // a majority shared another time than OffsetUs says
}

// Config of a Keeper. Source must be given.
type Config struct {
	Source Source
	// Confirm has the wall clock count as Unknown until Judge confirms it, or Saved does.
	Confirm bool
	// Saved is of a process before this one in the same boot of the machine; nil: there is none.
	Saved *Saved
}

// Keeper believes a wall clock or does not. All its methods may be called by any goroutine.
type Keeper struct {
	source Source

	mu    sync.Mutex
	trust Trust
	why   string // Held
	// offsetUs is the believed wall clock less the boot clock. While Sure it is the wall clock's own.
	offsetUs int64
	anchored bool // offsetUs was believed once
	// ownUs is offsetUs as of when the wall clock was last believed, if it ever was; meanwhile offsetUs
	// may be what others have.
	ownUs    int64
	believed bool
	// wrong: others found the wall clock to be wrong when it was wrongUs ahead of the boot clock. It is not
	// believed again there, however steady it is and whoever is heard, until a majority shares it.
	wrong   bool
	wrongUs int64
	// denied: a majority shared another time than offsetUs. A step back to that is not believed at once.
	denied bool

	rawUs    int64 // the wall clock less the boot clock, at the last reading
	baseUs   int64 // … at the begin of the window in which it may move by Slew
	baseAt   time.Duration
	steadyAt time.Duration // boot clock of the last step, or of the first reading
	steps    uint32
	jumped   time.Duration // that Moment.Lease is ahead of the boot clock
}

// NewKeeper reads the clocks for the first time.
func NewKeeper(cfg Config) *Keeper {
	k := &Keeper{source: cfg.Source}
	r := k.source.Read()
	k.rawUs = r.WallUs - r.Boot.Microseconds()
	k.offsetUs, k.baseUs, k.baseAt, k.steadyAt = k.rawUs, k.rawUs, r.Boot, r.Boot
	switch {
	case cfg.Saved != nil:
		k.offsetUs, k.baseUs, k.steadyAt = cfg.Saved.OffsetUs, cfg.Saved.OffsetUs, min(cfg.Saved.SteadyAt, r.Boot)
		k.ownUs, k.believed, k.anchored = k.offsetUs, true, true
		k.wrong, k.wrongUs, k.denied = cfg.Saved.Wrong, cfg.Saved.WrongUs, cfg.Saved.Denied
		if k.condemned() || k.denied {
			k.hold("the others found its clock to be wrong before this process began")
		}
		k.observe(&r)
	case cfg.Confirm:
		k.trust = Unknown
	default:
		k.ownUs, k.believed, k.anchored = k.offsetUs, true, true
	}
	return k
}

// Look reads the clocks.
func (k *Keeper) Look() Moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.look()
	return Moment{WallMs: k.believedUs(&r) / 1000, Mono: r.Boot, Lease: r.Boot + k.jumped, Trust: k.trust}
}

// Mono is Moment.Mono, at less cost.
func (k *Keeper) Mono() time.Duration { return k.source.Boot() }

// Lease is Moment.Lease.
func (k *Keeper) Lease() time.Duration { return k.Look().Lease }

// WallMs is Moment.WallMs.
func (k *Keeper) WallMs() int64 { return k.Look().WallMs }

// Wall is the believed time as a time.Time, which has no monotonic part.
func (k *Keeper) Wall() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.look()
	return time.UnixMicro(k.believedUs(&r))
}

// UntilWall is how long it is until the believed wall clock reads ms, an hour at most; negative when
// it does already.
func (k *Keeper) UntilWall(ms int64) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	nowUs := k.offsetUs + k.source.Boot().Microseconds()
	if ahead := ms - nowUs/1000; ahead > time.Hour.Milliseconds() {
		return time.Hour // also keeps far times from overflowing
	}
	return time.Duration(ms*1000-nowUs) * time.Microsecond
}

func (k *Keeper) look() Reading {
	r := k.source.Read()
	k.observe(&r)
	return r
}

// believedUs is the time that is believed. A wall clock that is believed is not reckoned but read:
// no call is to start before it shows its time.
func (k *Keeper) believedUs(r *Reading) int64 {
	if k.trust == Held {
		return k.offsetUs + r.Boot.Microseconds()
	}
	return r.WallUs
}

// observe compares a reading with those before.
func (k *Keeper) observe(r *Reading) {
	k.rawUs = r.WallUs - r.Boot.Microseconds()
	slackUs := (Slew + r.Apart).Microseconds()
	if d := k.rawUs - k.baseUs; d > slackUs || d < -slackUs {
		k.stepped(r, d)
	} else if r.Boot-k.baseAt >= SlewWindow {
		k.baseUs, k.baseAt = k.rawUs, r.Boot
	}
	switch d := k.rawUs - k.offsetUs; {
	case k.trust == Held && !k.condemned() && !k.denied && d <= slackUs && d >= -slackUs:
		k.adopt() // the step was taken back
	case k.trust == Sure:
		k.offsetUs, k.ownUs = k.rawUs, k.rawUs
	case k.trust == Unknown:
		k.offsetUs = k.rawUs
	}
}

// stepped takes note of a step by so much.
func (k *Keeper) stepped(r *Reading, byUs int64) {
	k.jumped += max(time.Duration(byUs)*time.Microsecond, leasesEnd)
	if k.trust == Sure {
		k.offsetUs, k.ownUs = k.baseUs, k.baseUs // many small moves make a step too: then the last of them are not believed either
		k.hold(fmt.Sprintf("its clock was set by %d ms and has not been steady for %s yet", byUs/1000, SteadyFor))
	}
	k.steps++
	k.baseUs, k.baseAt, k.steadyAt = k.rawUs, r.Boot, r.Boot
}

// hold goes on from what is believed, by the boot clock.
func (k *Keeper) hold(why string) { k.trust, k.why = Held, why }

// condemned says that the wall clock is as others found it to be wrong.
func (k *Keeper) condemned() bool { return k.wrong && near(floorMs(k.rawUs), floorMs(k.wrongUs)) }

// adopt believes the wall clock as it is.
func (k *Keeper) adopt() {
	k.trust, k.why, k.wrong, k.denied, k.anchored, k.offsetUs = Sure, "", false, false, true, k.rawUs
	k.ownUs, k.believed = k.rawUs, true
}

// unconfirmed is what is wrong with a clock that is Unknown.
const unconfirmed = "its clock has not been compared with the others' yet"

// Fault says why the clock is not believed; "" if it is.
func (k *Keeper) Fault() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.look(); k.trust == Unknown {
		return unconfirmed
	}
	return k.why
}

// State is what a Keeper says of itself.
type State struct {
	Trust   Trust
	Why     string // what is wrong with the clock, unless it is Sure
	RawMs   int64  // the wall clock, believed or not
	AheadMs int64  // by how much it is ahead of what is believed
	Steps   uint32 // since the process began
	// Steady is how long ago the last step was, or the first reading of the first process of this boot.
	Steady time.Duration
	Saved  *Saved // for the next process; nil: nothing is believed yet
}

// State reads the clocks and says how they are.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.look()
	s := State{Trust: k.trust, Why: k.why, RawMs: r.WallUs / 1000, Steps: k.steps, Steady: r.Boot - k.steadyAt}
	switch {
	case k.trust == Held:
		s.AheadMs = (k.rawUs - k.offsetUs) / 1000
	case k.trust == Unknown:
		s.Why = unconfirmed
	}
	if k.believed {
		s.Saved = &Saved{OffsetUs: k.ownUs, SteadyAt: k.steadyAt, Wrong: k.wrong, WrongUs: k.wrongUs, Denied: k.denied}
	}
	return s
}
