package api

import (
	"strings"
	"testing"

	"carillon/transport/api/web"
)

// While the node does not know the time, nothing is counted from now. A request that names an
// instant goes on.
func TestNoTimeIsReckonedInDoubt(t *testing.T) {
	why := "its clock was set by 315360000000 ms"
	h := newHarness(t, func(c *Config) { c.ClockFault = func() string { return why } })
	at := `"at":"2030-01-01T00:00:00Z",` + cb
	h.do("POST", timersPath, `{"id":"a",`+at+`}`).want(201)
	before := h.engine.calls["Do"]
	for _, r := range []*reply{
		h.do("POST", timersPath, `{"id":"b","delay":"1h",`+cb+`}`),
		h.do("POST", timersPath, `{"id":"b","delay_ms":1000,`+cb+`}`),
		h.do("PUT", timersPath+"/b", `{"delay":"1h",`+cb+`}`),
		h.do("PATCH", timersPath+"/a", `{"delay":"1h"}`),
		h.do("POST", timersPath, `{"id":"b","repeat":{"cron":"0 8 * * *"},`+cb+`}`),
		h.do("POST", orders+"/dead/redrive", `{"all":true,"delay":"1h"}`),
	} {
		if r.problem(503, web.Unavailable); !strings.Contains(r.body, why) || !strings.Contains(r.body, "Give an instant") || r.header.Get("Retry-After") == "" {
			t.Errorf("says too little of what to do: %s", r.body)
		}
	}
	h.do("POST", batches, `{"ops":[{"op":"add","id":"c","delay":"1h",`+cb+`},{"op":"add","id":"d",`+at+`}]}`).want(200).has(
		"results.0.status", "503", "results.0.error.code", `"unavailable"`, "results.1.status", "201")
	if n := h.engine.calls["Do"]; n != before {
		t.Errorf("%d changes were asked of the shards", n-before)
	}
	h.do("PATCH", timersPath+"/a", `{"at":"2031-01-01T00:00:00Z"}`).want(200)
	h.do("DELETE", timersPath+"/a", "").want(200)
	why = ""
	h.do("POST", timersPath, `{"id":"b","delay":"1h",`+cb+`}`).want(201)
}
