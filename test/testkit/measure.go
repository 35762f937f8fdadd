package testkit

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// CPUTime is the CPU time that the process has used; elapsed time would depend on the machine's
// load.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A Cost counts the allocations of some operations.
type Cost struct{ Objects, Bytes uint64 }

// Spent adds the allocations of work.
func (c *Cost) Spent(work func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	c.Objects += after.Mallocs - before.Mallocs
	c.Bytes += after.TotalAlloc - before.TotalAlloc
}

// Within fails if an operation costs more than the given allocations. The least of several rounds
// counts, because now and then a table, a list or a file of the harness grows.
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
