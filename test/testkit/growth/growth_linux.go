package growth

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the longest step of a dimension. A turn as long as MaxTurn is a tenth of what followers
// wait for a leader.
const (
	sizeFactor = 8
	noise      = slower * time.Millisecond // of steps too short to measure, and of caches that are full
	MaxTurn    = slower * 10 * time.Millisecond
	fewTries   = 4 // the least counts
	manyTries  = 12
)

// Dimension is one of Dimensions. Longest fills it with n and returns the longest step after that.
type Dimension struct {
	Name    string
	N       int // and 8 times as many
	Longest func(t testing.TB, n int) time.Duration

	// Linear: each of them costs its bytes, and the documented limit, 8 N, bounds how many there
	// are. Only the longest step itself is judged.
	Linear bool

	// Cold: so many fit no cache of the processor, so that the same work on each takes up to three
	// times as long as at N. Work that grows with their number takes eight times as long.
	Cold bool
}

// Check fails for each dimension whose longest step grows by more than half (see Linear and Cold),
// or is longer than a turn may be, when it is filled with 8 times as many. It logs a table.
func Check(t *testing.T, list ...Dimension) {
	t.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "dimension\tn\tlongest\t8 n\tlongest\tgrowth\t")
	for _, d := range list {
		t.Run(strings.ReplaceAll(d.Name, " ", "_"), func(t *testing.T) {
			if !slices.Contains(Dimensions, d.Name) {
				t.Fatalf("%q is none of the dimensions", d.Name)
			}
			few, many := d.measure(t)
			most := d.most(few)
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%.1f ×\t\n", d.Name, d.N, short(few), sizeFactor*d.N, short(many), float64(many)/float64(max(few, 1)))
			if many > most {
				t.Errorf("the longest step takes %s at %d, %s at %d: want at most %s", short(few), d.N, short(many), sizeFactor*d.N, short(most))
			}
		})
	}
	_ = w.Flush()
	t.Logf("processor time of the longest step\n%s", table.String())
}

func short(d time.Duration) string { return d.Round(time.Microsecond).String() }

// most is how long the longest step of many may take.
func (d Dimension) most(few time.Duration) time.Duration {
	switch {
	case d.Linear:
		return MaxTurn
	case d.Cold:
		return min(MaxTurn, 3*few+noise)
	}
	return min(MaxTurn, few*3/2+noise)
}

// measure returns the least of some tries of both sizes: what else the machine does only adds to
// them. A pair that is good enough ends them. Where many is good enough beside any few, few is
// measured once, for the table. Where the least of many is too long, few is tried with each: other
// work on the machine that takes its caches makes both slower.
func (d Dimension) measure(t testing.TB) (few, many time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // filling makes much garbage
	few, many = d.Longest(t, d.N), math.MaxInt64
	for try := range manyTries {
		now := d.Longest(t, sizeFactor*d.N)
		many = min(many, now)
		if many <= d.most(0) {
			break
		}
		for n := 1; try == 0 && n < fewTries; n++ {
			few = min(few, d.Longest(t, d.N))
		}
		if many <= d.most(few) || many > 10*MaxTurn { // no machine is that busy
			break
		}
		if beside := d.Longest(t, d.N); now <= d.most(beside) {
			return beside, now
		}
	}
	return few, many
}

// ThreadTime is the processor time that this thread has used, to the microsecond. Unlike the clock,
// it excludes other work on the machine. (getrusage knows it as of the last tick only.)
func ThreadTime(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// garbage is what may lie about when steps begin. They allocate from what earlier garbage has left.
const garbage = 8 << 20

// collected is how much lived after the last collection before a step.
var collected uint64

// collect collects garbage if there is more than a little. Most calls of LongestStep do next to
// nothing, beside a heap that takes a hundred times as long to collect. With less than garbage no
// collection is under way either: the first begins at 16 MiB (see measure).
func collect() {
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapAlloc >= collected && m.HeapAlloc-collected <= garbage {
		return
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	collected = m.HeapAlloc
}

// LongestStep calls step until it returns false, and returns the processor time of the longest
// call. between is called after each, and not counted. No garbage is collected meanwhile.
func LongestStep(t testing.TB, step func() bool, between func()) (longest time.Duration) {
	t.Helper()
	collect()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for more := true; more; {
		begun := ThreadTime(t)
		more = step()
		longest = max(longest, ThreadTime(t)-begun)
		between()
	}
	return longest
}
