package api

import (
	"testing"

	"carillon/timer"
)

// TestPauseOfATimer: a timer that is held says so in every answer, whether it is due or not, and
// nobody is asked why it waits.
func TestPauseOfATimer(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h","callback":{"url":"http://127.0.0.1:1/"}}`).want(201).has("paused", "", "waits_for", "")
	asked := h.engine.calls["Progress"]
	for range 2 { // it may be held already
		h.do("POST", timersPath+"/a/pause", "").want(200).has("paused", "true", "waits_for", `"paused"`, "version", "1", "state", `"scheduled"`, "waits_on", "")
	}
	h.do("GET", timersPath+"/a", "").want(200).has("paused", "true", "waits_for", `"paused"`)
	h.do("GET", timersPath, "").want(200).has("timers.0.waits_for", `"paused"`, "timers.0.paused", "true")
	h.do("PATCH", timersPath+"/a?dry_run=true", `{"delay":"0s"}`).want(200).has("paused", "true", "waits_for", `"paused"`)
	h.do("PATCH", timersPath+"/a", `{"delay":"0s"}`).want(200).has("paused", "true", "waits_for", `"paused"`)
	if h.engine.calls["Progress"] != asked {
		t.Error("the shard's leader was asked why it waits")
	}
	h.do("POST", timersPath+"/a/pause", "", `If-Match: "9"`).problem(412, "version_mismatch")
	h.do("POST", timersPath+"/a/pause", `{"x":1}`).problem(400, "unknown_field")
	for range 2 {
		h.do("POST", timersPath+"/a/resume", "{}").want(200).has("paused", "", "waits_for", "")
	}
	h.engine.set("orders", "a", func(x *timer.Timer) { x.State = timer.Leased })
	h.do("POST", timersPath+"/a/pause", "").problem(409, "in_flight")
	h.engine.set("orders", "a", func(x *timer.Timer) { x.State = timer.Done })
	h.do("POST", timersPath+"/a/resume", "").problem(410, "over").has("outcome", `"already_fired"`)
	h.do("POST", timersPath+"/b/pause", "").problem(404, "unknown_timer")
	h.do("POST", "/v1/topics/nobody/timers/b/pause", "").problem(404, "unknown_topic")
	h.do("POST", batches, `{"ops":[{"op":"pause","id":"a"}]}`).want(200).has("results.0.status", "400")
}

// TestPauseOfMany: a filter holds timers and lets them go, and answers as a cancel does.
func TestPauseOfMany(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		h.do("POST", timersPath, `{"id":"`+id+`","delay":"1h","callback":{"url":"http://127.0.0.1:1/"}}`).want(201)
	}
	h.engine.set("orders", "a3", func(x *timer.Timer) { x.State = timer.Leased })
	h.do("POST", timersPath+"/a2/pause", "").want(200)
	const some = `{"filter":{"id_prefix":"a"}}`
	h.do("POST", orders+"/pause-timers?dry_run=true", some).want(200).has("matched", "3", "changed", "1", "skipped", "1", "dry_run", "true")
	h.do("POST", orders+"/pause-timers", some).want(200).has("matched", "3", "changed", "1", "skipped", "1")
	h.do("GET", timersPath+"/a1", "").want(200).has("paused", "true")
	h.do("GET", timersPath+"/b1", "").want(200).has("paused", "")
	h.do("POST", orders+"/resume-timers", `{"all":true}`).want(200).has("matched", "4", "changed", "2", "skipped", "1")
	h.do("GET", timersPath+"/a2", "").want(200).has("paused", "")
	for _, verb := range []string{"/pause-timers", "/resume-timers"} {
		h.do("POST", orders+verb, `{}`).problem(400, "bad_request")
		h.do("POST", orders+verb, `{"all":true,"shift":"1h"}`).problem(400, "unknown_field")
		h.do("POST", "/v1/topics/nobody"+verb, `{"all":true}`).problem(404, "unknown_topic")
	}
}
