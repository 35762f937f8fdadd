package clocks

import (
	"fmt"
	"sync"
	"time"
)

const (
	// Slew is how far the wall clock may move against the boot clock within SlewWindow; more is a
	// step. On Linux a time service that slews moves both clocks, so it never shows here.
	Slew       = 250 * time.Millisecond
	SlewWindow = 10 * time.Second
	// SteadyFor is how long a wall clock that stepped must advance with the boot clock to be
	// trusted if no other node can confirm it.
	SteadyFor = 10 * time.Second
	// leasesEnd exceeds every lease that a node holds itself. A step may hide how long the whole
	// machine was stopped, so a step ends all leases.
	leasesEnd = 24 * time.Hour
	// mostJumped bounds what steps add to the clock of leases: 146 years, or 53,000 steps.
	mostJumped = time.Duration(1 << 62)
)

// Saved is the state that a Keeper leaves for the next process. It is valid for one boot of the
// machine.
type Saved struct {
	OffsetUs int64         // trusted wall clock minus boot clock
	SteadyAt time.Duration // boot clock at the last step
	Wrong    bool          // others found a wall clock to be wrong
	WrongUs  int64         // that clock minus the boot clock
	Denied   bool          // a majority shared another time than OffsetUs
}

// Config configures a Keeper. Source is required.
type Config struct {
	Source Source
	// Confirm makes the wall clock Unknown until Judge or Saved confirms it.
	Confirm bool
	// Saved comes from an earlier process in the same boot of the machine; nil: there is none.
	Saved *Saved
}

// Keeper decides whether the wall clock is trusted. All methods are safe for concurrent use.
type Keeper struct {
	source Source

	mu    sync.Mutex
	trust Trust
	why   string // while Held: the reason
	// offsetUs is the trusted wall clock minus the boot clock. While Sure it follows the wall
	// clock.
	offsetUs int64
	anchored bool // offsetUs was trusted once
	// ownUs is offsetUs from when the wall clock was last trusted, if it ever was. Since then
	// offsetUs may have come from other nodes.
	ownUs    int64
	believed bool
	// wrong: others found the wall clock to be wrong when it was wrongUs ahead of the boot clock.
	// At that offset it is not trusted again, however steady and whichever nodes are heard, until a
	// majority shares it.
	wrong   bool
	wrongUs int64
	// denied: a majority shared another time than offsetUs. A step back to offsetUs is not trusted
	// at once.
	denied bool

	rawUs    int64 // wall clock minus boot clock at the last reading
	baseUs   int64 // … at the begin of the window in which it may move by Slew
	baseAt   time.Duration
	steadyAt time.Duration // boot clock at the last step, or at the first reading
	steps    uint32
	jumped   time.Duration // lead of Moment.Lease over the boot clock
}

// NewKeeper makes a Keeper and reads the clocks once.
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
		if k.knownWrong() || k.denied {
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

// Mono is Moment.Mono, at a lower cost.
func (k *Keeper) Mono() time.Duration { return k.source.Boot() }

// Lease is Moment.Lease.
func (k *Keeper) Lease() time.Duration { return k.Look().Lease }

// WallMs is Moment.WallMs.
func (k *Keeper) WallMs() int64 { return k.Look().WallMs }

// Wall is the trusted time as a time.Time without a monotonic part.
func (k *Keeper) Wall() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.look()
	return time.UnixMicro(k.believedUs(&r))
}

// UntilWall is the time until the trusted wall clock reads ms, at most an hour; negative if it is
// past, by an hour at most.
func (k *Keeper) UntilWall(ms int64) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	nowUs := k.offsetUs + k.source.Boot().Microseconds()
	const most = int64(time.Hour / time.Millisecond) // more would overflow
	if ahead := ms - nowUs/1000; ahead > most || ahead < -most {
		return time.Duration(min(max(ahead, -most), most)) * time.Millisecond
	}
	return time.Duration(ms*1000-nowUs) * time.Microsecond
}

func (k *Keeper) look() Reading {
	r := k.source.Read()
	k.observe(&r)
	return r
}

// believedUs is the trusted time. A trusted wall clock is read, not computed: no call may start
// before it shows the due time.
func (k *Keeper) believedUs(r *Reading) int64 {
	if k.trust == Held {
		return k.offsetUs + r.Boot.Microseconds()
	}
	return r.WallUs
}

// observe compares a reading with the earlier ones.
func (k *Keeper) observe(r *Reading) {
	k.rawUs = r.WallUs - r.Boot.Microseconds()
	slackUs := (Slew + r.Apart).Microseconds()
	if d := k.rawUs - k.baseUs; d > slackUs || d < -slackUs {
		k.stepped(r, d)
	} else if r.Boot-k.baseAt >= SlewWindow {
		k.baseUs, k.baseAt = k.rawUs, r.Boot
	}
	switch d := k.rawUs - k.offsetUs; {
	case k.trust == Held && k.believed && !k.knownWrong() && !k.denied && d <= slackUs && d >= -slackUs:
		k.adopt() // the step was undone
	case k.trust == Sure:
		k.offsetUs, k.ownUs = k.rawUs, k.rawUs
	case k.trust == Unknown:
		k.offsetUs = k.rawUs
	}
}

func (k *Keeper) stepped(r *Reading, byUs int64) {
	k.jumped = min(k.jumped+leasesEnd, mostJumped)
	if k.trust == Sure {
		// many small moves add up to a step: then the last of them are not trusted either
		k.offsetUs, k.ownUs = k.baseUs, k.baseUs
		k.hold(fmt.Sprintf("its clock was set by %d ms and has not been steady for %s yet", byUs/1000, SteadyFor))
	}
	k.steps++
	k.baseUs, k.baseAt, k.steadyAt = k.rawUs, r.Boot, r.Boot
}

// hold continues the trusted time by the boot clock.
func (k *Keeper) hold(why string) { k.trust, k.why = Held, why }

// knownWrong reports whether the wall clock is still at the offset that others found wrong.
func (k *Keeper) knownWrong() bool { return k.wrong && near(floorMs(k.rawUs), floorMs(k.wrongUs)) }

// adopt trusts the wall clock as it is.
func (k *Keeper) adopt() {
	k.trust, k.why, k.wrong, k.denied, k.anchored, k.offsetUs = Sure, "", false, false, true, k.rawUs
	k.ownUs, k.believed = k.rawUs, true
}

// unconfirmed is the fault of a clock that is Unknown.
const unconfirmed = "its clock has not been compared with the others' yet"

// Fault is the reason why the clock is not trusted; "" if it is.
func (k *Keeper) Fault() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.look(); k.trust == Unknown {
		return unconfirmed
	}
	return k.why
}

// State is the state of a Keeper, for reports.
type State struct {
	Trust   Trust
	Why     string // fault of the clock, unless it is Sure
	RawMs   int64  // the wall clock, trusted or not
	AheadMs int64  // lead of the wall clock over the trusted time
	Steps   uint32 // since the process began
	// Steady is the time since the last step, or since the first reading in this boot of the
	// machine.
	Steady time.Duration
	Saved  *Saved // for the next process; nil: no time is trusted yet
}

// State reads the clocks and returns their state.
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
