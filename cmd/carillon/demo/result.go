package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"carillon/loadtest/hist"
)

// Result is the account of a run.
type Result struct {
	Added, Changed, Cancelled int // acknowledged
	Called                    int // timers that arrived, each once
	Lost                      int // acknowledged, due, not cancelled, and never called
	Early                     int
	// Calls of a timer that had been called; a kill may cause as many as were in flight.
	Duplicate int
	// Calls with a payload that nobody wrote, or that had been changed.
	Altered   int
	Forbidden int // calls after their cancel was answered "prevented"
	Lateness  hist.Summary
	Killed    string
	// That took adds again, of those that the killed node led.
	Shards   int
	Leading  int           // shards that it led
	Takeover time.Duration // from the kill until the last of them did
}

// result closes the account. The load has ended.
func (p *play) result() Result {
	b := p.book
	lost := b.owed()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Result{Added: b.acked, Changed: b.changed, Cancelled: b.prevented, Called: b.called, Lost: lost, Early: b.early,
		Duplicate: b.duplicate, Altered: b.altered, Forbidden: b.forbidden, Lateness: b.lateness.Summary(), Killed: p.fall.node.name}
	led := p.fall.led
	if led == nil { // nobody told: then it is all
		for shard := range shards {
			led = append(led, shard+1)
		}
	}
	r.Leading = len(led)
	for _, shard := range led {
		if at, ok := b.again[shard]; ok {
			r.Shards++
			r.Takeover = max(r.Takeover, at.Sub(b.fell))
		}
	}
	return r
}

// Failures names each broken promise, nothing if all were kept. A duplicate is not among them:
// at-least-once allows it for calls in flight when the node was killed.
func (r Result) Failures() []string {
	var failures []string
	for _, f := range []struct {
		n    int
		what string
	}{{r.Lost, "lost"}, {r.Early, "early"}, {r.Forbidden, "called though cancelled"}, {r.Altered, "called with what nobody wrote"}} {
		if f.n > 0 {
			failures = append(failures, fmt.Sprintf("%d %s", f.n, f.what))
		}
	}
	if r.Called == 0 {
		failures = append(failures, "nothing was called")
	}
	return failures
}

func (r Result) print(out io.Writer) {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	row("timers", "%d added, %d changed, %d cancelled in time", r.Added, r.Changed, r.Cancelled)
	row("called", "%d", r.Called)
	row("lost", "%d", r.Lost)
	row("early", "%d", r.Early)
	row("duplicate", "%d", r.Duplicate)
	row("called though cancelled", "%d", r.Forbidden)
	row("lateness", "p50 %.1f ms, p99 %.1f ms, max %.1f ms", r.Lateness.P50, r.Lateness.P99, r.Lateness.Max)
	row("takeover", "%v from kill -9 of %s until %d of the %s that it led took adds again",
		r.Takeover.Round(time.Millisecond), r.Killed, r.Shards, count(r.Leading, "shard"))
	_ = table.Flush() // into memory
	fmt.Fprintf(out, "\n%s", b.String())
}
