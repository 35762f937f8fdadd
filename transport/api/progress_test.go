package api

import (
	"errors"
	"strings"
	"testing"

	"carillon/timer"
)

// TestProgressOfTimers: reads and listings say why timers wait that are due or between attempts,
// and nothing is asked of others.
func TestProgressOfTimers(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"due","at_ms":1000000000000,"callback":{"url":"http://127.0.0.1:1/"}}`).want(201)
	h.do("POST", timersPath, `{"id":"later","delay":"1h","callback":{"url":"http://127.0.0.1:1/"}}`).want(201)
	h.engine.progress = map[string]timer.Progress{
		"due": {Wait: timer.Wait{For: timer.WaitBreaker, On: `http://h:80 (open, "now")`},
			Attempts: []timer.HistoryAttempt{{Attempt: 1, StartedMs: 5, EndedMs: 7, Status: 500}, {Attempt: 2, StartedMs: 8, EndedMs: 9, Err: "no"}}},
		"later": {Wait: timer.Wait{For: timer.WaitSlots}},
	}
	h.engine.set("orders", "due", func(x *timer.Timer) { x.Attempts, x.LatenessMs, x.FiredMs = 2, 4, 8 })
	r := h.do("GET", timersPath+"/due", "").want(200)
	r.has("waits_for", `"breaker"`)
	r.has("waits_on", `"http://h:80 (open, \"now\")"`)
	r.has("attempt_log", `[{"attempt":1,"ended_ms":7,"lateness_ms":4,"started_ms":5,"status":500},{"attempt":2,"ended_ms":9,"error":"no","started_ms":8}]`)
	asked := h.engine.calls["Progress"]
	if body := string(h.do("GET", timersPath+"/later", "").want(200).body); strings.Contains(body, "waits") || strings.Contains(body, "attempt_log") {
		t.Error(body)
	}
	if h.engine.calls["Progress"] != asked {
		t.Error("asked why one waits whose time has not come")
	}
	list := string(h.do("GET", timersPath, "").want(200).body)
	if strings.Count(list, "waits_for") != 1 || strings.Contains(list, "attempt_log") {
		t.Error(list)
	}
	h.engine.progress["due"] = timer.Progress{Attempts: []timer.HistoryAttempt{
		{Attempt: 1, StartedMs: 5, Status: 500, Err: "status 500", Answer: &timer.Answer{Body: "card\ndeclined", Type: "text/plain"}},
		{Attempt: 2, StartedMs: 8, Status: 302, Err: "redirect 302", Answer: &timer.Answer{Body: "\xff", Location: "/x"}},
	}}
	h.engine.set("orders", "due", func(x *timer.Timer) { x.LastError, x.LastAnswer = "status 500", &timer.Answer{Body: "card\ndeclined"} })
	r = h.do("GET", timersPath+"/due", "").want(200)
	r.has("last_error", `"status 500: card declined"`)
	r.has("attempt_log", `[{"answer":"card\ndeclined","answer_type":"text/plain","attempt":1,"error":"status 500","lateness_ms":4,"started_ms":5,"status":500},`+
		`{"answer_base64":"/w==","attempt":2,"error":"redirect 302","location":"/x","started_ms":8,"status":302}]`)
	h.engine.set("orders", "due", func(x *timer.Timer) { x.LastError, x.LastAnswer = "", nil })
	h.engine.progressErr = errors.New("nobody leads")
	r = h.do("GET", timersPath+"/due", "").want(200)
	r.has("attempt_log", `[{"attempt":2,"started_ms":8}]`)
	r.has("waits_for", `"leader"`)
	if list := string(h.do("GET", timersPath, "").want(200).body); strings.Count(list, `"waits_for":"leader"`) != 1 {
		t.Error(list)
	}
}
