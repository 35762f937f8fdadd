package cluster

import (
	"errors"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// ReadClock answers with the time of the node's test clock.
func ReadClock(rq *web.Request) *web.Problem {
	clock := rq.Core.TestClock
	if clock == nil {
		return noTestClock()
	}
	o := web.Object{B: rq.Out()}
	appendNow(&o, clock.NowMs())
	return rq.JSON(200, o.End())
}

func appendNow(o *web.Object, ms int64) {
	o.Text("now", string(web.AppendInstant(nil, ms)))
	o.Integer("now_ms", ms)
}

func noTestClock() *web.Problem {
	return web.Fail(404, "no_test_clock", "time passes by itself here: only a node that was started with --test-clock has a clock to read and to move")
}

// MoveClock takes {"advance": duration} or {"to": time}. It answers when nothing that was due by
// then is left but what waits for somebody.
func MoveClock(rq *web.Request) *web.Problem {
	clock := rq.Core.TestClock
	if clock == nil {
		return noTestClock()
	}
	r := rq.Reader()
	r.OutOfRange = func(detail string) *web.Problem { return web.Bad(web.BadTime, detail) }
	var move backend.ClockMove
	given := 0
	r.Body([]string{"advance", "to"}, func(name string) {
		given++
		if name == "advance" {
			move.By, move.ByMs = true, r.SpanCode(name, web.BadTime)
			return
		}
		var ok bool
		if move.ToMs, ok = web.ParseInstant(r.Text(name)); !ok && r.Err() == nil {
			r.Reject(web.Bad(web.BadTime, `to: must be an RFC 3339 time with a zone, from 1970 on, like "2026-12-24T18:00:00Z"`))
		}
	})
	if r.Err() == nil && given != 1 {
		r.Reject(web.Bad(web.BadTime, "give either advance, a duration, or to, a time"))
	}
	if r.Err() != nil {
		return r.Problem()
	}
	moved, err := clock.Move(rq.Ending, move)
	switch {
	case errors.Is(err, backend.ErrClockPast):
		return web.Fail(409, "clock_past", err.Error())
	case errors.Is(err, backend.ErrClockEnd), errors.Is(err, backend.ErrClockFar):
		return web.Bad(web.BadTime, err.Error())
	case errors.Is(err, backend.ErrClockWaits):
		return web.Fail(503, web.Unavailable, err.Error())
	case err != nil:
		return web.Fault(err)
	}
	o := web.Object{B: rq.Out()}
	appendNow(&o, moved.NowMs)
	o.Integer("calls", moved.Calls)
	o.Integer("left", moved.Left)
	o.OptBoolean("stopped", moved.Stopped)
	return rq.JSON(200, o.End())
}
