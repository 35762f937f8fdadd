package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

var contractFields = []contractCheck{
	{"bounds", checkFieldBounds}, {"names", checkNames}, {"times", checkTimes}, {"payload", checkPayload}, {"shown", checkShown}, {"secrets", checkRedaction},
	{"strict", checkStrict}, {"sizes", checkSizes},
}

// bound has values of a timer's field that are accepted at its bounds, and values that are refused.
type bound struct {
	good []string
	bad  []string
	code string
}

func many(n int, item func(i int) string) string {
	var items []string
	for i := range n {
		items = append(items, item(i))
	}
	return strings.Join(items, ",")
}

func headers(list string) string {
	return `"callback":{"url":"http://127.0.0.1:9/","headers":{` + list + `}}`
}

func to(url string) string { return fmt.Sprintf(`"callback":{"url":%q}`, url) }

func withCallback(field string) string {
	return `"callback":{"url":"http://127.0.0.1:9/",` + field + `}`
}

var timerBounds = []bound{
	{good: []string{`"priority":0`, `"priority":255`}, bad: []string{`"priority":-1`, `"priority":256`, `"priority":1.0`, `"priority":"1"`, `"priority":null`}, code: "bad_request"},
	{good: []string{
		`"labels":[]`, `"labels":[` + many(16, func(i int) string { return fmt.Sprintf(`"l%d"`, i) }) + `]`,
		`"labels":["` + strings.Repeat("l", 64) + `"]`, `"labels":["aZ0_.:=-"]`,
	}, bad: []string{
		`"labels":[` + many(17, func(i int) string { return fmt.Sprintf(`"l%d"`, i) }) + `]`, `"labels":["` + strings.Repeat("l", 65) + `"]`, `"labels":[""]`, `"labels":["a b"]`, `"labels":["a/b"]`,
	}, code: "bad_request"},
	{good: []string{
		`"retry":{"max_attempts":1}`, `"retry":{"max_attempts":1000}`, `"retry":{"multiplier":1}`, `"retry":{"multiplier":10}`, `"retry":{"jitter":0}`, `"retry":{"jitter":1}`,
		`"retry":{"min_backoff":"720h","max_backoff":"720h"}`, `"retry":{"min_backoff":"2s","max_backoff":"2s"}`,
	}, bad: []string{
		`"retry":{"max_attempts":0}`, `"retry":{"max_attempts":1001}`, `"retry":{"multiplier":0.99}`, `"retry":{"multiplier":10.01}`, `"retry":{"jitter":-0.01}`, `"retry":{"jitter":1.01}`,
		`"retry":{"max_backoff":"720h0m0.001s"}`, `"retry":{"min_backoff":"2s","max_backoff":"1s"}`, `"retry":{"min_backoff":"-1s"}`,
	}, code: "bad_request"},
	{good: []string{`"expires_after":"1ms"`, `"expires_after":"10m"`}, bad: []string{`"expires_after":"-1s"`, `"expires_after":"soon"`, `"expires_after":5`}, code: ""},
	{good: []string{
		withCallback(`"timeout":"100ms"`), withCallback(`"timeout":"15m"`), withCallback(`"method":"PUT"`), withCallback(`"method":"PATCH"`),
	}, bad: []string{withCallback(`"timeout":"99ms"`), withCallback(`"timeout":"15m0.001s"`), withCallback(`"method":"HEAD"`), withCallback(`"method":"get"`)}, code: "bad_request"},
	{good: []string{
		to("https://example.com/" + strings.Repeat("u", 2048-len("https://example.com/"))), to("http://example.com:8080/a?b=c"),
	}, bad: []string{
		to("https://example.com/" + strings.Repeat("u", 2049-len("https://example.com/"))), to("http://user@example.com/"), to("http://example.com/#f"), to("http://127.1/"),
		to("http://0x7f000001/"), to("http://2130706433/"), to("http://0177.0.0.1/"), to("ftp://example.com/"), to("example.com"), to(""),
	}, code: "bad_url"},
	{good: []string{
		headers(many(32, func(i int) string { return fmt.Sprintf(`"X-%d":"v"`, i) })), headers(`"X-A":"` + strings.Repeat("v", 4096-len("X-A")) + `"`), headers(`"Authorization":"Bearer x"`),
	}, bad: []string{
		headers(many(33, func(i int) string { return fmt.Sprintf(`"X-%d":"v"`, i) })), headers(`"X-A":"` + strings.Repeat("v", 4097-len("X-A")) + `"`), headers(`"X A":"v"`), headers(`"":"v"`),
		headers(`"X-A":"a\nb"`), headers(`"X-A":"a\u0000b"`), headers(`"X-A":"1","x-a":"2"`), headers(`"Host":"h"`), headers(`"content-length":"1"`), headers(`"Transfer-Encoding":"chunked"`),
		headers(`"Connection":"close"`), headers(`"Keep-Alive":"1"`), headers(`"TE":"trailers"`), headers(`"Trailer":"x"`), headers(`"Upgrade":"h2c"`), headers(`"Expect":"100-continue"`),
		headers(`"Proxy-Authorization":"x"`), headers(`"Content-Type":"a/b"`), headers(`"User-Agent":"x"`), headers(`"webhook-id":"x"`), headers(`"Carillon-Due":"1"`),
		headers(`"Idempotency-Key":"x"`), headers(`"X-Idempotency-Key":"x"`),
	}, code: "bad_header"},
	{good: []string{`"repeat":{"every":"1s"}`, `"repeat":{"cron":"0 8 * * 1-5","zone":"Asia/Shanghai","until":"2035-01-01T00:00:00Z","count":100,"catch_up":"one"}`, `"repeat":{"every":"1h","overlap":true,"catch_up":"all"}`},
		bad: []string{
			`"repeat":{"every":"999ms"}`, `"repeat":{}`, `"repeat":{"every":"1s","cron":"* * * * *"}`, `"repeat":{"cron":"* * * *"}`, `"repeat":{"cron":"* * * * * *"}`,
			`"repeat":{"cron":"* * * * *","zone":"Mars/Olympus"}`, `"repeat":{"every":"1s","count":0}`, `"repeat":{"every":"1s","catch_up":"some"}`, `"repeat":{"every":"1s","zone":"UTC"}`,
		}, code: "bad_request"},
}

// checkFieldBounds tries each field in an add, a put and a patch: accepted at its bounds, refused
// beyond them without a change.
func checkFieldBounds(k *talk) {
	k.policy(`{` + nobody + `}`)
	k.add(`{"id":"it","delay":"1h"}`).is(201)
	version := k.get("it").number("version")
	n := 0
	for _, b := range timerBounds {
		for _, field := range b.good {
			n++
			k.add(fmt.Sprintf(`{"id":"good%d","delay":"1h",%s}`, n, field)).is(201)
			k.ask("PUT", fmt.Sprintf("/timers/good%d", n), fmt.Sprintf(`{"delay":"1h",%s}`, field)).is(200)
			k.ask("PATCH", fmt.Sprintf("/timers/good%d", n), `{`+field+`}`).is(200).has("version", "3")
		}
		for _, field := range b.bad {
			for _, s := range []*said{
				k.add(`{"id":"bad","delay":"1h",` + field + `}`), k.ask("PUT", "/timers/it", `{"delay":"1h",`+field+`}`), k.ask("PATCH", "/timers/it", `{`+field+`}`),
			} {
				if strings.HasSuffix(field, "null") && strings.HasPrefix(s.asked, "PATCH") {
					version++ // a PATCH with null resets the field
					continue
				}
				if s.status != 400 || b.code != "" && s.code() != b.code {
					k.Errorf("%s\n got %d %s\nwant 400 %s", s.asked, s.status, s.body, b.code)
				}
			}
			k.get("bad").refused(404, "unknown_timer")
			k.get("it").is(200).has("version", fmt.Sprint(version))
		}
	}
	// Fields that only an add has.
	for body, code := range map[string]string{
		`"merge":"maybe"`: "bad_request", `"max_wait":"5m"`: "bad_request", `"merge":"replace","max_wait":"5m"`: "bad_request", `"merge":null`: "bad_request",
	} {
		k.add(`{"id":"bad","delay":"1h",`+body+`}`).refused(400, code)
	}
	for i, merge := range []string{`"merge":"reject"`, `"merge":"keep"`, `"merge":"replace"`, `"merge":"debounce"`, `"merge":"debounce","max_wait":"5m"`} {
		k.add(fmt.Sprintf(`{"id":"merge%d","delay":"1h",%s}`, i, merge)).is(201)
	}
	for _, method := range []string{"GET", "DELETE"} { // methods without a body
		k.add(fmt.Sprintf(`{"id":%q,"delay":"1h",%s}`, method, withCallback(`"method":"`+method+`"`))).is(201)
	}
}

func checkNames(k *talk) {
	k.policy(`{` + nobody + `}`)
	long := strings.Repeat("i", 128)
	for _, id := range []string{long, "a", "aZ0_.:@-", "...", "{k}a", "{" + strings.Repeat("k", 64) + "}a"} {
		k.add(fmt.Sprintf(`{"id":%q,"delay":"1h"}`, id)).is(201).has("id", fmt.Sprintf("%q", id))
		k.get(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(id)).is(200)
	}
	for _, id := range []string{"", long + "i", ".", "..", "a b", "a/b", "ä", "a{k}", "{k", "k}", "{k}{l}", "{}a", "{" + strings.Repeat("k", 65) + "}a", "{a b}c"} {
		k.add(fmt.Sprintf(`{"id":%q,"delay":"1h"}`, id)).refused(400, "bad_name")
	}
	for _, topic := range []string{"a", "A-b_c.d", strings.Repeat("t", 128)} {
		k.ask("PUT", "/v1/topics/"+topic, `{}`).is(201)
	}
	for _, topic := range []string{strings.Repeat("t", 129), ".a", "-a", "_a", "a:b", "a@b", "a%20b", "%c3%a4"} {
		k.ask("PUT", "/v1/topics/"+topic, `{}`).refused(400, "bad_name")
	}
	// Keys.
	k.add(`{"key":"order-77","delay":"1h"}`).is(201).has("key", `"order-77"`)
	if id := k.add(`{"key":"order-77","delay":"1h"}`).is(201).text("id"); !strings.HasPrefix(id, "{order-77}") {
		k.Errorf("an id made for a key is %s", id)
	}
	k.add(`{"id":"{k}b","key":"k","delay":"1h"}`).is(201).has("key", `"k"`)
	k.add(`{"id":"{k}c","delay":"1h"}`).is(201).has("key", `"k"`)
	if s := k.add(`{"id":"{k}d","key":"l","delay":"1h"}`); s.status != 400 {
		k.Errorf("two keys: %d %s", s.status, s.body)
	}
	k.add(`{"key":"` + strings.Repeat("k", 64) + `","delay":"1h"}`).is(201)
	for _, key := range []string{"", strings.Repeat("k", 65), "a b", "{a}", "ä"} {
		k.add(fmt.Sprintf(`{"key":%q,"delay":"1h"}`, key)).refused(400, "bad_name")
	}
}

func checkTimes(k *talk) {
	k.policy(`{` + nobody + `}`)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, ms := range map[string]int64{
		`"at":"2030-01-02T03:04:05Z"`: 0, `"at":"2030-01-02T05:04:05+02:00"`: 0, `"at":"2030-01-02T03:04:05.0001Z"`: 1, `"at":"2030-01-02T03:04:05.001Z"`: 1,
		`"at":"2030-01-02T03:04:05.001000001Z"`: 2, fmt.Sprintf(`"at_ms":%d`, at.UnixMilli()): 0,
	} {
		s := k.add(`{` + text + `}`).is(201)
		due := at.Add(time.Duration(ms) * time.Millisecond)
		s.has("due_ms", fmt.Sprint(due.UnixMilli()), "due", `"`+due.Format("2006-01-02T15:04:05.000Z")+`"`, "next_attempt_ms", fmt.Sprint(due.UnixMilli()))
	}
	before := time.Now().UnixMilli()
	s := k.add(`{"delay":"1h30m"}`).is(201)
	if ms := s.number("due_ms"); ms < before+5_400_000 || ms > time.Now().UnixMilli()+5_400_001 {
		k.Errorf("a delay of 1h30m: %d after %d", ms, before)
	}
	k.add(`{"delay_ms":3600000}`).is(201)
	for _, bad := range []string{
		``, `"at":"2030-01-02T03:04:05"`, `"at":"2030-01-02"`, `"at":1`, `"at_ms":-1`, `"at_ms":1.5`, `"at_ms":"1"`, `"delay":"-1s"`, `"delay":"1"`, `"delay":1`, `"delay_ms":-1`, `"delay_ms":1e3`,
		`"delay":"1h","at_ms":1`, `"at":"2030-01-02T03:04:05Z","at_ms":1`, `"delay":"1h","delay_ms":1`,
	} {
		k.add(`{`+bad+`}`).refused(400, "bad_time")
	}
	k.add(fmt.Sprintf(`{"delay_ms":%d}`, horizonMs)).is(201)
	k.add(fmt.Sprintf(`{"delay_ms":%d}`, horizonMs+1)).refused(422, "beyond_horizon")
	k.add(`{"at":"2100-01-01T00:00:00Z"}`).refused(422, "beyond_horizon")
	k.ask("PUT", "/timers/far", `{"at":"2100-01-01T00:00:00Z"}`).refused(422, "beyond_horizon")
}

func checkPayload(k *talk) {
	k.policy(`{` + nobody + `}`)
	big := `"` + strings.Repeat("p", 256<<10-2) + `"`
	for fields, want := range map[string][2]string{
		`"payload":{"order": 77 ,  "x":[1.50,"é"]}`: {`{"order": 77 ,  "x":[1.50,"é"]}`, "application/json"},
		`"payload":null`:                                {"null", "application/json"},
		`"payload":"text"`:                              {`"text"`, "application/json"},
		`"payload_base64":"AAEC/w=="`:                   {"\x00\x01\x02\xff", "application/octet-stream"},
		`"payload_base64":""`:                           {"", ""},
		`"payload":1,"content_type":"application/x-it"`: {"1", "application/x-it"},
		``: {"", ""},
		`"payload":` + strings.Repeat("[", 64) + strings.Repeat("]", 64): {strings.Repeat("[", 64) + strings.Repeat("]", 64), "application/json"},
		`"payload":` + big: {big, "application/json"},
	} {
		k.Run("", func(t *testing.T) {
			t.Parallel()
			k := &talk{T: t, c: k.c, topic: k.topic + fmt.Sprintf("%p", t)}
			r := k.callee()
			k.policy(fmt.Sprintf(`{"callback":{"url":%q}}`, r.url))
			body := `{"delay":"0s"`
			if fields != "" {
				body += "," + fields
			}
			k.add(body + `}`).is(201)
			c := r.await(1)
			if c.body != want[0] || want[1] != "" && c.header.Get("Content-Type") != want[1] {
				k.Errorf("%.80s came as %.80q, %s", fields, c.body, c.header.Get("Content-Type"))
			}
		})
	}
	k.add(`{"delay":"1h","payload":`+big[:10]+big[9:]+`}`).refused(413, "too_large")
	k.add(`{"delay":"1h","payload_base64":"` + base64.StdEncoding.EncodeToString(make([]byte, 256<<10)) + `"}`).is(201)
	k.add(`{"delay":"1h","payload_base64":"`+base64.StdEncoding.EncodeToString(make([]byte, 256<<10+1))+`"}`).refused(413, "too_large")
	k.add(`{"delay":"1h","payload":"`+strings.Repeat("p", 1<<20)+`"}`).refused(413, "too_large")
	for _, bad := range []string{`"payload":` + strings.Repeat("[", 65) + strings.Repeat("]", 65), `"payload":1,"payload_base64":"AA=="`, `"payload_base64":"AA"`, `"payload_base64":"A-_="`, `"payload_base64":1`, `"content_type":"a\nb"`} {
		if s := k.add(`{"delay":"1h",` + bad + `}`); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
}
