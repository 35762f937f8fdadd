package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
)

// TestDryRun: a dry run of an add, a put or a patch answers as the call would, shows the timer as
// it would be, and changes nothing.
func TestDryRun(t *testing.T) {
	type ask struct{ method, target, body, header string }
	at := fmt.Sprintf(`"at_ms":%d`, noonMs+3_600_000)
	past := fmt.Sprintf(`"at_ms":%d`, noonMs-3_600_000)
	states := map[string]func(*timer.Timer){
		"none": nil, "scheduled": func(*timer.Timer) {}, "leased": func(x *timer.Timer) { x.State, x.Attempts = timer.Leased, 1 },
		"done":      func(x *timer.Timer) { x.State, x.EndedMs = timer.Done, noonMs-1000 },
		"dead":      func(x *timer.Timer) { x.State, x.Reason, x.EndedMs = timer.Dead, timer.Stopped, noonMs-1000 },
		"cancelled": func(x *timer.Timer) { x.State, x.EndedMs = timer.Cancelled, noonMs-1000 },
	}
	asks := []ask{
		{"POST", timersPath, `{"id":"a",` + cb + `,` + at + `}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,"delay":"1h"}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,"delay":"2h","merge":"keep"}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,"delay":"2h","merge":"replace","labels":["x"]}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,` + past + `,"if_late":"reject"}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,"delay":"1h","repeat":{"every":"1h"}}`, ""},
		{"POST", timersPath, `{"id":"a",` + cb + `,"delay":"90000h"}`, ""},
		{"POST", timersPath, `{"id":"a","delay":"1h","cron":"* * * * *"}`, ""},
		{"PUT", timersPath + "/a", `{` + cb + `,"delay":"1h","priority":7}`, ""},
		{"PUT", timersPath + "/a", `{` + cb + `,"delay":"1h"}`, `If-None-Match: *`},
		{"PUT", timersPath + "/a", `{` + cb + `,"delay":"1h"}`, `If-Match: "1"`},
		{"PUT", timersPath + "/a", `{` + cb + `,"delay":"1h"}`, `If-Match: "7"`},
		{"PATCH", timersPath + "/a", `{"delay":"5h","payload":{"n":1}}`, ""},
		{"PATCH", timersPath + "/a", `{"priority":3}`, `If-Match: "7"`},
		{"PATCH", timersPath + "/a", `{}`, ""},
		{"PATCH", timersPath + "/a", `{"callback":{"headers":{"X-Token":"REDACTED"}}}`, ""},
	}
	h := newHarness(t)
	h.advance(500 * time.Microsecond) // to a whole millisecond
	h.do("POST", timersPath, `{"id":"other",`+cb+`,"delay":"1h"}`).want(201)
	for name, edit := range states {
		for i, a := range asks {
			id := fmt.Sprint(name, i)
			a.target, a.body = strings.Replace(a.target, "/a", "/"+id, 1), strings.Replace(a.body, `"id":"a"`, `"id":"`+id+`"`, 1)
			if edit != nil {
				h.do("POST", timersPath, `{"id":"`+id+`",`+cb+`,`+at+`}`).want(201)
				h.engine.set("orders", id, edit)
			}
			var headers []string
			if a.header != "" {
				headers = []string{a.header}
			}
			changes, before := h.engine.changes(), h.do("GET", timersPath+"/"+id, "").body
			dry := h.do(a.method, a.target+"?dry_run=true", a.body, headers...)
			if h.engine.changes() != changes || h.do("GET", timersPath+"/"+id, "").body != before {
				t.Fatalf("%s, ask %d: the dry run changed something", name, i)
			}
			done := h.do(a.method, a.target, a.body, headers...)
			if done.status >= 300 {
				if dry.status != done.status || dry.body != done.body {
					t.Errorf("%s, ask %d: the dry run answers %d %s\nthe call %d %s", name, i, dry.status, dry.body, done.status, done.body)
				}
				continue
			}
			if dry.status != 200 || dry.header.Get("ETag") != "" {
				t.Errorf("%s, ask %d: the dry run answers %d with ETag %q", name, i, dry.status, dry.header.Get("ETag"))
			}
			is, would := done.json(), dry.json()
			delete(is, "uid")
			if times, _ := would["next"].([]any); would["repeat"] != nil && len(times) != timers.ShownTimes {
				t.Errorf("%s, ask %d: next is %v", name, i, times)
			}
			delete(would, "next")
			delete(would, "next_ms")
			if !maps.EqualFunc(is, would, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
				t.Errorf("%s, ask %d: it would be\n%v\nand is\n%v", name, i, would, is)
			}
		}
	}
}

// TestDryRunMakesNoTopic: the topic that an add would make is taken for made, and is not there.
func TestDryRunMakesNoTopic(t *testing.T) {
	h := newHarness(t)
	const path = "/v1/topics/new/timers"
	r := h.do("POST", path+"?dry_run=true", `{`+cb+`,"delay":"1h"}`).want(200).has("topic", `"new"`, "version", "1", "max_attempts", "16", "id", "", "uid", "")
	if strings.Contains(r.body, `"id"`) {
		t.Errorf("an id that the next add would not have: %s", r.body)
	}
	h.do("PUT", path+"/a?dry_run=true", `{`+cb+`,"delay":"1h"}`).want(200).has("id", `"a"`)
	h.do("POST", path+"?dry_run=true", `{`+cb+`,"at":"2020-01-01T00:00:00Z"}`).want(200) // as the history is asked for a past time
	h.do("POST", path+"?dry_run=true", `{"delay":"1h"}`).problem(422, "no_callback")
	h.do("PATCH", path+"/a?dry_run=true", `{"delay":"1h"}`).problem(404, web.UnknownTopic)
	h.do("GET", "/v1/topics/new", "").problem(404, web.UnknownTopic)
	h.do("POST", path+"?dry_run=yes", `{`+cb+`,"delay":"1h"}`).problem(400, web.BadRequest)
	h.do("POST", timersPath+"/a/fire?dry_run=true", "").problem(400, web.BadRequest)

	known := newHarness(t, func(c *Config) { c.KnownTopicsOnly = true })
	known.do("POST", path+"?dry_run=true", `{`+cb+`,"delay":"1h"}`).problem(404, web.UnknownTopic)
}

func TestNextTimes(t *testing.T) {
	h := newHarness(t)
	next := func(r *reply, n int) (times []string) {
		t.Helper()
		var v struct {
			Next   []string `json:"next"`
			NextMs []int64  `json:"next_ms"`
		}
		if err := json.Unmarshal([]byte(r.want(200).body), &v); err != nil || len(v.Next) != n || len(v.NextMs) != n {
			t.Fatalf("%v, %d and %d times, want %d: %s", err, len(v.Next), len(v.NextMs), n, r.body)
		}
		for i, ms := range v.NextMs {
			if string(web.AppendInstant(nil, ms)) != v.Next[i] {
				t.Errorf("%d is %s", ms, v.Next[i])
			}
		}
		return v.Next
	}
	body := `{"id":"s",` + cb + `,"repeat":{"cron":"0 8 * * 1-5","zone":"Europe/Berlin"}}`
	times := next(h.do("POST", timersPath+"?dry_run=true", body), 5)
	if times[0] != "2026-06-02T06:00:00.000Z" || times[3] != "2026-06-05T06:00:00.000Z" || times[4] != "2026-06-08T06:00:00.000Z" {
		t.Errorf("weekdays at eight in Berlin are %v", times)
	}
	h.do("POST", timersPath, body).want(201)
	if got := next(h.do("GET", timersPath+"/s?next=3", ""), 3); got[0] != times[0] || got[2] != times[2] {
		t.Errorf("read as %v", got)
	}
	next(h.do("GET", timersPath+"/s?next=100", ""), 100)
	// The epoch is a time as any other, and no sign for none: a usual start for what comes at
	// midnight.
	epoch := `{"id":"e",` + cb + `,"at":"1970-01-01T00:00:00Z","repeat":{"every":"24h"}}`
	r := h.do("POST", timersPath+"?dry_run=true", epoch).has("next_attempt", `"1970-01-01T00:00:00.000Z"`)
	if got := next(r, 5); got[0] != "1970-01-01T00:00:00.000Z" || got[1] != "2026-06-02T00:00:00.000Z" {
		t.Errorf("days since the epoch are %v", got)
	}
	h.do("PATCH", timersPath+"/s", `{"repeat":{"every":"1h","count":2}}`).want(200)
	next(h.do("GET", timersPath+"/s?next=5", ""), 2)
	if got := next(h.do("PATCH", timersPath+"/s?dry_run=true", `{"at_local":"2027-03-28T02:30:00","zone":"Europe/Berlin"}`), 2); got[0] != "2027-03-28T01:30:00.000Z" {
		t.Errorf("after the patch %v", got)
	}
	h.engine.set("orders", "s", func(x *timer.Timer) { x.State = timer.Done })
	next(h.do("GET", timersPath+"/s?next=5", ""), 0)
	h.do("POST", timersPath, `{"id":"once",`+cb+`,"delay":"1h"}`).want(201)
	for _, target := range []string{timersPath + "/s", timersPath + "/once?next=5"} {
		if r := h.do("GET", target, "").want(200); strings.Contains(r.body, "next_ms") {
			t.Errorf("%s: %s", target, r.body)
		}
	}
	for _, n := range []string{"0", "101", "-1", "x", "", "05", "5.0", "99999999999999999999"} {
		h.do("GET", timersPath+"/s?next="+n, "").problem(400, web.BadRequest)
	}
}
