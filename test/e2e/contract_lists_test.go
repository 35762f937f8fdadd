package e2e

import (
	"fmt"
	"time"
)

var contractLists = []contractCheck{{"list", checkList}, {"pages", checkPages}, {"bulk", checkBulk}, {"bulkRefusals", checkBulkRefusals}}

// listed creates four timers, due at base, base, +1 s and +2 s, and a cancelled one at +500 ms.
func (k *talk) listed() (base int64) {
	base = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	k.policy(`{` + nobody + `}`)
	for _, x := range []struct {
		id     string
		ms     int64
		labels string
	}{{"d", 2000, `["x"]`}, {"b", 0, `["x","y"]`}, {"a", 0, `[]`}, {"c1", 1000, `["y","x","z"]`}, {"gone", 500, `["x"]`}} {
		k.add(fmt.Sprintf(`{"id":%q,"at_ms":%d,"labels":%s,"payload":1}`, x.id, base+x.ms, x.labels)).is(201)
	}
	k.ask("DELETE", "/timers/gone", "").is(200)
	return base
}

func checkList(k *talk) {
	base := k.listed()
	list := func(query, want string) *said { k.Helper(); return k.ask("GET", "/timers"+query, "").lists(want) }
	list("", "a b c1 d").has("next_cursor", "", "timers/0/payload", "1")
	list("?payload=false", "a b c1 d").has("timers/0/payload", "")
	list("?state=scheduled", "a b c1 d")
	list("?state=leased", "")
	list("?state=cancelled", "gone")
	list("?state=scheduled,cancelled", "a b gone c1 d")
	list(fmt.Sprintf("?due_from=%d", base), "a b c1 d") // inclusive
	list(fmt.Sprintf("?due_from=%d", base+1), "c1 d")
	list(fmt.Sprintf("?due_to=%d", base+2000), "a b c1") // exclusive
	list(fmt.Sprintf("?due_to=%d", base+2001), "a b c1 d")
	list("?due_from=2030-01-01T00:00:01Z&due_to=2030-01-01T00:00:02Z", "c1")
	list("?label=x", "b c1 d")
	list("?label=x&label=y", "b c1") // a timer has all labels
	list("?label=none", "")
	list("?id_prefix=c", "c1")
	list("?id_prefix=c1x", "")
}

// checkPages: the pages make up the list, with each timer once.
func checkPages(k *talk) {
	k.listed()
	got := ""
	cursor := ""
	for range 4 {
		s := k.ask("GET", "/timers?limit=1"+cursor, "")
		got += s.ids() + " "
		if s.field("next_cursor") == "" {
			break
		}
		cursor = "&cursor=" + s.text("next_cursor")
	}
	if got != "a b c1 d " {
		k.Errorf("page by page: %s", got)
	}
	k.ask("GET", "/timers?limit=4", "").lists("a b c1 d").has("next_cursor", "")
	k.ask("PUT", "/v1/topics/"+k.topic+"-2", `{}`).is(201)
	first := k.ask("GET", "/v1/topics?limit=1", "").is(200).has("topics/0/topic", "*", "topics/1", "", "next_cursor", "*")
	k.ask("GET", "/v1/topics?limit=1&cursor="+first.text("next_cursor"), "").is(200).has("topics/0/topic", "*")
}

// checkBulk: the counts of bulk changes, the timers that a filter selects, and that a repeated
// change does nothing.
func checkBulk(k *talk) {
	base := k.listed()
	r := k.holding(200)
	k.add(fmt.Sprintf(`{"id":"runs","delay":"0s","labels":["runs"],"callback":{"url":%q}}`, r.url)).is(201)
	r.await(1)
	bulk := func(what, body string, matched, changed, skipped int) {
		k.Helper()
		k.ask("POST", "/"+what, body).is(200).has("matched", fmt.Sprint(matched), "changed", fmt.Sprint(changed), "skipped", fmt.Sprint(skipped))
	}
	due := func(id string, ms int64) { k.Helper(); k.get(id).has("due_ms", fmt.Sprint(base+ms)) }
	bulk("reschedule", `{"filter":{"label":"x"},"shift":"+1h"}`, 3, 3, 0)
	due("b", 3_600_000)
	due("a", 0)
	bulk("reschedule", `{"filter":{"label":["x"]},"shift":"-1h"}`, 3, 3, 0)
	due("b", 0)
	bulk("reschedule", fmt.Sprintf(`{"filter":{"id_prefix":"c"},"at_ms":%d}`, base+5000), 1, 1, 0)
	bulk("reschedule", fmt.Sprintf(`{"filter":{"id_prefix":"c"},"at_ms":%d}`, base+5000), 1, 0, 0)
	due("c1", 5000)
	bulk("reschedule", `{"filter":{"id_prefix":"c"},"at":"2030-01-01T00:00:01Z"}`, 1, 1, 0)
	bulk("reschedule", fmt.Sprintf(`{"filter":{"state":"scheduled"},"not_before":%d}`, base+1500), 4, 3, 0)
	due("a", 1500)
	due("d", 2000)
	bulk("reschedule", `{"all":true,"shift":"1s"}`, 5, 4, 1) // one is in flight
	bulk("reschedule", fmt.Sprintf(`{"filter":{"due_from":%d,"due_to":%d},"shift":"1h"}`, base+2500, base+3000), 3, 3, 0)
	due("d", 3000)
	bulk("cancel", `{"filter":{"state":"scheduled","id_prefix":"a"}}`, 1, 1, 0)
	bulk("cancel", `{"filter":{"state":"scheduled","id_prefix":"a"}}`, 0, 0, 0)
	bulk("cancel", `{"filter":{},"all":true}`, 4, 3, 1)
	bulk("cancel", `{"all":true}`, 1, 0, 1)
	r.letGo()
	k.until("runs", "state", `"done"`)
	bulk("cancel", `{"all":true}`, 0, 0, 0)
	k.get("b").has("state", `"cancelled"`)
}

func checkBulkRefusals(k *talk) {
	k.policy(`{` + nobody + `}`)
	k.add(`{"id":"a","delay":"1h"}`).is(201)
	for body, code := range map[string]string{
		`{}`: "bad_request", `{"filter":{}}`: "bad_request", `{"all":false}`: "bad_request", `{"filter":{"state":"done"}}`: "bad_request", `{"filter":{"id":"a"}}`: "unknown_field",
		`{"all":true,"shift":"1h"}`: "unknown_field", `{"filter":{"due_from":"soon"}}`: "bad_time", `{"filter":{"id_prefix":"a/b"}}`: "bad_name",
	} {
		k.ask("POST", "/cancel", body).refused(400, code)
	}
	for body, code := range map[string]string{
		`{"all":true}`: "bad_time", `{"all":true,"shift":"1h","at_ms":1}`: "bad_time", `{"all":true,"shift":"0s"}`: "bad_time", `{"all":true,"shift":"much"}`: "bad_time",
		`{"shift":"1h"}`: "bad_request", `{"all":true,"delay":"1h"}`: "unknown_field", `{"all":true,"at":"2030-01-01T00:00:00"}`: "bad_time", `{"all":true,"not_before":-1}`: "bad_time",
	} {
		k.ask("POST", "/reschedule", body).refused(400, code)
	}
	k.ask("POST", "/reschedule", `{"all":true,"at":"2100-01-01T00:00:00Z"}`).refused(422, "beyond_horizon")
	k.get("a").has("version", "1", "state", `"scheduled"`)
}
