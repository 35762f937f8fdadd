package ctl

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// shownTimes is how many occurrences a dry run shows.
const shownTimes = 5

// printDue says when the timer would be due, as a node whose clock is right would have it.
func (a *addCmd) printDue(ctl *Command, out io.Writer, now time.Time) error {
	first, err := a.begin(now)
	if err != nil {
		return err
	}
	times, err := a.times(first, now)
	if err != nil {
		return err
	}
	zone, err := recurrence.Release.Load(a.Zone)
	if err != nil {
		return terminal.Usagef("--zone: %v", err)
	}
	if ctl.JSON {
		o := &object{}
		due := make([]string, len(times))
		for i := range times {
			due[i] = instant(times[i])
		}
		o.set("due", due)
		return printJSON(out, o.bytes())
	}
	if len(times) == 0 {
		_, err := fmt.Fprintln(out, "never")
		return err
	}
	t := newTable(out, "DUE", "IN WORDS", "LOCAL TIME")
	for _, due := range times {
		t.row(instant(due), relative(due.Sub(now)), due.In(zone).Format("Mon 2006-01-02 15:04:05 MST"))
	}
	return t.w.Flush()
}

// begin is the time of --delay or --at; zero when there is neither.
func (a *addCmd) begin(now time.Time) (time.Time, error) {
	switch {
	case a.At != "":
		at, err := time.Parse(time.RFC3339Nano, a.At)
		if err != nil {
			return at, terminal.Usagef("--at: must be a time with a zone, as 2027-01-31T12:30:00.250Z")
		}
		return at, nil
	case a.Delay != "":
		d, err := time.ParseDuration(a.Delay)
		if err != nil || d < 0 {
			return now, terminal.Usagef("--delay: must be a duration, like 90s or 1h30m")
		}
		return now.Add(d), nil
	}
	return time.Time{}, nil
}

// times are the first occurrences, all on time.
func (a *addCmd) times(first, now time.Time) (out []time.Time, err error) {
	if a.Cron == "" && a.Every == "" {
		return []time.Time{first}, nil
	}
	repeat := timer.Repeat{Cron: a.Cron, Zone: a.Zone, CatchUp: timer.CatchUpAll}
	if repeat.UntilMs, err = a.untilMs(); err != nil {
		return nil, err
	}
	if a.Cron != "" {
		if err := recurrence.CheckCron(a.Cron, a.Zone); err != nil {
			return nil, terminal.Usagef("--cron: %v", err)
		}
		if first.Before(now) {
			first = now
		}
		first = time.UnixMilli(recurrence.FirstCron(a.Cron, a.Zone, first.UnixMilli()))
	} else {
		every, err := time.ParseDuration(a.Every)
		if err != nil || every < time.Second {
			return nil, terminal.Usagef("--every: must be a duration of 1s or more")
		}
		repeat.EveryMs = every.Milliseconds()
	}
	var calendar recurrence.Calendar
	most := shownTimes
	if a.Count > 0 {
		most = min(most, a.Count)
	}
	for due := first.UnixMilli(); len(out) < most && due > 0; due = calendar.Next(&repeat, due, 0, due) {
		if repeat.UntilMs != 0 && due > repeat.UntilMs {
			break
		}
		out = append(out, time.UnixMilli(due))
	}
	return out, nil
}

func (a *addCmd) untilMs() (int64, error) {
	if a.Until == "" {
		return 0, nil
	}
	until, err := time.Parse(time.RFC3339Nano, a.Until)
	if err != nil {
		return 0, terminal.Usagef("--until: must be a time with a zone, as 2027-01-31T12:30:00Z")
	}
	return until.UnixMilli(), nil
}

// lateFrom is how far past a time must be to be worth a word.
const lateFrom = 5 * time.Second

// warnLate says that a timer whose time is past has been added, which may be a slip of the pen.
func (a *addCmd) warnLate(term *terminal.Terminal, body []byte, now time.Time) {
	var t client.Timer
	if a.At == "" || readAnswer(body, &t) != nil || t.Due.IsZero() || t.State != client.Scheduled && t.State != client.Leased {
		return
	}
	if late := now.Sub(t.Due); late > lateFrom {
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
