package api

import (
	"strings"
	"testing"
)

// TestTraceOfAnAdd: every request that makes a timer gives it the trace that the request is part
// of. The trace is shown, is not compared when an add is repeated, and is ignored if malformed.
func TestTraceOfAnAdd(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`).want(201)
	const (
		parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		header = "traceparent: " + parent
		state  = "tracestate: congo=t61rcWkgMzE"
		shown  = `"` + parent + `"`
	)
	has := func(id, want, state string) {
		t.Helper()
		r := h.do("GET", timersPath+"/"+id, "").want(200)
		if got := pick(r.json(), "traceparent"); got != want {
			t.Errorf("%s has the traceparent %s, want %s", id, got, want)
		}
		if got := pick(r.json(), "tracestate"); got != state {
			t.Errorf("%s has the tracestate %s, want %s", id, got, state)
		}
	}
	h.do("POST", timersPath, `{"id":"a","delay":"1h"}`, header, state).want(201).has("traceparent", shown)
	has("a", shown, `"congo=t61rcWkgMzE"`)
	h.do("POST", timersPath, `{"id":"a","delay":"1h"}`, "traceparent: "+strings.Replace(parent, "b7", "b8", 1)).want(200) // the same add
	h.do("PATCH", timersPath+"/a", `{"priority":1}`, "traceparent: "+strings.Replace(parent, "b7", "b8", 1)).want(200)
	has("a", shown, `"congo=t61rcWkgMzE"`) // of the request that made it
	h.do("PUT", timersPath+"/a", `{"delay":"1h"}`, header).want(200)
	has("a", shown, "")
	h.do("PUT", timersPath+"/a", `{"delay":"1h"}`).want(200)
	has("a", "", "")
	h.do("POST", batches, `{"ops":[{"op":"add","id":"b","delay":"1h"},{"op":"put","id":"c","delay":"1h"}]}`, header, state, "tracestate: rojo=1").want(200)
	has("b", shown, `"congo=t61rcWkgMzE,rojo=1"`)
	has("c", shown, `"congo=t61rcWkgMzE,rojo=1"`)
	for id, bad := range map[string][]string{"d": {"traceparent: x"}, "e": {header, header}, "f": {state}, "g": {"traceparent: " + strings.ToUpper(parent)}} {
		h.do("PUT", timersPath+"/"+id, `{"delay":"1h"}`, bad...).want(201)
		has(id, "", "")
	}
	h.do("PUT", timersPath+"/h", `{"delay":"1h"}`, header, "tracestate: "+strings.Repeat("x", 600)).want(201)
	has("h", shown, "")
}
