package loadtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"carillon/loadtest/hist"
)

const (
	// maxSeries bounds the seconds kept for the charts; beyond it, neighbours
	// are not joined but left out, and only the totals continue.
	maxSeries = 4 * 3600

	// minCPUInterval is how many seconds a CPU comparison needs: the machine's
	// figures come in steps of 10 ms.
	minCPUInterval = 0.5

	// quietInterval is how often a progress line is printed where a line cannot
	// be overwritten.
	quietInterval = 5 * time.Second
)

// watch looks at the run each second: progress line, time series, and the
// emptying of the recorders.
type watch struct {
	tally    *tally
	start    time.Time
	out      io.Writer
	quiet    bool
	terminal bool
	each     func(Progress) // nil: nobody wants it

	latency, lateness *hist.Histogram // totals of the measured time
	series            []second
	saturated         bool // in some second with deliveries, the tester was the bottleneck

	lastAt         time.Time
	lastOps        int64
	lastFired      int64
	lastPrinted    time.Time
	interval       [2]*hist.Histogram
	lastCPU        cpuSample
	printedAnyLine bool
}

func newWatch(t *tally, start time.Time, out io.Writer, c Config) *watch {
	w := &watch{tally: t, start: start, out: out, quiet: c.Quiet || out == nil, each: c.EachSecond,
		latency: hist.New(), lateness: hist.New(), lastAt: start, lastPrinted: start, lastCPU: sampleCPU(),
		interval: [2]*hist.Histogram{hist.New(), hist.New()}}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		w.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return w
}

// run watches until the context ends.
func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if p, ok := w.look(now); ok {
				w.print(now, p)
			}
		case <-ctx.Done():
			w.look(time.Now())
			if w.terminal && w.printedAnyLine {
				fmt.Fprintf(w.out, "\r%s\r", strings.Repeat(" ", 79))
			}
			return
		}
	}
}

// look closes the interval since the last look, false if there is none.
func (w *watch) look(now time.Time) (Progress, bool) {
	elapsed := now.Sub(w.lastAt).Seconds()
	if elapsed <= 0 {
		return Progress{}, false
	}
	latency, lateness := w.interval[0], w.interval[1]
	latency.Reset()
	lateness.Reset()
	w.tally.latency.Drain(latency)
	w.tally.lateness.Drain(lateness)
	w.latency.Merge(latency)
	w.lateness.Merge(lateness)
	ops, fired := w.operations(), w.tally.fired.Load()
	cpu := sampleCPU()
	if fired > w.lastFired && elapsed > minCPUInterval && useBetween(w.lastCPU, cpu).bottleneck {
		w.saturated = true
	}
	w.lastCPU = cpu
	rate := float64(ops-w.lastOps) / elapsed
	if len(w.series) < maxSeries {
		w.series = append(w.series, second{at: now.Sub(w.start).Seconds(), ops: rate,
			fired:   float64(fired-w.lastFired) / elapsed,
			latency: latency.Summary(), lateness: lateness.Summary()})
	}
	w.lastAt, w.lastOps, w.lastFired = now, ops, fired
	t := w.tally
	return Progress{Elapsed: now.Sub(w.start), Rate: rate, InFlight: t.inFlight.Load(), Due: t.due.until(now.UnixMilli()), Fired: fired,
		Errors: t.unknown.Load() + t.refused.Load()}, true
}

// operations is how many have ended, warm-up included.
func (w *watch) operations() (n int64) {
	for op := range w.tally.byOperation {
		n += w.tally.byOperation[op].Load()
	}
	return n
}

func (w *watch) print(now time.Time, p Progress) {
	if w.each != nil {
		w.each(p)
	}
	if w.quiet || (!w.terminal && now.Sub(w.lastPrinted) < quietInterval) {
		return
	}
	w.lastPrinted, w.printedAnyLine = now, true
	end := "\n"
	if w.terminal {
		end = "   \r"
	}
	writeProgress(w.out, p, end)
}
