package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
)

func TestAddReadPatchCancel(t *testing.T) {
	h := newHarness(t)
	r := h.do("POST", timersPath, `{"id":"a","delay":"30m","payload": {"order" : 77} ,`+cb+`}`).want(201)
	r.has("topic", `"orders"`, "id", `"a"`, "version", "1", "state", `"scheduled"`, "due", `"2026-06-01T12:30:00.001Z"`,
		"due_ms", "1780317000001", "content_type", `"application/json"`, "priority", "0", "attempts", "0", "max_attempts", "16",
		"callback.url", `"http://127.0.0.1:9/hook"`, "labels", "", "key", "", "last_error", "", "fired", "", "lateness_ms", "",
		"next_attempt_ms", "1780317000001", "created_ms", "1780315200000", "reason", "", "expires_after", "", "retry", "")
	if got := r.header.Get("ETag"); got != `"1"` {
		t.Fatalf("ETag %s", got)
	}
	r = h.do("GET", timersPath+"/a", "").want(200)
	if want := `"payload":{"order" : 77},`; !strings.Contains(r.body, want) {
		t.Fatalf("payload not as sent: %s", r.body)
	}
	head := h.do("HEAD", timersPath+"/%61", "").want(200)
	if head.body != "" || head.header.Get("ETag") != `"1"` {
		t.Fatalf("HEAD: %q %v", head.body, head.header)
	}
	h.do("PATCH", timersPath+"/a", `{"priority":9,"at_ms":1780317000500}`, `If-Match: "1"`).want(200).
		has("version", "2", "priority", "9", "due_ms", "1780317000500", "payload.order", "77")
	for _, method := range []string{"PATCH", "PUT", "DELETE"} {
		body := map[string]string{"PATCH": `{"priority":1}`, "PUT": `{"delay":"1h",` + cb + `}`}[method]
		r := h.do(method, timersPath+"/a", body, `If-Match: "1"`).problem(412, "version_mismatch")
		if r.has("existing.version", "2", "detail", `"the timer is not at that version, but at 2; read it again"`); r.header.Get("ETag") != `"2"` {
			t.Errorf("%s: ETag %q", method, r.header.Get("ETag"))
		}
	}
	r = h.do("PUT", timersPath+"/a", `{"delay":"1h",`+cb+`}`, `If-None-Match: *`).problem(412, "version_mismatch")
	if r.has("detail", `"the id is in use"`); r.header.Get("ETag") != `"2"` {
		t.Errorf("ETag %q", r.header.Get("ETag"))
	}
	h.do("POST", timersPath+"/a/fire", "").want(200).has("version", "2", "due_ms", "1780317000500", "next_attempt_ms", "1780315200000", "asked", `"2026-06-01T12:00:00.000Z"`, "asked_ms", "1780315200000")
	h.do("DELETE", timersPath+"/a", "").want(200).has("outcome", `"prevented"`)
	h.do("DELETE", timersPath+"/a", "").want(200).has("outcome", `"prevented"`)
	h.do("PATCH", timersPath+"/a", `{"priority":1}`).problem(410, "over")
	h.do("POST", timersPath+"/a/fire", "{}").problem(410, "over")
	h.do("GET", timersPath+"/a", "").want(200).has("state", `"cancelled"`)
}

// TestAnswersNameTheLeader: an answer about one timer names the node that leads its shard, where
// that is another one.
func TestAnswersNameTheLeader(t *testing.T) {
	h := newHarness(t)
	at := timer.ShardOf(&timer.Topic{Name: "orders"}, "a", h.engine.Shards())
	ask := func(want string) {
		t.Helper()
		for _, r := range []*reply{
			h.do("POST", timersPath, `{"id":"a","at_ms":1780317000001,`+cb+`}`), h.do("PATCH", timersPath+"/a", `{"priority":1}`), h.do("GET", timersPath+"/a", ""),
			h.do("POST", timersPath+"/a/fire", ""), h.do("PUT", timersPath+"/a", `{"delay":"1h",`+cb+`}`), h.do("DELETE", timersPath+"/a", ""), h.do("PATCH", timersPath+"/a", `{"priority":1}`),
		} {
			if got := r.header.Get("Carillon-Leader"); got != want {
				t.Errorf("%d: the answer names %s, want %s", r.status, got, want)
			}
		}
	}
	ask("")
	h.engine.leaders = map[timer.ShardID]string{at: "10.0.0.2:7700"}
	ask(fmt.Sprintf(`"10.0.0.2:7700";shard=%d;shards=%d`, at, h.engine.Shards()))
	if r := h.do("GET", timersPath, ""); r.header.Get("Carillon-Leader") != "" {
		t.Error("a list is of no single shard")
	}
}

func TestAddTakesEverything(t *testing.T) {
	h := newHarness(t)
	r := h.do("POST", timersPath, `{"id":"{order-77}close","key":"order-77","at":"2026-07-01T00:00:00+02:00","payload_base64":"AAEC","content_type":"application/x-thing; v=1",
		"callback":{"url":"https://shop.example/hooks/close","method":"PUT","headers":{"X-Tenant":"7","X-Api-Key":"s3cret","Set-Cookie":"a=b"},"timeout":"90s"},
		"priority":255,"labels":["orders","a=b"],"expires_after":"10m","merge":"reject",
		"retry":{"max_attempts":3,"min_backoff":"2s","max_backoff":"90m","multiplier":1.5,"jitter":0}}`, "Content-Type: application/json; charset=UTF-8").want(201)
	r.has("key", `"order-77"`, "due_ms", "1782856800000", "payload_base64", `"AAEC"`, "payload", "", "content_type", `"application/x-thing; v=1"`,
		"callback", `{"headers":{"Set-Cookie":"REDACTED","X-Api-Key":"REDACTED","X-Tenant":"7"},"method":"PUT","timeout":"1m30s","url":"https://shop.example/hooks/close"}`,
		"priority", "255", "labels", `["orders","a=b"]`, "expires_after", `"10m"`, "max_attempts", "3",
		"retry", `{"jitter":0,"max_attempts":3,"max_backoff":"1h30m","min_backoff":"2s","multiplier":1.5}`)
	if strings.Contains(r.body, "s3cret") {
		t.Fatal("a secret is shown")
	}
	// Escapes stand for their characters; payloads are left alone, JSON's null among them.
	h.do("POST", timersPath, `{"\u0069d":"e\u0073c","delay":"1h","payload":null,`+cb+`}`).want(201).has("id", `"esc"`, "payload", "null", "content_type", `"application/json"`)
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	payload := `{ "same":1, "same":2, "n":1.50e+3, "u":"\ud800\u00e4ä",` + "\t\n" + ` "deep":` + deep[1:127] + ` }`
	if r := h.do("POST", timersPath, `{"id":"p","delay":"1h","payload":`+payload+`,`+cb+`}`).want(201); !strings.Contains(r.body, `"payload":`+payload+`,"content_type"`) {
		t.Fatalf("payload not as sent: %s", r.body)
	}
	h.do("POST", timersPath, `{"id":"none","delay":"1h",`+cb+`}`).want(201).has("payload", "", "content_type", "")
	big := `"` + strings.Repeat("x", 256<<10-2) + `"`
	h.do("POST", timersPath, `{"id":"big","delay":"1h","payload":`+big+`,`+cb+`}`).want(201)
}

func TestIdsAreMade(t *testing.T) {
	h := newHarness(t)
	seen := map[timer.ShardID]int{}
	for range 200 {
		r := h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).want(201)
		id := strings.Trim(pick(r.json(), "id"), `"`)
		seen[timer.ShardOf(&timer.Topic{Name: "orders"}, id, h.engine.shards)]++
		h.do("GET", timersPath+"/"+id, "").want(200)
	}
	if len(seen) != 1 { // the clock stands still: see TestShardOfTheMoment
		t.Fatalf("server-made ids of one moment went to shards %v", seen)
	}
	r := h.do("POST", timersPath, `{"delay":"1h","key":"k:1",`+cb+`}`).want(201).has("key", `"k:1"`)
	id := strings.Trim(pick(r.json(), "id"), `"`)
	if !strings.HasPrefix(id, "{k:1}") {
		t.Fatal(id)
	}
	h.do("GET", timersPath+"/"+strings.NewReplacer("{", "%7B", "}", "%7d", ":", "%3A").Replace(id), "").want(200)
	h.do("GET", timersPath+"/"+id, "").want(200)
}

func TestAddIsIdempotent(t *testing.T) {
	h := newHarness(t)
	body := func(fields string) string { return `{"id":"i",` + cb + `,` + fields + `}` }
	first := h.do("POST", timersPath, body(`"at_ms":1780315300000,"payload":{"a":1},"labels":["x"]`)).want(201)
	for _, same := range []string{
		body(`"labels" : [ "x" ],"payload":{"a":1},"at_ms":1780315300000`),
		body(`"labels":["x"],"payload":{"a":1},"at":"2026-06-01T12:01:40Z"`),
		`{"labels":["x"],"payload":{"a":1},"callback":{"url":"http://127.0.0.1:9/hook"},"at_ms":1780315300000,"id":"i"}`,
	} {
		if r := h.do("POST", timersPath, same).want(200); r.body != first.body {
			t.Fatalf("%s\n%s", r.body, first.body)
		}
	}
	for _, other := range []string{
		body(`"at_ms":1780315300001,"payload":{"a":1},"labels":["x"]`), body(`"at_ms":1780315300000,"payload":{"a": 1},"labels":["x"]`),
		body(`"at_ms":1780315300000,"payload":{"a":1},"labels":["x"],"priority":0`), body(`"at_ms":1780315300000,"payload":{"a":1}`),
		body(`"delay":"100s","payload":{"a":1},"labels":["x"]`), body(`"at_ms":1780315300000,"payload_base64":"eyJhIjoxfQ==","labels":["x"]`),
	} {
		r := h.do("POST", timersPath, other)
		r.problem(409, "exists")
		r.has("existing", `{"due":"2026-06-01T12:01:40.000Z","due_ms":1780315300000,"state":"scheduled","version":1}`)
	}
	h.engine.set("orders", "i", func(t *timer.Timer) { t.State = timer.Leased })
	h.do("POST", timersPath, body(`"delay":"1s"`)).problem(409, "in_flight")
	h.engine.set("orders", "i", func(t *timer.Timer) { t.State, t.EndedMs = timer.Done, noonMs })
	h.do("POST", timersPath, body(`"at_ms":1780315300000,"payload":{"a":1},"labels":["x"]`)).want(200).has("state", `"done"`)
	h.do("POST", timersPath, body(`"at_ms":1780315300000,"payload":{"b":1}`)).want(201).has("version", "2")

	// A delay stays the same delay as the clock moves; headers are an object, in any order.
	d := `{"id":"d","delay":"1h","callback":{"url":"http://a.example/","headers":{"A":"1","B":"2"}}}`
	h.do("POST", timersPath, d).want(201)
	h.advance(1_000_000_000)
	h.do("POST", timersPath, strings.Replace(d, `"A":"1","B":"2"`, `"B":"2","A":"1"`, 1)).want(200).has("due_ms", fmt.Sprint(noonMs+3_600_000))
	h.do("POST", timersPath, strings.Replace(d, `"delay":"1h"`, `"delay_ms":3600000`, 1)).want(200)
}

func TestPutConditions(t *testing.T) {
	h := newHarness(t)
	body := `{"delay":"1h",` + cb + `}`
	put := func(status int, headers ...string) *reply {
		t.Helper()
		return h.do("PUT", timersPath+"/p", body, headers...).want(status)
	}
	put(412, `If-Match: "1"`)
	put(201, "If-None-Match: *").has("version", "1")
	put(412, "If-None-Match: *")
	put(200).has("version", "2")
	put(200, `If-Match: "2"`).has("version", "3")
	put(412, `If-Match: "2"`)
	put(412, `If-Match: "0"`)
	put(412, `If-Match: "99999999999999999999"`)
	for _, header := range []string{`If-Match: 3`, `If-Match: *`, `If-Match: W/"3"`, `If-Match: "3", "4"`, `If-Match: "03"`, `If-Match: ""`, `If-Match: "x"`, `If-None-Match: "3"`, "If-None-Match: *\r\nIf-Match: \"3\"", "If-Match: \"3\"\r\nIf-Match: \"3\""} {
		put(400, header)
	}
	h.do("PUT", timersPath+"/p", `{"id":"q","delay":"1h",`+cb+`}`).problem(400, web.BadName)
	h.do("PUT", timersPath+"/p", `{"id":"p","delay":"1h",`+cb+`}`).want(200)
	h.do("PUT", timersPath+"/p", `{}`).problem(400, web.BadTime)
	h.do("PUT", timersPath+"/%7Bk%7Dx", `{"key":"k","delay":"1h",`+cb+`}`).want(201).has("key", `"k"`)
	h.do("POST", timersPath, body, `If-Match: "3"`).problem(400, web.BadRequest)
	h.do("PATCH", timersPath+"/p", `{"priority":1}`, `If-None-Match: *`).problem(400, web.BadRequest)
	h.do("DELETE", timersPath+"/p", "", `If-Match: "3"`).problem(412, "version_mismatch")
	h.do("POST", timersPath+"/p/fire", "", `If-Match: "3"`).problem(412, "version_mismatch")
	h.engine.set("orders", "p", func(t *timer.Timer) { t.State = timer.Leased })
	put(409)
	h.do("PATCH", timersPath+"/p", `{"priority":1}`).problem(409, "in_flight")
	h.do("DELETE", timersPath+"/p", "").want(202).has("outcome", `"in_flight"`)
	h.do("GET", timersPath+"/p", "").has("cancel_requested", "true", "state", `"leased"`, "next_attempt", "")
	h.engine.set("orders", "p", func(t *timer.Timer) { t.State = timer.Dead; t.Reason = timer.Stopped })
	h.do("DELETE", timersPath+"/p", "").problem(410, "over").has("outcome", `"dead"`)
	h.engine.set("orders", "p", func(t *timer.Timer) { t.State = timer.Done })
	h.do("DELETE", timersPath+"/p", "").problem(410, "over").has("outcome", `"already_fired"`)
	put(201)
}

func TestPatchFields(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"p","delay":"1h","payload":[1],"content_type":"a/b","priority":5,"labels":["x"],"expires_after":"1m",
		"callback":{"url":"http://a.example/","method":"PUT","timeout":"1s","headers":{"X":"1"}},"retry":{"max_attempts":2,"jitter":0.5}}`).want(201)
	patch := func(body string) *reply { t.Helper(); return h.do("PATCH", timersPath+"/p", body).want(200) }
	patch(`{"callback":{"timeout":"2s"},"retry":{"max_attempts":4}}`).has("callback.timeout", `"2s"`, "callback.method", `"PUT"`, "callback.url", `"http://a.example/"`, "max_attempts", "4", "retry.jitter", "0.5")
	patch(`{"labels":[],"priority":null,"expires_after":null,"content_type":null}`).has("labels", "", "priority", "0", "expires_after", "", "content_type", `"application/json"`)
	patch(`{"callback":{"method":null,"headers":null},"retry":null}`).has("callback.method", "", "callback.headers", "", "retry", "", "max_attempts", "16")
	patch(`{"payload":null}`).has("payload", "null")
	patch(`{"payload_base64":null}`).has("payload", "", "payload_base64", "", "content_type", "")
	patch(`{"payload_base64":"AA=="}`).has("payload_base64", `"AA=="`)
	patch(`{"repeat":{"every":"1m"}}`).has("repeat.every", `"1m"`, "repeat.catch_up", `"one"`, "repeat.cron", "")
	patch(`{"repeat":null}`).has("repeat", "")
	patch(`{"delay":"2h"}`).has("due_ms", fmt.Sprint(noonMs+7_200_000))
	var cases []refused
	for body, code := range map[string]string{
		`{}`: web.BadRequest, `{"callback":{}}`: web.BadRequest, `{"retry":{}}`: web.BadRequest, `{"id":"p"}`: web.UnknownField, `{"key":"p"}`: web.UnknownField, `{"merge":"reject"}`: web.UnknownField,
		`{"op":"patch"}`: web.UnknownField, `{"at":null}`: web.BadRequest, `{"delay":null}`: web.BadRequest, `{"delay":"1s","at_ms":1}`: web.BadTime, `{"priority":1,"priority":1}`: web.BadJSON, `{"version":1}`: web.UnknownField,
		`{"state":"done"}`: web.UnknownField, `{"payload":1,"payload_base64":"AA=="}`: web.BadRequest, `{"callback":{"url":"x"}}`: web.BadURL, `[]`: web.BadRequest,
	} {
		cases = append(cases, refused{method: "PATCH", target: timersPath + "/p", body: body, status: 400, code: code})
	}
	cases = append(cases, refused{method: "PATCH", target: timersPath + "/p", body: `{"callback":{"url":null}}`, status: 422, code: "no_callback"},
		refused{method: "PATCH", target: timersPath + "/p", body: `{"callback":null}`, status: 422, code: "no_callback"},
		refused{method: "PATCH", target: timersPath + "/p", body: `{"repeat":{"every":"1ms"}}`, status: 400, code: web.BadRequest},
		refused{method: "PATCH", target: timersPath + "/p", body: `{"delay":"900000h"}`, status: 422, code: "beyond_horizon"})
	checkRefused(t, h, cases)
	h.do("PUT", "/v1/topics/orders", `{"callback":{"url":"http://topic.example/"}}`).want(200)
	patch(`{"callback":null}`).has("callback", "")
}

func TestRedactedKeepsWhatIsStored(t *testing.T) {
	h := newHarness(t)
	stored := func() string {
		timer, _ := h.engine.Timer(h.server.node.Base, 0, 1, "r")
		return fmt.Sprint(timer.Callback.Headers)
	}
	h.do("POST", timersPath, `{"id":"r","delay":"1h","callback":{"url":"http://a.example/","headers":{"Authorization":"Bearer s","X":"1"}}}`).want(201)
	h.do("PATCH", timersPath+"/r", `{"callback":{"headers":{"authorization":"REDACTED","X":"REDACTED"}}}`).want(200).has("version", "2")
	if got := stored(); got != "[{authorization Bearer s} {X REDACTED}]" {
		t.Fatal(got)
	}
	// A change between the read and the write is seen, and the write done again on the newer state.
	races := 0
	h.engine.beforeDo = func() {
		if races++; races == 1 {
			h.engine.set("orders", "r", func(t *timer.Timer) {
				t.Version++
				t.Callback.Headers = []timer.Header{{Name: "Authorization", Value: "new"}}
			})
		}
	}
	h.do("PUT", timersPath+"/r", `{"delay":"1h","callback":{"url":"http://a.example/","headers":{"Authorization":"REDACTED"}}}`).want(200).has("version", "4")
	if got := stored(); got != "[{Authorization new}]" || races != 2 {
		t.Fatal(got, races)
	}
	h.engine.beforeDo = nil
	h.do("PATCH", timersPath+"/r", `{"callback":{"headers":{"Cookie":"REDACTED"}}}`).problem(400, web.BadHeader)
	h.do("PATCH", timersPath+"/r", `{"callback":{"headers":{"Authorization":"REDACTED"}}}`, `If-Match: "1"`).problem(412, "version_mismatch")
	h.do("PATCH", timersPath+"/gone", `{"callback":{"headers":{"Authorization":"REDACTED"}}}`).problem(404, web.UnknownTimer)
	h.do("PUT", timersPath+"/gone", `{"delay":"1h","callback":{"url":"http://a.example/","headers":{"Authorization":"REDACTED"}}}`).problem(400, web.BadHeader)
	h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"patch","id":"r","priority":1},{"op":"patch","id":"r","callback":{"headers":{"Authorization":"REDACTED"}}},{"op":"cancel","id":"r"}]}`).
		want(200).has("results.0.timer.version", "5", "results.1.timer.version", "6", "results.2.outcome", `"prevented"`)
}

func TestShownAfterAttempts(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"s","delay":"1h",`+cb+`}`).want(201)
	h.engine.set("orders", "s", func(t *timer.Timer) {
		t.Attempts, t.LastStatus, t.LastError, t.FiredMs, t.LatenessMs, t.NextMs = 2, 502, "bad \"gateway\"\n\xff\x01", noonMs, 0, noonMs+5
	})
	h.do("GET", timersPath+"/s", "").has("attempts", "2", "last_status", "502", "last_error", `"bad \"gateway\"\n`+"�"+`\u0001"`, "fired_ms", fmt.Sprint(noonMs),
		"fired", `"2026-06-01T12:00:00.001Z"`, "lateness_ms", "0", "next_attempt_ms", fmt.Sprint(noonMs+5))
	h.engine.set("orders", "s", func(t *timer.Timer) { t.State, t.Reason = timer.Dead, timer.MaxAttempts })
	h.do("GET", timersPath+"/s", "").has("state", `"dead"`, "reason", `"max_attempts"`, "next_attempt", "")
}

func TestCallbackRefused(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.RefusedURL = func(url string) error {
			if strings.Contains(url, "169.254.169.254") || strings.Contains(url, "fe80::1") {
				return errors.New("link-local")
			}
			return nil
		}
	})
	for _, url := range []string{"http://169.254.169.254/x", "https://169.254.169.254:8080?q", "http://[fe80::1]:80/"} {
		h.do("POST", timersPath, `{"delay":"1h","callback":{"url":"`+url+`"}}`).problem(422, "callback_refused")
		h.do("PUT", "/v1/topics/orders", `{"callback":{"url":"`+url+`"}}`).problem(422, "callback_refused")
	}
	if h.engine.changes() != 0 {
		t.Fatal("something was changed")
	}
	for range 2 { // the second time it is known
		h.do("POST", timersPath, `{"delay":"1h","callback":{"url":"http://[::1]:80/"}}`).want(201)
	}
}

func TestEngineFaults(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	for err, code := range map[error]string{
		timer.ErrNoLeader: "no_leader", timer.ErrOverloaded: "overloaded", timer.ErrMemory: "overloaded", timer.ErrLowDisk: "low_disk",
		timer.ErrUnknown: web.Unavailable, timer.ErrRecovering: web.Unavailable, timer.ErrStopped: web.Unavailable, errors.New("other"): web.Unavailable, fmt.Errorf("wrapped: %w", timer.ErrNoLeader): "no_leader",
	} {
		h.engine.err = err
		r := h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).problem(503, code)
		if code == web.Unavailable && err != timer.ErrRecovering && !strings.Contains(r.body, "may") {
			t.Errorf("does not say that it may have taken effect: %s", r.body)
		}
		h.do("GET", timersPath+"/a", "").problem(503, code)
		h.do("GET", timersPath, "").problem(503, code)
		h.do("DELETE", timersPath+"/a", "").problem(503, code)
		h.do("GET", "/v1/topics/orders", "").problem(503, code)
		h.do("GET", "/v1/topics", "").want(200).has("topics.0.counts", "")
		h.do("GET", "/v1/topics?counts=true", "").problem(503, code)
		h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"cancel","id":"a"}]}`).want(200).has("results.0.status", "503", "results.0.error.code", `"`+code+`"`)
		h.do("POST", "/v1/topics/orders/dead/purge", `{"ids":["a"]}`).problem(503, code)
	}
}

// TestLowDiskSaysWhose: which node, where, how much there is and how much there should be; and not
// to try again at once.
func TestLowDiskSaysWhose(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", `{`+cb+`}`)
	h.engine.err = fmt.Errorf("on the way: %w", timer.LowDiskError{Node: 7, Name: "n2", Path: "/var/lib/carillon", Free: 195 << 20, Limit: 256 << 20})
	r := h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).problem(503, "low_disk")
	for _, want := range []string{"n2 has 195 MiB free", "256 MiB", "/var/lib/carillon", `"retryable":true`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("it does not say %q: %s", want, r.body)
		}
	}
	if got := r.header.Get("Retry-After"); got != "30" {
		t.Errorf("Retry-After: %q", got)
	}
	// Free bytes are no use where it is something else that lacks.
	h.engine.err = timer.LowDiskError{Node: 7, Name: "n2", Path: "/var/lib/carillon", Free: 900 << 20, Limit: 256 << 20, Lack: "the disk has no inodes left"}
	if r := h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).problem(503, "low_disk"); !strings.Contains(r.body, `"n2: the disk has no inodes left, and its log waits (/var/lib/carillon); reads go on"`) {
		t.Errorf("it says %s", r.body)
	}
}

func TestClosingTopic(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	h.engine.closedFor = 3
	h.do("POST", timersPath, `{"id":"b","delay":"1h",`+cb+`}`).want(201)
	h.engine.closedFor = 2
	h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"cancel","id":"a"},{"op":"cancel","id":"b"},{"op":"cancel","id":"c"}]}`).want(200).
		has("results.0.status", "200", "results.1.status", "200", "results.2.status", "404")
	h.engine.closedFor = 1_000
	h.do("POST", timersPath, `{"id":"c","delay":"1h",`+cb+`}`).problem(503, web.Unavailable)
	h.engine.closedFor = 0
	// Deleted in between: an add makes it again, anything else finds nothing.
	gone := func() {
		h.engine.beforeDo = nil
		_, _ = topicsOf(h.engine).Delete(h.server.node.Base, "orders", timer.TopicChange{Force: true})
	}
	h.engine.beforeDo = gone
	h.do("DELETE", timersPath+"/a", "").problem(404, web.UnknownTopic)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	h.engine.beforeDo = gone
	h.do("POST", timersPath, `{"id":"d","delay":"1h",`+cb+`}`).want(201)
	h.do("GET", timersPath+"/a", "").problem(404, web.UnknownTimer)
}

// A patch leaves no backoff whose shortest wait is longer than its longest, whichever of the two it
// sets; an add with it would be refused.
func TestPatchOfBackoff(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`,"retry":{"max_backoff":"10m"}}`).want(201)
	for _, retry := range []string{`{"min_backoff":"11m"}`, `{"max_backoff":"500ms"}`, `{"min_backoff":"2h","max_backoff":null}`} {
		h.do("PATCH", timersPath+"/a", `{"retry":`+retry+`}`).problem(400, web.BadRequest)
		h.do("PATCH", timersPath+"/a?dry_run=true", `{"retry":`+retry+`}`).problem(400, web.BadRequest)
		h.do("POST", batches, `{"ops":[{"op":"patch","id":"a","retry":`+retry+`}]}`).want(200).has("results.0.status", "400")
	}
	h.do("GET", timersPath+"/a", "").want(200).has("retry", `{"max_backoff":"10m"}`)
	for _, retry := range []string{`{"min_backoff":"9m"}`, `{"max_backoff":"20m"}`, `{"min_backoff":"19m"}`, `null`} {
		h.do("PATCH", timersPath+"/a", `{"retry":`+retry+`}`).want(200)
	}
	h.do("PATCH", timersPath+"/nobody", `{"retry":{"min_backoff":"11h"}}`).problem(404, web.UnknownTimer)
}

// A patch leaves no pending occurrence that is due after its series' end; an add with it would be
// refused.
func TestPatchOfASeriesEnd(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"2h",`+cb+`}`).want(201)
	soon, late := h.clock().Add(time.Hour).Format(time.RFC3339), h.clock().Add(3*time.Hour).Format(time.RFC3339)
	ends := func(until string) string { return `"repeat":{"every":"1m","until":"` + until + `"}` }
	h.do("PATCH", timersPath+"/a", `{`+ends(soon)+`}`).problem(400, web.BadTime)
	h.do("PATCH", timersPath+"/a?dry_run=true", `{`+ends(soon)+`}`).problem(400, web.BadTime)
	h.do("POST", batches, `{"ops":[{"op":"patch","id":"a",`+ends(soon)+`}]}`).want(200).has("results.0.status", "400")
	if got := h.do("GET", timersPath+"/a", "").want(200); strings.Contains(got.body, "repeat") {
		t.Errorf("the timer was changed: %s", got.body)
	}
	h.do("PATCH", timersPath+"/a", `{"delay":"30m",`+ends(soon)+`}`).want(200)
	h.do("PATCH", timersPath+"/a", `{`+ends(late)+`}`).want(200)
	h.do("PATCH", timersPath+"/nobody", `{`+ends(soon)+`}`).problem(404, web.UnknownTimer)
}
