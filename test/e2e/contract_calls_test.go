package e2e

import (
	"fmt"
	"strings"
	"time"
)

var contractCalls = []contractCheck{
	{"add", checkAdd}, {"put", checkPut}, {"patch", checkPatch}, {"cancel", checkCancel}, {"leased", checkLeased}, {"ended", checkEnded}, {"fire", checkFire}, {"batch", checkBatch},
	{"unknown", checkUnknown}, {"refusals", checkRuleRefusals},
}

func checkAdd(k *talk) {
	k.policy(`{` + nobody + `}`)
	body := `{"id":"a","at":"2030-01-01T00:00:00Z","payload":{"a": 1}}`
	first := k.add(body).is(201)
	again := k.add(body).is(200).has("version", "1", "created_ms", first.field("created_ms"), "merged", "")
	if string(first.body) != string(again.body) {
		k.Errorf("%s\n%s", first.body, again.body)
	}
	k.add(`{"id":"a","at":"2030-01-01T00:00:00Z","payload":{"a": 2}}`).refused(409, "exists").has("existing/version", "1", "existing/state", `"scheduled"`, "existing/due_ms", "1893456000000")
	k.add(`{"id":"a","at":"2030-01-01T00:00:01Z","payload":{"a": 1}}`).refused(409, "exists")
	k.get("a").is(200).has("payload/a", "1", "version", "1")
	// "As sent": equal delays are the same add, although their due times differ.
	first = k.add(`{"id":"d","delay":"1h"}`).is(201)
	k.add(`{"id":"d","delay":"1h"}`).is(200).has("due_ms", first.field("due_ms"))
	// Without an id each add is another timer.
	if a, b := k.add(`{"delay":"1h"}`).is(201), k.add(`{"delay":"1h"}`).is(201); a.text("id") == b.text("id") || a.text("uid") == b.text("uid") {
		k.Errorf("the same id: %s %s", a.body, b.body)
	}
}

func checkPut(k *talk) {
	k.policy(`{` + nobody + `}`)
	put := func(body string, header ...string) *said { return k.ask("PUT", "/timers/a", body, header...) }
	put(`{"delay":"1h"}`, "If-Match", `"1"`).refused(412, "version_mismatch") // missing
	k.get("a").refused(404, "unknown_timer")
	put(`{"delay":"1h","priority":7,"labels":["l"]}`, "If-None-Match", "*").is(201).has("version", "1", "priority", "7")
	put(`{"delay":"2h"}`, "If-None-Match", "*").refused(412, "version_mismatch")
	put(`{"delay":"2h"}`, "If-Match", `"2"`).refused(412, "version_mismatch")
	k.get("a").has("version", "1")
	s := put(`{"delay":"2h"}`, "If-Match", `"1"`).is(200).has("version", "2", "labels", "") // whole
	if s.field("priority") == "7" {
		k.Errorf("a put keeps the priority: %s", s.body)
	}
	put(`{"delay":"3h"}`).is(200).has("version", "3")
	k.ask("DELETE", "/timers/a", "").is(200)
	put(`{"delay":"3h"}`).is(201).has("version", "4", "state", `"scheduled"`) // finished: reused
	put(`{"id":"a","delay":"3h"}`).is(200)
	if s := put(`{"id":"b","delay":"3h"}`); s.status != 400 {
		k.Errorf("another id in the body: %d %s", s.status, s.body)
	}
	for _, header := range []string{"1", `W/"1"`, `"x"`, `"1", "2"`} {
		if s := put(`{"delay":"3h"}`, "If-Match", header); s.status != 400 && s.status != 412 {
			k.Errorf("If-Match: %s: %d %s", header, s.status, s.body)
		}
	}
}

func checkPatch(k *talk) {
	k.policy(`{"callback":{"url":"http://127.0.0.1:9/topic"},"retry":{"max_attempts":4}}`)
	patch := func(body string, header ...string) *said { return k.ask("PATCH", "/timers/a", body, header...) }
	patch(`{"priority":1}`).refused(404, "unknown_timer")
	k.add(`{"id":"a","delay":"1h","payload":{"a":1},"labels":["x"],"callback":{"url":"http://127.0.0.1:9/own","headers":{"X-A":"1"},"timeout":"5s"},"retry":{"max_attempts":9,"min_backoff":"3s"}}`).is(201)
	patch(`{}`).refused(400, "bad_request")
	patch(`{"id":"b"}`).refused(400, "bad_name")
	patch(`{"merge":"keep"}`).refused(400, "unknown_field")
	patch(`{"priority":9}`, "If-Match", `"2"`).refused(412, "version_mismatch")
	// Each field alone; the other fields stay.
	s := patch(`{"at":"2031-01-01T00:00:00Z"}`, "If-Match", `"1"`).is(200).has("version", "2", "due", `"2031-01-01T00:00:00.000Z"`, "payload/a", "1", "labels/0", `"x"`)
	if s.header.Get("ETag") != "" && s.header.Get("ETag") != `"2"` {
		k.Errorf("ETag %s", s.header.Get("ETag"))
	}
	patch(`{"payload":{"b":2}}`).is(200).has("version", "3", "payload/b", "2", "payload/a", "", "due", `"2031-01-01T00:00:00.000Z"`)
	patch(`{"callback":{"timeout":"6s"}}`).is(200).has("version", "4", "callback/timeout", `"6s"`, "callback/url", `"http://127.0.0.1:9/own"`, "callback/headers/X-A", `"1"`)
	patch(`{"callback":{"headers":{"X-B":"2"}}}`).is(200).has("callback/headers/X-B", `"2"`, "callback/timeout", `"6s"`)
	patch(`{"retry":{"max_attempts":5}}`).is(200).has("max_attempts", "5")
	patch(`{"labels":["y","z"]}`).is(200).has("labels/0", `"y"`, "labels/2", "")
	patch(`{"expires_after":"1m","priority":3,"repeat":{"every":"1h"}}`).is(200).has("version", "8", "expires_after", `"1m"`, "priority", "3", "repeat/every", `"1h"`)
	// null resets a field to the topic's default.
	patch(`{"callback":null,"retry":null}`).is(200).has("max_attempts", "4", "version", "9")
	if u := k.get("a").field("callback/url"); u != "" && u != `"http://127.0.0.1:9/topic"` {
		k.Errorf("the callback is %s", u)
	}
	patch(`{"expires_after":null,"repeat":null,"labels":null}`).is(200).has("expires_after", "", "repeat", "", "labels", "")
	// A patch is applied as a whole or not at all.
	patch(`{"priority":4,"labels":["a b"]}`).refused(400, "bad_request")
	k.get("a").has("priority", "3", "version", "10")
	k.ask("DELETE", "/timers/a", "").is(200)
	patch(`{"priority":1}`).refused(410, "over")
	patch(`{"priority":1}`, "If-Match", `"99"`).refused(410, "over") // 410 precedes 412
	k.ask("PATCH", "/timers/none", `{"priority":1}`, "If-Match", `"99"`).refused(404, "unknown_timer")
}

func checkCancel(k *talk) {
	k.policy(`{` + nobody + `}`)
	k.ask("DELETE", "/timers/a", "").refused(404, "unknown_timer")
	add := fmt.Sprintf(`{"id":"a","at_ms":%d}`, time.Now().Add(time.Hour).UnixMilli())
	k.add(add).is(201)
	k.ask("DELETE", "/timers/a", "", "If-Match", `"2"`).refused(412, "version_mismatch")
	k.get("a").has("state", `"scheduled"`)
	k.ask("DELETE", "/timers/a", "", "If-Match", `"1"`).is(200).has("outcome", `"prevented"`)
	k.ask("DELETE", "/timers/a", "").is(200).has("outcome", `"prevented"`)
	k.get("a").is(200).has("state", `"cancelled"`)
	k.add(add).is(201).has("state", `"scheduled"`) // what was cancelled is made again
	k.add(add).is(200)
}

// checkLeased: requests for a timer while its call runs.
func checkLeased(k *talk) {
	good, bad := k.holding(200), k.holding(500)
	k.policy(`{"retry":{"min_backoff":"10ms"}}`)
	for id, r := range map[string]*callee{"good": good, "bad": bad} {
		k.add(fmt.Sprintf(`{"id":%q,"delay":"0s","callback":{"url":%q}}`, id, r.url)).is(201)
		r.await(1)
		k.get(id).has("state", `"leased"`, "attempts", "1")
		k.ask("PUT", "/timers/"+id, `{"delay":"1h",`+nobody+`}`).refused(409, "in_flight")
		// 409 takes precedence over 412.
		k.ask("PUT", "/timers/"+id, `{"delay":"1h",`+nobody+`}`, "If-Match", `"9"`).refused(409, "in_flight")
		k.ask("PATCH", "/timers/"+id, `{"priority":1}`).refused(409, "in_flight")
		k.ask("POST", "/timers/"+id+"/fire", "").refused(409, "in_flight")
		k.add(fmt.Sprintf(`{"id":%q,"delay":"1h",%s}`, id, nobody)).refused(409, "in_flight")
		k.ask("DELETE", "/timers/"+id, "").is(202).has("outcome", `"in_flight"`)
		k.get(id).has("cancel_requested", "true")
	}
	good.letGo()
	bad.letGo()
	k.until("good", "state", `"done"`)
	k.until("bad", "state", `"cancelled"`)
	if n := len(bad.all()); n != 1 {
		k.Errorf("%d calls of one that was cancelled in flight", n)
	}
	s := k.ask("DELETE", "/timers/good", "").refused(410, "over")
	s.has("outcome", `"already_fired"`)
}

func checkEnded(k *talk) {
	good, stop := k.callee(200), k.callee(410)
	k.policy(`{}`)
	body := fmt.Sprintf(`{"id":"good","at_ms":1000000000000,"payload":1,"callback":{"url":%q}}`, good.url)
	k.add(body).is(201)
	k.add(fmt.Sprintf(`{"id":"stop","delay":"0s","callback":{"url":%q}}`, stop.url)).is(201)
	k.until("good", "state", `"done"`).has("attempts", "1", "last_status", "200", "fired_ms", "*", "lateness_ms", "*", "due_ms", "1000000000000", "next_attempt", "")
	k.until("stop", "state", `"dead"`).has("reason", `"stopped"`, "last_status", "410")
	k.ask("DELETE", "/timers/good", "").refused(410, "over").has("outcome", `"already_fired"`)
	k.ask("DELETE", "/timers/stop", "").refused(410, "over").has("outcome", `"dead"`)
	k.ask("PATCH", "/timers/good", `{"priority":1}`).refused(410, "over")
	k.ask("POST", "/timers/good/fire", "").refused(410, "over")
	k.ask("POST", "/timers/stop/fire", "").refused(410, "over")
	// An add with an absolute time, repeated after the timer's end, returns the finished timer.
	k.add(body).is(200).has("state", `"done"`)
	// A different add reuses the id.
	k.add(strings.Replace(body, `"payload":1`, `"payload":2`, 1)).is(201).has("version", "2")
	good.await(2)
	k.until("good", "state", `"done"`).has("payload", "2")
	if n := len(good.all()); n != 2 {
		k.Errorf("%d calls", n)
	}
	a, b := good.all()[0], good.all()[1]
	if a.header.Get("Webhook-Id") == b.header.Get("Webhook-Id") || a.fence() >= b.fence() {
		k.Errorf("id used again: %v then %v", a.header, b.header)
	}
}

func checkFire(k *talk) {
	r := k.callee()
	k.policy(fmt.Sprintf(`{"callback":{"url":%q}}`, r.url))
	k.ask("POST", "/timers/a/fire", "").refused(404, "unknown_timer")
	k.add(`{"id":"a","delay":"1h"}`).is(201)
	k.ask("POST", "/pause", "").is(200).has("paused", "true")
	k.ask("POST", "/timers/a/fire", "").is(200).has("id", `"a"`, "state", `"scheduled"`)
	// A fired timer of a paused topic is ready, but it is not called.
	poll(k, patience, "it is ready", func() bool { return k.ask("GET", "", "").field("counts/ready") == "1" })
	if len(r.all()) > 0 {
		k.Error("it was called while the topic is paused")
	}
	k.ask("POST", "/resume", "").is(200).has("paused", "false")
	r.await(1)
	k.until("a", "state", `"done"`)
	k.firesInBackoff()
	k.firesASeries()
}

// firesInBackoff: the next attempt is made now, as the next attempt of the same timer.
func (k *talk) firesInBackoff() {
	r := k.callee(500, 200)
	due := time.Now().Add(time.Hour).UnixMilli()
	k.add(fmt.Sprintf(`{"id":"b","at_ms":%d,"callback":{"url":%q},"retry":{"min_backoff":"1h","max_backoff":"1h"}}`, due, r.url)).is(201)
	asked := k.ask("POST", "/timers/b/fire", "").is(200).has("due_ms", fmt.Sprint(due), "version", "1", "asked_ms", "*").number("asked_ms")
	r.await(1)
	k.until("b", "waits_for", `"backoff"`).has("attempts", "1")
	again := k.ask("POST", "/timers/b/fire", "").is(200).has("due_ms", fmt.Sprint(due), "version", "1").number("asked_ms")
	r.await(2)
	k.until("b", "state", `"done"`).has("attempts", "2", "due_ms", fmt.Sprint(due))
	for i, at := range []int64{asked, again} {
		c := r.all()[i]
		if c.header.Get("Carillon-Due") != fmt.Sprint(due) || c.header.Get("Carillon-Asked") != fmt.Sprint(at) || c.at.UnixMilli() < at || c.attempt() != fmt.Sprint(i+1) || c.header.Get("Webhook-Id") != r.all()[0].header.Get("Webhook-Id") {
			k.Errorf("call %d, asked for at %d: %+v", i+1, at, c)
		}
	}
}

// firesASeries: the coming occurrence is made early, and the one after it comes at its own time.
func (k *talk) firesASeries() {
	r := k.callee()
	first := time.Now().Add(time.Hour).UnixMilli()
	k.add(fmt.Sprintf(`{"id":"s","at_ms":%d,"repeat":{"every":"24h"},"callback":{"url":%q}}`, first, r.url)).is(201)
	k.ask("POST", "/timers/s/fire", "").is(200).has("due_ms", fmt.Sprint(first))
	r.await(1)
	k.until("s", "due_ms", fmt.Sprint(first+24*3_600_000)).has("state", `"scheduled"`, "asked_ms", "", "next_attempt_ms", fmt.Sprint(first+24*3_600_000))
	if c := r.all()[0]; c.header.Get("Carillon-Due") != fmt.Sprint(first) {
		k.Errorf("the occurrence: %+v", c)
	}
}

func checkBatch(k *talk) {
	k.policy(`{` + nobody + `}`)
	s := k.ask("POST", "/batch", `{"ops":[
		{"op":"add","id":"a","delay":"1h"}, {"op":"add","id":"a","delay":"2h"}, {"op":"patch","id":"a","priority":3}, {"op":"patch","id":"a","priority":4,"if_match":1},
		{"op":"put","id":"b","delay":"1h"}, {"op":"cancel","id":"b"}, {"op":"cancel","id":"none"}, {"op":"add","id":"c","delay":"-1h"}, {"op":"jump","id":"c"}, {"op":"fire","id":"a","if_match":9},
		{"op":"patch","id":"a","priority":5,"if_match":2}]}`).is(200)
	for i, want := range []string{"201", "409", "200", "412", "201", "200", "404", "400", "400", "", "200"} {
		if want != "" {
			s.has(fmt.Sprintf("results/%d/status", i), want)
		}
	}
	s.has("results/0/id", `"a"`, "results/0/timer/version", "1", "results/1/error/code", `"exists"`, "results/2/timer/priority", "3", "results/3/error/code", `"version_mismatch"`,
		"results/5/outcome", `"prevented"`, "results/6/error/code", `"unknown_timer"`, "results/7/error/code", `"bad_time"`, "results/10/timer/version", "3", "results/11", "")
	k.ask("POST", "/batch?brief=true", `{"ops":[{"op":"add","id":"d","delay":"1h"}]}`).is(200).has("results/0/status", "201", "results/0/id", `"d"`, "results/0/timer", "")
	if s := k.ask("POST", "/batch", `{"ops":[{"op":"add","id":"e","delay":"1h"},`); s.status != 400 {
		k.Errorf("broken: %d %s", s.status, s.body)
	}
	k.get("e").refused(404, "unknown_timer") // a broken body fails as a whole
	full := func(n int) string {
		return `{"ops":[` + many(n, func(i int) string { return fmt.Sprintf(`{"op":"add","id":"n%d","delay":"1h"}`, i) }) + `]}`
	}
	k.ask("POST", "/batch?brief=true", full(1001)).refused(413, "too_large")
	k.get("n0").refused(404, "unknown_timer")
	k.ask("POST", "/batch?brief=true", full(1000)).is(200).has("results/999/status", "201")

	lines := k.ask("POST", "/batch", `{"op":"add","id":"x","delay":"1h"}`+"\n"+`{"op":"add","id":`+"\n"+`{"op":"cancel","id":"x"}`+"\n", "Content-Type", "application/x-ndjson").is(200)
	if got := lines.header.Get("Content-Type"); !strings.HasPrefix(got, "application/x-ndjson") {
		k.Errorf("NDJSON is answered as %s", got)
	}
	parts := strings.Split(strings.TrimSpace(string(lines.body)), "\n")
	for i, want := range []string{`"status":201`, `"status":400`, `"outcome":"prevented"`} {
		if len(parts) != 3 || !strings.Contains(parts[i], want) {
			k.Fatalf("NDJSON: %s", lines.body)
		}
	}
}

// checkUnknown: an add creates its topic; other requests need an existing one.
func checkUnknown(k *talk) {
	for _, s := range []*said{
		k.ask("GET", "", ""), k.ask("GET", "/timers", ""), k.ask("GET", "/timers/a", ""), k.ask("DELETE", "/timers/a", ""), k.ask("PATCH", "/timers/a", `{"priority":1}`), k.ask("POST", "/timers/a/fire", ""),
		k.ask("POST", "/cancel", `{"all":true}`), k.ask("POST", "/reschedule", `{"all":true,"shift":"1h"}`), k.ask("GET", "/dead", ""), k.ask("GET", "/history", ""),
		k.ask("POST", "/dead/purge", `{"all":true}`), k.ask("POST", "/dead/redrive", `{"all":true}`), k.ask("POST", "/pause", ""), k.ask("POST", "/resume", ""), k.ask("DELETE", "", ""),
	} {
		s.refused(404, "unknown_topic")
	}
	k.ask("PUT", "/timers/a", `{"delay":"1h",`+nobody+`}`).is(201)
	k.ask("GET", "", "").is(200).has("auto_created", "true", "counts/scheduled", "1")
	k.get("b").refused(404, "unknown_timer")
	k.ask("GET", "/v1/nothing", "").refused(404, "not_found")
}

func checkRuleRefusals(k *talk) {
	k.policy(`{}`)
	k.add(`{"id":"a","delay":"1h"}`).refused(422, "no_callback")
	k.ask("PUT", "/timers/a", `{"delay":"1h"}`).refused(422, "no_callback")
	for _, host := range []string{"169.254.169.254", "[fe80::1]", "224.0.0.1", "0.0.0.0", "[::]", "[::ffff:169.254.169.254]"} {
		k.add(fmt.Sprintf(`{"id":"a","delay":"1h","callback":{"url":"http://%s/"}}`, host)).refused(422, "callback_refused")
	}
	k.get("a").refused(404, "unknown_timer")
	for _, host := range []string{"127.0.0.1:9", "10.0.0.1", "[::1]:9", "localhost:9"} { // a node on loopback
		k.add(fmt.Sprintf(`{"delay":"1h","callback":{"url":"http://%s/"}}`, host)).is(201)
	}
}
