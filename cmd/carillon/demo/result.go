package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/loadtest"
)

// Result is the account of a run.
type Result struct {
	loadtest.Report
	fall
}

// Failures names each broken promise, nothing if all were kept. A duplicate is not among them:
// at-least-once allows it for calls in flight when the node was killed.
func (r Result) Failures() []string {
	failures := r.Report.Failures()
	if r.Fired == 0 {
		failures = append(failures, "nothing was called")
	}
	return failures
}

func (r Result) print(out io.Writer) {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("timers", "%d added, %d changed, %d cancelled in time", r.Added, r.Changed, r.Prevented)
	row("called", "%d", r.Fired)
	row("lost", "%d", r.Lost)
	row("early", "%d", r.Early)
	row("duplicate", "%d", r.Duplicate)
	row("called though cancelled", "%d", r.CancelledFired)
	row("lateness", "p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.Lateness.P50, r.Lateness.P99, r.Lateness.Max)
	if r.Unknown > 0 {
		row("unanswered", "%d requests around the kill and the restart; they count neither way", r.Unknown)
	}
	row("takeover", "%v from kill -9 of %s until %d of the %s that it led took adds again",
		r.takeover.Round(time.Millisecond), r.killed, r.taken, terminal.Many(int64(r.led), "shard", "shards"))
	_ = table.Flush() // into memory
	fmt.Fprintf(out, "\n%s", b.String())
}
