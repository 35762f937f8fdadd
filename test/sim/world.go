package sim

import (
	"crypto/rand"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"carillon/internal/feature"
	"carillon/shard/table/index"
	"carillon/test/memfs"
	"carillon/timer"
)

// Config configures one run.
type Config struct {
	Seed    uint64
	Safety  time.Duration // length of the first phase; default: drawn from the seed
	Profile string        // one of profiles; default: drawn from the seed
	Steps   uint64        // stop after this many events, without the final checks; 0: no limit
	Settle  func()        // waits until all goroutines of the bubble are blocked: synctest.Wait
	// gets every event as it happens; nil: only the last events before a failure are kept
	Trace  io.Writer
	Change func(*Plan)  // overrides drawn values, for a test of one thing
	script func(*World) // instead of the two phases
}

// Plan is the set of drawn values that Config.Change may override.
type Plan = swarm

// Report is the result of a run.
type Report struct {
	Seed      uint64
	Hash      uint64 // over the whole trace: equal for two runs of one seed in one build
	Events    uint64
	Simulated time.Duration
	Counts    Counts
	History   History
	Err       error // a *Violation, or nil
}

// Violation is a broken invariant. It ends the run.
type Violation struct {
	Invariant string
	Text      string
	Trace     []string
	Stack     string // of a panic
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s\n%s\n%s", v.Invariant, v.Text, strings.Join(v.Trace, "\n"), v.Stack)
}

// World is one simulated cluster and its run. Every chance is a random stream of its own, so that a
// change to one part of the simulator does not shift the draws of the others.
type World struct {
	cfg      Config
	swarm    swarm
	chance   chance
	faultRNG chance // for scenarios
	ills     chance // for disk faults
	ids      chance // for the random ids and secrets of nodes
	times    chance // for clock faults
	odds     chance // for faults of single replicas
	cramped  chance // for room that a disk lacks for a name
	salts    chance // of logs
	words    chance // for false words about processes
	revivals chance // for redrives of occurrences, see revive

	finalizing bool          // an operator has tried to finalize an upgrade
	level      feature.Level // see agreedLevel

	wrongAt time.Duration // when at most half of the machines last had a right clock

	numbered time.Duration // when an operator last changed the number of replicas
	now      time.Duration
	seq      uint64
	queue    eventQueue
	trace    trace
	nodes    []*node // every machine, including those that are gone
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
	collecting     *collecting
	turning        *turning
	growing        growing
	makers         *topicMakers
	crowd          *crowd
	windowed       *windowed
	outcomes       *outcomes
	pausing        *pausing // nil: windowTopic has a window
	perKey         *perKey
	batches        *batches
	policies       map[timer.TopicID]timer.Policy // as the topics were created
	healed         time.Duration                  // when the second phase began
	// time after healed until clocks that were corrected in heal are trusted
	believed time.Duration
	foundAt  time.Duration // when a process last found a flipped bit, and had to restart
	topics   []string
	laid     int  // how many of topics have been acknowledged to a client
	calm     bool // the second phase
	// the fault rates to restore when the lull ends; nil: there is no lull
	lull    *swarm
	removed time.Duration // when operators last asked for a removal by force; 0: never
	refusal error         // the last error that an operator received
	tries   int           // requests of the last insist
	running *coroutine    // of the running task; nil: no task runs
	idle    []*coroutine

	// effect, if set, is called right before each change of a disk. A host's background goroutine
	// may call it while the world waits for that goroutine.
	effect func(n *node, op memfs.Op, name string)
}

// stopped is the panic that ends a run early; v is nil when Config.Steps is reached.
type stopped struct{ v *Violation }

// String is printed when the panic passes through a goroutine of the product, which wraps its text.
func (s stopped) String() string {
	if s.v == nil {
		return "the run has ended"
	}
	return s.v.Invariant + ": " + s.v.Text
}

// Run simulates one cluster from a seed until the end of the run or the first violation.
func Run(cfg Config) (r Report) {
	reader := rand.Reader
	rand.Reader = entropy{newChance(cfg.Seed, 2)}
	index.Fixed = true // the memory limit sees how full an index's parts are
	defer func() { rand.Reader, index.Fixed = reader, false }()
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
	w.cramped = newChance(cfg.Seed, 37)
	w.salts = newChance(cfg.Seed, 41)
	if cfg.script == nil {
		w.swarm.ail(w.ills)
		w.swarm.drawReplicaFaults(w.odds)
		w.swarm.drawToil(newChance(cfg.Seed, 43))
	}
	w.words = newChance(cfg.Seed, 31)
	w.revivals = newChance(cfg.Seed, 71)
	w.swarm.drawFalseWords(w.words)
	w.times = newChance(cfg.Seed, 23)
	w.swarm.clockwise(w.times)
	if cfg.Profile == wide {
		w.swarm.wide(newChance(cfg.Seed, 73))
	}
	w.workloads = w.drawWorkloads()
	w.featureClients = w.drawFeatureClients()
	w.keys = w.drawKeys()
	w.merging = w.drawMerging()
	w.makers = w.drawTopicMakers()
	w.windowed, w.outcomes = w.drawWindowed(), w.drawOutcomes()
	w.batches = w.drawBatches()
	w.checker.visits[windowTopic], w.policies = w.windowed, map[timer.TopicID]timer.Policy{}
	if !w.windowed.on {
		w.pausing = w.drawPausing()
		w.checker.visits[windowTopic] = w.pausing
	}
	w.perKey = w.drawPerKey()
	w.checker.visits[perKeyTopic] = w.perKey
	w.collecting = w.drawCollecting()
	w.checker.visits[collectTopic] = w.collecting
	w.crowd = w.drawCrowd()
	w.crowd.judge(w.checker)
	if w.turning = w.drawTurning(); w.turning.on {
		w.checker.judgeTurns(w)
	}
	if cfg.script == nil {
		w.drawGrowing()
	}
	if cfg.Change != nil {
		cfg.Change(&w.swarm)
	}
	if cfg.Safety != 0 {
		w.swarm.safety = cfg.Safety
	}
	return w
}

// violate ends the run because an invariant does not hold.
func (w *World) violate(invariant, format string, args ...any) {
	panic(stopped{&Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...)}})
}

// after schedules run in d from now.
func (w *World) after(d time.Duration, run func()) {
	w.seq++
	if d <= 0 {
		w.queue.once.push(event{w.now, w.seq, run})
		return
	}
	w.queue.push(event{w.now + d, w.seq, run})
}

// afterTimeout schedules run in clientTimeout from now.
func (w *World) afterTimeout(run func()) {
	w.seq++
	w.queue.timeouts.push(event{w.now + clientTimeout, w.seq, run})
}

// pass runs all events of the next d.
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

// passUntil runs events until holds is true or limit has passed. It reports whether holds is true.
func (w *World) passUntil(limit time.Duration, holds func() bool) bool {
	for end := w.now + limit; w.now < end; {
		if holds() {
			return true
		}
		w.pass(min(20*time.Millisecond, end-w.now))
	}
	return holds()
}

// end stops every host and every task.
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
