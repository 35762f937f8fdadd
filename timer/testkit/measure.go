package testkit

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// CPUTime is what the process has used: the machine may be busy with others.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A Cost is what operations have allocated.
type Cost struct{ Objects, Bytes uint64 }

// Spent adds what work allocates.
func (c *Cost) Spent(work func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	c.Objects += after.Mallocs - before.Mallocs
	c.Bytes += after.TotalAlloc - before.TotalAlloc
}

// Within fails when an operation costs more than so much. The least of several rounds counts: now and then a table, a
// list or a file of the harness grows.
func Within(t *testing.T, name string, rounds []Cost, operations int, objects, bytes float64) {
	t.Helper()
	slices.SortFunc(rounds, func(a, b Cost) int { return int(a.Bytes) - int(b.Bytes) })
	least := rounds[0]
	perObject, perByte := float64(least.Objects)/float64(operations), float64(least.Bytes)/float64(operations)
	t.Logf("%s: %.2f objects, %.0f B an operation", name, perObject, perByte)
	if perObject > objects || perByte > bytes {
		t.Errorf("%s costs %.2f objects and %.0f B, more than %.2f and %.0f", name, perObject, perByte, objects, bytes)
	}
}
