package e2e

import (
	"fmt"
	"strings"
)

// checkShown: the fields of a timer in answers, and the absent ones.
func checkShown(k *talk) {
	k.policy(`{` + nobody + `}`)
	s := k.add(`{"id":"{k}a","delay":"1h",` + nobody + `,"payload":{"a":1},"priority":5,"labels":["x","y"],"expires_after":"10m","retry":{"max_attempts":3}}`).is(201)
	s.has("topic", `"`+k.topic+`"`, "id", `"{k}a"`, "uid", "*", "version", "1", "state", `"scheduled"`, "due", "*", "due_ms", "*", "payload/a", "1", "content_type", `"application/json"`,
		"callback/url", `"http://127.0.0.1:9/"`, "priority", "5", "labels/1", `"y"`, "key", `"k"`, "attempts", "0", "max_attempts", "3", "next_attempt", "*", "next_attempt_ms", s.field("due_ms"),
		"created", "*", "created_ms", "*", "updated", "*", "updated_ms", "*", "expires_after", `"10m"`)
	for _, absent := range []string{"payload_base64", "last_status", "last_error", "fired", "fired_ms", "lateness_ms", "reason", "repeat", "merged", "cancel_requested", "successor"} {
		s.has(absent, "")
	}
	g := k.get("%7Bk%7Da").is(200)
	if g.header.Get("ETag") != `"1"` {
		k.Errorf("ETag %q", g.header.Get("ETag"))
	}
	if string(g.body) != string(s.body) {
		k.Errorf("read %s\nadded %s", g.body, s.body)
	}
	h := k.ask("HEAD", "/timers/%7Bk%7Da", "").is(200)
	if len(h.body) > 0 || h.header.Get("ETag") != `"1"` {
		k.Errorf("HEAD: %q %v", h.body, h.header)
	}
	k.add(`{"id":"b","delay":"1h","payload_base64":"AAE="}`).is(201).has("payload_base64", `"AAE="`, "payload", "", "content_type", `"application/octet-stream"`)
	k.add(`{"id":"c","delay":"1h","repeat":{"every":"1m","count":3}}`).is(201).has("repeat/every", `"1m"`, "repeat/count", "3")
}

// checkRedaction: headers that look secret are shown as REDACTED. A change that sends REDACTED back
// keeps the stored value.
func checkRedaction(k *talk) {
	r := k.callee()
	k.policy(`{}`)
	callback := func(fields string) string {
		return fmt.Sprintf(`"callback":{"url":%q,"headers":{%s}}`, r.url, fields)
	}
	s := k.add(`{"id":"a","delay":"1h",` + callback(`"X-Tenant":"7","Authorization":"one","Cookie":"two","X-Token":"three","Api-Key":"four","My-Secret":"five","X-Password":"six"`) + `}`).is(201)
	for _, name := range []string{"Authorization", "Cookie", "X-Token", "Api-Key", "My-Secret", "X-Password"} {
		s.has("callback/headers/"+name, `"REDACTED"`)
	}
	s.has("callback/headers/X-Tenant", `"7"`)
	for _, secret := range []string{"one", "two", "three", "four", "five", "six"} {
		if strings.Contains(string(s.body), `"`+secret+`"`) {
			k.Errorf("%s is shown: %s", secret, s.body)
		}
	}
	k.ask("PUT", "/timers/a", `{"delay":"1h",`+callback(`"X-Tenant":"8","Authorization":"REDACTED","X-Token":"new"`)+`}`).is(200)
	k.ask("PATCH", "/timers/a", `{"delay":"0s",`+callback(`"X-Tenant":"9","Authorization":"REDACTED","X-Token":"REDACTED"`)+`}`).is(200)
	if h := r.await(1).header; h.Get("Authorization") != "one" || h.Get("X-Token") != "new" || h.Get("X-Tenant") != "9" {
		k.Errorf("sent %v", h)
	}
}

// checkStrict: malformed JSON, unknown fields and parameters, wrong methods, media types and paths
// are refused.
func checkStrict(k *talk) {
	k.policy(`{` + nobody + `}`)
	for body, code := range map[string]string{
		`{`: "bad_json", `{"delay":"1h"} x`: "bad_json", `{"delay":"1h","delay":"1h"}`: "bad_json", "{\"delay\":\"1h\",\"id\":\"\xff\"}": "bad_json", `{"delay":"1h","Priority":1}`: "unknown_field",
		`{"delay":"1h","more":1}`: "unknown_field", `{"delay":"1h","priority":01}`: "bad_json", `{"delay":"1h","retry":{"tries":1}}`: "unknown_field", `{"delay":"1h","callback":{"URL":"x"}}`: "unknown_field",
	} {
		k.add(body).refused(400, code)
	}
	for _, path := range []string{"/timers?nosuch=1", "/timers?limit=0", "/timers?limit=1001", "/timers?limit=x", "/timers?limit=1&limit=2", "/timers?cursor=x", "/timers?state=gone", "/timers?payload=no", "/timers?due_from=soon", "/history?limit=0", "/history?nosuch=1", "/dead?limit=1001", "/dead?reason=bored", "/timers/a?x=1"} {
		if s := k.ask("GET", path, ""); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
	for _, limit := range []string{"1", "1000"} {
		for _, path := range []string{"/timers", "/history", "/dead"} {
			k.ask("GET", path+"?limit="+limit, "").is(200)
		}
		k.ask("GET", "/v1/topics?limit="+limit, "").is(200)
	}
	for path, allow := range map[string]string{"/timers/a": "DELETE", "/timers": "POST", "/pause": "POST", "/pull": "POST", "": "PUT", "/history": "GET"} {
		s := k.ask("TRACE", path, "").refused(405, "method_not_allowed")
		if !strings.Contains(s.header.Get("Allow"), allow) {
			k.Errorf("%s: Allow %q", s.asked, s.header.Get("Allow"))
		}
	}
	k.ask("POST", "/timers", `{"delay":"1h"}`, "Content-Type", "text/plain").refused(415, "unsupported_media_type")
	k.ask("POST", "/timers", `{"delay":"1h"}`, "Content-Encoding", "gzip").refused(415, "unsupported_media_type")
	k.ask("POST", "/timers", `{"delay":"1h"}`, "Content-Type", "application/json; charset=utf-8").is(201)
	k.ask("POST", "/timers", `{"delay":"1h"}`, "Content-Type", "application/json; charset=latin1").refused(415, "unsupported_media_type")
	for _, path := range []string{"/timers/a%2Fb", "/timers/a%5Cb", "/timers/%2e%2e", "/timers/a%00", "/timers/a%252Fb"} {
		if s := k.ask("GET", path, ""); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
	k.add(`{"id":"a","delay":"1h"}`).is(201)
	k.get("%61").is(200)
}

// checkSizes: bodies and headers at the largest size and above it.
func checkSizes(k *talk) {
	k.policy(`{` + nobody + `}`)
	padded := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	k.add(padded(`{"delay":"1h"}`, 1<<20)).is(201)
	k.add(padded(`{"delay":"1h"}`, 1<<20+1)).refused(413, "too_large")
	k.ask("POST", "/batch?brief=true", padded(`{"ops":[{"op":"add","id":"a","delay":"1h"}]}`, 8<<20)).is(200).has("results/0/status", "201")
	k.ask("POST", "/batch", padded(`{"ops":[{"op":"add","id":"b","delay":"1h"}]}`, 8<<20+1)).refused(413, "too_large")
	k.get("b").refused(404, "unknown_timer")
	k.ask("GET", "", "", "X-Long", strings.Repeat("x", 15<<10)).is(200)
	if s := k.ask("GET", "", "", "X-Long", strings.Repeat("x", 17<<10)); s.status != 431 {
		k.Errorf("a header of 17 KiB: %d %s", s.status, s.body)
	}
}
