package sim

import (
	"crypto/rand"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"carillon/timer"
	"carillon/vfs/memfs"
)

// Config of a run.
type Config struct {
	Seed    uint64
	Safety  time.Duration // of the first phase; default: as drawn
	Profile string        // one of profiles; default: as drawn
	Steps   uint64        // end after so many events, checking no more; 0: no limit
	Settle  func()        // waits until all goroutines of the bubble rest: synctest.Wait
	Trace   io.Writer     // every event, as it happens; nil: only the last before a failure
	Change  func(*Plan)   // of what was drawn, for a test of one thing
	script  func(*World)  // instead of the two phases
}

// Plan is what Config.Change may change.
type Plan = swarm

// Report is how a run went.
type Report struct {
	Seed      uint64
	Hash      uint64 // of all that happened
	Events    uint64
	Simulated time.Duration
	Counts    Counts
	History   History
	Err       error // a *Violation, or nil
}

// Violation is something that must never be.
type Violation struct {
	Invariant string
	Text      string
	Trace     []string
	Stack     string // of a panic
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s\n%s\n%s", v.Invariant, v.Text, strings.Join(v.Trace, "\n"), v.Stack)
}

// World is one run.
type World struct {
	cfg      Config
	swarm    swarm
	chance   chance
	faultRNG chance // of its scenarios
	ills     chance // of its disk faults
	ids      chance // what nodes draw that nobody can guess
	times    chance // of its clocks' faults
	odds     chance // of its replicas' faults

	finalizing bool // an operator has tried to finalize an upgrade

	ballast map[timer.ShardID]bool // shards whose ballast is there, and is not changed any more

	wrongAt time.Duration // when no more than half of the machines had a right clock

	numbered time.Duration // when another number of replicas was last asked for
	now      time.Duration
	seq      uint64
	queue    eventQueue
	trace    trace
	nodes    []*node // all there ever were
	net      network
	checker  *checker
	calls    *receivers
	sick     sickness
	apart    apartness
	counts   Counts

	clients        []*client
	workloads      *topicWorkloads
	featureClients *featureClients
	keys           *keyOperator
	merging        *merging
	turning        *turning
	makers         *topicMakers
	healed         time.Duration // when the second phase began
	believed       time.Duration // after it, when all clocks are believed that were set right in it
	topics         []string
	laid           int        // how many of them somebody was told are there
	calm           bool       // the second phase
	lull           *swarm     // what goes wrong when a lull is over; nil: there is none
	refusal        error      // the last that the operator was given
	running        *coroutine // of the task that runs now; nil: none does
	idle           []*coroutine

	// effect, if set, is told of each change of a disk right before it is made. It may be called by a host's background goroutine, while the world waits for it.
	effect func(n *node, op memfs.Op, name string)
}

// stopped ends a run from within.
type stopped struct{ v *Violation }

// String is for one that came through a goroutine of the product's, which hands on what a panic says.
func (s stopped) String() string {
	if s.v == nil {
		return "the run has ended"
	}
	return s.v.Invariant + ": " + s.v.Text
}

// Run makes a world from a seed and lets it go on to its end.
func Run(cfg Config) (r Report) {
	reader := rand.Reader
	rand.Reader = entropy{newChance(cfg.Seed, 2)}
	defer func() { rand.Reader = reader }()
	w := newWorld(cfg)
	defer func() {
		if p := recover(); p != nil {
			s, ok := p.(stopped)
			if !ok {
				s.v = &Violation{Invariant: "panic", Text: fmt.Sprint(p), Stack: string(debug.Stack())}
			}
			if s.v != nil {
				s.v.Trace = w.trace.last(traceKept)
				r.Err = s.v
			}
		}
		w.end()
		w.countUnread()
		r.Seed, r.Hash, r.Events, r.Simulated, r.Counts = cfg.Seed, w.trace.sum.Sum64(), w.seq, w.now, w.counts
		r.History = w.checker.history.export(w.mayForget)
		r.History.bulks = w.checker.bulks
	}()
	if cfg.script != nil {
		cfg.script(w)
		return r
	}
	w.live()
	return r
}

func newWorld(cfg Config) *World {
	w := &World{cfg: cfg, chance: newChance(cfg.Seed, 1), checker: newChecker()}
	w.trace.sum.Reset()
	w.trace.out = cfg.Trace
	w.swarm = draw(w.chance, cfg.Profile)
	w.swarm.bound(newChance(cfg.Seed, 9))
	w.faultRNG = newChance(cfg.Seed, 5)
	w.swarm.scenario(w.faultRNG)
	w.ills = newChance(cfg.Seed, 7)
	w.ids = newChance(cfg.Seed, 9)
	w.odds = newChance(cfg.Seed, 29)
	if cfg.script == nil {
		w.swarm.ail(w.ills)
		w.swarm.drawReplicaFaults(w.odds)
	}
	w.times = newChance(cfg.Seed, 23)
	w.swarm.clockwise(w.times)
	w.workloads = w.drawWorkloads()
	w.featureClients = w.drawFeatureClients()
	w.keys = w.drawKeys()
	w.merging = w.drawMerging()
	w.makers = w.drawTopicMakers()
	if w.turning = w.drawTurning(); w.turning.on {
		w.checker.judgeTurns(w)
	}
	if cfg.Change != nil {
		cfg.Change(&w.swarm)
	}
	if cfg.Safety != 0 {
		w.swarm.safety = cfg.Safety
	}
	return w
}

// violate ends the run: an invariant does not hold.
func (w *World) violate(invariant, format string, args ...any) {
	panic(stopped{&Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...)}})
}

// after has something happen so long from now.
func (w *World) after(d time.Duration, run func()) {
	w.seq++
	if d <= 0 {
		w.queue.once.push(event{w.now, w.seq, run})
		return
	}
	w.queue.push(event{w.now + d, w.seq, run})
}

// afterTimeout has something happen when a client's time-out is over.
func (w *World) afterTimeout(run func()) {
	w.seq++
	w.queue.timeouts.push(event{w.now + clientTimeout, w.seq, run})
}

// pass lets everything happen that happens within so long.
func (w *World) pass(d time.Duration) {
	end := w.now + d
	for e, ok := w.queue.pop(end); ok; e, ok = w.queue.pop(end) {
		w.now = e.at
		e.run()
		if w.cfg.Steps > 0 && w.seq > w.cfg.Steps {
			panic(stopped{})
		}
	}
	w.now = end
}

// passUntil is pass that ends when something holds; it reports whether it does.
func (w *World) passUntil(limit time.Duration, holds func() bool) bool {
	for end := w.now + limit; w.now < end; {
		if holds() {
			return true
		}
		w.pass(min(20*time.Millisecond, end-w.now))
	}
	return holds()
}

// end lets every host go.
func (w *World) end() {
	for _, n := range w.nodes {
		n.tasks.end()
		if n.host != nil {
			n.host.Abandon()
			n.gate.Open()
		}
	}
	for _, c := range w.idle {
		c.stop()
	}
	w.cfg.Settle()
}
