package loadtest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"carillon/loadtest/hist"
)

// writeTable prints the report the way wrk's users know it.
func (r Report) writeTable(w io.Writer) {
	c := r.Config
	loop := "closed loop"
	if c.Rate > 0 {
		loop = fmt.Sprintf("open loop at %s/s, latency from the intended send time", count(c.Rate))
	}
	fmt.Fprintf(w, "%s @ %s\n", c.Mode, strings.Join(c.URL, " "))
	fmt.Fprintf(w, "  %s\n", r.Surroundings)
	fmt.Fprintf(w, "  %d connections, batch %d, payload %d B, delay %s, seed %d, %s\n", c.Connections, c.Batch, c.Payload, c.Delay, c.Seed, loop)
	fmt.Fprintf(w, "  %-14s %9s %9s %9s %9s %9s\n", "ms", "p50", "p90", "p99", "p99.9", "max")
	writeRow(w, "latency", r.Latency)
	if r.Fired > 0 && c.Sink == "" {
		writeRow(w, "lateness", r.Lateness)
	}
	fmt.Fprintf(w, "  %d operations in %.2fs: %s/s, %d errors\n", r.Ops, r.Seconds, count(r.OpsPerSecond), r.Errors)
	switch {
	case c.Sink != "":
		fmt.Fprintf(w, "  %d fired, as the server says\n", r.Fired)
	case r.Fired > 0:
		fmt.Fprintf(w, "  %d fired, %s/s between the first and the last\n", r.Fired, count(r.FiredPerSecond))
	}
	fmt.Fprintf(w, "  added %d, prevented %d, unknown %d, refused %d, too late to change %d\n", r.Added, r.Prevented, r.Unknown, r.Refused, r.Conflicts)
	r.writeNotes(w)
	if r.Receivers != nil {
		r.Receivers.writeTo(w)
	}
	fmt.Fprintf(w, "  tester CPU %.2f cores", r.TesterCPU)
	if r.TesterWaited > starvedAbove {
		fmt.Fprintf(w, ", %.2f more were not to be had", r.TesterWaited)
	}
	fmt.Fprintln(w)
	if r.Starved {
		fmt.Fprintln(w, "  ! the tester waited for a processor longer than it ran: latency and lateness include that")
	}
	if r.Bottleneck {
		fmt.Fprintln(w, "  ! the tester was the bottleneck: the server may be faster than this")
	}
	fmt.Fprintf(w, "lost %d  early %d  duplicate %d\n", r.Lost, r.Early, r.Duplicate)
	for _, failure := range r.Failures() {
		fmt.Fprintf(w, "FAILED: %s\n", failure)
	}
}

// writeNotes prints the counts that are usually 0 and worth a line otherwise.
func (r Report) writeNotes(w io.Writer) {
	for _, note := range []struct {
		count  int64
		format string
	}{
		{r.ServerErrors, "%d operations were answered 5xx\n"},
		{r.Timeouts, "%d requests timed out\n"},
		{r.Broken, "%d connections were refused or cut\n"},
		{r.Retries, "%d deliveries were retries\n"},
		{r.Vanished, "%d acknowledged timers were answered 404\n"},
		{r.Dead, "%d timers ended as dead letters\n"},
		{r.AddedLate, "%d timers were acknowledged after their due time: their lateness includes the add\n"},
		{r.Unsent, "%d requests were not sent in time: the rate was too high\n"},
		{r.Overdue, "%d timers were due and not yet delivered: " + r.whyOverdue() + "\n"},
		{r.Foreign, "%d deliveries belonged to other runs\n"},
		{r.Pending, "%d timers are left on the server\n"},
	} {
		if note.count > 0 {
			fmt.Fprintf(w, "  "+note.format, note.count)
		}
	}
	if r.FirstError != "" {
		fmt.Fprintf(w, "  first error: %s\n", r.FirstError)
	}
	if r.Ops == 0 && r.Errors == 0 {
		fmt.Fprintln(w, "  ! nothing was measured: no operation began in the measured time")
	}
	if r.Gone {
		fmt.Fprintln(w, "  ! no server could be reached at the end: what counts as lost may only be late")
	}
	if r.CutShort {
		fmt.Fprintln(w, "  the run was cut short")
	}
}

// whyOverdue is what may keep timers that are due.
func (r Report) whyOverdue() string {
	if r.Paused != "" {
		return "topic " + r.Paused + " is paused (carillon ctl topics resume " + r.Paused + ")"
	}
	return "does the receiver answer 2xx?"
}

func writeRow(w io.Writer, name string, s hist.Summary) {
	fmt.Fprintf(w, "  %-14s %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, s.P50, s.P90, s.P99, s.P999, s.Max)
}

// count is a number as people read it: 12, 1,234, 56,789.
func count(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// writeProgress prints one line about the run so far.
func writeProgress(w io.Writer, p Progress, end string) {
	fmt.Fprintf(w, "%6.1fs  %s/s  in flight %d  due %d  fired %d  errors %d%s", p.Elapsed.Seconds(),
		count(p.Rate), p.InFlight, p.Due, p.Fired, p.Errors, end)
}

// Progress is one moment of a run.
type Progress struct {
	Elapsed  time.Duration
	Rate     float64 // operations a second, of those that ended
	InFlight int64   // requests
	Due      int64   // timers whose time has come
	Fired    int64   // timers that arrived
	Errors   int64   // changes without an answer, and adds that were refused
}
