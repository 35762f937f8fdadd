package api

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"carillon/transport/api/web"
)

const timersPath = "/v1/topics/orders/timers"

// refused is one request that must be refused, and how.
type refused struct {
	method, target, body string
	status               int
	code                 string
	headers              []string
}

// checkRefused sends each and asks for the answer, and that nothing has changed.
func checkRefused(t *testing.T, h *harness, cases []refused) {
	t.Helper()
	for _, c := range cases {
		before := h.engine.changes()
		r := h.do(c.method, c.target, c.body, c.headers...)
		if r.status != c.status || !contains(r.body, `"code":"`+c.code+`"`) {
			t.Errorf("%s %s %s %v\n got %d %s\nwant %d %s", c.method, c.target, web.Clip([]byte(c.body)), c.headers, r.status, r.body, c.status, c.code)
			continue
		}
		if c.method != "HEAD" {
			r.problem(c.status, c.code)
		}
		if h.engine.changes() != before {
			t.Errorf("%s %s %s changed something", c.method, c.target, c.body)
		}
	}
}

// body makes an add that is good but for the fields given.
func addWith(fields string) string { return `{"delay":"1h",` + cb + `,` + fields + `}` }

func TestAddRefuses(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"there","delay":"1h",`+cb+`}`).want(201)
	add := func(body string, status int, code string) refused {
		return refused{method: "POST", target: timersPath, body: body, status: status, code: code}
	}
	with := func(fields string, status int, code string) refused { return add(addWith(fields), status, code) }
	callback := func(fields string, code string) refused {
		return add(`{"delay":"1h","callback":{`+fields+`}}`, 400, code)
	}
	long := strings.Repeat("x", 129)
	cases := []refused{
		// The document.
		add(`{`, 400, web.BadJSON), add(`[]`, 400, web.BadRequest), add(`null`, 400, web.BadRequest), add(`1`, 400, web.BadRequest),
		add(`nope`, 400, web.BadJSON), add(`{"delay":"1h"}}`, 400, web.BadJSON), add(`{"delay":"1h"} x`, 400, web.BadJSON),
		add(`{"delay":"1h"}{}`, 400, web.BadJSON), add("{\"delay\":\"1h\"}\x00", 400, web.BadJSON), add(`{"delay":"1h",}`, 400, web.BadJSON),
		add(`{,"delay":"1h"}`, 400, web.BadJSON), add(`{"delay" "1h"}`, 400, web.BadJSON), add(`{delay:"1h"}`, 400, web.BadJSON),
		add(`{'delay':'1h'}`, 400, web.BadJSON), add(`{"delay":"1h" /* c */}`, 400, web.BadJSON), add("\xef\xbb\xbf{}", 400, web.BadJSON),
		add(`{"delay":"1h","delay":"1h"}`, 400, web.BadJSON), add("{\"delay\":\"1h\",\"d\\u0065lay\":\"2h\"}", 400, web.BadJSON),
		add("{\"id\":\"\xff\",\"delay\":\"1h\"}", 400, web.BadJSON), add("{\"id\":\"a\nb\",\"delay\":\"1h\"}", 400, web.BadJSON),
		add(`{"id":"\ud800","delay":"1h"}`, 400, web.BadJSON), add(`{"id":"\x41","delay":"1h"}`, 400, web.BadJSON),
		add("", 400, web.BadJSON), add(" ", 400, web.BadJSON),
		with(`"Id":"x"`, 400, web.UnknownField), with(`"ID":"x"`, 400, web.UnknownField), with(`"PAYLOAD":1`, 400, web.UnknownField),
		with(`"foo":1`, 400, web.UnknownField), with(`"":1`, 400, web.UnknownField), with(`"op":"add"`, 400, web.UnknownField),
		with(`"if_match":1`, 400, web.UnknownField), with(`"callback.url":"x"`, 400, web.UnknownField), with(`"topic":"orders"`, 400, web.UnknownField),

		// Types and nulls.
		with(`"id":null`, 400, web.BadRequest), with(`"key":null`, 400, web.BadRequest), with(`"priority":null`, 400, web.BadRequest),
		with(`"labels":null`, 400, web.BadRequest), with(`"retry":null`, 400, web.BadRequest), with(`"merge":null`, 400, web.BadRequest),
		with(`"expires_after":null`, 400, web.BadRequest), with(`"repeat":null`, 400, web.BadRequest), with(`"content_type":null`, 400, web.BadRequest),
		add(`{"delay":"1h","callback":null}`, 400, web.BadRequest), add(`{"delay":"1h","callback":{"url":null}}`, 400, web.BadRequest),
		with(`"payload_base64":null`, 400, web.BadRequest), with(`"retry":{"jitter":null}`, 400, web.BadRequest),
		with(`"id":7`, 400, web.BadRequest), with(`"key":["a"]`, 400, web.BadRequest), with(`"priority":"5"`, 400, web.BadRequest),
		with(`"priority":5.0`, 400, web.BadRequest), with(`"priority":5e0`, 400, web.BadRequest), with(`"priority":05`, 400, web.BadJSON),
		with(`"priority":+5`, 400, web.BadJSON), with(`"priority":0x5`, 400, web.BadJSON), with(`"priority":-1`, 400, web.BadRequest),
		with(`"priority":256`, 400, web.BadRequest), with(`"priority":99999999999999999999`, 400, web.BadRequest), with(`"priority":true`, 400, web.BadRequest),
		with(`"priority":.5`, 400, web.BadJSON), with(`"priority":5.`, 400, web.BadJSON), with(`"priority":NaN`, 400, web.BadJSON),
		with(`"labels":"a"`, 400, web.BadRequest), with(`"labels":[1]`, 400, web.BadRequest), with(`"labels":[""]`, 400, web.BadRequest),
		with(`"labels":["a b"]`, 400, web.BadRequest), with(`"labels":["`+strings.Repeat("l", 65)+`"]`, 400, web.BadRequest),
		with(`"labels":[`+strings.Repeat(`"a",`, 16)+`"a"]`, 400, web.BadRequest), with(`"labels":["a",]`, 400, web.BadJSON),

		// Names.
		with(`"id":""`, 400, web.BadName), with(`"id":"."`, 400, web.BadName), with(`"id":".."`, 400, web.BadName), with(`"id":"a/b"`, 400, web.BadName),
		with(`"id":"a b"`, 400, web.BadName), with(`"id":"ä"`, 400, web.BadName), with(`"id":"`+long+`"`, 400, web.BadName), with(`"id":"a{b}"`, 400, web.BadName),
		with(`"id":"{a}"`, 400, web.BadName), with(`"id":"{}a"`, 400, web.BadName), with(`"id":"{a}{b}c"`, 400, web.BadName), with(`"id":"{a"`, 400, web.BadName),
		with(`"id":"a}"`, 400, web.BadName), with(`"id":"{a/b}c"`, 400, web.BadName), with(`"id":"{k}."`, 400, web.BadName),
		with(`"id":"{`+strings.Repeat("k", 65)+`}c"`, 400, web.BadName), with(`"id":"a\u0000"`, 400, web.BadName),
		with(`"key":""`, 400, web.BadName), with(`"key":"a b"`, 400, web.BadName), with(`"key":"{a}"`, 400, web.BadName), with(`"key":"`+strings.Repeat("k", 65)+`"`, 400, web.BadName),
		with(`"id":"{a}x","key":"b"`, 400, web.BadName), with(`"id":"x","key":"b"`, 400, web.BadName),

		// Payload.
		with(`"payload":1,"payload_base64":"AA=="`, 400, web.BadRequest), with(`"payload_base64":"AA"`, 400, web.BadRequest),
		with(`"payload_base64":"A\nA=="`, 400, web.BadRequest), with(`"payload_base64":"A-_="`, 400, web.BadRequest), with(`"payload_base64":"AB=="`, 400, web.BadRequest),
		with(`"payload_base64":5`, 400, web.BadRequest), with(`"payload":{"a":1,}`, 400, web.BadJSON), with(`"payload":[01]`, 400, web.BadJSON),
		with(`"payload":`+strings.Repeat("[", 65)+strings.Repeat("]", 65), 400, web.BadJSON), with(`"payload":"\q"`, 400, web.BadJSON),
		with(`"payload":"`+strings.Repeat("p", 256<<10)+`"`, 413, web.TooLarge),
		with(`"content_type":""`, 400, web.BadHeader), with(`"content_type":"text"`, 400, web.BadHeader), with(`"content_type":"a/b\r\nX: y"`, 400, web.BadHeader),
		with(`"content_type":"a/b c/d"`, 400, web.BadHeader), with(`"content_type":"text/`+strings.Repeat("x", 256)+`"`, 400, web.BadHeader),

		// Callback.
		callback(`"url":"ftp://a/"`, web.BadURL), callback(`"url":"http://u:p@a/"`, web.BadURL), callback(`"url":"http://a/#f"`, web.BadURL),
		callback(`"url":"http://127.1/"`, web.BadURL), callback(`"url":"http://0x7f.0.0.1/"`, web.BadURL), callback(`"url":"http://2130706433/"`, web.BadURL),
		callback(`"url":""`, web.BadURL), callback(`"url":"/x"`, web.BadURL), callback(`"url":"http://a b/"`, web.BadURL), callback(`"url":"http://a/`+strings.Repeat("u", 2048)+`"`, web.BadURL),
		callback(`"url":"http://a/","method":"post"`, web.BadRequest), callback(`"url":"http://a/","method":"HEAD"`, web.BadRequest), callback(`"url":7`, web.BadRequest),
		callback(`"url":"http://a/","timeout":"99ms"`, web.BadRequest), callback(`"url":"http://a/","timeout":"15m1s"`, web.BadRequest),
		callback(`"url":"http://a/","timeout":10`, web.BadRequest), callback(`"url":"http://a/","timeout":"-1s"`, web.BadRequest), callback(`"url":"http://a/","timeout":"10"`, web.BadRequest),
		callback(`"url":"http://a/","headers":[]`, web.BadRequest), callback(`"url":"http://a/","headers":{"X":1}`, web.BadRequest), callback(`"url":"http://a/","headers":{"X":null}`, web.BadRequest),
		callback(`"url":"http://a/","Url":"x"`, web.UnknownField), callback(`"url":"http://a/","url":"http://b/"`, web.BadJSON),
		callback(`"url":"http://a/","headers":{"X":"REDACTED","X-Api-Key":"REDACTED"}`, web.BadHeader),
		callback(`"url":"http://a/","headers":{"X-A":"`+strings.Repeat("v", 4094)+`"}`, web.BadHeader),

		// Retry, expiry, merge, repeat.
		with(`"retry":{"max_attempts":0}`, 400, web.BadRequest), with(`"retry":{"max_attempts":1001}`, 400, web.BadRequest), with(`"retry":{"max_attempts":1.5}`, 400, web.BadRequest),
		with(`"retry":{"multiplier":0.9}`, 400, web.BadRequest), with(`"retry":{"multiplier":10.1}`, 400, web.BadRequest), with(`"retry":{"multiplier":"2"}`, 400, web.BadRequest),
		with(`"retry":{"jitter":1.1}`, 400, web.BadRequest), with(`"retry":{"jitter":-0.1}`, 400, web.BadRequest), with(`"retry":{"jitter":1e999}`, 400, web.BadRequest),
		with(`"retry":{"min_backoff":"2h","max_backoff":"1h"}`, 400, web.BadRequest), with(`"retry":{"min_backoff":"2h"}`, 400, web.BadRequest),
		with(`"retry":{"max_backoff":"721h"}`, 400, web.BadRequest), with(`"retry":{"min_backoff":"0s"}`, 400, web.BadRequest), with(`"retry":{"max_backoff":"9999999999h"}`, 400, web.BadRequest),
		with(`"retry":{"foo":1}`, 400, web.UnknownField), with(`"retry":5`, 400, web.BadRequest), with(`"retry":{"jitter":0,"jitter":0}`, 400, web.BadJSON),
		with(`"expires_after":"-1s"`, 400, web.BadTime), with(`"expires_after":5`, 400, web.BadTime), with(`"expires_after":"soon"`, 400, web.BadTime),
		with(`"expires_after":"99999999999h"`, 400, web.BadRequest),
		with(`"merge":"bogus"`, 400, web.BadRequest), with(`"merge":1`, 400, web.BadRequest),
		with(`"max_wait":"5m"`, 400, web.BadRequest), with(`"merge":"keep","max_wait":"5m"`, 400, web.BadRequest), with(`"merge":"debounce","max_wait":"x"`, 400, web.BadRequest), with(`"merge":"debounce","max_wait":"0s"`, 400, web.BadRequest),
		with(`"repeat":{}`, 400, web.BadRequest), with(`"repeat":{"every":"999ms"}`, 400, web.BadRequest), with(`"repeat":{"every":"1x"}`, 400, web.BadRequest), with(`"repeat":{"every":"1m","cron":"* * * * *"}`, 400, web.BadRequest), with(`"repeat":{"every":"1m","zone":"UTC"}`, 400, web.BadRequest),
		with(`"repeat":{"cron":"* * * *"}`, 400, web.BadRequest), with(`"repeat":{"cron":"0 * * * * *"}`, 400, web.BadRequest), with(`"repeat":{"cron":"60 * * * *"}`, 400, web.BadRequest), with(`"repeat":{"cron":"@daily"}`, 400, web.BadRequest), with(`"repeat":{"cron":"TZ=UTC 1 1 1 1 1"}`, 400, web.BadRequest),
		with(`"repeat":{"cron":"TZ=UTC 1 1 1 1"}`, 400, web.BadRequest), with(`"repeat":{"cron":"0 0 30 2 *"}`, 400, web.BadRequest), with(`"repeat":{"cron":"0 8 * * *","zone":"Mars/Base"}`, 400, web.BadRequest), with(`"repeat":{"cron":"0 8 * * *","zone":"Local"}`, 400, web.BadRequest), with(`"repeat":{"cron":"0 8 * * *","zone":""}`, 400, web.BadRequest),
		with(`"repeat":{"every":"1m","count":0}`, 400, web.BadRequest), with(`"repeat":{"every":"1m","until":"2001-01-01T00:00:00Z"}`, 400, web.BadTime),
		add(`{"repeat":{"every":"1m"}}`, 400, web.BadTime), with(`"repeat":{"cron":5}`, 400, web.BadRequest), with(`"repeat":5`, 400, web.BadRequest), with(`"repeat":{"foo":1}`, 400, web.UnknownField),
		with(`"repeat":{"until":"x"}`, 400, web.BadTime), with(`"repeat":{"catch_up":"x"}`, 400, web.BadRequest), with(`"repeat":{"count":"x"}`, 400, web.BadRequest), with(`"repeat":{"overlap":1}`, 400, web.BadRequest),
		with(`"repeat":{"count":1,"count":1}`, 400, web.BadJSON),

		// Rules.
		add(`{"delay":"1h"}`, 422, "no_callback"), add(`{"delay":"1h","callback":{"method":"PUT"}}`, 422, "no_callback"),
	}
	for _, name := range []string{"Host", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Content-Type", "User-Agent", "webhook-id", "Webhook-Signature", "Carillon-Timer", "Idempotency-Key", "x-idempotency-key",
		"", "a b", "a:b", "ä", "a\\u0000"} {
		cases = append(cases, callback(`"url":"http://a/","headers":{"`+name+`":"x"}`, web.BadHeader))
	}
	for _, value := range []string{"a\\r\\nb", "a\\nb", "\\u0000", "\\u007f"} {
		cases = append(cases, callback(`"url":"http://a/","headers":{"X-A":"`+value+`"}`, web.BadHeader))
	}
	cases = append(cases, callback(`"url":"http://a/","headers":{"X-A":"1","x-a":"2"}`, web.BadHeader))
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf(`"X-%d":"v"`, i))
	}
	cases = append(cases, callback(`"url":"http://a/","headers":{`+strings.Join(many, ",")+`}`, web.BadHeader))
	checkRefused(t, h, cases)
}

func TestTimesRefused(t *testing.T) {
	h := newHarness(t)
	var cases []refused
	bad := func(time string, status int, code string) {
		cases = append(cases, refused{method: "POST", target: timersPath, body: `{` + cb + `,` + time + `}`, status: status, code: code})
	}
	cases = append(cases, refused{method: "POST", target: timersPath, body: `{` + cb + `}`, status: 400, code: web.BadTime})
	for _, at := range []string{"", "2026", "2026-06-01", "2026-06-01T12:00:00", "2026-06-01 12:00:00Z", "2026-6-01T12:00:00Z", "2026-06-01T12:00Z",
		"2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-06-31T00:00:00Z", "2026-06-01T24:00:00Z", "2026-06-01T12:60:00Z", "2026-06-01T12:00:60Z",
		"2026-06-01T12:00:00.Z", "2026-06-01T12:00:00,5Z", "2026-06-01T12:00:00+2:00", "2026-06-01T12:00:00+0200", "2026-06-01T12:00:00+24:00", "2026-06-01T12:00:00Zx",
		"1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "+2026-06-01T12:00:00Z", "tomorrow", "1780315200"} {
		bad(`"at":"`+at+`"`, 400, web.BadTime)
	}
	for _, v := range []string{`"at":5`, `"at":null`, `"at_ms":"5"`, `"at_ms":-1`, `"at_ms":5.0`, `"at_ms":5e3`, `"at_ms":null`, `"delay":5`, `"delay":""`, `"delay":"5"`, `"delay":"-1s"`,
		`"delay":"-1ns"`, `"delay":"1 h"`, `"delay":"1D"`, `"delay":"1y"`, `"at_ms":0`, `"at_ms":1780315200`, `"at_ms":99999999999`, `"at_ms":99999999999999999999`, `"delay_ms":99999999999999999999999`, `"delay":"h"`, `"delay":"."`, `"delay":".h"`, `"delay":"1h 2m"`, `"delay":"1e3s"`, `"delay_ms":-1`, `"delay_ms":"5"`, `"delay_ms":1.5`, `"delay_ms":true`,
		`"at_ms":1,"delay":"1h"`, `"at":"2026-06-01T12:00:00Z","at_ms":1`, `"delay":"1h","delay_ms":1`} {
		code := web.BadTime
		if strings.Contains(v, "null") {
			code = web.BadRequest
		}
		bad(v, 400, code)
	}
	for _, body := range []string{`{"delay":"1h","at_ms":5}`, `{"at":"2026-06-01T12:00:00Z","delay":"soon"}`} {
		h.do("POST", timersPath, body).problem(400, web.BadTime).has("detail", `"give one of at, at_ms, at_local, delay, delay_ms, not several"`)
	}
	for _, v := range []string{`"delay":"100000h"`, `"delay":"9999999999999999999999h"`, `"delay_ms":9223372036854775807`, `"delay":"16000w"`, `"delay":"3700d"`,
		`"at":"2037-06-01T12:00:00Z"`, `"at":"9999-12-31T23:59:59Z"`, `"at_ms":9223372036854775807`, `"at_ms":4000000000000000`} {
		bad(v, 422, "beyond_horizon")
	}
	checkRefused(t, h, cases)
}

func TestTimesTaken(t *testing.T) {
	h := newHarness(t)
	for i, c := range []struct {
		time  string
		dueMs int64
	}{
		{`"delay":"0"`, noonMs}, {`"delay":"0s"`, noonMs}, {`"delay_ms":0`, noonMs}, {`"delay_ms":-0`, noonMs}, {`"delay":"1ms"`, noonMs + 1},
		{`"delay":"1ns"`, noonMs + 1}, {`"delay":"1.0001ms"`, noonMs + 2}, {`"delay":"1h30m"`, noonMs + 5_400_000}, {`"delay":"+.5h"`, noonMs + 1_800_000},
		{`"delay":"1m1us"`, noonMs + 60_001}, {`"delay":"87600h"`, noonMs + 315_360_000_000},
		{`"delay":"3650d"`, noonMs + 315_360_000_000}, {`"delay":"1w2d"`, noonMs + 9*86_400_000}, {`"delay":"1d12h"`, noonMs + 129_600_000}, {`"delay":"0.5d"`, noonMs + 43_200_000},
		{`"at_ms":100000000000`, 100_000_000_000}, {`"at_ms":1780315200123`, 1780315200123},
		{`"at":"1970-01-01T00:00:00Z"`, 0}, {`"at":"2020-01-01T00:00:00Z"`, 1577836800000}, {`"at":"2028-02-29T00:00:00z"`, 1835395200000},
		{`"at":"2026-06-01t14:00:00.25+02:00"`, 1780315200250}, {`"at":"2026-06-01T12:00:00.0001Z"`, 1780315200001}, {`"at":"2026-06-01T12:00:00.9990000001Z"`, 1780315201000},
		{`"at":"2026-06-01T12:00:00.1230000000000000000000000Z"`, 1780315200123}, {`"at":"2026-06-01T00:30:00-11:30"`, 1780315200000},
	} {
		r := h.do("POST", timersPath, `{"id":"t`+strconv.Itoa(i)+`",`+cb+`,`+c.time+`}`).want(201)
		r.has("due_ms", strconv.FormatInt(c.dueMs, 10))
	}
}

func TestPathsAndMethods(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	get := func(target string, status int, code string) refused {
		return refused{method: "GET", target: target, status: status, code: code}
	}
	checkRefused(t, h, []refused{
		get("/v1/topics/orders%2Ftimers/a", 400, web.BadRequest), get("/v1/topics/orders%2ftimers", 400, web.BadRequest), get("/v1/topics/..%2f", 400, web.BadRequest),
		get("/v1/topics/orders/timers/%5Ca", 400, web.BadRequest), get(`/v1/topics/orders/timers/\a`, 400, web.BadRequest), get("/v1/topics/orders/timers/a%00", 400, web.BadRequest),
		get("/v1/topics/orders/../orders", 400, web.BadRequest), get("/v1/topics/orders/./timers", 400, web.BadRequest), get("/v1/topics/orders/%2e%2E/orders", 400, web.BadRequest),
		get("/v1/topics/orders/timers/..", 400, web.BadRequest), get("/v1/topics/orders/timers/%2561", 400, web.BadRequest), get("/v1/topics/orders/timers/%25", 400, web.BadRequest),
		get("/v1/topics/orders/timers/%", 400, web.BadRequest), get("/v1/topics/orders/timers/%6", 400, web.BadRequest), get("/v1/topics/orders/timers/%zz", 400, web.BadRequest),
		get("/v1/topics/a%20b", 400, web.BadName), get("/v1/topics/a@b", 400, web.BadName), get("/v1/topics/orders/timers/%0a", 400, web.BadRequest), get("/v1/topics/orders/timers/a%20b", 400, web.BadName), get("/v1/topics/orders/timers/%c3%a4", 400, web.BadName),
		get("/v1/topics/%c3%a4/timers/a", 400, web.BadName), get("/v1/cluster/nodes/a%20b", 400, web.BadName), get("/v1/topics/orders/a%20b", 400, web.BadRequest), get("/a%20b", 400, web.BadRequest), get("/v1/topics/orders/timers/a/b/c/d%20", 400, web.BadRequest),
		get("/v1/topics/a%7f", 400, web.BadRequest), get("/v1/topics/a%5Cb", 400, web.BadRequest), get("/v1/topics/a%20%2fb", 400, web.BadName),
		get("/v1/topics/orders/timers/a%23", 400, web.BadName), get("/v1/topics/orders/timers/a#x", 400, web.BadRequest),
		get("/v1/topics/-orders", 400, web.BadName), get("/v1/topics/.orders", 400, web.BadName), get("/v1/topics/"+strings.Repeat("t", 129), 400, web.BadName), get("/v1/topics/a@b", 400, web.BadName),
		get("/v1/topics/orders/timers/"+strings.Repeat("i", 129), 400, web.BadName), get("/v1/topics/orders/timers/x%7Bk%7D", 400, web.BadName), get("/v1/topics/orders/timers/%7Bk%7D", 400, web.BadName),
		get("/", 404, web.NotFound), get("//v1/topics", 404, web.NotFound), get("/v1//topics", 404, web.NotFound), get("/v1/topics/", 400, web.BadName), get("/v1/topics/orders/", 404, web.NotFound),
		get("/V1/topics", 404, web.NotFound), get("/v1/topics/orders/Timers", 404, web.NotFound), get("/v1/topics/orders/timers/a/", 404, web.NotFound), get("/v1/topics/orders/timers/a/b/c/d/e/f", 404, web.NotFound),
		get("/v1/clusters", 404, web.NotFound), get("/v1/topics/orders/cancel", 405, "method_not_allowed"),
		{method: "POST", target: "/v1/topics/orders/ack", body: "{}", status: 404, code: web.NotFound}, {method: "POST", target: "/v1/pull", body: "{}", status: 404, code: web.NotFound},
		{method: "POST", target: "/v1/backups", status: 404, code: web.NotFound},
		get("/v1/topics/nothere", 404, web.UnknownTopic), get("/v1/topics/nothere/timers", 404, web.UnknownTopic), get("/v1/topics/nothere/timers/a", 404, web.UnknownTopic), get("/v1/topics/nothere/dead", 404, web.UnknownTopic),
		get("/v1/topics/orders/timers/b", 404, web.UnknownTimer), get("/v1/topics/orders/timers/A", 404, web.UnknownTimer),
		{method: "DELETE", target: "/v1/topics/nothere/timers/a", status: 404, code: web.UnknownTopic}, {method: "PATCH", target: "/v1/topics/nothere/timers/a", body: `{"priority":1}`, status: 404, code: web.UnknownTopic},
		{method: "DELETE", target: timersPath + "/b", status: 404, code: web.UnknownTimer}, {method: "POST", target: timersPath + "/b/fire", status: 404, code: web.UnknownTimer},
		{method: "DELETE", target: "/v1/topics/nothere", status: 404, code: web.UnknownTopic}, {method: "POST", target: "/v1/topics/nothere/pause", status: 404, code: web.UnknownTopic},
		{method: "POST", target: "/v1/topics/nothere/dead/purge", body: `{"all":true}`, status: 404, code: web.UnknownTopic},

		// Query.
		get(timersPath+"?foo=1", 400, web.BadRequest), get(timersPath+"?Limit=1", 400, web.BadRequest), get(timersPath+"?limit=1&limit=1", 400, web.BadRequest), get(timersPath+"?limit=0", 400, web.BadRequest), get(timersPath+"?limit=1001", 400, web.BadRequest),
		get(timersPath+"?limit=", 400, web.BadRequest), get(timersPath+"?limit=+5", 400, web.BadRequest), get(timersPath+"?limit=05", 400, web.BadRequest), get(timersPath+"?limit=5.0", 400, web.BadRequest), get(timersPath+"?limit=%zz", 400, web.BadRequest),
		get(timersPath+"?state=foo", 400, web.BadRequest), get(timersPath+"?state=", 400, web.BadRequest), get(timersPath+"?state=done,", 400, web.BadRequest), get(timersPath+"?due_from=x", 400, web.BadTime), get(timersPath+"?due_to=-1", 400, web.BadTime), get(timersPath+"?due_from=2026-06-01", 400, web.BadTime),
		get(timersPath+"?label=", 400, web.BadRequest), get(timersPath+"?label=a%20b", 400, web.BadRequest), get(timersPath+"?id_prefix=%2F", 400, web.BadName), get(timersPath+"?id_prefix=%7B%7D", 400, web.BadName), get(timersPath+"?payload=no", 400, web.BadRequest), get(timersPath+"?payload", 400, web.BadRequest),
		get(timersPath+"?cursor=", 400, web.BadRequest), get(timersPath+"?cursor=abc", 400, web.BadRequest), get(timersPath+"?&", 400, web.BadRequest), get(timersPath+"/a?x=1", 400, web.BadRequest), get("/v1/topics?cursor=AAAA", 400, web.BadRequest),
		get(timersPath+"?due_to=9223372036854775808", 400, web.BadTime), get(timersPath+"?due_from=99999999999999999999999", 400, web.BadTime), get(timersPath+"?due_from=1780315200", 400, web.BadTime), get(timersPath+"?due_to=99999999999", 400, web.BadTime), get(timersPath+"?due_from=1", 400, web.BadTime),
		get("/v1/topics/orders/history?from=1780315200", 400, web.BadTime), get("/v1/topics/orders/dead?to=1780315200", 400, web.BadTime), get("/v1/due?until=1780315200", 400, web.BadTime), get("/healthz?x=1", 400, web.BadRequest),
		get("/v1/topics/orders/dead?reason=foo", 400, web.BadRequest), get("/v1/topics/orders/dead?state=dead", 400, web.BadRequest), get("/v1/topics/orders/dead?from=x", 400, web.BadTime),
		{method: "DELETE", target: "/v1/topics/orders?force=yes", status: 400, code: web.BadRequest}, {method: "POST", target: timersPath + "?brief=true", body: `{"delay":"1h"}`, status: 400, code: web.BadRequest},
	})
}
