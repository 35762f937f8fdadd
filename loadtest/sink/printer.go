package sink

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"carillon/loadtest/hist"
)

const (
	// linesPerSecond bounds the lines about single callbacks, so that printing costs a busy sink
	// nothing; lines that are left out are counted.
	linesPerSecond = 100
	bodyShownBytes = 60
	nameShownBytes = 80
)

// printer writes lines about callbacks and, each second in which something
// changed, the counts.
type printer struct {
	out     io.Writer
	budget  atomic.Int64 // lines that this second still has
	skipped atomic.Int64 // lines left out since the last counts
	lines   chan string  // bound: linesPerSecond, for the budget is no larger
}

func newPrinter(out io.Writer) *printer {
	p := &printer{out: out, lines: make(chan string, linesPerSecond)}
	p.budget.Store(linesPerSecond)
	return p
}

// offer prints a line about the callback if the second's budget allows.
func (p *printer) offer(d *Delivery, status int, remark string) {
	if p.budget.Load() <= 0 || p.budget.Add(-1) < 0 {
		p.skipped.Add(1)
		return
	}
	select {
	case p.lines <- describe(d, status, remark):
	default:
		p.skipped.Add(1)
	}
}

// describe is one callback on one line. Names and body are quoted where they
// hold anything a terminal could take for a command.
func describe(d *Delivery, status int, remark string) string {
	at := time.UnixMicro(d.ArrivedUs).Format("15:04:05.000")
	if d.ClockUs != 0 {
		at = time.UnixMicro(d.ClockUs).UTC().Format(time.RFC3339)
	}
	late := "?"
	if d.DueMs >= 0 {
		late = strconv.FormatFloat(float64(d.LatenessUs())/1e3, 'f', 1, 64) + "ms"
	}
	line := fmt.Sprintf("%s  %s/%s  attempt %d  late %s  %d B  -> %d  %s", at,
		visible(d.Topic, nameShownBytes), visible(d.Timer, nameShownBytes), d.Attempt, late,
		len(d.Body), status, visible(d.Body, bodyShownBytes))
	if remark != "" {
		line += "  ! " + remark
	}
	return line
}

// visible is the start of a text with control characters escaped.
func visible(text []byte, limit int) string {
	cut := ""
	if len(text) > limit {
		text, cut = text[:limit], "…"
	}
	quoted := strconv.QuoteToGraphic(string(text))
	if plain := quoted[1 : len(quoted)-1]; plain == string(text) {
		return plain + cut
	}
	if len(text) > 0 && (text[0] == '{' || text[0] == '[' || text[0] == '"') && printable(text) {
		return string(text) + cut // JSON stays readable
	}
	return quoted + cut
}

func printable(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c < ' ' || c > '~' })
}

// run prints until the context ends. tick is one second but in tests.
func (p *printer) run(ctx context.Context, tick <-chan time.Time, counts func() Counts, drain func() hist.Summary) {
	var before Counts
	for {
		select {
		case line := <-p.lines:
			fmt.Fprintln(p.out, line)
		case now := <-tick:
			p.flush()
			before = p.second(now, before, counts(), drain)
			p.budget.Store(linesPerSecond)
		case <-ctx.Done():
			return
		}
	}
}

// flush prints the lines that wait.
func (p *printer) flush() {
	for {
		select {
		case line := <-p.lines:
			fmt.Fprintln(p.out, line)
		default:
			return
		}
	}
}

// second prints the counts if they changed.
func (p *printer) second(now time.Time, before, after Counts, drain func() hist.Summary) Counts {
	if after == before {
		return before
	}
	if skipped := p.skipped.Swap(0); skipped > 0 {
		fmt.Fprintf(p.out, "%s  … and %d more callbacks\n", now.Format("15:04:05.000"), skipped)
	}
	fmt.Fprintf(p.out, "%s  %s  (+%d/s)  %s\n", now.Format("15:04:05"), after,
		after.Received-before.Received, latenessLine(drain()))
	return after
}
