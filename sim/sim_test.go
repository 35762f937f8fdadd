package sim

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

var (
	flagSeed  = flag.Uint64("sim.seed", 0, "run this seed alone")
	flagSeeds = flag.Int("sim.seeds", 0, "run so many seeds; default: as many as fit into the time")
	flagFirst = flag.Uint64("sim.first", 1, "the first seed")
	flagSteps = flag.Uint64("sim.steps", 0, "end each run after so many events")
	flagTrace = flag.Bool("sim.trace", false, "print every event")
)

// underRace: the race detector makes a run ten times as long and finds nothing in one goroutine.
var underRace bool

// A run makes much garbage and keeps little: collecting it less often is a fifth of the time.
func init() { debug.SetGCPercent(800) }

// run runs a seed in a bubble of its own.
func run(t *testing.T, cfg Config) (r Report) {
	t.Helper()
	if *flagTrace {
		cfg.Trace = os.Stdout
	}
	cfg.Steps = *flagSteps
	synctest.Test(t, func(*testing.T) {
		cfg.Settle = synctest.Wait
		r = Run(cfg)
	})
	if r.Err == nil {
		r.Err = r.History.Check(10 * time.Second)
	}
	return r
}

func fail(t *testing.T, r Report) {
	t.Helper()
	t.Fatalf("seed %d, after %s simulated: %v\nreplay: go test ./sim -run TestSeeds -sim.seed=%d -sim.trace", r.Seed, r.Simulated, r.Err, r.Seed)
}

func TestSeeds(t *testing.T) {
	first, count, budget := *flagFirst, *flagSeeds, 40*time.Second
	if *flagSeed != 0 {
		first, count = *flagSeed, 1
	}
	if testing.Short() || underRace {
		budget = 5 * time.Second
	}
	begun := time.Now()
	var simulated time.Duration
	var sum Counts
	n := 0
	for seed := first; ; seed++ {
		if count > 0 && n == count || count == 0 && time.Since(begun) > budget {
			break
		}
		r := run(t, Config{Seed: seed})
		if r.Err != nil {
			fail(t, r)
		}
		n++
		simulated += r.Simulated
		t.Logf("seed %d: %s, %d events, hash %016x, %+v", r.Seed, r.Simulated, r.Events, r.Hash, r.Counts)
		sum.Acked += r.Counts.Acked
	}
	took := time.Since(begun)
	t.Logf("%d seeds, %s simulated in %s: %.0f times as fast; %d operations acknowledged", n, simulated, took, simulated.Seconds()/took.Seconds(), sum.Acked)
}

// The same seed gives the same run, event by event: else no failure could be had again.
func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		a, b := run(t, Config{Seed: seed}), run(t, Config{Seed: seed})
		if a.Hash != b.Hash || a.Events != b.Events {
			t.Errorf("seed %d gave %d events, hash %016x, then %d events, hash %016x", seed, a.Events, a.Hash, b.Events, b.Hash)
		}
	}
}
