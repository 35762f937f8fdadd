package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"carillon/test/testkit"
)

// fakeNode answers each request with the next of its replies, and remembers its requests.
type fakeNode struct {
	mu      sync.Mutex
	replies []reply
	asked   []string // "METHOD path?query [headers] body"
}

type reply struct {
	status int
	body   string
	header string // "Name: value"
}

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		return // of several nodes ctl looks for one that is up
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + r.RequestURI
	for _, name := range []string{"Authorization", "If-Match", "If-None-Match", "Content-Type"} {
		if v := r.Header.Get(name); v != "" && v != "application/json" {
			line += " [" + name + ": " + v + "]"
		}
	}
	f.asked = append(f.asked, strings.TrimSpace(line+" "+string(body)))
	if len(f.replies) == 0 {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	next := f.replies[0]
	f.replies = f.replies[1:]
	if name, value, ok := strings.Cut(next.header, ": "); ok {
		w.Header().Set(name, value)
	}
	w.WriteHeader(next.status)
	io.WriteString(w, next.body)
}

// requests are those that it was asked so far.
func (f *fakeNode) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

const oneTimer = `{"topic":"t","id":"x","version":2,"state":"scheduled","due":"2030-01-01T00:00:00.000Z","due_ms":1893456000000,"payload":{"a":1},"attempts":0,"max_attempts":16}`

// nextTimes is a series with its next times, over a clock change.
const nextTimes = `{"topic":"t","id":"x","due":"2099-03-28T01:30:00.000Z","repeat":{"cron":"30 2 * * *","zone":"Europe/Berlin"},"next":["2099-03-28T01:30:00.000Z","2099-03-29T01:30:00.000Z","2099-03-30T00:30:00.000Z"]}`

// ctlCase is one call of ctl against a fake node.
type ctlCase struct {
	name    string
	args    []string
	stdin   string
	env     []string
	replies []reply
	asked   []string
	out     []string // each within stdout
	err     []string // each within stderr
	code    int
	both    bool // it says something on stdout though it fails
}

func TestCtl(t *testing.T) {
	payload := filepath.Join(t.TempDir(), "p.json")
	testkit.Must(t, os.WriteFile(payload, []byte("{\"big\": 12345678901234567890}\n"), 0o600))
	ok := func(body string) []reply { return []reply{{status: 200, body: body}} }
	problem := func(status int, body string) []reply { return []reply{{status: status, body: body}} }
	runCtl(t, []ctlCase{
		{
			name: "add", replies: []reply{{status: 201, body: oneTimer}},
			args:  []string{"add", "t", "--id", "x", "--delay", "2s", "--payload", `{"a": 1.0, "b":"<&>"}`, "--callback", "http://127.0.0.1:7780/a?b=1&c"},
			asked: []string{`POST /v1/topics/t/timers {"id":"x","delay":"2s","payload":{"a": 1.0, "b":"<&>"},"callback":{"url":"http://127.0.0.1:7780/a?b=1&c"}}`},
			out:   []string{"ID", "STATE", "DUE", "x", "scheduled", "2030-01-01T00:00:00.000Z"},
		},
		{
			name: "add with everything", replies: []reply{{status: 201, body: oneTimer}}, stdin: "[1,\n2]",
			args: []string{"add", "t", "--key", "k", "--at", "2030-01-01T00:00:00Z", "--payload", "-", "--header", "X-Tenant: 7", "--header", "X-Two:a, b:c",
				"--label", "vip", "--label", "eu", "--priority", "0", "--weight", "4", "--expires-after", "10m", "--max-attempts", "3", "--token", "crl_secret"},
			asked: []string{`POST /v1/topics/t/timers [Authorization: Bearer crl_secret] {"key":"k","at":"2030-01-01T00:00:00Z","payload":[1,` + "\n" +
				`2],"callback":{"headers":{"X-Tenant":"7","X-Two":"a, b:c"}},"priority":0,"weight":4,"labels":["vip","eu"],"expires_after":"10m","retry":{"max_attempts":3}}`},
		},
		{
			name: "add a series", replies: []reply{{status: 201, body: oneTimer}},
			args: []string{"add", "t", "--id", "x", "--cron", "0 8 * * 1-5", "--zone", "Asia/Shanghai", "--until", "2030-01-01T00:00:00Z", "--count", "7",
				"--catch-up", "all", "--overlap", "--merge", "debounce", "--max-wait", "5m", "--if-late", "reject"},
			asked: []string{`POST /v1/topics/t/timers {"id":"x","merge":"debounce","max_wait":"5m","if_late":"reject","repeat":{"cron":"0 8 * * 1-5","zone":"Asia/Shanghai",` +
				`"until":"2030-01-01T00:00:00Z","count":7,"catch_up":"all","overlap":true}}`},
		},
		{
			name: "a number that is 0 is sent", replies: []reply{{status: 400, body: `{"code":"bad_request","detail":"collect_max: must be 1 to 10000"}`}},
			args:  []string{"add", "t", "--delay", "1s", "--merge", "collect", "--payload", "1", "--collect-max", "0"},
			asked: []string{`POST /v1/topics/t/timers {"merge":"collect","collect_max":0,"delay":"1s","payload":1}`},
			err:   []string{"collect_max: must be 1 to 10000"}, code: exitFailure,
		},
		{
			name: "so is one of a series", replies: []reply{{status: 400, body: `{"code":"bad_request","detail":"repeat.count: must be 1 or more"}`}},
			args:  []string{"add", "t", "--every", "1h", "--count", "0"},
			asked: []string{`POST /v1/topics/t/timers {"delay":"1h","repeat":{"every":"1h","count":0}}`},
			err:   []string{"repeat.count: must be 1 or more"}, code: exitFailure,
		},
		{
			name: "add with outcomes", replies: []reply{{status: 201, body: oneTimer}},
			args:  []string{"add", "t", "--delay", "1s", "--on-dead", "failed", "--on-done", "-"},
			asked: []string{`POST /v1/topics/t/timers {"delay":"1s","on_done":null,"on_dead":{"topic":"failed"}}`},
		},
		{
			name: "payload from a file keeps its bytes", replies: []reply{{status: 201, body: oneTimer}},
			args:  []string{"add", "t", "--delay", "1s", "--payload", "@" + payload},
			asked: []string{"POST /v1/topics/t/timers {\"delay\":\"1s\",\"payload\":{\"big\": 12345678901234567890}\n}"},
		},
		{
			name: "payload file is missing", args: []string{"add", "t", "--delay", "1s", "--payload", "@no.json"},
			err: []string{"--payload: open no.json"}, code: exitFailure,
		},
		{
			name: "get", args: []string{"get", "t", "{k}a"}, replies: ok(oneTimer),
			asked: []string{"GET /v1/topics/t/timers/%7Bk%7Da"},
			out:   []string{"topic ", `payload       {"a":1}`, "due           2030-01-01T00:00:00.000Z", "max_attempts  16"},
		},
		{
			name: "get shows why it waits, and the attempts", args: []string{"get", "t", "x"},
			replies: ok(`{"id":"x","state":"scheduled","attempts":2,"max_attempts":16,"next_attempt":"2030-01-01T00:00:00.000Z","waits_for":"breaker","waits_on":"http://h:80 (open)",` +
				`"attempt_log":[{"attempt":1,"started_ms":1893455990000,"ended_ms":1893455990007,"lateness_ms":3,"status":500},{"attempt":2,"started_ms":1893455995000,"ended_ms":1893455995001,"error":"connection refused"}]}`),
			asked: []string{"GET /v1/topics/t/timers/x", "GET /v1/clock"},
			out: []string{"\nwaits for breaker: http://h:80 (open)\n", "\nattempts\nATTEMPT  STARTED                   LATE  TOOK  RESULT\n" +
				"1        2029-12-31T23:59:50.000Z  3 ms  7 ms  500\n2        2029-12-31T23:59:55.000Z        1 ms  connection refused\nnext: 2030-01-01T00:00:00.000Z, in ", " (attempt 3 of 16)\n"},
		},
		{
			name: "get shows what the receiver answered", args: []string{"get", "t", "x"},
			replies: ok(`{"id":"x","state":"scheduled","attempt_log":[{"attempt":1,"started_ms":1893455990000,"status":500,"error":"status 500","answer":"card\n\u001b[31mdeclined\n","answer_type":"text/plain"},` +
				`{"attempt":2,"started_ms":1893455995000,"status":302,"error":"redirect 302","answer_base64":"/wA=","location":"https://there/"}]}`),
			asked: []string{"GET /v1/topics/t/timers/x"},
			out:   []string{"redirect 302\n\nanswer to attempt 1 (text/plain)\n  card\n  ·[31mdeclined\n\nanswer to attempt 2\n  location: https://there/\n  2 bytes that are not text\n"},
		},
		{
			name: "list shows why they wait", args: []string{"list", "t"},
			replies: ok(`{"timers":[{"id":"x","state":"scheduled","waits_for":"topic_paused","waits_on":"t"},{"id":"y","state":"done"}]}`),
			asked:   []string{"GET /v1/topics/t/timers?limit=100&payload=false"}, out: []string{"WAITS FOR\n", "topic_paused: t\n", "acked\n"},
		},
		{
			name: "get --json is as it came", args: []string{"get", "t", "x", "--json"}, replies: ok(oneTimer),
			asked: []string{"GET /v1/topics/t/timers/x"}, out: []string{oneTimer + "\n"},
		},
		{
			name: "patch", args: []string{"patch", "t", "x", "--delay", "1h", "--if-match", "7"}, replies: ok(oneTimer),
			asked: []string{`PATCH /v1/topics/t/timers/x [If-Match: "7"] {"delay":"1h"}`}, out: []string{"scheduled"},
		},
		{
			name: "add of an id that is in use", args: []string{"add", "t", "--id", "x", "--delay", "1h"},
			replies: problem(409, `{"title":"exists","status":409,"detail":"the id is in use with other content","code":"exists","existing":{"version":3,"state":"scheduled","due":"2030-01-01T00:00:00.000Z","due_ms":1893456000000}}`),
			asked:   []string{`POST /v1/topics/t/timers {"id":"x","delay":"1h"}`},
			err:     []string{"the id is in use with other content (409 exists): there is version 3, scheduled, due 2030-01-01T00:00:00.000Z"}, code: exitFailure,
		},
		{
			name: "patch of another version", args: []string{"patch", "t", "x", "--delay", "1h", "--if-match", "7"},
			replies: problem(412, `{"title":"version mismatch","status":412,"detail":"the version is 9","code":"version_mismatch","retryable":false}`),
			asked:   []string{`PATCH /v1/topics/t/timers/x [If-Match: "7"] {"delay":"1h"}`},
			err:     []string{"the version is 9 (412 version_mismatch)", "repeat with its version"}, code: exitFailure,
		},
		{
			name: "pull", args: []string{"pull", "t", "--max", "2", "--wait", "1s"},
			replies: ok(`{"timers":[{"id":"x","due":"2030-01-01T00:00:00.000Z","attempt":3,"lease_until":"2030-01-01T00:00:30.000Z","receipt":"AQIB","payload":{"a":1}}]}`),
			asked:   []string{`POST /v1/topics/t/pull {"max":2,"wait":"1s"}`}, out: []string{"RECEIPT", "x", "3", "AQIB", `{"a":1}`},
		},
		{
			name: "pull of nothing", args: []string{"pull", "t", "--lease", "5s"}, replies: ok(`{"timers":[]}`),
			asked: []string{`POST /v1/topics/t/pull {"max":1,"wait":"0s","lease":"5s"}`}, err: []string{"nothing is ready"},
		},
		{
			name: "ack", args: []string{"ack", "AQIB", "AQIC"}, replies: ok(`{"results":[{"receipt":"AQIB","status":200},{"receipt":"AQIC","status":410,"code":"over"}]}`),
			asked: []string{`POST /v1/ack {"receipts":["AQIB","AQIC"]}`}, err: []string{"1 of 2 leases are over: AQIC;"}, code: exitFailure,
		},
		{
			name: "nack", args: []string{"nack", "AQIB", "--delay", "5s", "--reason", "no stock"}, replies: ok(`{"results":[{"receipt":"AQIB","status":200}]}`),
			asked: []string{`POST /v1/nack {"delay":"5s","reason":"no stock","receipts":["AQIB"]}`}, out: []string{"nack: 1\n"},
		},
		{
			name: "ack --json", args: []string{"ack", "AQIB", "rubbish", "--json"}, replies: ok(`{"results":[{"receipt":"AQIB","status":200},{"receipt":"rubbish","status":410,"code":"over"}]}`),
			asked: []string{`POST /v1/ack {"receipts":["AQIB","rubbish"]}`}, out: []string{`{"receipt":"rubbish","status":410,"code":"over"}`},
			err: []string{"1 of 2 leases are over: rubbish"}, code: exitFailure, both: true,
		},
		{
			name: "extend", args: []string{"extend", "AQIB", "--lease", "1m", "--json"}, replies: ok(`{"results":[{"receipt":"AQIB","status":200}]}`),
			asked: []string{`POST /v1/extend {"lease":"1m","receipts":["AQIB"]}`}, out: []string{`{"results":[{"receipt":"AQIB","status":200}]}`},
		},
		{
			name: "cancel in time", args: []string{"cancel", "t", "x"}, replies: ok(`{"outcome":"prevented"}`),
			asked: []string{"DELETE /v1/topics/t/timers/x"}, out: []string{"prevented: no attempt starts any more"},
		},
		{
			name: "cancel while a call runs", args: []string{"cancel", "t", "x"}, replies: []reply{{status: 202, body: `{"outcome":"in_flight"}`}},
			asked: []string{"DELETE /v1/topics/t/timers/x"}, out: []string{"in_flight: a call is running"}, code: 3,
		},
		{
			name: "cancel while a call runs --json", args: []string{"cancel", "t", "x", "--json"}, replies: []reply{{status: 202, body: `{"outcome":"in_flight"}`}},
			asked: []string{"DELETE /v1/topics/t/timers/x"}, out: []string{`{"outcome":"in_flight"}`}, code: 3,
		},
		{
			name: "cancel too late", args: []string{"cancel", "t", "x"},
			replies: problem(410, `{"title":"over","status":410,"detail":"the timer has been delivered","code":"over","outcome":"already_fired"}`),
			asked:   []string{"DELETE /v1/topics/t/timers/x"},
			err:     []string{"carillon: the timer has been delivered (410 over)\n"}, code: exitFailure,
		},
		{
			name: "cancel by filter", args: []string{"cancel", "t", "--label", "a", "--label", "b", "--due-to", "2030-01-01T00:00:00Z"}, replies: ok(`{"matched":9,"changed":8,"skipped":1}`),
			asked: []string{`POST /v1/topics/t/cancel {"filter":{"due_to":"2030-01-01T00:00:00Z","label":["a","b"]}}`}, out: []string{"matched 9, changed 8, skipped 1"},
		},
		{
			name: "clock", args: []string{"clock"}, replies: ok(`{"now":"2026-01-01T00:00:00.000Z","now_ms":1767225600000}`),
			asked: []string{"GET /v1/clock"}, out: []string{"2026-01-01T00:00:00.000Z\n"},
		},
		{
			name: "clock is advanced", args: []string{"clock", "--advance", "30d"}, replies: ok(`{"now":"2026-01-31T00:00:00.000Z","now_ms":1769817600000,"calls":3,"left":1}`),
			asked: []string{`POST /v1/clock {"advance":"30d"}`}, out: []string{"2026-01-31T00:00:00.000Z: 3 calls, 1 left\n"},
		},
		{
			name: "clock is moved", args: []string{"clock", "--to", "2027-01-01T00:00:00Z"}, replies: ok(`{"now":"2026-05-01T00:00:00.000Z","now_ms":1777593600000,"calls":100001,"left":0,"stopped":true}`),
			asked: []string{`POST /v1/clock {"to":"2027-01-01T00:00:00Z"}`}, out: []string{"100001 calls, 0 left; stopped there: the same again goes on\n"},
		},
		{
			name: "cancel all", args: []string{"cancel", "t", "--all"}, replies: ok(`{"matched":9,"changed":9,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/cancel {"all":true}`}, out: []string{"matched 9"},
		},
		{
			name: "cancel as a dry run", args: []string{"cancel", "t", "--all", "--dry-run"}, replies: ok(`{"matched":9,"changed":8,"skipped":1,"dry_run":true,"first":"b1"}`),
			asked: []string{`POST /v1/topics/t/cancel?dry_run=true {"all":true}`}, out: []string{"would cancel 8 of 9, first b1; 1 cannot be now\n"},
		},
		{
			name: "reschedule as a dry run", args: []string{"reschedule", "t", "--all", "--shift", "+1h", "--dry-run"}, replies: ok(`{"matched":5,"changed":5,"skipped":0,"dry_run":true,"first":"b1"}`),
			asked: []string{`POST /v1/topics/t/reschedule?dry_run=true {"all":true,"shift":"+1h"}`}, out: []string{"would move 5 of 5, first b1\n"},
		},
		{
			name: "redrive as a dry run", args: []string{"dead", "redrive", "t", "x", "--dry-run"}, replies: ok(`{"matched":1,"changed":0,"skipped":1,"dry_run":true}`),
			asked: []string{`POST /v1/topics/t/dead/redrive?dry_run=true {"ids":["x"]}`}, out: []string{"would redrive 0 of 1; 1 cannot be now\n"},
		},
		{
			name: "purge as a dry run", args: []string{"dead", "purge", "t", "--all", "--dry-run", "--json"}, replies: ok(`{"matched":1,"changed":1,"skipped":0,"dry_run":true,"first":"x"}`),
			asked: []string{`POST /v1/topics/t/dead/purge?dry_run=true {"all":true}`}, out: []string{`{"matched":1,"changed":1,"skipped":0,"dry_run":true,"first":"x"}`},
		},
		{name: "cancel one as a dry run", args: []string{"cancel", "t", "x", "--dry-run"}, code: 2, err: []string{"carillon ctl get"}},
		{
			name: "add of a time long past", args: []string{"add", "t", "--at", "2020-01-01T00:00:00Z"}, replies: []reply{{status: 201, body: strings.ReplaceAll(oneTimer, "2030-01", "2020-01")}},
			asked: []string{`POST /v1/topics/t/timers {"at":"2020-01-01T00:00:00Z"}`, "GET /v1/clock"}, out: []string{"scheduled"}, err: []string{"carillon: due ", " years ago: fires at once\n"},
		},
		{
			name: "add of a time long past, but not by a test clock", args: []string{"add", "t", "--at", "2020-01-01T00:00:00Z"},
			replies: []reply{{status: 201, body: strings.ReplaceAll(oneTimer, "2030-01", "2020-01")}, {status: 200, body: `{"now":"2019-12-31T23:00:00.000Z"}`}},
			asked:   []string{`POST /v1/topics/t/timers {"at":"2020-01-01T00:00:00Z"}`, "GET /v1/clock"}, out: []string{"scheduled"},
		},
		{
			name: "add again of one that is done", args: []string{"add", "t", "--at", "2020-01-01T00:00:00Z"}, replies: ok(`{"id":"x","state":"done","due":"2020-01-01T00:00:00Z"}`),
			asked: []string{`POST /v1/topics/t/timers {"at":"2020-01-01T00:00:00Z"}`}, out: []string{"done"},
			err: []string{"x has ended already (done); nothing was added, and it does not fire again\n"},
		},
		{
			name: "add of one that is there just so", args: []string{"add", "t", "--id", "x", "--at", "2030-01-01T00:00:00Z"}, replies: ok(oneTimer),
			asked: []string{`POST /v1/topics/t/timers {"id":"x","at":"2030-01-01T00:00:00Z"}`}, out: []string{"scheduled"},
			err: []string{"x is there already, just like this; nothing was added\n"},
		},
		{
			name: "add that is merged", args: []string{"add", "t", "--id", "x", "--delay", "1s", "--merge", "keep", "--json"}, replies: ok(strings.Replace(oneTimer, "{", `{"merged":true,`, 1)),
			asked: []string{`POST /v1/topics/t/timers {"id":"x","merge":"keep","delay":"1s"}`}, out: []string{`"merged":true`},
			err: []string{"x was there already; the add was merged into it\n"},
		},
		{
			name: "add that is collected", args: []string{"add", "t", "--id", "x", "--delay", "1s", "--merge", "collect", "--payload", "3"}, replies: ok(strings.Replace(oneTimer, "{", `{"merged":true,"collected":3,`, 1)),
			asked: []string{`POST /v1/topics/t/timers {"id":"x","merge":"collect","delay":"1s","payload":3}`}, out: []string{"scheduled"},
			err: []string{"x was there already; the add was merged into it: its array has 3 payloads\n"},
		},
		{
			name: "add that begins an array", args: []string{"add", "t", "--id", "x", "--delay", "1s", "--merge", "collect", "--payload", "3", "--json"}, replies: []reply{{status: 201, body: strings.Replace(oneTimer, "{", `{"collected":1,`, 1)}},
			asked: []string{`POST /v1/topics/t/timers {"id":"x","merge":"collect","delay":"1s","payload":3}`}, out: []string{`"collected":1`},
			err: []string{"x: its array has 1 payload\n"},
		},
		{
			name: "add with key and id", args: []string{"add", "t", "--key", "ann", "--id", "2", "--delay", "1s"}, replies: []reply{{status: 201, body: oneTimer}},
			asked: []string{`POST /v1/topics/t/timers {"id":"{ann}2","key":"ann","delay":"1s"}`}, out: []string{"x"},
		},
		{
			name: "add with key and whole id", args: []string{"add", "t", "--key", "ann", "--id", "{bob}2", "--delay", "1s"}, replies: problem(400, `{"code":"bad_name","detail":"key: the id must start with {ann}"}`),
			asked: []string{`POST /v1/topics/t/timers {"id":"{bob}2","key":"ann","delay":"1s"}`}, err: []string{"must start with {ann} (400 bad_name)"}, code: exitFailure,
		},
		{
			name: "add that repeats by itself", args: []string{"add", "t", "--every", "90m", "--count", "3"}, replies: []reply{{status: 201, body: oneTimer}},
			asked: []string{`POST /v1/topics/t/timers {"delay":"90m","repeat":{"every":"90m","count":3}}`}, out: []string{"x"},
		},
		{
			name: "add a series as a dry run", args: []string{"add", "t", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--dry-run"}, replies: ok(nextTimes),
			asked: []string{`POST /v1/topics/t/timers?dry_run=true {"repeat":{"cron":"30 2 * * *","zone":"Europe/Berlin"}}`, "GET /v1/clock"},
			out:   []string{"DUE                       IN WORDS", "2099-03-28T01:30:00.000Z", "Sun 2099-03-29 03:30:00 CEST\n2099-03-30T00:30:00.000Z"},
		},
		{
			name: "add as a dry run", args: []string{"add", "t", "--at-local", "2030-01-01T01:00:00", "--zone", "Europe/Berlin", "--dry-run"}, replies: ok(oneTimer),
			asked: []string{`POST /v1/topics/t/timers?dry_run=true {"at_local":"2030-01-01T01:00:00","zone":"Europe/Berlin"}`, "GET /v1/clock"},
			out:   []string{"2030-01-01T00:00:00.000Z", "Tue 2030-01-01 01:00:00 CET\n"},
		},
		{
			name: "add as a dry run --json", args: []string{"add", "t", "--delay", "30d", "--dry-run", "--json"}, replies: ok(oneTimer),
			asked: []string{`POST /v1/topics/t/timers?dry_run=true {"delay":"30d"}`}, out: []string{oneTimer + "\n"},
		},
		{
			name: "add as a dry run that is refused", args: []string{"add", "t", "--cron", "0 0 32 2 *", "--dry-run"},
			replies: problem(400, `{"code":"bad_request","detail":"repeat: cron: day of month: 32 is not within 1 to 31"}`),
			asked:   []string{`POST /v1/topics/t/timers?dry_run=true {"repeat":{"cron":"0 0 32 2 *"}}`}, err: []string{"32 is not within 1 to 31 (400 bad_request)"}, code: exitFailure,
		},
		{
			name: "patch as a dry run", args: []string{"patch", "t", "x", "--at-local", "2030-01-01T01:00:00", "--zone", "Europe/Berlin", "--dry-run"}, replies: ok(oneTimer),
			asked: []string{`PATCH /v1/topics/t/timers/x?dry_run=true {"at_local":"2030-01-01T01:00:00","zone":"Europe/Berlin"}`, "GET /v1/clock"}, out: []string{"2030-01-01T00:00:00.000Z"},
		},
		{
			name: "next", args: []string{"next", "t", "x", "-n", "3"}, replies: ok(nextTimes), asked: []string{`GET /v1/topics/t/timers/x?next=3`, "GET /v1/clock"},
			out: []string{"2099-03-28T01:30:00.000Z", "Sun 2099-03-29 03:30:00 CEST\n2099-03-30T00:30:00.000Z"},
		},
		{
			name: "next by a test clock", args: []string{"next", "t", "x"}, replies: append(ok(nextTimes), ok(`{"now":"2099-03-28T03:30:00.000Z"}`)...),
			asked: []string{`GET /v1/topics/t/timers/x?next=5`, "GET /v1/clock"},
			out:   []string{"2099-03-28T01:30:00.000Z  2 hours ago  ", "2099-03-29T01:30:00.000Z  in 22 hours  "},
		},
		{
			name: "next of a series that is over", args: []string{"next", "t", "x"}, replies: ok(`{"id":"x","repeat":{"cron":"* * * * *"},"next":[],"next_ms":[]}`),
			asked: []string{`GET /v1/topics/t/timers/x?next=5`}, out: []string{"none is to come\n"},
		},
		{
			name: "next of a timer that is over", args: []string{"next", "t", "x"}, replies: ok(`{"id":"x","state":"cancelled","due":"2099-01-01T00:00:00.000Z"}`),
			asked: []string{`GET /v1/topics/t/timers/x?next=5`}, out: []string{"none is to come\n"},
		},
		{
			name: "add by two clocks", args: []string{"add", "t", "--at-local", "2030-01-01T01:00:00", "--cron", "0 8 * * *", "--zone", "Europe/Berlin"}, replies: []reply{{status: 201, body: oneTimer}},
			asked: []string{`POST /v1/topics/t/timers {"at_local":"2030-01-01T01:00:00","zone":"Europe/Berlin","repeat":{"cron":"0 8 * * *","zone":"Europe/Berlin"}}`}, out: []string{"x"},
		},
		{
			name: "reschedule to a local time", args: []string{"reschedule", "t", "--all", "--at-local", "2030-01-01T01:00:00", "--zone", "Europe/Berlin"}, replies: ok(`{"matched":1,"changed":1,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/reschedule {"all":true,"at_local":"2030-01-01T01:00:00","zone":"Europe/Berlin"}`}, out: []string{"1"},
		},
		{name: "cancel nothing in particular", args: []string{"cancel", "t"}, code: 2, err: []string{"which timers?"}},
		{name: "cancel by id and filter", args: []string{"cancel", "t", "x", "--all"}, code: 2, err: []string{"give one of the two"}},
		{name: "cancel all and by filter", args: []string{"cancel", "t", "--all", "--label", "a"}, code: 2, err: []string{"give one of the two"}},
		{
			name: "reschedule by a shift", args: []string{"reschedule", "t", "--id-prefix", "x", "--shift=-5m"}, replies: ok(`{"matched":1,"changed":1,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/reschedule {"filter":{"id_prefix":"x"},"shift":"-5m"}`}, out: []string{"changed 1"},
		},
		{
			name: "reschedule not before", args: []string{"reschedule", "t", "--all", "--not-before", "2030-01-01T00:00:00Z"}, replies: ok(`{"matched":1,"changed":0,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/reschedule {"all":true,"not_before":"2030-01-01T00:00:00Z"}`}, out: []string{"matched 1, changed 0"},
		},
		{name: "reschedule to nothing", args: []string{"reschedule", "t", "--all"}, code: 2, err: []string{"to when? give --shift, --at or --not-before (see: carillon ctl reschedule --help)"}},
		{name: "reschedule to two things", args: []string{"reschedule", "t", "--all", "--shift", "+1h", "--at", "2030-01-01T00:00:00Z"}, code: 2, err: []string{"--shift", "--at"}},
		{
			name: "dead purge by filter", args: []string{"dead", "purge", "t", "--reason", "expired", "--label", "a"}, replies: ok(`{"matched":2,"changed":2,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/dead/purge {"filter":{"reason":"expired","label":["a"]}}`}, out: []string{"matched 2"},
		},
		{
			name: "pause", args: []string{"timers", "pause", "t", "x", "--if-match", "7"}, replies: ok(`{"id":"x","state":"scheduled","paused":true,"waits_for":"paused"}`),
			asked: []string{`POST /v1/topics/t/timers/x/pause [If-Match: "7"]`}, out: []string{"paused\n"},
		},
		{
			name: "resume", args: []string{"timers", "resume", "t", "x"}, replies: ok(oneTimer), asked: []string{"POST /v1/topics/t/timers/x/resume"}, out: []string{"x"},
		},
		{
			name: "pause by label", args: []string{"timers", "pause", "t", "--label", "a"}, replies: ok(`{"matched":3,"changed":2,"skipped":1}`),
			asked: []string{`POST /v1/topics/t/pause-timers {"filter":{"label":["a"]}}`}, out: []string{"2"},
		},
		{
			name: "resume all, first dry", args: []string{"timers", "resume", "t", "--all", "--dry-run"}, replies: ok(`{"matched":3,"changed":2,"skipped":1,"dry_run":true}`),
			asked: []string{`POST /v1/topics/t/resume-timers?dry_run=true {"all":true}`}, out: []string{"2"},
		},
		{
			name: "pause of an id and a filter", args: []string{"timers", "pause", "t", "x", "--all"}, err: []string{"give one of the two"}, code: exitUsage,
		},
		{
			name: "fire", args: []string{"fire", "t", "x"}, replies: ok(oneTimer), asked: []string{"POST /v1/topics/t/timers/x/fire"}, out: []string{"x"},
		},
		{
			name: "list over pages", args: []string{"list", "t", "--limit", "3", "--label", "a", "--label", "b", "--state", "dead", "--id-prefix", "x"},
			replies: []reply{
				{status: 200, body: `{"timers":[` + oneTimer + `,` + oneTimer + `],"next_cursor":"c&1"}`},
				{status: 200, body: `{"timers":[{"id":"last","state":"dead","last_error":"boom\u001b[31m"}],"next_cursor":"c2"}`},
			},
			asked: []string{
				"GET /v1/topics/t/timers?id_prefix=x&label=a&label=b&limit=3&payload=false&state=dead",
				"GET /v1/topics/t/timers?cursor=c%261&id_prefix=x&label=a&label=b&limit=1&payload=false&state=dead",
			},
			out: []string{"last", "boom·[31m"}, err: []string{"there are more"},
		},
		{
			name: "list of all topics", args: []string{"list", "--id", "x", "--state", "scheduled"},
			replies: ok(`{"timers":[{"topic":"orders","id":"x","state":"scheduled"},{"topic":"mail","id":"x","state":"leased"}]}`),
			asked:   []string{"GET /v1/timers?id=x&limit=100&payload=false&state=scheduled"},
			out:     []string{"TOPIC   ID  STATE ", "\norders  x   scheduled", "\nmail    x   leased"},
		},
		{
			name: "list --json of all topics", args: []string{"list", "--json", "--label", "a"}, replies: ok(`{"timers":[{"topic":"orders","id":"x"}]}`),
			asked: []string{"GET /v1/timers?label=a&limit=100"}, out: []string{`{"timers":[{"topic":"orders","id":"x"}]}` + "\n"},
		},
		{
			name: "list --json is one page", args: []string{"list", "t", "--json", "--limit", "0"},
			replies: []reply{{status: 200, body: `{"timers":[{"id":"a"}],"next_cursor":"n"}`}, {status: 200, body: `{"timers":[{"id":"b"}]}`}},
			asked:   []string{"GET /v1/topics/t/timers?limit=1000", "GET /v1/topics/t/timers?cursor=n&limit=1000"},
			out:     []string{`{"timers":[{"id":"a"},{"id":"b"}]}` + "\n"},
		},
		{
			name: "topics", args: []string{"topics"}, replies: ok(`{"topics":[{"topic":"orders","paused":true,"counts":{"scheduled":7,"dead":1,"waiting":{"key":1,"breaker":3}},"oldest_overdue_ms":12},{"topic":"old","counts":{},"oldest_overdue_ms":95790309335},{"topic":"new","counts":{},"oldest_overdue_ms":3723000}]}`),
			asked: []string{"GET /v1/topics?counts=true&limit=100"}, out: []string{"TOPIC", "orders", "true", "7", "12 ms", "1108 d 16 h", "1h2m3s", "WAITS FOR", "breaker 3, key 1"},
		},
		{
			name: "topics get", args: []string{"topics", "get", "orders"}, replies: ok(`{"topic":"orders","policy":{"delivery":"push"},"paused":false}`),
			asked: []string{"GET /v1/topics/orders"}, out: []string{`policy  {"delivery":"push"}`},
		},
		{
			name: "topics put", args: []string{"topics", "put", "orders", "--policy", "-"}, stdin: `{"history":"24h"}`, replies: ok(`{"topic":"orders"}`),
			asked: []string{`PUT /v1/topics/orders {"history":"24h"}`}, out: []string{"orders"},
		},
		{
			name: "topics set", args: []string{"topics", "set", "orders", "history=24h", "retry.max_attempts=5", "retry.jitter=null", "serial=true", "key=77", "callback.url=https://a/b?c=d", "per_key.rate.per_second=5", "per_key.fair=false"}, replies: ok(`{"topic":"orders"}`),
			asked: []string{`PATCH /v1/topics/orders {"callback":{"url":"https://a/b?c=d"},"history":"24h","key":"77","per_key":{"fair":false,"rate":{"per_second":5}},"retry":{"jitter":null,"max_attempts":5},"serial":true}`}, out: []string{"orders"},
		},
		{
			name: "topics set refused", args: []string{"topics", "set", "orders", "callback=null", "--if-match", "7-3"}, replies: problem(409, `{"detail":"3 pending timers would have no callback URL; ?force=true does it nevertheless","code":"in_use"}`),
			asked: []string{`PATCH /v1/topics/orders [If-Match: "7-3"] {"callback":null}`}, err: []string{"3 pending timers would have no callback URL; --force does it nevertheless (409 in_use)"}, code: exitFailure,
		},
		{
			name: "topics put refused", args: []string{"topics", "put", "orders", "--policy", "{}"}, code: exitFailure,
			replies: problem(409, `{"detail":"3 pending timers would have no callback URL; nothing was changed. PATCH changes the given fields only; ?force=true does it nevertheless","code":"in_use"}`),
			asked:   []string{"PUT /v1/topics/orders {}"},
			err:     []string{"nothing was changed. carillon ctl topics set changes the given fields only; --force does it nevertheless (409 in_use)"},
		},
		{
			name: "topics set by force", args: []string{"topics", "set", "orders", "callback=null", "--force"}, replies: ok(`{"topic":"orders"}`), asked: []string{`PATCH /v1/topics/orders?force=true {"callback":null}`},
		},
		{
			name: "topics delete refused", args: []string{"topics", "delete", "orders"}, replies: problem(409, `{"detail":"it has timers; ?force=true drops them","code":"not_empty"}`),
			asked: []string{"DELETE /v1/topics/orders"}, err: []string{"it has timers; --force drops them (409 not_empty)"}, code: exitFailure,
		},
		{
			name: "topics delete", args: []string{"topics", "delete", "orders", "--force"}, replies: ok(`{"cancelled":3}`),
			asked: []string{"DELETE /v1/topics/orders?force=true"}, out: []string{"cancelled: 3"},
		},
		{
			name: "topics delete as a dry run", args: []string{"topics", "delete", "orders", "--dry-run"},
			replies: ok(`{"topic":"orders","counts":{"scheduled":3,"ready":2,"leased":4,"done":9,"dead":3}}`),
			asked:   []string{"GET /v1/topics/orders"}, out: []string{"would delete the topic, cancel 7 timers and drop 3 dead letters; it needs --force\n"},
		},
		{
			name: "topics delete of an empty one as a dry run", args: []string{"topics", "delete", "orders", "--dry-run"},
			replies: ok(`{"topic":"orders","counts":{"scheduled":0,"ready":0,"leased":0,"done":9,"dead":0}}`),
			asked:   []string{"GET /v1/topics/orders"}, out: []string{"cancel 0 timers and drop 0 dead letters, unless other topics name it in on_done or on_dead\n"},
		},
		{
			name: "topics delete as a dry run by force", args: []string{"topics", "delete", "orders", "--dry-run", "--force"},
			replies: ok(`{"topic":"orders","counts":{"scheduled":1,"ready":0,"leased":0,"done":9,"dead":0}}`),
			asked:   []string{"GET /v1/topics/orders"}, out: []string{"would delete the topic, cancel 1 timers and drop 0 dead letters\n"},
		},
		{
			name: "topics pause", args: []string{"topics", "pause", "orders"}, replies: ok(`{"topic":"orders","paused":true}`),
			asked: []string{"POST /v1/topics/orders/pause"}, out: []string{"paused  true"},
		},
		{
			name: "topics resume", args: []string{"topics", "resume", "orders"}, replies: ok(`{"topic":"orders","paused":false}`),
			asked: []string{"POST /v1/topics/orders/resume"}, out: []string{"paused  false"},
		},
		{
			name: "history", args: []string{"history", "t", "--id", "x", "--state", "done,dead"},
			replies: ok(`{"entries":[{"id":"x","state":"dead","reason":"stopped","ended":"2026-06-01T12:00:00.000Z","attempts":3,"last_status":410,"attempt_log":[]}]}`),
			asked:   []string{"GET /v1/topics/t/history?id=x&limit=100&state=done%2Cdead"}, out: []string{"ENDED", "2026-06-01T12:00:00.000Z", "dead (stopped)", "410"},
		},
		{
			name: "destinations", args: []string{"destinations", "--state", "open"},
			replies: ok(`{"destinations":[{"destination":"http://h:80","state":"open","since":"2026-06-01T12:00:00.000Z","calls":2,"waiting":7,"latency_ms":1.25,"last_error":"timeout"}]}`),
			asked:   []string{"GET /v1/destinations?limit=100&state=open"},
			out: []string{"DESTINATION  STATE  SINCE                     CALLS  WAITING  LATENCY  LAST ERROR\n" +
				"http://h:80  open   2026-06-01T12:00:00.000Z  2      7        1.2 ms   timeout\n"},
		},
		{
			name: "dead list", args: []string{"dead", "list", "t", "--reason", "expired"}, replies: ok(`{"timers":[{"id":"x","reason":"expired","attempts":3,"last_status":503}]}`),
			asked: []string{"GET /v1/topics/t/dead?limit=100&reason=expired"}, out: []string{"REASON", "expired", "503"},
		},
		{
			name: "dead redrive", args: []string{"dead", "redrive", "t", "x", "y", "--delay", "5m", "--callback", "http://h/"}, replies: ok(`{"matched":2,"changed":1,"skipped":1}`),
			asked: []string{`POST /v1/topics/t/dead/redrive {"ids":["x","y"],"delay":"5m","callback":{"url":"http://h/"}}`}, out: []string{"matched 2, changed 1, skipped 1"},
		},
		{
			name: "redrive", args: []string{"redrive", "t", "x"}, replies: ok(`{"matched":1,"changed":1,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/dead/redrive {"ids":["x"]}`}, out: []string{"matched 1, changed 1, skipped 0"},
		},
		{
			name: "dead redrive by uid", args: []string{"dead", "redrive", "t", "--uid", "0001-2-00000003", "--uid", "0001-4-00000003"},
			replies: ok(`{"matched":2,"changed":1,"skipped":1,"skips":[{"id":"x","uid":"0001-4-00000003","code":"in_use","detail":"another timer has this id by now"}]}`),
			asked:   []string{`POST /v1/topics/t/dead/redrive {"uids":["0001-2-00000003","0001-4-00000003"]}`},
			out:     []string{"matched 2, changed 1, skipped 1", "skipped x 0001-4-00000003: another timer has this id by now"},
		},
		{
			name: "dead purge", args: []string{"dead", "purge", "t", "--all"}, replies: ok(`{"matched":2,"changed":2,"skipped":0}`),
			asked: []string{`POST /v1/topics/t/dead/purge {"all":true}`}, out: []string{"changed 2"},
		},
		{
			name: "no token", args: []string{"get", "t", "x"}, env: []string{"CARILLON_TOKEN=crl_wrong"},
			replies: problem(401, `{"title":"unauthorized","detail":"unknown token","code":"unauthorized"}`),
			asked:   []string{"GET /v1/topics/t/timers/x [Authorization: Bearer crl_wrong]"},
			err:     []string{"unknown token (401 unauthorized)", "CARILLON_TOKEN"}, code: exitFailure,
		},
		{
			name: "overloaded", args: []string{"fire", "t", "x"},
			replies: []reply{{status: 503, header: "Retry-After: 2", body: `{"title":"low disk","detail":"the disk is almost full","code":"low_disk","retryable":true}`}},
			asked:   []string{"POST /v1/topics/t/timers/x/fire"},
			err:     []string{"the disk is almost full (503 low_disk); try again in 2 s"}, code: exitFailure,
		},
		{
			name: "not a node", args: []string{"get", "t", "x"}, replies: problem(502, "<html>gateway</html>"),
			asked: []string{"GET /v1/topics/t/timers/x"}, err: []string{"502", "is --url right?"}, code: exitFailure,
		},
		{
			name: "not JSON", args: []string{"get", "t", "x"}, replies: ok("hello"),
			asked: []string{"GET /v1/topics/t/timers/x"}, err: []string{"is --url right?"}, code: exitFailure,
		},
	})
}

func runCtl(t *testing.T, tests []ctlCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := &fakeNode{replies: tt.replies}
			server := httptest.NewServer(node)
			defer server.Close()
			got := carillon(t, tt.stdin, append(tt.env, "CARILLON_URL="+server.URL), append([]string{"ctl"}, tt.args...)...)
			if got.code != tt.code {
				t.Errorf("exit %d, want %d", got.code, tt.code)
			}
			for _, want := range tt.out {
				if !strings.Contains(got.out, want) {
					t.Errorf("stdout %q lacks %q", got.out, want)
				}
			}
			for _, want := range tt.err {
				if !strings.Contains(got.err, want) {
					t.Errorf("stderr %q lacks %q", got.err, want)
				}
			}
			if wantLines := min(1, len(tt.err)); strings.Count(got.err, "\n") != wantLines {
				t.Errorf("stderr %q, want %d line", got.err, wantLines)
			}
			if (tt.code == exitFailure || tt.code == exitUsage) && got.out != "" && !tt.both {
				t.Errorf("stdout %q of a failed command", got.out)
			}
			if strings.Join(node.asked, "\n") != strings.Join(tt.asked, "\n") {
				t.Errorf("asked\n%s\nwant\n%s", strings.Join(node.asked, "\n"), strings.Join(tt.asked, "\n"))
			}
			checkJSON(t, &tt)
		})
	}
}

// checkJSON makes the same call with --json: then stdout has JSON alone, and some of it if the call
// succeeds.
func checkJSON(t *testing.T, tt *ctlCase) {
	t.Helper()
	server := httptest.NewServer(&fakeNode{replies: tt.replies})
	defer server.Close()
	got := carillon(t, tt.stdin, append(tt.env, "CARILLON_URL="+server.URL), append([]string{"ctl", "--json"}, tt.args...)...)
	values := json.NewDecoder(strings.NewReader(got.out))
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		err = values.Decode(new(json.RawMessage))
	}
	switch {
	case err != io.EOF:
		t.Errorf("--json: stdout %q is not JSON: %v", got.out, err)
	case n == 1 && got.code == exitOK:
		t.Errorf("--json: stdout is empty; stderr %q", got.err)
	}
}

// Of several nodes the first that takes a connection is asked, for a change as well: no other has
// seen it.
func TestCtlPassesOverNodesThatAreDown(t *testing.T) {
	node := &fakeNode{replies: []reply{{status: 200, body: oneTimer}}}
	server := httptest.NewServer(node)
	defer server.Close()
	got := carillon(t, "", []string{"CARILLON_URL=http://127.0.0.1:1," + server.URL}, "ctl", "fire", "t", "x")
	if got.code != exitOK || len(node.asked) != 1 {
		t.Errorf("%+v, asked %v", got, node.asked)
	}
}

// A certificate of an authority that is not known: the way to name it is said.
func TestCtlNamesTheFlagForTheAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(&fakeNode{})
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	got := carillon(t, "", nil, "ctl", "cluster", "--url", server.URL)
	if got.code != exitFailure || !strings.Contains(got.err, "--ca FILE (CARILLON_CA)") {
		t.Errorf("%+v", got)
	}
}

// A node that hangs takes connections and never answers: another is asked.
func TestCtlPassesOverNodesThatHang(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer hung.Close()
	node := &fakeNode{replies: []reply{{status: 200, body: oneTimer}}}
	server := httptest.NewServer(node)
	defer server.Close()
	got := carillon(t, "", nil, "ctl", "fire", "t", "x", "--url", "http://"+hung.Addr().String()+","+server.URL)
	if got.code != exitOK || len(node.asked) != 1 {
		t.Errorf("%+v, asked %v", got, node.asked)
	}
}

// A change whose answer does not come may have been made; ctl says so.
func TestCtlWithoutAnAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	got := carillon(t, "", nil, "ctl", "fire", "t", "x", "--url", server.URL, "--timeout", "50ms")
	if got.code != exitFailure || !strings.Contains(got.err, "may or may not have been made") {
		t.Errorf("got %+v", got)
	}
	got = carillon(t, "", nil, "ctl", "get", "t", "x", "--url", "http://127.0.0.1:1,http://127.0.0.1:2")
	if got.code != exitFailure || !strings.Contains(got.err, "no node answers at http://127.0.0.1:1, http://127.0.0.1:2;") {
		t.Errorf("got %+v", got)
	}
	got = carillon(t, "", nil, "ctl", "get", "t", "x", "--url", "http://127.0.0.1:1")
	if got.code != exitFailure || !strings.Contains(got.err, "start one with carillon serve") {
		t.Errorf("got %+v", got)
	}
}

// TestTimesAreLocal: tables and details have the times of the machine's zone, with its offset; JSON
// has those of the API.
func TestTimesAreLocal(t *testing.T) {
	t.Parallel()
	const timer = `{"topic":"t","id":"x","state":"scheduled","due":"2030-01-01T00:00:00.000Z","due_ms":1893456000000}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/x") {
			io.WriteString(w, timer)
		} else {
			io.WriteString(w, `{"timers":[`+timer+`]}`)
		}
	}))
	t.Cleanup(server.Close)
	for args, want := range map[string]string{"list t": "2030-01-01T05:30:00.000+05:30", "get t x": "2030-01-01T05:30:00.000+05:30", "next t x": "Tue 2030-01-01 05:30:00 IST", "list t --json": "2030-01-01T00:00:00.000Z"} {
		if got := carillon(t, "", []string{"TZ=Asia/Kolkata"}, append([]string{"ctl", "--url", server.URL}, strings.Fields(args)...)...); !strings.Contains(got.out, want) {
			t.Errorf("%s: %s%s", args, got.out, got.err)
		}
	}
}
