package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	// The logs of a long run hold half a million timers. Frequent garbage collection would delay
	// the receiver, and nodes would give up calls.
	debug.SetGCPercent(800)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if binary = os.Getenv("CARILLON_E2E_BINARY"); binary != "" {
		return runAndCount(m)
	}
	dir, err := os.MkdirTemp("", "carillon-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "carillon")
	args := []string{"build", "-o", binary}
	if os.Getenv("CARILLON_E2E_RACE") != "" {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "carillon/cmd/carillon")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: the binary does not build:", err)
		return 1
	}
	return runAndCount(m)
}

// runAndCount runs the tests and, with -v, prints the table of faults and results.
func runAndCount(m *testing.M) int {
	code := m.Run()
	endChromium()
	if testing.Verbose() {
		counts.print(os.Stdout)
	}
	return code
}

// setting reads a positive number from the environment.
func setting(t testing.TB, name string, byDefault int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", name, text)
	}
	return n
}

// seeded returns a source of random choices. If the test fails it logs the command that repeats
// them.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := setting(t, "CARILLON_E2E_SEED", int(time.Now().UnixNano()&0xFFFFFFF)+1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with: CARILLON_E2E_SEED=%d go test ./test/e2e -run '^%s$' -count 1 -v", seed, t.Name())
		}
	})
	return rand.New(rand.NewPCG(uint64(seed), 1))
}
