package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	goclient "carillon/client"
)

// TestClientTest runs the tests of client/clienttest with the binary.
func TestClientTest(t *testing.T) {
	notShort(t)
	t.Parallel()
	out := inFolder(t, "../../client", []string{"CARILLON_BIN=" + binary}, "go", "test", "-count=1", "-v", "./clienttest")
	if strings.Contains(out, "SKIP") {
		t.Error(out)
	}
}

// TestYearOnATestClock: a real node goes through a year of renewals, killed in the middle. Half a year
// takes less than a second; the best of five counts: the machine may be busy.
func TestYearOnATestClock(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t, nil)
	dir := filepath.Join(t.TempDir(), "data")
	node := serve(t, dir, "--test-clock=2026-01-01T00:00:00Z")
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	add := func(c *goclient.Client, id, cron string) {
		t.Helper()
		spec := goclient.Spec{ID: id, Repeat: &goclient.Repeat{Cron: cron, Zone: "Europe/Berlin"}, Callback: &goclient.Callback{URL: receiver.url()}}
		if _, err := c.Add(t.Context(), "renewals", spec); err != nil {
			t.Fatal(err)
		}
	}
	add(c, "reminder", "0 9 21 * *")
	add(c, "renewal", "0 9 28 * *")
	clock := goclient.TestClock{Client: c}
	var half goclient.ClockMoved
	took := time.Hour
	for i := 0; i < 5 && took > time.Second; i++ {
		began := time.Now()
		half, err = clock.AdvanceTo(t.Context(), time.Date(2026, time.Month(7+6*i), 1, 0, 0, 0, 0, time.UTC))
		if err != nil || half.Calls != 12 || half.Left != 0 || half.Stopped {
			t.Fatalf("%+v %v", half, err)
		}
		took = min(took, time.Since(began))
	}
	if took > time.Second {
		t.Errorf("half a year took %v", took)
	}
	node.kill()
	node = serve(t, dir, "--test-clock=now")
	if c, err = goclient.New([]string{node.url}, goclient.Options{}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	clock = goclient.TestClock{Client: c}
	if now, err := clock.Now(t.Context()); err != nil || !now.Equal(half.Now) {
		t.Errorf("the clock stands at %v after a restart, stood at %v: %v", now, half.Now, err)
	}
	moved, err := clock.Advance(t.Context(), 184*24*time.Hour)
	if err != nil || moved.Calls != 12 || moved.Left != 0 {
		t.Errorf("%+v %v", moved, err)
	}
}

// TestConsoleShowsTheTestClock: who looks at the console sees that its times are not today's.
func TestConsoleShowsTheTestClock(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	node := serve(t, filepath.Join(t.TempDir(), "data"), "--test-clock=2026-01-15T12:00:00Z")
	b.open(node.url + "/")
	b.sees("Test clock: it is 2026-01-15", "carillon ctl clock", "Topics")
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := (goclient.TestClock{Client: c}).Advance(t.Context(), 31*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	b.sees("Test clock: it is 2026-02-15")
}
