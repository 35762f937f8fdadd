package e2e

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// tally counts the rounds of faults and their results, for a table.
type tally struct {
	mu    sync.Mutex
	order []string
	rows  map[string]*count
}

// count is a row of the table.
type count struct {
	rounds, timers, operations int
	lost, early, byClock       int
	duplicates, open           int
	late                       time.Duration // maximum, of acknowledged timers
	took                       []time.Duration
}

var counts = tally{rows: map[string]*count{}}

func (c *tally) row(name string) *count {
	if c.rows[name] == nil {
		c.rows[name] = &count{}
		c.order = append(c.order, name)
	}
	return c.rows[name]
}

// add counts a load after its check.
func (c *tally) add(name string, l *clusterLoad, v *verdict) {
	late := l.latenessBetween(time.Time{}, time.Now(), v.log)
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.row(name)
	r.rounds += l.rounds
	r.timers += l.ledger.size()
	r.operations += v.operations
	r.lost += v.lost
	r.early += v.early
	r.byClock += v.byClock
	r.duplicates += v.duplicates
	r.open += int(v.open())
	r.late = max(r.late, late.max)
}

// fault counts one round of a kind of fault: the times until others took over, and the maximum
// lateness of timers due around it. The timers themselves are counted with the load.
func (c *tally) fault(kind string, took []time.Duration, late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.row(kind)
	r.rounds++
	r.took = append(r.took, took...)
	r.late = max(r.late, late)
}

// print writes the table, unless it is empty.
func (c *tally) print(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.order) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nrounds\ttimers\toperations\tlost\tearly\tahead\ttwice\topen\tlatest\ttaken over\t what")
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	var all count
	for _, name := range c.order {
		r := c.rows[name]
		if r.timers == 0 {
			fmt.Fprintf(w, "%d\t\t\t\t\t\t\t\t%s\t%s\t %s\n", r.rounds, seconds(r.late), seconds(spreadOf(r.took).max), name)
			continue
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\t %s\n", r.rounds, r.timers, r.operations, r.lost, r.early, r.byClock, r.duplicates, r.open, seconds(r.late), name)
		all.rounds, all.timers, all.operations = all.rounds+r.rounds, all.timers+r.timers, all.operations+r.operations
		all.lost, all.early, all.byClock = all.lost+r.lost, all.early+r.early, all.byClock+r.byClock
		all.duplicates, all.open, all.late = all.duplicates+r.duplicates, all.open+r.open, max(all.late, r.late)
	}
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\t all\n", all.rounds, all.timers, all.operations, all.lost, all.early, all.byClock, all.duplicates, all.open, seconds(all.late))
	_ = w.Flush()
	fmt.Fprintln(out, `ahead: before their time, but not by the clock of the leader, which a test had set ahead. open: calls that were open at the faults.
twice: may be as many as were open, and those whose outcome was a moment old. latest: after the due time and the acknowledgement.`)
}
