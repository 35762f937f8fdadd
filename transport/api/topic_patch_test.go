package api

import (
	"fmt"
	"strings"
	"testing"

	"carillon/transport/api/web"
)

// TestPatchTopic: the given fields change and no others; null is the default; objects change by
// field.
func TestPatchTopic(t *testing.T) {
	h := newHarness(t)
	h.do("PATCH", orders, `{"history":"24h"}`).problem(404, web.UnknownTopic)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/x","headers":{"Authorization":"t0k","X":"1"},"timeout":"20s"},"retry":{"max_attempts":3,"jitter":0},"secrets":["`+signingSecret(24)+`"],
		"serial":true,"rate":{"per_second":5,"burst":9},"window":{"zone":"Europe/Berlin","from":"08:00"}}`).want(201)
	for _, c := range []struct{ body, path, want string }{
		{`{"history":"24h"}`, "policy.history", `"24h"`},
		{`{"retry":{"min_backoff":"2s"}}`, "policy.retry", `{"jitter":0,"max_attempts":3,"max_backoff":"1h","min_backoff":"2s","multiplier":2}`},
		{`{"retry":{"jitter":null}}`, "policy.retry.jitter", "0.2"},
		{`{"callback":{"method":"PUT"}}`, "policy.callback", `{"headers":{"Authorization":"REDACTED","X":"1"},"method":"PUT","timeout":"20s","url":"http://a.example/x"}`},
		{`{"callback":{"url":"http://a.example/y","timeout":null}}`, "policy.callback", `{"headers":{"Authorization":"REDACTED","X":"1"},"method":"PUT","timeout":"10s","url":"http://a.example/y"}`},
		{`{"callback":{"headers":{"Authorization":"REDACTED"}}}`, "policy.callback.headers", `{"Authorization":"REDACTED"}`},
		// Credentials do not go to another origin.
		{`{"callback":{"url":"http://b.example/y"}}`, "policy.callback", `{"headers":{},"method":"PUT","timeout":"10s","url":"http://b.example/y"}`},
		{`{"rate":{"burst":2}}`, "policy.rate", `{"burst":2,"per_second":5}`}, {`{"rate":null}`, "policy.rate", ""},
		{`{"breaker":{"failures":9}}`, "policy.breaker", `{"failures":9,"open":"5s","probes":1,"window":"10s"}`}, {`{"breaker":null}`, "policy.breaker.failures", "5"},
		{`{"window":{"to":"20:00","zone":null}}`, "policy.window", `{"from":"08:00","to":"20:00"}`}, {`{"window":null}`, "policy.window", ""},
		{`{"per_key":{"rate":{"per_second":2}}}`, "policy.per_key", `{"fair":true,"rate":{"burst":2,"per_second":2}}`}, {`{"per_key":{"concurrency":1,"fair":false}}`, "policy.per_key", `{"concurrency":1,"fair":false,"rate":{"burst":2,"per_second":2}}`},
		{`{"per_key":{"rate":null,"fair":null}}`, "policy.per_key", `{"concurrency":1,"fair":true}`}, {`{"per_key":null}`, "policy.per_key", ""},
		{`{"serial":null}`, "policy.serial", "false"}, {`{"key":"all"}`, "policy.key", `"all"`}, {`{"key":null}`, "policy.key", ""}, {`{"if_late":"reject"}`, "policy.if_late", `"reject"`},
		{`{"batch":{"max":9,"wait":"2s"}}`, "policy.batch", `{"by":"topic","max":9,"wait":"2s"}`}, {`{"batch":{"by":"key","wait":null}}`, "policy.batch", `{"by":"key","max":9,"wait":"0s"}`},
		{`{"batch":null}`, "policy.batch", ""},
	} {
		before, _ := topicsOf(h.engine).Here("orders")
		h.do("PATCH", orders, c.body).want(200).has(c.path, c.want)
		after, _ := topicsOf(h.engine).Here("orders")
		if fmt.Sprint(after.Policy.Secrets) != fmt.Sprint(before.Policy.Secrets) || after.Policy.DestinationConcurrency != 256 {
			t.Errorf("%s changed more than it says: %+v", c.body, after.Policy)
		}
	}
	if topic, _ := topicsOf(h.engine).Here("orders"); topic.Policy.OwnBreaker {
		t.Error("without a breaker of its own the topic shares one")
	}
	var cases []refused
	for body, want := range map[string]string{
		`{}`: "400 bad_request", ``: "400 bad_json", `{"x":1}`: "400 unknown_field", `{"history":"1h","history":"2h"}`: "400 bad_json", `{"ordered":true}`: "400 unknown_field", `{"history":1}`: "400 bad_request",
		`{"retry":{"max_backoff":"1ms"}}`: "422 bad_policy", `{"rate":{"burst":3}}`: "400 bad_request", `{"batch":{"wait":"1s"}}`: "400 bad_request", `{"batch":{"max":5},"serial":true}`: "422 bad_policy", `{"window":{"zone":"UTC"}}`: "422 bad_policy", `{"callback":{"headers":{"X-Token":"REDACTED"}}}`: "400 bad_header",
		`{"per_key":{}}`: "422 bad_policy", `{"per_key":{"concurrency":0}}`: "422 bad_policy", `{"per_key":{"rate":{"burst":1}}}`: "400 bad_request", `{"per_key":{"x":1}}`: "400 unknown_field", `{"serial":true,"per_key":{"concurrency":2}}`: "422 bad_policy",
		`{"secrets":[]}`: "409 in_use", `{"secrets":null}`: "409 in_use",
	} {
		var status int
		var code string
		_, _ = fmt.Sscan(want, &status, &code)
		cases = append(cases, refused{method: "PATCH", target: orders, body: body, status: status, code: code})
	}
	checkRefused(t, h, cases)
	h.do("PATCH", orders+"?force=true", `{"secrets":null}`).want(200).has("policy.secrets", "[]")
}

// TestWeight: an add may have one where the topic has per_key; it is shown, and part of what an add
// is compared by.
func TestWeight(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	checkRefused(t, h, []refused{{method: "POST", target: timersPath, body: addWith(`"weight":1`), status: 422, code: web.BadPolicy}})
	h.do("PUT", orders, `{"per_key":{"fair":true}}`).want(200)
	h.do("POST", timersPath, `{"id":"{k}a","at_ms":2000000000000,"weight":7,`+cb+`}`).want(201).has("weight", "7")
	h.do("POST", timersPath, `{"id":"{k}a","at_ms":2000000000000,"weight":7,`+cb+`}`).want(200)
	h.do("POST", timersPath, `{"id":"{k}a","at_ms":2000000000000,"weight":8,`+cb+`}`).want(409)
	h.do("PATCH", timersPath+"/%7Bk%7Da", `{"weight":100}`).want(200).has("weight", "100")
	h.do("PATCH", timersPath+"/%7Bk%7Da", `{"weight":null}`).want(200).has("weight", "")
	for _, weight := range []string{"0", "101", "-1", "1.5"} {
		h.do("POST", timersPath, addWith(`"weight":`+weight)).want(400)
	}
	h.do("PATCH", orders, `{"per_key":null}`).want(200)
	h.do("PATCH", timersPath+"/%7Bk%7Da", `{"weight":null}`).want(200)
	h.do("PATCH", timersPath+"/%7Bk%7Da", `{"weight":2}`).problem(422, web.BadPolicy)
}

// TestTopicVersion: a change for an older version of a topic is refused.
func TestTopicVersion(t *testing.T) {
	h := newHarness(t)
	etag := func(r *reply) string { return "If-Match: " + r.header.Get("ETag") }
	first := etag(h.do("PUT", orders, `{}`).want(201))
	if read := etag(h.do("GET", orders, "").want(200)); read != first || first == "If-Match: " {
		t.Fatalf("%s, and read %s", first, read)
	}
	second := etag(h.do("PATCH", orders, `{"history":"24h"}`, first).want(200))
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		r := h.do(method, orders, map[bool]string{false: `{"history":"1h"}`}[method == "DELETE"], first).problem(412, "version_mismatch")
		if got := etag(r); got != second {
			t.Errorf("%s: the answer's %s, want %s", method, got, second)
		}
	}
	for _, method := range []string{"PUT", "PATCH"} {
		h.do(method, orders, `{"history":"1h"}`, first).problem(412, "version_mismatch")
		h.do(method, orders, `{"history":"1h"}`, `If-Match: "9-9"`).problem(412, "version_mismatch")
		h.do(method, orders, `{"history":"1h"}`, `If-Match: *`).problem(400, web.BadRequest)
		h.do(method, orders, `{"history":"1h"}`, `If-None-Match: "9-9"`).problem(400, web.BadRequest)
	}
	h.do("PUT", orders, `{"history":"1h"}`, `If-None-Match: *`).problem(412, "version_mismatch")
	h.do("PATCH", orders, `{"history":"1h"}`, `If-None-Match: *`).problem(400, web.BadRequest)
	h.do("DELETE", orders, "", `If-None-Match: *`).problem(400, web.BadRequest)
	h.do("PUT", "/v1/topics/new", `{"history":"1h"}`, `If-None-Match: *`).want(201)
	h.do("DELETE", orders, "", first).problem(412, "version_mismatch")
	h.do("GET", orders, "").want(200).has("policy.history", `"24h"`)
	h.do("PUT", "/v1/topics/other", `{}`, second).problem(412, "version_mismatch")
	h.do("DELETE", orders, "", second).want(200)
	h.do("PUT", orders, `{}`).want(201)
	h.do("PUT", orders, `{}`, second).problem(412, "version_mismatch") // another life
}

// TestTopicKey: in a topic with a key an id without braces is one with the key, for every call; one
// of before is still found by its plain id.
func TestTopicKey(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	h.do("POST", timersPath, `{"id":"old","delay":"1h",`+cb+`}`).want(201)
	h.do("PATCH", orders, `{"key":"all"}`).want(200)
	h.do("POST", timersPath, `{"id":"x","delay":"1h",`+cb+`}`).want(201).has("id", `"{all}x"`, "key", `"all"`)
	h.do("POST", timersPath, `{"id":"{k}x","delay":"1h",`+cb+`}`).want(201).has("id", `"{k}x"`)
	h.do("POST", timersPath, `{"key":"k","delay":"1h",`+cb+`}`).want(201).has("key", `"k"`)
	h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).want(201).has("key", `"all"`)
	h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`, "Idempotency-Key: k1").want(201).has("id", `"{all}idem-k1"`)
	for _, id := range []string{"/x", "/%7Ball%7Dx"} {
		h.do("GET", timersPath+id, "").want(200).has("id", `"{all}x"`)
		h.do("PATCH", timersPath+id, `{"priority":3}`).want(200).has("id", `"{all}x"`)
		h.do("PUT", timersPath+id, `{"delay":"2h",`+cb+`}`).want(200).has("id", `"{all}x"`)
		h.do("POST", timersPath+id+"/fire", "").want(200).has("id", `"{all}x"`)
	}
	h.do("POST", batches, `{"ops":[{"op":"add","id":"y","delay":"1h",`+cb+`},{"op":"patch","id":"y","priority":1},{"op":"patch","id":"old","priority":1},{"op":"fire","id":"x"},{"op":"cancel","id":"y"},{"op":"cancel","id":"none"}]}`).want(200).
		has("results.0.id", `"{all}y"`, "results.1.status", "200", "results.1.id", `"{all}y"`, "results.2.id", `"old"`, "results.2.status", "200", "results.3.status", "200", "results.4.status", "200", "results.5.status", "404")
	h.do("GET", timersPath+"/old", "").want(200).has("id", `"old"`, "priority", "1")
	h.do("PATCH", timersPath+"/old", `{"priority":2}`).want(200).has("id", `"old"`)
	h.do("DELETE", timersPath+"/old", "").want(200)
	h.do("DELETE", timersPath+"/x", "").want(200)
	h.do("GET", timersPath+"/x", "").want(200).has("state", `"cancelled"`)
	h.do("GET", timersPath+"/none", "").problem(404, web.UnknownTimer)
	h.do("DELETE", timersPath+"/none", "").problem(404, web.UnknownTimer)
	h.do("PATCH", orders, `{"key":"all","dedup":"content"}`).want(200)
	if r := h.do("POST", timersPath, `{"delay":"1h","payload":1,`+cb+`}`).want(201); !strings.Contains(r.body, `"id":"{all}c-`) {
		t.Error(r.body)
	}
}

// TestTopicIfLate: the topic's rule is that of adds that say none.
func TestTopicIfLate(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"if_late":"reject"}`).want(201)
	const at = `"at":"2026-06-01T13:00:00Z",`
	for i, c := range []struct {
		body    string
		notLate bool
	}{{at, true}, {at + `"if_late":"fire",`, false}, {`"delay":"0s",`, false}, {at + `"if_late":"reject",`, true}} {
		id := fmt.Sprint("a", i)
		got := func() bool { return h.engine.last.NotLate }
		if h.do("POST", timersPath, `{"id":"`+id+`",`+c.body+cb+`}`).want(201); got() != c.notLate {
			t.Errorf("add of %s: not late %t", c.body, got())
		}
		if h.do("PUT", timersPath+"/"+id, `{`+c.body+cb+`}`).want(200); got() != c.notLate {
			t.Errorf("put of %s: not late %t", c.body, got())
		}
		if h.do("POST", batches, `{"ops":[{"op":"add","id":"b`+id+`",`+c.body+cb+`}]}`).want(200); got() != c.notLate {
			t.Errorf("add of %s in a batch: not late %t", c.body, got())
		}
	}
	h.do("PATCH", orders, `{"if_late":null}`).want(200)
	if h.do("POST", timersPath, `{"id":"c",`+at+cb+`}`).want(201); h.engine.last.NotLate {
		t.Error("the default is to fire")
	}
}

// TestDryRunOfTopic: a dry run of a PUT or PATCH shows the topic as the call would leave it, and
// what would change, or is refused as the call is. It changes nothing.
func TestDryRunOfTopic(t *testing.T) {
	h := newHarness(t)
	const made = `{"callback":{"url":"http://a.example/","headers":{"Authorization":"t0k"}},"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`
	version := func() string { return pick(h.do("GET", orders, "").json(), "version") }
	for i, c := range []struct{ method, body, header, action, changes string }{
		{"PATCH", `{"history":"9h"}`, "", "", ""}, // there is none yet
		{"PUT", made, "", "create", ""},
		{"PUT", made, "If-None-Match: *", "", ""},
		{"PUT", made, "", "leave", ""},
		{"PUT", `{}`, "", "", ""}, // the secrets are in use
		{"PATCH", `{"history":"9h","retry":{"max_attempts":3}}`, "", "change", `[{"field":"history","from":"72h","to":"9h"},{"field":"retry.max_attempts","from":16,"to":3}]`},
		{"PATCH", `{"callback":{"headers":{"Authorization":"other"}}}`, "", "change", `[{"field":"callback.headers"}]`},
		{"PATCH", `{"window":{"from":"08:00"}}`, "", "change", `[{"field":"window","to":{"from":"08:00"}}]`},
		{"PATCH", `{"window":null,"on_dead":{"topic":"ends"}}`, "", "", ""},
		{"PATCH", `{"history":"1h"}`, `If-Match: "9-9"`, "", ""},
		{"PATCH", `{}`, "", "", ""},
		{"PATCH", `{"callback":{"url":"http://u@a.example/"}}`, "", "", ""},
	} {
		var headers []string
		if c.header != "" {
			headers = []string{c.header}
		}
		changes, was := h.engine.changes(), version()
		dry := h.do(c.method, orders+"?dry_run=true", c.body, headers...)
		if h.engine.changes() != changes || version() != was {
			t.Fatalf("%d: the dry run has changed something", i)
		}
		done := h.do(c.method, orders, c.body, headers...)
		if done.status >= 300 {
			if c.action != "" || dry.status != done.status || dry.body != done.body {
				t.Errorf("%d: the dry run answers %d %s\nthe call %d %s", i, dry.status, dry.body, done.status, done.body)
			}
			continue
		}
		if dry.want(200).header.Get("ETag") != "" || c.action == "" {
			t.Errorf("%d: %s, ETag %q", i, dry.body, dry.header.Get("ETag"))
		}
		dry.has("action", `"`+c.action+`"`, "changes", c.changes, "policy", pick(done.json(), "policy"), "version", was)
	}
	h.do("POST", "/v1/topics/auto/timers", `{`+cb+`,"delay":"1h"}`).want(201)
	h.do("PUT", "/v1/topics/auto?dry_run=true", `{}`).want(200).has("changes", `[{"field":"auto_created","from":true,"to":false}]`)
	h.do("DELETE", orders+"?dry_run=true", "").problem(400, web.BadRequest)
}
