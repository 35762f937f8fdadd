//go:build !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"carillon/test/testkit"
)

// TestMonitorKeepsItsSlowPace counts how often the threads of a process go to sleep that has a
// little to do each millisecond, when a byte arrives, with and without keepMonitorAwake. With the
// race detector the work takes so long that the counts mean nothing. The best of three tries
// counts: other work on the machine blurs both.
func TestMonitorKeepsItsSlowPace(t *testing.T) {
	for range 3 {
		asleep, awake := countSleeps(t, "asleep"), countSleeps(t, "awake")
		if t.Logf("threads slept %d times with the monitor awake, %d times without", awake, asleep); awake <= asleep*3/4 {
			return
		}
	}
	t.Error("that is too often")
}

// TestMonitorMaySleepInAnIdleProcess: a process with nothing to do is not woken by keepMonitorAwake
// a hundred times a second.
func TestMonitorMaySleepInAnIdleProcess(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMonitorIdleChild$")
	child.Env = append(os.Environ(), monitorTest+"=idle")
	out, err := child.CombinedOutput()
	n := 0
	if _, scanErr := fmt.Sscanf(string(out), "slept %d", &n); err != nil || scanErr != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if t.Logf("threads slept %d times in a second", n); n > 60 {
		t.Error("that is too often")
	}
}

// TestMonitorIdleChild is the child of TestMonitorMaySleepInAnIdleProcess.
func TestMonitorIdleChild(t *testing.T) {
	if os.Getenv(monitorTest) != "idle" {
		t.SkipNow()
	}
	defer keepMonitorAwake(t.Context())()
	looks := time.NewTicker(lookInterval)
	defer looks.Stop()
	<-looks.C
	<-looks.C // by now keepMonitorAwake has looked
	before := sleeps(t)
	<-looks.C
	fmt.Printf("slept %d\n", sleeps(t)-before)
}

// TestIsBusy: the two thresholds leave room between them, so that neither state makes the other.
func TestIsBusy(t *testing.T) {
	const single, ofThree, own = 320, 890, 200
	for _, test := range []struct {
		was     bool
		changes float64
		want    bool
	}{
		{false, single, false}, {true, single + own, false}, // an idle node
		{false, ofThree, true}, {true, 650, true}, // one of three
		{false, 20_000, true}, {true, 5_000, true},
	} {
		if got := isBusy(test.was, test.changes); got != test.want {
			t.Errorf("kept awake %v, %v changes of threads: %v", test.was, test.changes, got)
		}
	}
}

const (
	monitorTest  = "CARILLON_TEST_MONITOR" // the child's environment: awake, asleep or idle
	monitorBytes = 700
)

// countSleeps runs this test's child and returns what it has counted.
func countSleeps(t *testing.T, how string) (n int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMonitorChild$")
	child.Env = append(os.Environ(), monitorTest+"="+how)
	in, err := child.StdinPipe()
	testkit.Must(t, err)
	var out bytes.Buffer
	child.Stdout = &out
	testkit.Must(t, child.Start())
	each := time.NewTicker(time.Millisecond)
	defer each.Stop()
	for range monitorBytes {
		<-each.C
		if _, err := in.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if _, err := fmt.Sscanf(out.String(), "slept %d", &n); err != nil {
		t.Fatalf("the child says %q", &out)
	}
	return n
}

// TestMonitorChild is the child of TestMonitorKeepsItsSlowPace.
func TestMonitorChild(t *testing.T) {
	switch os.Getenv(monitorTest) {
	case "", "idle":
		t.SkipNow()
	case "awake":
		defer keepMonitorAwake(t.Context())()
	}
	if err := syscall.SetNonblock(0, true); err != nil { // so that reads wait for the poller, as those of sockets do
		t.Fatal(err)
	}
	in := os.NewFile(0, "stdin")
	before := 0
	for i := range monitorBytes {
		if i == monitorBytes/4 { // the monitor has found its pace
			before = sleeps(t)
		}
		if _, err := in.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := os.Stat("/proc/self"); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Printf("slept %d\n", sleeps(t)-before)
}

var voluntary = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s+(\d+)`)

func sleeps(t *testing.T) (n int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatal("no threads", err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		k, err := strconv.Atoi(string(voluntary.FindSubmatch(b)[1]))
		testkit.Must(t, err)
		n += k
	}
	return n
}

// TestNapEndsForACollection: a collection stops the goroutine that waits in the kernel at once, not
// at the end of its nap.
func TestNapEndsForACollection(t *testing.T) {
	const long = 10 * time.Second
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	napping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(napping)
		nap(long)
	}()
	<-napping
	began := time.Now()
	runtime.GC()
	<-done
	if took := time.Since(began); took > long/4 {
		t.Errorf("a collection took %v", took)
	}
}
