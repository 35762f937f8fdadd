package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/transport/api/web"
)

func TestLocalTimes(t *testing.T) {
	h := newHarness(t)
	for i, c := range []struct{ local, zone, due string }{
		{"2027-03-28T09:00:00", "Europe/Berlin", "2027-03-28T07:00:00.000Z"},
		{"2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:30:00.000Z"}, // skipped: moved by the gap
		{"2027-10-31T02:30:00", "Europe/Berlin", "2027-10-31T00:30:00.000Z"}, // twice: the first
		{"2027-07-01t09:00:00.0001", "Asia/Tokyo", "2027-07-01T00:00:00.001Z"},
		{"1970-01-01T01:00:00", "Europe/Berlin", "1970-01-01T00:00:00.000Z"},
		{"1969-12-31T20:00:00", "America/New_York", "1970-01-01T01:00:00.000Z"},
	} {
		fields := fmt.Sprintf(`"zone":%q,"at_local":%q`, c.zone, c.local)
		id := fmt.Sprintf("l%d", i)
		h.do("POST", timersPath, `{"id":"`+id+`",`+cb+`,`+fields+`}`).want(201).has("due", `"`+c.due+`"`)
		// The instant is the same content.
		h.do("POST", timersPath, `{"id":"`+id+`",`+cb+`,"at":"`+c.due+`"}`).want(200)
		h.do("PUT", timersPath+"/"+id, `{`+cb+`,`+fields+`}`).want(200).has("due", `"`+c.due+`"`)
		h.do("PATCH", timersPath+"/"+id, `{`+fields+`}`).want(200).has("due", `"`+c.due+`"`)
	}
	r := h.do("POST", orders+"/batch", `{"ops":[{"op":"add","id":"b",`+cb+`,"at_local":"2027-03-28T09:00:00","zone":"Europe/Berlin"},{"op":"patch","id":"b","at_local":"2027-03-29T09:00:00","zone":"Asia/Tokyo"}]}`).want(200)
	if !strings.Contains(r.body, "2027-03-28T07:00:00.000Z") || !strings.Contains(r.body, "2027-03-29T00:00:00.000Z") {
		t.Error(r.body)
	}
	h.do("POST", orders+"/reschedule", `{"filter":{"id_prefix":"b"},"zone":"Europe/Berlin","at_local":"2027-03-28T02:30:00"}`).want(200).has("changed", "1")
	h.do("GET", timersPath+"/b", "").want(200).has("due", `"2027-03-28T01:30:00.000Z"`)
}

func TestLocalTimesRefused(t *testing.T) {
	h := newHarness(t)
	var cases []refused
	bad := func(fields string) {
		cases = append(cases, refused{method: "POST", target: timersPath, body: `{` + cb + `,` + fields + `}`, status: 400, code: web.BadTime})
	}
	for _, local := range []string{"", "2027-03-28", "2027-03-28T09:00", "2027-03-28 09:00:00", "2027-03-28T09:00:00Z", "2027-03-28T09:00:00+01:00", "2027-02-29T09:00:00", "2027-03-28T24:00:00", "2027-03-28T09:00:00,5", "1969-12-31T20:00:00"} {
		bad(`"at_local":"` + local + `","zone":"Europe/Berlin"`)
	}
	for _, zone := range []string{"", "Local", "localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "Mars", "Berlin", "europe/berlin", "../UTC", "/etc/localtime", "+01:00"} {
		bad(`"at_local":"2027-03-28T09:00:00","zone":"` + zone + `"`)
	}
	for _, fields := range []string{
		`"at_local":"2027-03-28T09:00:00"`, `"zone":"Europe/Berlin"`, `"delay":"1h","zone":"Europe/Berlin"`, `"at_local":"2027-03-28T09:00:00","zone":"Europe/Berlin","delay":"1h"`,
		`"at_local":1,"zone":"UTC"`, `"at_local":"2027-03-28T09:00:00","zone":"UTC","at_ms":1780315200123`,
	} {
		bad(fields)
	}
	cases = append(cases,
		refused{method: "POST", target: timersPath, body: `{` + cb + `,"at_local":null,"zone":"UTC"}`, status: 400, code: web.BadRequest},
		refused{method: "POST", target: timersPath, body: `{` + cb + `,"at_local":"2090-03-28T09:00:00","zone":"UTC"}`, status: 422, code: "beyond_horizon"},
		refused{method: "POST", target: orders + "/reschedule", body: `{"all":true,"at_local":"2027-03-28T09:00:00"}`, status: 400, code: web.BadTime},
		refused{method: "POST", target: orders + "/reschedule", body: `{"all":true,"shift":"1h","zone":"UTC"}`, status: 400, code: web.BadTime},
		refused{method: "POST", target: orders + "/reschedule", body: `{"all":true,"at_local":"2027-03-28T09:00:00","zone":"UTC","at_ms":1780315200123}`, status: 400, code: web.BadTime},
		refused{method: "POST", target: orders + "/cancel", body: `{"all":true,"zone":"UTC"}`, status: 400, code: web.UnknownField})
	checkRefused(t, h, cases)
}

// TestTimeHints: errors of times say what is meant.
func TestTimeHints(t *testing.T) {
	h := newHarness(t)
	for fields, want := range map[string]string{
		`"at_ms":1780315200`:                                 "seconds? milliseconds are meant",
		`"delay":"1y"`:                                       "w, d (24h), h, m, s, ms, us, ns",
		`"cron":"0 8 * * *"`:                                 "it is repeat.cron",
		`"every":"1h"`:                                       "it is repeat.every",
		`"url":"http://a/"`:                                  "it is callback.url",
		`"repeat":{"cron":"@daily"}`:                         "0 0 * * *",
		`"repeat":{"cron":"61 * * * *"}`:                     "repeat: cron: minute: 61 is not within 0 to 59",
		`"repeat":{"cron":"x * * * *"}`:                      `minute: \"x\" is no number`,
		`"repeat":{"cron":"0 8 * * *","zone":"Berlin"}`:      `did you mean \"Europe/Berlin\"?`,
		`"at_local":"2027-03-28T09:00:00","zone":"new york"`: `did you mean \"America/New_York\"?`,
	} {
		r := h.do("POST", timersPath, `{`+cb+`,`+fields+`}`).want(400)
		if !strings.Contains(r.body, want) || strings.Contains(r.body, "strconv") || strings.Contains(r.body, "requires") {
			t.Errorf("%s: %s", fields, r.body)
		}
	}
}

// TestNumbersBeyond64Bits: they are refused wherever a number stands.
func TestNumbersBeyond64Bits(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a",`+cb+`,"delay":"1h"}`).want(201)
	for _, n := range []string{"9223372036854775808", "-9223372036854775809", "99999999999999999999999999"} {
		for _, body := range []string{
			`"at_ms":N`, `"delay_ms":N`, `"delay":"1h","priority":N`, `"delay":"1h","retry":{"max_attempts":N}`, `"delay":"1h","repeat":{"every":"1h","count":N}`,
		} {
			h.do("POST", timersPath, `{`+cb+`,`+strings.ReplaceAll(body, "N", n)+`}`).want(400)
		}
		for target, body := range map[string]string{
			orders + "/cancel":       `{"filter":{"due_to":N}}`,
			orders + "/reschedule":   `{"all":true,"not_before":N}`,
			orders + "/dead/redrive": `{"filter":{"from":N}}`,
			orders + "/dead/purge":   `{"filter":{"to":N}}`,
			orders + "/pull":         `{"max":N}`,
		} {
			h.do("POST", target, strings.ReplaceAll(body, "N", n)).want(400)
		}
		for _, field := range []string{`"concurrency":N`, `"destination_concurrency":N`, `"rate":{"per_second":1,"burst":N}`, `"breaker":{"failures":N}`, `"stop_on":[N]`} {
			h.do("PUT", "/v1/topics/policy", `{`+strings.ReplaceAll(field, "N", n)+`}`).want(400)
		}
		for _, query := range []string{timersPath + "?limit=N", timersPath + "?due_from=N", timersPath + "?due_to=N", orders + "/history?from=N", orders + "/dead?to=N", "/v1/due?until=N", "/v1/due?buckets=N"} {
			h.do("GET", strings.ReplaceAll(query, "N", n), "").want(400)
		}
	}
	h.do("GET", timersPath+"/a", "").want(200).has("version", "1", "state", `"scheduled"`)
}

// TestFirstTimeIsPast: of a series whose first time is past, catch_up decides what is made up for.
func TestFirstTimeIsPast(t *testing.T) {
	h := newHarness(t)
	first := int64(noonMs) - 3_500
	for catchUp, due := range map[string]int64{"one": first, "all": first, "skip": first + 4000} {
		body := fmt.Sprintf(`{%s,"at_ms":%d,"repeat":{"every":"1s","catch_up":%q}}`, cb, first, catchUp)
		h.do("PUT", timersPath+"/"+catchUp, body).want(201).has("due_ms", fmt.Sprint(due))
	}
	h.do("PUT", timersPath+"/ahead", fmt.Sprintf(`{%s,"at_ms":%d,"repeat":{"every":"1s","catch_up":"skip"}}`, cb, noonMs+5)).want(201).has("due_ms", fmt.Sprint(noonMs+5))
	h.do("PUT", timersPath+"/over", fmt.Sprintf(`{%s,"at_ms":%d,"repeat":{"every":"1s","catch_up":"skip","until":"2026-06-01T11:59:59Z"}}`, cb, first)).problem(400, web.BadTime)
}

// TestLateAddIsShown: the answer to a change to a time of more than a minute ago has how late it is.
func TestLateAddIsShown(t *testing.T) {
	h := newHarness(t)
	h.advance(500 * time.Microsecond) // to a whole millisecond
	at := func(ago time.Duration) string { return fmt.Sprintf(`"at_ms":%d`, noonMs-ago.Milliseconds()) }
	hour, minute := at(time.Hour), at(time.Minute)
	const late = "3600000"
	for i, c := range []struct{ method, query, fields, late string }{
		{"POST", "", cb + "," + hour, late},
		{"POST", "", cb + "," + minute, ""},
		{"POST", "", cb + `,"delay":"0s"`, ""},
		{"POST", "", cb + `,"at_local":"1999-01-01T00:00:00","zone":"Europe/Berlin"`, "865170000001"},
		{"POST", "?dry_run=true", cb + "," + hour, late},
		{"POST", "", cb + "," + hour + `,"repeat":{"every":"1h"}`, late},
		{"POST", "", cb + "," + hour + `,"repeat":{"every":"1h","catch_up":"skip"}`, ""}, // the next one is not late
		{"POST", "", cb + "," + hour + `,"repeat":{"cron":"0 8 * * *"}`, ""},
		{"PUT", "", cb + "," + hour, late},
		{"PUT", "?dry_run=true", cb + "," + hour, late},
	} {
		target, body := fmt.Sprintf("%s/late%d", timersPath, i), "{"+c.fields+"}"
		if c.method == "POST" {
			target, body = timersPath, fmt.Sprintf(`{"id":"late%d",%s}`, i, c.fields)
		}
		r := h.do(c.method, target+c.query, body)
		if r.status >= 300 {
			t.Fatalf("%d: %d %s", i, r.status, r.body)
		}
		r.has("late_by_ms", c.late)
	}
	h.do("POST", timersPath, `{"id":"late0",`+cb+","+hour+"}").want(200).has("late_by_ms", "") // a repeated one adds nothing
	h.do("GET", timersPath+"/late0", "").want(200).has("late_by_ms", "")
	h.do("POST", timersPath, `{"id":"x",`+cb+`,"delay":"1h"}`).want(201)
	h.do("POST", timersPath, `{"id":"x","merge":"keep",`+cb+","+hour+"}").want(200).has("merged", "true", "late_by_ms", "") // its time is not taken
	h.do("PATCH", timersPath+"/x", `{"priority":1}`).want(200).has("late_by_ms", "")
	h.do("PATCH", timersPath+"/x", "{"+hour+"}").want(200).has("late_by_ms", late)
	h.do("POST", timersPath, `{"id":"x","merge":"replace",`+cb+","+hour+`,"priority":2}`).want(200).has("merged", "true", "late_by_ms", late)

	for _, query := range []string{"", "?brief=true"} {
		id := fmt.Sprint("b", len(query))
		ops := `{"ops":[{"op":"add","id":"` + id + `",` + cb + "," + hour + `},{"op":"add","id":"` + id + `2",` + cb + `,"delay":"1h"},{"op":"patch","id":"` + id + `2",` + hour + `},{"op":"cancel","id":"` + id + `2"}]}`
		r := h.do("POST", orders+"/batch"+query, ops).want(200)
		r.has("results.0.late_by_ms", late, "results.0.timer.late_by_ms", "", "results.1.late_by_ms", "", "results.2.late_by_ms", late, "results.3.late_by_ms", "")
	}
}
