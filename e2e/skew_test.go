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

// skew is a time in which a node's clock was wrong. While such a node leads it may call early by as
// much as its clock is ahead, and not by more; once it has handed over, nobody may.
type skew struct {
	ms, ppm     int64
	from, until time.Time // until it led no more, or its clock was right again
}

// ahead is how far the clock is ahead at a time.
func (s skew) ahead(at time.Time) time.Duration {
	if at.Before(s.from) || at.After(s.until.Add(arrivalSlack)) { // a call's bytes may be on their way
		return 0
	}
	return time.Duration(s.ms)*time.Millisecond + time.Duration(float64(at.Sub(s.from))*float64(s.ppm)/1e6)
}

// aheadAt is how far a node's clock was, and was believed: none is that differs from what most
// nodes have by more than a second, and none that steps.
func (v *verdict) aheadAt(at time.Time) (most time.Duration) {
	for _, s := range v.skews {
		most = max(most, min(s.ahead(at), clockLimit+clockSlew))
	}
	return most
}

// open is how many calls were open at the crashes.
func (v *verdict) open() (n int64) {
	for _, c := range v.crashes {
		n += c.open
	}
	return n
}

// wrongClocks builds the program with a clock that tests can set, once, and only if a test asks for
// it.
var wrongClocks = sync.OnceValues(func() (string, error) {
	name := filepath.Join(filepath.Dir(binary), "carillon-chaos")
	if os.Getenv("CARILLON_E2E_BINARY") != "" { // its directory is somebody else's
		dir, err := os.MkdirTemp("", "carillon-e2e-")
		if err != nil {
			return "", err
		}
		name = filepath.Join(dir, "carillon-chaos")
	}
	out, err := exec.Command("go", "build", "-tags", "chaos", "-o", name, "carillon/cmd/carillon").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the binary with a clock that can be set does not build: %w: %s", err, out)
	}
	return name, nil
})

// clock is the file by which a node's clock is set.
type clock struct{ file string }

// newClock is right at first. env goes to the node whose clock it is.
func newClock(t testing.TB) (c clock, env []string) {
	t.Helper()
	c = clock{filepath.Join(t.TempDir(), "clock")}
	return c, []string{"CARILLON_CHAOS_CLOCK=" + c.file}
}

// stood says that the node's monotonic clock has stood still for so long, and its boot clock for so
// long. The node is stopped: it sees that when it goes on.
func (c clock) stood(t testing.TB, mono, boot time.Duration) {
	t.Helper()
	if err := os.WriteFile(c.file, fmt.Appendf(nil, "0 0 %d %d", mono.Milliseconds(), boot.Milliseconds()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set puts the clock so far off, lets it drift from there, and waits until the node, which runs,
// has seen it.
func (c clock) set(t testing.TB, ms, ppm int64) time.Time {
	t.Helper()
	next, text := c.file+".new", fmt.Sprintf("%d %d", ms, ppm)
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Fatal(err)
	}
	poll(t, 10*time.Second, "the node sees its clock's offset", func() bool {
		seen, err := os.ReadFile(c.file + ".seen")
		return err == nil && string(seen) == text
	})
	return time.Now()
}

// wrongClockBinary is the program whose clock can be set.
func wrongClockBinary(t testing.TB) string {
	t.Helper()
	name, err := wrongClocks()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
