package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/timer/recurrence"
)

type nextCmd struct {
	timerRef
	Number int `name:"number" short:"n" default:"5" help:"How many, up to 100 (${default})."`
}

func (n *nextCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showTimes(term, client.Request{Method: http.MethodGet, Path: n.path(), Query: url.Values{"next": {strconv.Itoa(n.Number)}}}, "")
}

// dryRun makes a call that changes nothing, and prints when the timer would be due.
func (c *Command) dryRun(term *terminal.Terminal, r client.Request, zone string) error {
	r.Query = url.Values{"dry_run": {"true"}}
	return c.showTimes(term, r, zone)
}

func (c *Command) showTimes(term *terminal.Terminal, r client.Request, zone string) error {
	return c.show(term, r, reading(func(t *client.Timer) error { return printTimes(term.Out, t, zone, c.now) }))
}

// now is the time of the node, whose clock may be one for tests; else that of this machine.
func (c *Command) now() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	now, err := client.TestClock{Client: c.client}.Now(ctx)
	if err != nil {
		return time.Now()
	}
	return now
}

// printTimes prints when a timer is due, or a series its next times, by the clocks of a zone; "":
// of the series, or of this machine.
func printTimes(out io.Writer, t *client.Timer, zone string, now func() time.Time) error {
	times := t.Next
	switch {
	case t.Repeat != nil:
		zone = cmp.Or(zone, t.Repeat.Zone)
	case t.State == client.Scheduled || t.State == client.Leased:
		times = []time.Time{t.Due}
	}
	if len(times) == 0 {
		_, err := fmt.Fprintln(out, "none is to come")
		return err
	}
	clocks, err := recurrence.Release.Load(zone)
	if err != nil {
		clocks = time.UTC // the node knows a newer zone
	}
	if zone == "" && t.Repeat == nil {
		clocks = time.Local
	}
	table, from := newTable(out, "DUE", "IN WORDS", "LOCAL TIME"), now()
	for _, due := range times {
		table.row(instant(due), relative(due.Sub(from)), due.In(clocks).Format("Mon 2006-01-02 15:04:05 MST"))
	}
	return table.w.Flush()
}

// lateFrom is how far past a time must be to be worth a word.
const lateFrom = 5 * time.Second

// warnLate warns that the added timer was due in the past, which may be a typing error.
func (a *addCmd) warnLate(ctl *Command, term *terminal.Terminal, t *client.Timer) {
	if a.At == "" && a.AtLocal == "" || t.Due.IsZero() || t.State != client.Scheduled && t.State != client.Leased {
		return
	}
	if time.Since(t.Due) <= lateFrom { // spares a question
		return
	}
	if late := ctl.now().Sub(t.Due); late > lateFrom {
		fmt.Fprintf(term.Err, "carillon: due %s: fires at once\n", relative(-late))
	}
}

// relative is a span in words, in its largest unit: "in 17 hours", "6 years ago".
func relative(d time.Duration) string {
	span := d.Abs()
	n, unit := int64(span/time.Second), "second"
	for _, u := range []struct {
		name string
		span time.Duration
	}{{"year", 365 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if span >= u.span {
			n, unit = int64(span/u.span), u.name
			break
		}
	}
	text := strconv.FormatInt(n, 10) + " " + unit
	if n != 1 {
		text += "s"
	}
	if d < 0 {
		return text + " ago"
	}
	return "in " + text
}
