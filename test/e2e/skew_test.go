package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// skew is a period in which a node's clock was wrong. While the node leads it may call early by at
// most the clock's lead. After it has handed over no node may call early.
type skew struct {
	ms, ppm     int64
	from, until time.Time // the node had handed over, or its clock was right again
}

// ahead is how far the clock was ahead at a time.
func (s skew) ahead(at time.Time) time.Duration {
	// A call may still be on its way.
	if at.Before(s.from) || at.After(s.until.Add(arrivalSlack)) {
		return 0
	}
	return time.Duration(s.ms)*time.Millisecond + time.Duration(float64(at.Sub(s.from))*float64(s.ppm)/1e6)
}

// aheadAt is the largest lead of a clock that a leader may have trusted: nodes do not trust a clock
// that steps or differs from the majority's by more than a second.
func (v *verdict) aheadAt(at time.Time) (most time.Duration) {
	for _, s := range v.skews {
		most = max(most, min(s.ahead(at), clockLimit+clockSlew))
	}
	return most
}

// open is the number of calls that were open at the crashes.
func (v *verdict) open() (n int64) {
	for _, c := range v.crashes {
		n += c.open
	}
	return n
}

// testBuild builds the program with the tag chaos, once, when the first test needs it: its clock can
// be set, and it understands a feature level more.
var testBuild = sync.OnceValues(func() (string, error) {
	name := filepath.Join(filepath.Dir(binary), "carillon-chaos")
	if os.Getenv("CARILLON_E2E_BINARY") != "" { // not this test's directory
		dir, err := os.MkdirTemp("", "carillon-e2e-")
		if err != nil {
			return "", err
		}
		name = filepath.Join(dir, "carillon-chaos")
	}
	out, err := exec.Command("go", "build", "-tags", "chaos", "-o", name, "carillon/cmd/carillon").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the binary with the tag chaos does not build: %w: %s", err, out)
	}
	return name, nil
})

// clock is the file that sets a node's clock.
type clock struct{ file string }

// newClock returns a clock that is right at first, and the environment for its node.
func newClock(t testing.TB) (c clock, env []string) {
	t.Helper()
	c = clock{filepath.Join(t.TempDir(), "clock")}
	return c, []string{"CARILLON_CHAOS_CLOCK=" + c.file}
}

// stood tells a stopped node, for when it resumes, how long its monotonic and its boot clock have
// stood still.
func (c clock) stood(t testing.TB, mono, boot time.Duration) {
	t.Helper()
	if err := os.WriteFile(c.file, fmt.Appendf(nil, "0 0 %d %d", mono.Milliseconds(), boot.Milliseconds()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set sets the clock's offset in milliseconds and its drift in parts per million, and waits until
// the running node has seen it.
func (c clock) set(t testing.TB, ms, ppm int64) time.Time {
	t.Helper()
	next, text := c.file+".new", fmt.Sprintf("%d %d", ms, ppm)
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Fatal(err)
	}
	poll(t, patience, "the node sees its clock's offset", func() bool {
		seen, err := os.ReadFile(c.file + ".seen")
		return err == nil && string(seen) == text
	})
	return time.Now()
}

// testBinary is the program of testBuild.
func testBinary(t testing.TB) string {
	t.Helper()
	name, err := testBuild()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
