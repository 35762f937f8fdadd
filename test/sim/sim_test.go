package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	flagSeed    = flag.Uint64("sim.seed", 0, "run this seed alone")
	flagSeeds   = flag.Int("sim.seeds", 0, "run so many seeds; default: leastSeeds, and as many more as fit into the time")
	flagFirst   = flag.Uint64("sim.first", 1, "the first seed")
	flagSteps   = flag.Uint64("sim.steps", 0, "end each run after so many events")
	flagAll     = flag.Bool("sim.all", false, "run all seeds, also after one that fails")
	flagShare   = flag.String("sim.share", "", "what a process that TestSeeds starts has to run")
	flagProfile = flag.String("sim.profile", "", "what each run is dense with; default: as drawn")
	flagTwice   = flag.Uint64("sim.twice", 20, "run each seed that this divides twice, and compare; 0: none")
	flagTrace   = flag.Bool("sim.trace", false, "print every event")
)

// At least leastSeeds seeds run, and as many more as fit into seedsBudget.
const seedsBudget = 45 * time.Second

// underRace: under the race detector a run takes ten times as long, and in one goroutine it finds
// nothing.
var underRace bool

// A run makes much garbage and keeps little. Collecting it less often saves a fifth of the time;
// still less often costs a quarter, as memory that was never used is slower. Not profiling
// allocations saves a thirtieth.
func init() {
	debug.SetGCPercent(200)
	runtime.MemProfileRate = 0
}

// run runs a seed in a bubble of its own.
func run(t *testing.T, cfg Config) (r Report) {
	t.Helper()
	if *flagTrace {
		cfg.Trace = os.Stdout
	}
	if !isProfile(*flagProfile) {
		t.Fatalf("-sim.profile is one of %q", profiles)
	}
	if cfg.Steps = *flagSteps; cfg.Profile == "" {
		cfg.Profile = *flagProfile
	}
	synctest.Test(t, func(*testing.T) {
		cfg.Settle = synctest.Wait
		r = Run(cfg)
	})
	if r.Err == nil {
		r.Err = r.History.Check(time.Minute)
	}
	return r
}

func fail(t *testing.T, r Report) {
	t.Helper()
	profile := ""
	if *flagProfile != "" {
		profile = " -sim.profile=" + *flagProfile
	}
	t.Errorf("seed %d, after %s simulated: %v\nreplay: go test ./test/sim -run TestSeeds -sim.seed=%d%s -sim.trace", r.Seed, r.Simulated, r.Err, r.Seed, profile)
	if !*flagAll {
		t.FailNow()
	}
}

// TestThirtyNodes runs the profile wide, in soak tests alone: a run takes a minute.
func TestThirtyNodes(t *testing.T) {
	if os.Getenv("CARILLON_SOAK") == "" {
		t.Skip("only with CARILLON_SOAK=1, as in make soak-tests; or make sim PROFILE=wide SEEDS=20")
	}
	for seed := uint64(1); seed <= 20; seed++ {
		r := run(t, Config{Seed: seed, Profile: wide})
		switch {
		case r.Err != nil:
			t.Errorf("seed %d, after %s simulated: %v", seed, r.Simulated, r.Err)
		case r.Counts.Divided != 128:
			t.Errorf("seed %d: %d shards were divided", seed, r.Counts.Divided)
		}
	}
}

// TestSeeds runs many seeds, in one process per processor at a time, because a run replaces the
// process's source of randomness.
func TestSeeds(t *testing.T) {
	switch {
	case *flagSeed != 0:
		runSeeds(t, share{first: *flagSeed, step: 1, least: 1})
	case *flagShare != "":
		var s share
		if _, err := fmt.Sscanf(*flagShare, shareFormat, &s.first, &s.step, &s.least, &s.budget); err != nil {
			t.Fatal(err)
		}
		runSeeds(t, s)
	case (testing.Short() || underRace) && *flagSeeds == 0:
		runSeeds(t, share{first: *flagFirst, step: 1, least: 20})
	default:
		shareSeeds(t)
	}
}

// share is one process's part of the seeds: at least least, and as many more as fit into budget.
type share struct {
	first, step uint64
	least       int
	budget      time.Duration
}

const (
	shareFormat = "%d+%d*%d,%d"
	sumMark     = "sum: "
)

// manySeeds is how many runs together must reach each of Counts.
const manySeeds = 200

func runSeeds(t *testing.T, s share) {
	begun := time.Now()
	var all sum
	failed := 0
	for seed := s.first; all.Seeds < s.least || time.Since(begun) < s.budget; seed += s.step {
		r := run(t, Config{Seed: seed})
		if r.Err != nil {
			fail(t, r)
			failed++
		} else if *flagTwice > 0 && seed%*flagTwice == 0 {
			same(t, r)
		}
		t.Logf("seed %d: %s, %d events, hash %016x, %+v", r.Seed, r.Simulated, r.Events, r.Hash, r.Counts)
		all.add(&sum{1, int64(r.Simulated), r.Counts})
	}
	if failed > 0 {
		t.Logf("failed: %d of %d seeds", failed, all.Seeds)
	}
	t.Logf("%s%s", sumMark, &all)
}

// partsEach is into how many parts each processor's seeds are divided: whichever is done takes the
// next, so that both work to the end.
const partsEach = 8

// shareSeeds starts processes like this one that run the seeds.
func shareSeeds(t *testing.T) {
	workers := runtime.GOMAXPROCS(0)
	least, budget, parts := leastSeeds, seedsBudget, workers
	if *flagSeeds > 0 {
		least, budget, parts = *flagSeeds, 0, partsEach*workers
	}
	parts = min(parts, least)
	all := make([]sum, parts)
	cpu := make([]time.Duration, parts)
	next := make(chan int, parts)
	for i := range parts {
		next <- i
	}
	close(next)
	runPart := func(i int) {
		s := fmt.Sprintf(shareFormat, *flagFirst+uint64(i), parts, (least+parts-1-i)/parts, budget)
		cmd := exec.Command(os.Args[0], "-test.run=^TestSeeds$", "-test.v", "-test.timeout=0", "-sim.share="+s, fmt.Sprint("-sim.all=", *flagAll), "-sim.profile="+*flagProfile, fmt.Sprint("-sim.twice=", *flagTwice))
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
			return
		}
		t.Logf("%s", out)
		_, text, _ := bytes.Cut(out, []byte(sumMark))
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&all[i]); err != nil || all[i].Seeds == 0 {
			t.Errorf("no sum (%v)", err)
		}
		cpu[i] = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				if !t.Failed() || *flagAll {
					runPart(i)
				}
			}
		})
	}
	group.Wait()
	for i := 1; i < parts; i++ {
		all[0].add(&all[i])
		cpu[0] += cpu[i]
	}
	c, simulated := &all[0].Counts, time.Duration(all[0].SimulatedNs)
	t.Logf("%d seeds, %.1f hours simulated, %d operations acknowledged, %d calls; %.0f s of processors, %.0f times real time on each",
		all[0].Seeds, simulated.Hours(), c.Acked, c.Started, cpu[0].Seconds(), simulated.Seconds()/cpu[0].Seconds())
	if never := c.never(all[0].Seeds); all[0].Seeds >= manySeeds && *flagProfile == "" && len(never) > 0 {
		t.Errorf("%d runs never came to: %v", all[0].Seeds, never)
	}
}

// same repeats a seed and checks that both runs are equal, event by event; otherwise no failure
// could be replayed. This finds a host that depends on the order of a map.
func same(t *testing.T, r Report) {
	t.Helper()
	if again := run(t, Config{Seed: r.Seed}); again.Hash != r.Hash || again.Events != r.Events {
		t.Errorf("seed %d gave %d events, hash %016x, then %d events, hash %016x", r.Seed, r.Events, r.Hash, again.Events, again.Hash)
	}
}
