package api

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const timers = "/v1/topics/orders/timers"

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
			t.Errorf("%s %s %s %v\n got %d %s\nwant %d %s", c.method, c.target, clip([]byte(c.body)), c.headers, r.status, r.body, c.status, c.code)
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
	h.do("POST", timers, `{"id":"there","delay":"1h",`+cb+`}`).want(201)
	add := func(body string, status int, code string) refused {
		return refused{method: "POST", target: timers, body: body, status: status, code: code}
	}
	with := func(fields string, status int, code string) refused { return add(addWith(fields), status, code) }
	callback := func(fields string, code string) refused {
		return add(`{"delay":"1h","callback":{`+fields+`}}`, 400, code)
	}
	long := strings.Repeat("x", 129)
	cases := []refused{
		// The document.
		add(`{`, 400, badJSON), add(`[]`, 400, badRequest), add(`null`, 400, badRequest), add(`1`, 400, badRequest),
		add(`nope`, 400, badJSON), add(`{"delay":"1h"}}`, 400, badJSON), add(`{"delay":"1h"} x`, 400, badJSON),
		add(`{"delay":"1h"}{}`, 400, badJSON), add("{\"delay\":\"1h\"}\x00", 400, badJSON), add(`{"delay":"1h",}`, 400, badJSON),
		add(`{,"delay":"1h"}`, 400, badJSON), add(`{"delay" "1h"}`, 400, badJSON), add(`{delay:"1h"}`, 400, badJSON),
		add(`{'delay':'1h'}`, 400, badJSON), add(`{"delay":"1h" /* c */}`, 400, badJSON), add("\xef\xbb\xbf{}", 400, badJSON),
		add(`{"delay":"1h","delay":"1h"}`, 400, badJSON), add("{\"delay\":\"1h\",\"d\\u0065lay\":\"2h\"}", 400, badJSON),
		add("{\"id\":\"\xff\",\"delay\":\"1h\"}", 400, badJSON), add("{\"id\":\"a\nb\",\"delay\":\"1h\"}", 400, badJSON),
		add(`{"id":"\ud800","delay":"1h"}`, 400, badJSON), add(`{"id":"\x41","delay":"1h"}`, 400, badJSON),
		add("", 400, badJSON), add(" ", 400, badJSON),
		with(`"Id":"x"`, 400, unknownField), with(`"ID":"x"`, 400, unknownField), with(`"PAYLOAD":1`, 400, unknownField),
		with(`"foo":1`, 400, unknownField), with(`"":1`, 400, unknownField), with(`"op":"add"`, 400, unknownField),
		with(`"if_match":1`, 400, unknownField), with(`"callback.url":"x"`, 400, unknownField), with(`"topic":"orders"`, 400, unknownField),

		// Types and nulls.
		with(`"id":null`, 400, badRequest), with(`"key":null`, 400, badRequest), with(`"priority":null`, 400, badRequest),
		with(`"labels":null`, 400, badRequest), with(`"retry":null`, 400, badRequest), with(`"merge":null`, 400, badRequest),
		with(`"expires_after":null`, 400, badRequest), with(`"repeat":null`, 400, badRequest), with(`"content_type":null`, 400, badRequest),
		add(`{"delay":"1h","callback":null}`, 400, badRequest), add(`{"delay":"1h","callback":{"url":null}}`, 400, badRequest),
		with(`"payload_base64":null`, 400, badRequest), with(`"retry":{"jitter":null}`, 400, badRequest),
		with(`"id":7`, 400, badRequest), with(`"key":["a"]`, 400, badRequest), with(`"priority":"5"`, 400, badRequest),
		with(`"priority":5.0`, 400, badRequest), with(`"priority":5e0`, 400, badRequest), with(`"priority":05`, 400, badJSON),
		with(`"priority":+5`, 400, badJSON), with(`"priority":0x5`, 400, badJSON), with(`"priority":-1`, 400, badRequest),
		with(`"priority":256`, 400, badRequest), with(`"priority":99999999999999999999`, 400, badRequest), with(`"priority":true`, 400, badRequest),
		with(`"priority":.5`, 400, badJSON), with(`"priority":5.`, 400, badJSON), with(`"priority":NaN`, 400, badJSON),
		with(`"labels":"a"`, 400, badRequest), with(`"labels":[1]`, 400, badRequest), with(`"labels":[""]`, 400, badRequest),
		with(`"labels":["a b"]`, 400, badRequest), with(`"labels":["`+strings.Repeat("l", 65)+`"]`, 400, badRequest),
		with(`"labels":[`+strings.Repeat(`"a",`, 16)+`"a"]`, 400, badRequest), with(`"labels":["a",]`, 400, badJSON),

		// Names.
		with(`"id":""`, 400, badName), with(`"id":"."`, 400, badName), with(`"id":".."`, 400, badName), with(`"id":"a/b"`, 400, badName),
		with(`"id":"a b"`, 400, badName), with(`"id":"ä"`, 400, badName), with(`"id":"`+long+`"`, 400, badName), with(`"id":"a{b}"`, 400, badName),
		with(`"id":"{a}"`, 400, badName), with(`"id":"{}a"`, 400, badName), with(`"id":"{a}{b}c"`, 400, badName), with(`"id":"{a"`, 400, badName),
		with(`"id":"a}"`, 400, badName), with(`"id":"{a/b}c"`, 400, badName), with(`"id":"{k}."`, 400, badName),
		with(`"id":"{`+strings.Repeat("k", 65)+`}c"`, 400, badName), with(`"id":"a\u0000"`, 400, badName),
		with(`"key":""`, 400, badName), with(`"key":"a b"`, 400, badName), with(`"key":"{a}"`, 400, badName), with(`"key":"`+strings.Repeat("k", 65)+`"`, 400, badName),
		with(`"id":"{a}x","key":"b"`, 400, badName), with(`"id":"x","key":"b"`, 400, badName),

		// Payload.
		with(`"payload":1,"payload_base64":"AA=="`, 400, badRequest), with(`"payload_base64":"AA"`, 400, badRequest),
		with(`"payload_base64":"A\nA=="`, 400, badRequest), with(`"payload_base64":"A-_="`, 400, badRequest), with(`"payload_base64":"AB=="`, 400, badRequest),
		with(`"payload_base64":5`, 400, badRequest), with(`"payload":{"a":1,}`, 400, badJSON), with(`"payload":[01]`, 400, badJSON),
		with(`"payload":`+strings.Repeat("[", 65)+strings.Repeat("]", 65), 400, badJSON), with(`"payload":"\q"`, 400, badJSON),
		with(`"payload":"`+strings.Repeat("p", 256<<10)+`"`, 413, tooLarge),
		with(`"content_type":""`, 400, badHeader), with(`"content_type":"text"`, 400, badHeader), with(`"content_type":"a/b\r\nX: y"`, 400, badHeader),
		with(`"content_type":"a/b c/d"`, 400, badHeader), with(`"content_type":"text/`+strings.Repeat("x", 256)+`"`, 400, badHeader),

		// Callback.
		callback(`"url":"ftp://a/"`, badURL), callback(`"url":"http://u:p@a/"`, badURL), callback(`"url":"http://a/#f"`, badURL),
		callback(`"url":"http://127.1/"`, badURL), callback(`"url":"http://0x7f.0.0.1/"`, badURL), callback(`"url":"http://2130706433/"`, badURL),
		callback(`"url":""`, badURL), callback(`"url":"/x"`, badURL), callback(`"url":"http://a b/"`, badURL), callback(`"url":"http://a/`+strings.Repeat("u", 2048)+`"`, badURL),
		callback(`"url":"http://a/","method":"post"`, badRequest), callback(`"url":"http://a/","method":"HEAD"`, badRequest), callback(`"url":7`, badRequest),
		callback(`"url":"http://a/","timeout":"99ms"`, badRequest), callback(`"url":"http://a/","timeout":"15m1s"`, badRequest),
		callback(`"url":"http://a/","timeout":10`, badRequest), callback(`"url":"http://a/","timeout":"-1s"`, badRequest), callback(`"url":"http://a/","timeout":"10"`, badRequest),
		callback(`"url":"http://a/","headers":[]`, badRequest), callback(`"url":"http://a/","headers":{"X":1}`, badRequest), callback(`"url":"http://a/","headers":{"X":null}`, badRequest),
		callback(`"url":"http://a/","Url":"x"`, unknownField), callback(`"url":"http://a/","url":"http://b/"`, badJSON),
		callback(`"url":"http://a/","headers":{"X":"REDACTED","X-Api-Key":"REDACTED"}`, badHeader),
		callback(`"url":"http://a/","headers":{"X-A":"`+strings.Repeat("v", 4094)+`"}`, badHeader),

		// Retry, expiry, merge, repeat.
		with(`"retry":{"max_attempts":0}`, 400, badRequest), with(`"retry":{"max_attempts":1001}`, 400, badRequest), with(`"retry":{"max_attempts":1.5}`, 400, badRequest),
		with(`"retry":{"multiplier":0.9}`, 400, badRequest), with(`"retry":{"multiplier":10.1}`, 400, badRequest), with(`"retry":{"multiplier":"2"}`, 400, badRequest),
		with(`"retry":{"jitter":1.1}`, 400, badRequest), with(`"retry":{"jitter":-0.1}`, 400, badRequest), with(`"retry":{"jitter":1e999}`, 400, badRequest),
		with(`"retry":{"min_backoff":"2h","max_backoff":"1h"}`, 400, badRequest), with(`"retry":{"min_backoff":"2h"}`, 400, badRequest),
		with(`"retry":{"max_backoff":"721h"}`, 400, badRequest), with(`"retry":{"min_backoff":"0s"}`, 400, badRequest), with(`"retry":{"max_backoff":"9999999999h"}`, 400, badRequest),
		with(`"retry":{"foo":1}`, 400, unknownField), with(`"retry":5`, 400, badRequest), with(`"retry":{"jitter":0,"jitter":0}`, 400, badJSON),
		with(`"expires_after":"-1s"`, 400, badTime), with(`"expires_after":5`, 400, badTime), with(`"expires_after":"soon"`, 400, badTime),
		with(`"expires_after":"99999999999h"`, 400, badRequest),
		with(`"merge":"bogus"`, 400, badRequest), with(`"merge":1`, 400, badRequest),
		with(`"max_wait":"5m"`, 400, badRequest), with(`"merge":"keep","max_wait":"5m"`, 400, badRequest), with(`"merge":"debounce","max_wait":"x"`, 400, badRequest), with(`"merge":"debounce","max_wait":"0s"`, 400, badRequest),
		with(`"repeat":{}`, 400, badRequest), with(`"repeat":{"every":"999ms"}`, 400, badRequest), with(`"repeat":{"every":"1m","cron":"* * * * *"}`, 400, badRequest), with(`"repeat":{"every":"1m","zone":"UTC"}`, 400, badRequest),
		with(`"repeat":{"cron":"* * * *"}`, 400, badRequest), with(`"repeat":{"cron":"0 * * * * *"}`, 400, badRequest), with(`"repeat":{"cron":"60 * * * *"}`, 400, badRequest), with(`"repeat":{"cron":"@daily"}`, 400, badRequest), with(`"repeat":{"cron":"TZ=UTC 1 1 1 1 1"}`, 400, badRequest),
		with(`"repeat":{"cron":"TZ=UTC 1 1 1 1"}`, 400, badRequest), with(`"repeat":{"cron":"0 0 30 2 *"}`, 400, badRequest), with(`"repeat":{"cron":"0 8 * * *","zone":"Mars/Base"}`, 400, badRequest), with(`"repeat":{"cron":"0 8 * * *","zone":"Local"}`, 400, badRequest), with(`"repeat":{"cron":"0 8 * * *","zone":""}`, 400, badRequest),
		with(`"repeat":{"every":"1m","count":0}`, 400, badRequest), with(`"repeat":{"every":"1m","until":"2001-01-01T00:00:00Z"}`, 400, badTime),
		add(`{"repeat":{"every":"1m"}}`, 400, badTime), with(`"repeat":{"cron":5}`, 400, badRequest), with(`"repeat":5`, 400, badRequest), with(`"repeat":{"foo":1}`, 400, unknownField),
		with(`"repeat":{"until":"x"}`, 400, badTime), with(`"repeat":{"catch_up":"x"}`, 400, badRequest), with(`"repeat":{"count":"x"}`, 400, badRequest), with(`"repeat":{"overlap":1}`, 400, badRequest),
		with(`"repeat":{"count":1,"count":1}`, 400, badJSON),

		// Rules.
		add(`{"delay":"1h"}`, 422, "no_callback"), add(`{"delay":"1h","callback":{"method":"PUT"}}`, 422, "no_callback"),
	}
	for _, name := range []string{"Host", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Content-Type", "User-Agent", "webhook-id", "Webhook-Signature", "Carillon-Timer", "Idempotency-Key", "x-idempotency-key",
		"", "a b", "a:b", "ä", "a\\u0000"} {
		cases = append(cases, callback(`"url":"http://a/","headers":{"`+name+`":"x"}`, badHeader))
	}
	for _, value := range []string{"a\\r\\nb", "a\\nb", "\\u0000", "\\u007f"} {
		cases = append(cases, callback(`"url":"http://a/","headers":{"X-A":"`+value+`"}`, badHeader))
	}
	cases = append(cases, callback(`"url":"http://a/","headers":{"X-A":"1","x-a":"2"}`, badHeader))
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf(`"X-%d":"v"`, i))
	}
	cases = append(cases, callback(`"url":"http://a/","headers":{`+strings.Join(many, ",")+`}`, badHeader))
	checkRefused(t, h, cases)
}

func TestTimesRefused(t *testing.T) {
	h := newHarness(t)
	var cases []refused
	bad := func(time string, status int, code string) {
		cases = append(cases, refused{method: "POST", target: timers, body: `{` + cb + `,` + time + `}`, status: status, code: code})
	}
	cases = append(cases, refused{method: "POST", target: timers, body: `{` + cb + `}`, status: 400, code: badTime})
	for _, at := range []string{"", "2026", "2026-06-01", "2026-06-01T12:00:00", "2026-06-01 12:00:00Z", "2026-6-01T12:00:00Z", "2026-06-01T12:00Z",
		"2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-06-31T00:00:00Z", "2026-06-01T24:00:00Z", "2026-06-01T12:60:00Z", "2026-06-01T12:00:60Z",
		"2026-06-01T12:00:00.Z", "2026-06-01T12:00:00,5Z", "2026-06-01T12:00:00+2:00", "2026-06-01T12:00:00+0200", "2026-06-01T12:00:00+24:00", "2026-06-01T12:00:00Zx",
		"1969-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "+2026-06-01T12:00:00Z", "tomorrow", "1780315200"} {
		bad(`"at":"`+at+`"`, 400, badTime)
	}
	for _, v := range []string{`"at":5`, `"at":null`, `"at_ms":"5"`, `"at_ms":-1`, `"at_ms":5.0`, `"at_ms":5e3`, `"at_ms":null`, `"delay":5`, `"delay":""`, `"delay":"5"`, `"delay":"-1s"`,
		`"delay":"-1ns"`, `"delay":"1 h"`, `"delay":"1D"`, `"delay":"1y"`, `"at_ms":0`, `"at_ms":1780315200`, `"at_ms":99999999999`, `"at_ms":99999999999999999999`, `"delay_ms":99999999999999999999999`, `"delay":"h"`, `"delay":"."`, `"delay":".h"`, `"delay":"1h 2m"`, `"delay":"1e3s"`, `"delay_ms":-1`, `"delay_ms":"5"`, `"delay_ms":1.5`, `"delay_ms":true`,
		`"at_ms":1,"delay":"1h"`, `"at":"2026-06-01T12:00:00Z","at_ms":1`, `"delay":"1h","delay_ms":1`} {
		code := badTime
		if strings.Contains(v, "null") {
			code = badRequest
		}
		bad(v, 400, code)
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
		r := h.do("POST", timers, `{"id":"t`+strconv.Itoa(i)+`",`+cb+`,`+c.time+`}`).want(201)
		r.has("due_ms", strconv.FormatInt(c.dueMs, 10))
	}
}

func TestPathsAndMethods(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timers, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	get := func(target string, status int, code string) refused {
		return refused{method: "GET", target: target, status: status, code: code}
	}
	checkRefused(t, h, []refused{
		get("/v1/topics/orders%2Ftimers/a", 400, badRequest), get("/v1/topics/orders%2ftimers", 400, badRequest), get("/v1/topics/..%2f", 400, badRequest),
		get("/v1/topics/orders/timers/%5Ca", 400, badRequest), get(`/v1/topics/orders/timers/\a`, 400, badRequest), get("/v1/topics/orders/timers/a%00", 400, badRequest),
		get("/v1/topics/orders/../orders", 400, badRequest), get("/v1/topics/orders/./timers", 400, badRequest), get("/v1/topics/orders/%2e%2E/orders", 400, badRequest),
		get("/v1/topics/orders/timers/..", 400, badRequest), get("/v1/topics/orders/timers/%2561", 400, badRequest), get("/v1/topics/orders/timers/%25", 400, badRequest),
		get("/v1/topics/orders/timers/%", 400, badRequest), get("/v1/topics/orders/timers/%6", 400, badRequest), get("/v1/topics/orders/timers/%zz", 400, badRequest),
		get("/v1/topics/orders/timers/%0a", 400, badRequest), get("/v1/topics/orders/timers/a%20b", 400, badRequest), get("/v1/topics/orders/timers/%c3%a4", 400, badRequest),
		get("/v1/topics/orders/timers/a%23", 400, badName), get("/v1/topics/orders/timers/a#x", 400, badRequest),
		get("/v1/topics/-orders", 400, badName), get("/v1/topics/.orders", 400, badName), get("/v1/topics/"+strings.Repeat("t", 129), 400, badName), get("/v1/topics/a@b", 400, badName),
		get("/v1/topics/orders/timers/"+strings.Repeat("i", 129), 400, badName), get("/v1/topics/orders/timers/x%7Bk%7D", 400, badName), get("/v1/topics/orders/timers/%7Bk%7D", 400, badName),
		get("/", 404, notFound), get("//v1/topics", 404, notFound), get("/v1//topics", 404, notFound), get("/v1/topics/", 400, badName), get("/v1/topics/orders/", 404, notFound),
		get("/V1/topics", 404, notFound), get("/v1/topics/orders/Timers", 404, notFound), get("/v1/topics/orders/timers/a/", 404, notFound), get("/v1/topics/orders/timers/a/b/c/d/e/f", 404, notFound),
		get("/v1/clusters", 404, notFound), get("/v1/topics/orders/cancel", 405, "method_not_allowed"),
		{method: "POST", target: "/v1/topics/orders/ack", body: "{}", status: 404, code: notFound}, {method: "POST", target: "/v1/pull", body: "{}", status: 404, code: notFound},
		{method: "POST", target: "/v1/backups", status: 404, code: notFound},
		get("/v1/topics/nothere", 404, unknownTopic), get("/v1/topics/nothere/timers", 404, unknownTopic), get("/v1/topics/nothere/timers/a", 404, unknownTopic), get("/v1/topics/nothere/dead", 404, unknownTopic),
		get("/v1/topics/orders/timers/b", 404, unknownTimer), get("/v1/topics/orders/timers/A", 404, unknownTimer),
		{method: "DELETE", target: "/v1/topics/nothere/timers/a", status: 404, code: unknownTopic}, {method: "PATCH", target: "/v1/topics/nothere/timers/a", body: `{"priority":1}`, status: 404, code: unknownTopic},
		{method: "DELETE", target: timers + "/b", status: 404, code: unknownTimer}, {method: "POST", target: timers + "/b/fire", status: 404, code: unknownTimer},
		{method: "DELETE", target: "/v1/topics/nothere", status: 404, code: unknownTopic}, {method: "POST", target: "/v1/topics/nothere/pause", status: 404, code: unknownTopic},
		{method: "POST", target: "/v1/topics/nothere/dead/purge", body: `{"all":true}`, status: 404, code: unknownTopic},

		// Query.
		get(timers+"?foo=1", 400, badRequest), get(timers+"?Limit=1", 400, badRequest), get(timers+"?limit=1&limit=1", 400, badRequest), get(timers+"?limit=0", 400, badRequest), get(timers+"?limit=1001", 400, badRequest),
		get(timers+"?limit=", 400, badRequest), get(timers+"?limit=+5", 400, badRequest), get(timers+"?limit=05", 400, badRequest), get(timers+"?limit=5.0", 400, badRequest), get(timers+"?limit=%zz", 400, badRequest),
		get(timers+"?state=foo", 400, badRequest), get(timers+"?state=", 400, badRequest), get(timers+"?state=done,", 400, badRequest), get(timers+"?due_from=x", 400, badTime), get(timers+"?due_to=-1", 400, badTime), get(timers+"?due_from=2026-06-01", 400, badTime),
		get(timers+"?label=", 400, badRequest), get(timers+"?label=a%20b", 400, badRequest), get(timers+"?id_prefix=%2F", 400, badName), get(timers+"?id_prefix=%7B%7D", 400, badName), get(timers+"?payload=no", 400, badRequest), get(timers+"?payload", 400, badRequest),
		get(timers+"?cursor=", 400, badRequest), get(timers+"?cursor=abc", 400, badRequest), get(timers+"?&", 400, badRequest), get(timers+"/a?x=1", 400, badRequest), get("/v1/topics?cursor=AAAA", 400, badRequest),
		get(timers+"?due_to=9223372036854775808", 400, badTime), get(timers+"?due_from=99999999999999999999999", 400, badTime), get(timers+"?due_from=1780315200", 400, badTime), get(timers+"?due_to=99999999999", 400, badTime), get(timers+"?due_from=1", 400, badTime),
		get("/v1/topics/orders/history?from=1780315200", 400, badTime), get("/v1/topics/orders/dead?to=1780315200", 400, badTime), get("/v1/due?until=1780315200", 400, badTime), get("/healthz?x=1", 400, badRequest),
		get("/v1/topics/orders/dead?reason=foo", 400, badRequest), get("/v1/topics/orders/dead?state=dead", 400, badRequest), get("/v1/topics/orders/dead?from=x", 400, badTime),
		{method: "DELETE", target: "/v1/topics/orders?force=yes", status: 400, code: badRequest}, {method: "POST", target: timers + "?brief=true", body: `{"delay":"1h"}`, status: 400, code: badRequest},
	})
}
