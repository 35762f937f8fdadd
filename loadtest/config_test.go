package loadtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
)

func TestDefaultsAreValid(t *testing.T) {
	for _, mode := range []Mode{ModeAdd, ModeFire, ModeMixed, ModeChurn} {
		for _, instant := range []bool{false, true} {
			c := Config{Mode: mode, SameInstant: instant}.withDefaults()
			if err := c.validate(); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
		}
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	c := Config{Mode: "sing", URL: []string{"ftp://x"}, Connections: -1, Payload: 3, Batch: 5000, Delay: "soon",
		Mix: "get=1", Sink: "nowhere", Topic: "{x}", CancelShare: 3, Rate: -1}.withDefaults()
	err := c.validate()
	if err == nil {
		t.Fatal("a bad configuration was taken")
	}
	for _, want := range []string{"mode", "ftp://x", "connections", "payload", "batch", "delay", "mix", "sink", "topic", "cancel share", "rate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s:\n%v", want, err)
		}
	}
}

func TestParseDelay(t *testing.T) {
	for in, want := range map[string]delay{
		"5s":             {delayFixed, 5 * time.Second, 5 * time.Second},
		"fixed:5s":       {delayFixed, 5 * time.Second, 5 * time.Second},
		"fixed 5s":       {delayFixed, 5 * time.Second, 5 * time.Second},
		"uniform:1s-10s": {delayUniform, time.Second, 10 * time.Second},
		"uniform 1s-10s": {delayUniform, time.Second, 10 * time.Second},
		"exp:500ms":      {delayExponential, 500 * time.Millisecond, 500 * time.Millisecond},
	} {
		if got, err := parseDelay(in); err != nil || got != want {
			t.Errorf("parseDelay(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "5", "uniform:5s", "uniform:5s-1s", "exp:", "exp:-5s", "zipf:5s", "200000h", "uniform:1h-200000h"} {
		if got, err := parseDelay(in); err == nil {
			t.Errorf("parseDelay(%q) = %v, want an error", in, got)
		}
	}
}

// The value of a flag is followed or refused, never replaced by another.
func TestNoFlagIsReplaced(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Rate: math.Inf(1)}, "rate"},
		{Config{Rate: 1e-300}, "rate"}, // the time between two sends would be endless
		{Config{SameInstant: true, Delay: "uniform:1s-2s"}, "instant"},
		{Config{SameInstant: true, Delay: "exp:1s"}, "instant"},
		{Config{Delay: "90000h"}, "delay"}, // beyond the horizon
		{Config{SinkListen: "0.0.0.0:0"}, "reach"},
		{Config{SinkListen: ":7780"}, "reach"},
		{Config{SinkListen: "[::]:0"}, "reach"},
		{Config{SinkListen: "localhost"}, "host:port"},
		{Config{URL: []string{"http://u:p@127.0.0.1:7700"}}, "http://host:port"},
		{Config{URL: []string{"http://127.0.0.1:7700?x=1"}}, "http://host:port"},
	} {
		c.config.Mode = ModeAdd
		if err := c.config.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error about %s", c.config, err, c.want)
		}
	}
	if err := (Config{Mode: ModeFire, SinkListen: "[::1]:0"}).withDefaults().validate(); err != nil {
		t.Error(err)
	}
}

func TestDelayDraws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	uniform, exponential := delay{delayUniform, time.Second, 3 * time.Second}, delay{delayExponential, time.Second, time.Second}
	var sums [2]time.Duration
	const draws = 20_000
	for range draws {
		u := uniform.draw(rng)
		if u < time.Second || u > 3*time.Second {
			t.Fatalf("uniform drew %v", u)
		}
		sums[0] += u
		sums[1] += exponential.draw(rng)
	}
	for i, want := range []float64{2, 1} {
		if mean := sums[i].Seconds() / draws; mean < want*0.97 || mean > want*1.03 {
			t.Errorf("mean %d = %v s, want %v", i, mean, want)
		}
	}
}

func TestMixDraws(t *testing.T) {
	m, err := parseMix("add=60,get=20,cancel=20")
	testkit.Must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	var drawn [len(operationNames)]int
	for range 10_000 {
		drawn[m.draw(rng)]++
	}
	if drawn[opPatch] != 0 || drawn[opAdd] < 5700 || drawn[opAdd] > 6300 || drawn[opGet] < 1800 || drawn[opGet] > 2200 {
		t.Errorf("drawn = %v", drawn)
	}
	for _, in := range []string{"", "add", "add=x", "get=5", "add=1,sing=2", "add=-1"} {
		if _, err := parseMix(in); err == nil {
			t.Errorf("parseMix(%q) was taken", in)
		}
	}
}

// Equal seeds must choose equal calls, operations and due times alike.
func TestPlayerIsDeterministic(t *testing.T) {
	script := func(seed uint64) string {
		c := Config{Mode: ModeMixed, Seed: seed, Timers: 500, Batch: 2}.withDefaults()
		l := newLedger(0)
		p := newGenerator(c, l, 3, 0)
		var text strings.Builder
		var next call
		for p.next(&next, time.UnixMilli(0)) {
			fmt.Fprint(&text, next.op, next.numbers, l.firstDueMs(next.numbers[0]), " ")
		}
		return text.String()
	}
	if first, again := script(1), script(1); first != again {
		t.Error("one seed made two scripts")
	}
	if script(1) == script(2) {
		t.Error("two seeds made one script")
	}
}

// A thread's wait is the second number; a thread that has ended is passed over.
func TestSampleFrom(t *testing.T) {
	proc := t.TempDir()
	tasks := filepath.Join(proc, fmt.Sprint(os.Getpid()), "task")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(proc, "stat"), "cpu  100 5 50 800 45 0 3 7 0 0\ncpu0 1 1\n")
	for thread, text := range map[string]string{"1": "5000 2000000 7\n", "2": "1 3000000 1\n", "3": "nonsense\n"} {
		write(filepath.Join(tasks, thread, "schedstat"), text)
	}
	if err := os.Mkdir(filepath.Join(tasks, "4"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := sampleFrom(proc)
	if busy, total := got.busy.Round(time.Millisecond), got.total.Round(time.Millisecond); busy != 1650*time.Millisecond || total != 10100*time.Millisecond || got.waited != 5*time.Millisecond {
		t.Errorf("busy %v of %v, waited %v", busy, total, got.waited)
	}
	write(filepath.Join(proc, "stat"), "intr x\n")
	if got := sampleFrom(proc); got.total != 0 {
		t.Error("nonsense was read as a sample")
	}
	if got := sampleFrom(filepath.Join(proc, "nowhere")); got.total+got.waited != 0 {
		t.Error("nothing was read as a sample")
	}
}

func TestStarved(t *testing.T) {
	at := time.Unix(0, 0)
	for _, c := range []struct {
		own, waited time.Duration
		want        bool
	}{{100 * time.Millisecond, 3 * time.Second, true}, {4 * time.Second, 3 * time.Second, false}, {0, 100 * time.Millisecond, false}} {
		use := useBetween(cpuSample{at: at}, cpuSample{at: at.Add(10 * time.Second), own: c.own, waited: c.waited})
		if use.starved() != c.want {
			t.Errorf("own %v, waited %v: starved %v", c.own, c.waited, use.starved())
		}
	}
}

func TestBottleneckVerdict(t *testing.T) {
	at := time.Unix(0, 0)
	for _, c := range []struct {
		own, busy, total time.Duration
		want             bool
	}{
		// The server works as much.
		{5 * time.Second, 9900 * time.Millisecond, 10 * time.Second, false},
		{7 * time.Second, 9900 * time.Millisecond, 10 * time.Second, true},
		{7 * time.Second, 7 * time.Second, 20 * time.Second, false}, // the machine has idle cores
		{10000 * time.Second, 0, 0, true},
	} {
		use := useBetween(cpuSample{at: at}, cpuSample{at: at.Add(10 * time.Second), own: c.own, busy: c.busy, total: c.total})
		if use.bottleneck != c.want {
			t.Errorf("own %v of busy %v: bottleneck %v", c.own, c.busy, use.bottleneck)
		}
	}
}
