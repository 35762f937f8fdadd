package spec

import (
	"time"

	"carillon/timer/recurrence"
	"carillon/transport/api/web"
)

// When is the time a client asks for.
type When struct {
	Delay bool
	Ms    int64 // Unix ms, or the delay in ms rounded up; ≥ 0
	Zone  string
}

// Due is the instant in Unix ms, nowMs being already rounded up.
func (w When) Due(nowMs int64) int64 {
	if w.Delay {
		return web.AddMs(nowMs, w.Ms)
	}
	return w.Ms
}

// ReadWhen reads a time in one of its forms. A local time stays as if it were UTC until it is
// resolved.
func ReadWhen(r *web.Reader, w *When, f web.Fields) {
	ok := true
	switch f {
	case FAt:
		w.Ms, ok = web.ParseInstant(r.TimeText("at"))
	case FAtMs:
		if w.Ms, ok = r.TimeInteger("at_ms"); ok && w.Ms >= 0 && w.Ms < web.LeastMs {
			r.Reject(web.MeantMs("at_ms"))
		}
	case FAtLocal:
		w.Ms, ok = web.ParseInstant(r.TimeText("at_local") + "Z")
	case FDelay:
		w.Delay = true
		w.Ms, ok = web.ParseSpan(r.TimeText("delay"))
	case FDelayMs:
		w.Delay = true
		w.Ms, ok = r.TimeInteger("delay_ms")
	}
	if !ok || w.Ms < 0 && f != FAtLocal {
		r.Reject(web.Bad(web.BadTime, map[web.Fields]string{
			FAt:      `at: must be an RFC 3339 time with a zone, from 1970 on, like "2026-12-24T18:00:00.250Z"`,
			FAtLocal: `at_local: must be a local time without an offset, like "2026-12-24T18:00:00", beside its zone`,
			FAtMs:    "at_ms: must be an integer, Unix milliseconds, 0 or higher",
			FDelay:   "delay: " + web.SpanRule,
			FDelayMs: "delay_ms: must be an integer, milliseconds, 0 or higher",
		}[f]))
	}
}

// Resolve replaces a local time by its instant. given are the fields that the document has.
func (w *When) Resolve(given web.Fields) *web.Problem {
	switch {
	case given&(FAtLocal|FZone) == 0:
		return nil
	case given&FAtLocal == 0:
		return web.Bad(web.BadTime, "zone: goes with at_local; the zone of a series is repeat.zone")
	case given&FZone == 0:
		return web.Bad(web.BadTime, `at_local: needs a zone, like "zone": "Europe/Berlin"`)
	}
	zone, err := recurrence.Release.Load(w.Zone)
	if err != nil {
		return web.Badf(web.BadTime, "zone: %v", err)
	}
	w.Ms = recurrence.Local(time.UnixMilli(w.Ms).UTC(), zone).UnixMilli()
	if w.Ms < 0 {
		return web.Bad(web.BadTime, "at_local: must be from 1970 on")
	}
	return nil
}

// ReadZone reads the name of a time zone.
func ReadZone(r *web.Reader, name, code string) string {
	zone := r.Text(name)
	if zone == "" {
		r.Reject(web.Badf(code, `%s: must be a name of the IANA data base, like "Europe/Berlin"`, name))
	}
	return zone
}
