package timers

import (
	"math"
	"slices"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

var (
	repeatFieldNames = []string{"cron", "zone", "every", "until", "count", "catch_up", "overlap"}
	// In the order of timer.CatchUp; the first is the default.
	catchUps = []string{"one", "skip", "all"}
)

const minEveryMs = 1000

func readRepeat(r *web.Reader) *timer.Repeat {
	p := &timer.Repeat{}
	given := r.Object("repeat", repeatFieldNames, func(i int) { readRepeatField(r, p, repeatFieldNames[i]) })
	if r.Err() != nil {
		return nil
	}
	has := func(name string) bool { return given>>slices.Index(repeatFieldNames, name)&1 != 0 }
	switch {
	case has("cron") == has("every"):
		r.Reject(web.Bad(web.BadRequest, "repeat: give one of cron and every"))
	case has("zone") && !has("cron"):
		r.Reject(web.Bad(web.BadRequest, "repeat.zone: goes with cron only"))
	case has("cron"):
		if err := recurrence.CheckCron(p.Cron, p.Zone); err != nil {
			r.Reject(web.Badf(web.BadRequest, "repeat: %v", err))
		}
	}
	return p
}

func readRepeatField(r *web.Reader, p *timer.Repeat, name string) {
	switch name {
	case "cron":
		p.Cron = r.Text("repeat.cron")
	case "zone":
		p.Zone = spec.ReadZone(r, "repeat.zone", web.BadRequest)
	case "every":
		if p.EveryMs = r.Span("repeat.every"); p.EveryMs < minEveryMs || p.EveryMs > spec.MaxRetentionMs {
			r.Reject(web.Bad(web.BadRequest, "repeat.every: must be 1s to 10 years"))
		}
	case "until":
		ms, ok := web.ParseInstant(r.TimeText("repeat.until"))
		if p.UntilMs = ms; !ok || ms <= 0 {
			r.Reject(web.Bad(web.BadTime, "repeat.until: must be an RFC 3339 time with a zone"))
		}
	case "count":
		if p.Count = r.Integer("repeat.count"); p.Count < 1 || p.Count > math.MaxInt32 {
			r.Reject(web.Bad(web.BadRequest, "repeat.count: must be 1 or more"))
		}
	case "catch_up":
		p.CatchUp = timer.CatchUp(max(0, slices.Index(catchUps, r.Choice("repeat.catch_up", catchUps))))
	case "overlap":
		p.Overlap = r.Boolean("repeat.overlap")
	}
}

// firstOf is when the first occurrence is due, of an input whose time is atMs (0: none was given):
// for cron the first that is neither over nor before that time. A first time that is past is
// missed, and left out if the series skips what it missed.
func (tr *timerRequest) firstOf(atMs, nowMs int64) (int64, *web.Problem) {
	p := tr.spec.Repeat
	if p == nil {
		return atMs, nil
	}
	if p.Cron != "" {
		if atMs = recurrence.FirstCron(p.Cron, p.Zone, max(atMs, nowMs)); atMs == 0 {
			return 0, web.Bad(web.BadRequest, "repeat.cron: that never comes")
		}
	} else if p.CatchUp == timer.CatchUpSkip && atMs < nowMs && tr.given&spec.TimeFields != 0 {
		var calendar recurrence.Calendar
		atMs = calendar.After(p, atMs, nowMs-1)
	}
	if p.UntilMs != 0 && p.UntilMs < atMs {
		return 0, beforeFirst()
	}
	return atMs, nil
}

func beforeFirst() *web.Problem {
	return web.Bad(web.BadTime, "repeat.until: is before the first occurrence")
}

func appendRepeat(b []byte, p *timer.Repeat) []byte {
	o := web.Object{B: b}
	o.OptText("cron", p.Cron)
	o.OptText("zone", p.Zone)
	o.OptSpan("every", p.EveryMs)
	if p.UntilMs != 0 {
		o.Text("until", string(web.AppendInstant(nil, p.UntilMs)))
	}
	o.OptInteger("count", p.Count)
	o.Text("catch_up", catchUps[p.CatchUp])
	o.OptBoolean("overlap", p.Overlap)
	return o.End()
}
