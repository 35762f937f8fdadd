package e2e

import (
	"fmt"
	"time"
)

var contractDead = []contractCheck{{"list", checkDeadList}, {"redrive", checkRedrive}, {"purge", checkPurge}, {"history", checkHistory}, {"refusals", checkDeadRefusals}}

// died makes the dead letters s1 and s2 (stopped), m (max_attempts) and e (expired), ending in this
// order.
func (k *talk) died() {
	k.Helper()
	stop, fail := k.callee(410), k.callee(500)
	k.policy(`{"retry":{"max_attempts":1},"breaker":{"failures":1000}}`)
	for _, x := range [][3]string{{"s1", stop.url, `"labels":["x"]`}, {"s2", stop.url, `"labels":["x","y"]`}, {"m", fail.url, `"payload":1`}} {
		k.add(fmt.Sprintf(`{"id":%q,"delay":"0s","callback":{"url":%q},%s}`, x[0], x[1], x[2])).is(201)
		k.until(x[0], "state", `"dead"`)
		<-time.After(3 * time.Millisecond) // the next one ends at a later millisecond
	}
	k.add(fmt.Sprintf(`{"id":"e","at_ms":%d,"expires_after":"1s",%s}`, time.Now().Add(-time.Minute).UnixMilli(), nobody)).is(201)
	k.until("e", "state", `"dead"`)
}

// set checks that a list has exactly these ids, in any order.
func (s *said) set(want ...string) *said {
	s.Helper()
	var page struct{ Timers, Entries []struct{ ID string } }
	s.is(200).decode(s, &page)
	got := map[string]int{}
	for _, x := range append(page.Timers, page.Entries...) {
		got[x.ID]++
	}
	ok := len(got) == len(want)
	for _, id := range want {
		ok = ok && got[id] == 1
	}
	if !ok {
		s.Errorf("%s\n lists %v, want %v", s.asked, got, want)
	}
	return s
}

func checkDeadList(k *talk) {
	k.died()
	list := func(query string, want ...string) *said {
		k.Helper()
		return k.ask("GET", "/dead"+query, "").set(want...)
	}
	list("", "s1", "s2", "m", "e")
	list("?reason=stopped", "s1", "s2")
	list("?reason=max_attempts", "m")
	list("?reason=expired", "e")
	list("?reason=refused")
	list("?label=x", "s1", "s2")
	list("?label=x&label=y", "s2")
	now := time.Now().UnixMilli()
	list(fmt.Sprintf("?from=%d", now+60_000))
	list(fmt.Sprintf("?to=%d", now-60_000))
	list(fmt.Sprintf("?from=%d&to=%d", now-60_000, now+60_000), "s1", "s2", "m", "e")
	first := k.ask("GET", "/dead?limit=3", "").is(200).has("next_cursor", "*", "timers/3", "")
	rest := k.ask("GET", "/dead?limit=3&cursor="+first.text("next_cursor"), "").is(200).has("next_cursor", "", "timers/1", "", "timers/0/state", `"dead"`)
	for i := range 3 {
		if first.text(fmt.Sprintf("timers/%d/id", i)) == rest.text("timers/0/id") {
			k.Errorf("twice: %s %s", first.body, rest.body)
		}
	}
	k.get("e").is(200).has("reason", `"expired"`) // a dead letter can still be read
}

func (k *talk) counted(path, body string, matched, changed, skipped int) {
	k.Helper()
	k.ask("POST", path, body).is(200).has("matched", fmt.Sprint(matched), "changed", fmt.Sprint(changed), "skipped", fmt.Sprint(skipped))
}

// checkRedrive: attempts start at 1 again, the webhook-id stays the same, and the fence grows.
func checkRedrive(k *talk) {
	r := k.callee(410, 500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"retry":{"max_attempts":2,"min_backoff":"1ms","max_backoff":"1ms"}}`, r.url))
	k.add(`{"id":"a","delay":"0s","payload":1}`).is(201)
	k.until("a", "state", `"dead"`)
	k.counted("/dead/redrive", `{"ids":["a"]}`, 1, 1, 0)
	r.await(3)
	k.until("a", "state", `"done"`).has("attempts", "2", "reason", "")
	calls := r.all()
	if a, b, c := calls[0], calls[1], calls[2]; b.attempt() != "1" || c.attempt() != "2" || a.header.Get("Webhook-Id") != b.header.Get("Webhook-Id") || a.fence() >= b.fence() || b.fence() >= c.fence() || b.body != "1" {
		k.Errorf("%+v", calls)
	}
	k.counted("/dead/redrive", `{"all":true}`, 0, 0, 0)

	// Redrive with a delay and another callback. A redriven timer does not expire again.
	k.add(fmt.Sprintf(`{"id":"e","at_ms":%d,"expires_after":"1s"}`, time.Now().Add(-time.Minute).UnixMilli())).is(201)
	k.until("e", "state", `"dead"`)
	other := k.callee(200)
	k.counted("/dead/redrive", fmt.Sprintf(`{"filter":{"reason":"expired"},"delay":"50ms","callback":{"url":%q}}`, other.url), 1, 1, 0)
	other.await(1)
	k.until("e", "state", `"done"`)

	// A redrive skips a dead letter whose id is in use again.
	stop := k.callee(410)
	k.add(fmt.Sprintf(`{"id":"u","delay":"0s","callback":{"url":%q}}`, stop.url)).is(201)
	k.until("u", "state", `"dead"`)
	k.add(`{"id":"u","delay":"1h"}`).is(201)
	k.ask("POST", "/dead/redrive", `{"ids":["u"]}`).is(200).has("matched", "1", "changed", "0", "skips/0/id", `"u"`, "skips/0/code", `"in_use"`)
	k.get("u").has("state", `"scheduled"`)

	k.redrivesOccurrences()
}

// redrivesOccurrences: dead occurrences of a series run in parallel with it, named by their uids, as what they
// were, and do not move it.
func (k *talk) redrivesOccurrences() {
	r := k.callee(410, 410, 200, 200)
	k.add(fmt.Sprintf(`{"id":"s","delay":"0s","repeat":{"every":"1s","count":2},"callback":{"url":%q}}`, r.url)).is(201)
	r.await(2)
	k.until("s", "state", `"dead"`)
	k.ask("POST", "/dead/purge", `{"ids":["u","e","a"]}`).is(200)
	dead := k.ask("GET", "/dead", "").is(200)
	first, second := dead.text("timers/0/uid"), dead.text("timers/1/uid")
	k.ask("POST", "/dead/redrive?dry_run=true", fmt.Sprintf(`{"uids":[%q,%q,"0001-1-00000000"]}`, first, second)).is(200).has("changed", "2", "skips/0/uid", `"0001-1-00000000"`, "skips/0/code", `"not_found"`)
	k.counted("/dead/redrive", fmt.Sprintf(`{"uids":[%q,%q]}`, first, second), 2, 2, 0)
	r.await(4)
	calls := r.all()
	for _, again := range calls[2:] {
		same := calls[0]
		if again.header.Get("Webhook-Id") != same.header.Get("Webhook-Id") {
			same = calls[1]
		}
		if again.header.Get("Webhook-Id") != same.header.Get("Webhook-Id") || again.header.Get("Carillon-Due") != same.header.Get("Carillon-Due") || again.attempt() != "1" || again.fence() <= calls[1].fence() {
			k.Errorf("called again: %+v, after %+v", again, calls[:2])
		}
	}
	k.until("s", "state", `"done"`)
	k.ask("GET", "/dead", "").set()
}

func checkPurge(k *talk) {
	k.died()
	k.counted("/dead/purge", `{"filter":{"reason":"stopped","label":"y"}}`, 1, 1, 0)
	k.ask("GET", "/dead", "").set("s1", "m", "e")
	k.counted("/dead/purge", `{"ids":["m"]}`, 1, 1, 0)
	k.counted("/dead/purge", `{"filter":{"reason":"stopped"}}`, 1, 1, 0)
	k.counted("/dead/purge", `{"all":true}`, 1, 1, 0)
	k.counted("/dead/purge", `{"all":true}`, 0, 0, 0)
	k.ask("GET", "/dead", "").set()
	k.ask("GET", "", "").has("counts/dead", "0")
}

func checkDeadRefusals(k *talk) {
	k.died()
	for _, path := range []string{"/dead/redrive", "/dead/purge"} {
		for body, code := range map[string]string{
			`{}`: "bad_request", `{"filter":{}}`: "bad_request", `{"all":false}`: "bad_request", `{"ids":["a"],"all":true}`: "bad_request", `{"filter":{"reason":"bored"}}`: "bad_request",
			`{"ids":["a b"]}`: "bad_name", `{"all":true,"more":1}`: "unknown_field",
		} {
			k.ask("POST", path, body).refused(400, code)
		}
	}
	k.ask("POST", "/dead/redrive", `{"all":true,"delay":"-1s"}`).refused(400, "bad_time")
	k.ask("POST", "/dead/purge", `{"all":true,"delay":"1s"}`).refused(400, "unknown_field")
	k.ask("POST", "/dead/redrive", `{"all":true,"callback":{"url":"ftp://x/"}}`).refused(400, "bad_url")
	k.ask("POST", "/dead/redrive", `{"all":true,"callback":{"url":"http://169.254.169.254/"}}`).refused(422, "callback_refused")
	k.ask("GET", "/dead", "").set("s1", "s2", "m", "e")
}

func checkHistory(k *talk) {
	r := k.callee(500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"1ms","max_backoff":"1ms"}}`, r.url))
	k.add(`{"id":"a","delay":"0s","payload":1,"labels":["l"]}`).is(201)
	k.until("a", "state", `"done"`)
	k.add(`{"id":"b","delay":"1h"}`).is(201)
	k.ask("DELETE", "/timers/b", "").is(200)
	k.add(`{"id":"c","delay":"1h"}`).is(201)
	list := func(query string, want ...string) *said {
		k.Helper()
		return k.ask("GET", "/history"+query, "").set(want...)
	}
	holdsWithinBy(10*time.Millisecond, patience, func() bool { return k.ask("GET", "/history", "").field("entries/1") != "" })
	list("", "a", "b")
	list("?state=done", "a")
	list("?state=cancelled", "b")
	list("?state=dead")
	s := list("?id=a", "a").has("entries/0/state", `"done"`, "entries/0/attempts", "2", "entries/0/attempt_log/0/attempt", "1", "entries/0/attempt_log/0/status", "500", "entries/0/attempt_log/1/attempt", "2",
		"entries/0/attempt_log/1/status", "200", "entries/0/attempt_log/2", "", "entries/0/topic", `"`+k.topic+`"`, "entries/0/uid", "*", "next_cursor", "")
	for i := range 2 {
		at := fmt.Sprintf("entries/0/attempt_log/%d/", i)
		if begin, end := s.number(at+"started_ms"), s.number(at+"ended_ms"); begin < 1 || end < begin {
			k.Errorf("attempt from %d to %d", begin, end)
		}
	}
	now := time.Now().UnixMilli()
	list(fmt.Sprintf("?from=%d", now+60_000))
	list(fmt.Sprintf("?to=%d", now-60_000))
	list(fmt.Sprintf("?from=%d&to=%d", now-60_000, now+60_000), "a", "b")
	first := k.ask("GET", "/history?limit=1", "").is(200).has("entries/0/id", "*", "entries/1", "", "next_cursor", "*")
	second := k.ask("GET", "/history?limit=1&cursor="+first.text("next_cursor"), "").is(200).has("entries/0/id", "*", "entries/1", "")
	if first.text("entries/0/id") == second.text("entries/0/id") {
		k.Errorf("%s %s", first.body, second.body)
	}
}
