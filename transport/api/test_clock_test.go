package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

const clockPath = "/v1/clock"

// fakeTestClock makes three calls in each move.
type fakeTestClock struct {
	nowMs int64
	fault error
	full  bool
}

func (c *fakeTestClock) NowMs() int64 { return c.nowMs }

func (c *fakeTestClock) Move(_ context.Context, m backend.ClockMove) (backend.ClockMoved, error) {
	if c.fault != nil {
		return backend.ClockMoved{}, c.fault
	}
	if c.nowMs += m.ByMs; !m.By {
		c.nowMs = m.ToMs
	}
	return backend.ClockMoved{NowMs: c.nowMs, Calls: 3, Left: 1, Stopped: c.full}, nil
}

func TestClockIsReadAndMoved(t *testing.T) {
	h := newHarness(t)
	h.do("GET", clockPath, "").problem(404, "no_test_clock")
	h.do("POST", clockPath, `{"advance":"1h"}`).problem(404, "no_test_clock")
	clock := &fakeTestClock{nowMs: 1_767_225_600_000}
	h.engine.testClock = clock
	if r := h.do("GET", clockPath, "").want(200); r.body != `{"now":"2026-01-01T00:00:00.000Z","now_ms":1767225600000}` {
		t.Error(r.body)
	}
	if r := h.do("POST", clockPath, `{"advance":"720h"}`).want(200); r.body != `{"now":"2026-01-31T00:00:00.000Z","now_ms":1769817600000,"calls":3,"left":1}` {
		t.Error(r.body)
	}
	clock.full = true
	if r := h.do("POST", clockPath, `{"to":"2026-02-01T01:00:00.5+01:00"}`).want(200); r.body != `{"now":"2026-02-01T00:00:00.500Z","now_ms":1769904000500,"calls":3,"left":1,"stopped":true}` {
		t.Error(r.body)
	}
	for _, body := range []string{`{}`, `{"to":"tomorrow"}`, `{"to":"2026-02-01"}`, `{"advance":"-1s"}`, `{"advance":"1 year"}`, `{"advance":"2562048h"}`, `{"advance":"1h","to":"2027-01-01T00:00:00Z"}`} {
		h.do("POST", clockPath, body).problem(400, web.BadTime)
	}
	h.do("POST", clockPath, `{"advance":3600}`).problem(400, web.BadTime)
	h.do("POST", clockPath, `{"by":"1h"}`).problem(400, web.UnknownField)
	h.do("POST", clockPath, "").problem(400, web.BadJSON)
	clock.fault = backend.ErrClockPast
	h.do("POST", clockPath, `{"advance":"1h"}`).problem(409, "clock_past")
	for _, clock.fault = range []error{backend.ErrClockEnd, backend.ErrClockFar} {
		h.do("POST", clockPath, `{"advance":"1h"}`).problem(400, web.BadTime)
	}
	clock.fault = fmt.Errorf("%w: no key", backend.ErrClockWaits)
	if r := h.do("POST", clockPath, `{"advance":"1h"}`).problem(503, web.Unavailable); !strings.Contains(r.body, "no key") {
		t.Error(r.body)
	}
	clock.fault = context.Canceled
	h.do("POST", clockPath, `{"advance":"1h"}`).problem(503, web.Unavailable)
}
