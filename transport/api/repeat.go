package api

import (
	"math"
	"slices"

	"carillon/timer"
	"carillon/timer/recurrence"
)

var (
	repeatFieldNames = []string{"cron", "zone", "every", "until", "count", "catch_up", "overlap"}
	// In the order of timer.CatchUp; the first is the default.
	catchUps = []string{"one", "skip", "all"}
)

const minEveryMs = 1000

// repeat reads the object of a repeat.
func (r *reader) repeat() *timer.Repeat {
	var given field
	p := &timer.Repeat{}
	n := r.Open('{', "repeat")
	for ; r.More(n, '}'); n++ {
		name := string(r.Key())
		if r.Err() != nil {
			return nil
		}
		at := slices.Index(repeatFieldNames, name)
		if at < 0 {
			r.fail(unknown([]byte(name), repeatFieldNames))
			return nil
		}
		if !r.first(&given, 1<<at, "repeat.", []byte(name)) {
			return nil
		}
		r.repeatField(p, name)
	}
	if r.Err() != nil {
		return nil
	}
	has := func(name string) bool { return given>>slices.Index(repeatFieldNames, name)&1 != 0 }
	switch {
	case has("cron") == has("every"):
		r.fail(bad(badRequest, "repeat: give one of cron and every"))
	case has("zone") && !has("cron"):
		r.fail(bad(badRequest, "repeat.zone: goes with cron only"))
	case has("cron"):
		if err := recurrence.CheckCron(p.Cron, p.Zone); err != nil {
			r.fail(badf(badRequest, "repeat: %v", err))
		}
	}
	return p
}

func (r *reader) repeatField(p *timer.Repeat, name string) {
	switch name {
	case "cron":
		p.Cron = r.Text("repeat.cron")
	case "zone":
		p.Zone = r.zone("repeat.zone", badRequest)
	case "every":
		if p.EveryMs = r.span("repeat.every"); p.EveryMs < minEveryMs || p.EveryMs > maxRetentionMs {
			r.fail(bad(badRequest, "repeat.every: must be 1s to 10 years"))
		}
	case "until":
		ms, ok := parseInstant(r.timeText("repeat.until"))
		if p.UntilMs = ms; !ok || ms <= 0 {
			r.fail(bad(badTime, "repeat.until: must be an RFC 3339 time with a zone"))
		}
	case "count":
		if p.Count = r.Integer("repeat.count"); p.Count < 1 || p.Count > math.MaxInt32 {
			r.fail(bad(badRequest, "repeat.count: must be 1 or more"))
		}
	case "catch_up":
		p.CatchUp = timer.CatchUp(max(0, slices.Index(catchUps, r.choice("repeat.catch_up", catchUps))))
	case "overlap":
		p.Overlap = r.Boolean("repeat.overlap")
	}
}

// hasCron reports that the timer finds its own times.
func (in *timerRequest) hasCron() bool { return in.spec.Repeat != nil && in.spec.Repeat.Cron != "" }

// firstOf is when the first occurrence is due, of an input whose time is atMs (0: none was given):
// for cron the first that is neither over nor before that time. A first time that is past is missed,
// and left out if the series skips what it missed.
func (in *timerRequest) firstOf(atMs, nowMs int64) (int64, *problem) {
	p := in.spec.Repeat
	if p == nil {
		return atMs, nil
	}
	if p.Cron != "" {
		if atMs = recurrence.FirstCron(p.Cron, p.Zone, max(atMs, nowMs)); atMs == 0 {
			return 0, bad(badRequest, "repeat.cron: that never comes")
		}
	} else if p.CatchUp == timer.CatchUpSkip && atMs < nowMs && in.given&timeFields != 0 {
		var calendar recurrence.Calendar
		atMs = calendar.After(p, atMs, nowMs-1)
	}
	if p.UntilMs != 0 && p.UntilMs < atMs {
		return 0, bad(badTime, "repeat.until: is before the first occurrence")
	}
	return atMs, nil
}

func appendRepeat(b []byte, p *timer.Repeat) []byte {
	o := object{b: b}
	if p.Cron != "" {
		o.str("cron", p.Cron)
	}
	if p.Zone != "" {
		o.str("zone", p.Zone)
	}
	if p.EveryMs != 0 {
		o.span("every", p.EveryMs)
	}
	if p.UntilMs != 0 {
		o.str("until", string(appendInstant(nil, p.UntilMs)))
	}
	if p.Count != 0 {
		o.integer("count", p.Count)
	}
	o.str("catch_up", catchUps[p.CatchUp])
	if p.Overlap {
		o.boolean("overlap", true)
	}
	return o.end()
}
