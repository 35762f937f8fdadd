package main

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// exportedTopic has a timer of every kind that an export can carry.
var exportedTopic = []struct {
	args  []string
	stdin string
}{
	{args: []string{"topics", "put", "orders", "--policy", `{"callback":{"url":"http://127.0.0.1:9/hook","headers":{"X-Tenant":"7"}},"retry":{"max_attempts":3},"merge":"replace","per_key":{"concurrency":2}}`}},
	{args: []string{"add", "orders", "--id", "a", "--at", "2031-01-01T00:00:00.007Z", "--payload", `{"n": 1.50, "text":"<&>é"}`, "--label", "vip", "--label", "eu",
		"--priority", "9", "--weight", "4", "--expires-after", "10m", "--max-attempts", "5", "--callback", "http://127.0.0.1:9/other?a=1&b=2", "--header", "X-Two: 2"}},
	{args: []string{"add", "orders", "--id", "b", "--at", "2030-06-01T00:00:00Z", "--payload", "-"}, stdin: "[1,\n 2]"},
	{args: []string{"add", "orders", "--id", "{k}c", "--at", "2032-01-01T00:00:00Z"}},
	{args: []string{"add", "orders", "--id", "d", "--cron", "0 8 * * 1-5", "--zone", "Asia/Shanghai", "--until", "2040-01-01T00:00:00Z", "--catch-up", "all"}},
	{args: []string{"topics", "put", "ends", "--policy", "{}"}},
	{args: []string{"patch", "orders", "d", "--on-done", "ends", "--on-dead", "-"}},
	{args: []string{"topics", "pause", "orders"}},
	{args: []string{"add", "orders", "--id", "e", "--at", "1971-01-01T00:00:00Z"}},
	{args: []string{"topics", "set", "orders", "if_late=reject"}},
}

// TestDryRunOfAnImportFindsPayloadsThatAreTooLarge, as the import does, and names the first of them.
func TestDryRunOfAnImportFindsPayloadsThatAreTooLarge(t *testing.T) {
	_, url := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	const most = 256 << 10
	quoted := func(n int) string { return `"payload":"` + strings.Repeat("x", n-2) + `"` }
	coded := func(n int) string {
		return `"payload_base64":"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"`
	}
	for _, c := range []struct {
		name     string
		payloads []string
		first    string // that is refused
		refused  int
	}{
		{"none", []string{quoted(most), coded(most)}, "", 0},
		{"one", []string{quoted(most), quoted(most + 1)}, "t1", 1},
		{"coded", []string{coded(most + 1), coded(most + 2), coded(5)}, "t0", 2},
	} {
		file := `{"export":{"version":1,"topic":"` + c.name + `","policy":{}}}` + "\n"
		for i, payload := range c.payloads {
			file += fmt.Sprintf(`{"id":"t%d","at_ms":2000000000000,"callback":{"url":"http://127.0.0.1:9/"},%s}`, i, payload) + "\n"
		}
		file += fmt.Sprintf(`{"end":{"timers":%d}}`, len(c.payloads)) + "\n"
		run := ctlAt(t, url)
		dry, dryJSON, real := run(file, "import", "-", "--dry-run"), run(file, "import", "-", "--dry-run", "--json"), run(file, "import", "-")
		if c.refused == 0 {
			if dry.code != exitOK || real.code != exitOK || strings.Contains(dryJSON.out, "refused") {
				t.Errorf("%s: %+v, %+v", c.name, dry, real)
			}
			continue
		}
		count := fmt.Sprintf("%d of %d timers", c.refused, len(c.payloads))
		if dry.code != exitFailure || !strings.Contains(dry.err, count+" would not be imported") || !strings.Contains(dry.err, "the first is that of "+c.first+";") || strings.Contains(dry.out, "good") {
			t.Errorf("%s: dry run: %+v", c.name, dry)
		}
		if want := fmt.Sprintf(`"refused":%d`, c.refused); dryJSON.code != exitFailure || !strings.Contains(dryJSON.out, want) {
			t.Errorf("%s: %+v lacks %s", c.name, dryJSON, want)
		}
		if real.code != exitFailure || !strings.Contains(real.err, count+" were not imported") {
			t.Errorf("%s: import: exit %d, %s", c.name, real.code, real.err)
		}
	}
}

// The file that export writes and import reads is the same to the byte, and a second import adds
// nothing.
func TestExportAndImport(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	_, url := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	run := ctlAt(t, url)
	for _, step := range exportedTopic {
		if got := run(step.stdin, step.args...); got.code != exitOK {
			t.Fatalf("%v: %s", step.args, got.err)
		}
	}
	before := run("", "export", "orders")
	if before.code != exitOK || !strings.Contains(before.err, "exported 5 timers of orders") {
		t.Fatalf("export: exit %d: %s", before.code, before.err)
	}
	for _, want := range []string{`"payload":{"n": 1.50, "text":"<&>é"}`, `"payload_base64":"WzEsCiAyXQ==","content_type":"application/json"`, `"paused":true`, `"weight":4`} {
		if !strings.Contains(before.out, want) {
			t.Errorf("the export lacks %s:\n%s", want, before.out)
		}
	}
	file := filepath.Join(t.TempDir(), "orders.ndjson")
	if err := os.WriteFile(file, []byte(before.out), 0o600); err != nil {
		t.Fatal(err)
	}
	ctlSays(t, url, "topics", "delete", "orders", "--force")
	if got := run("", "import", file, "--dry-run", "--json"); got.out != `{"timers":5,"topics":1,"dry_run":true}`+"\n" {
		t.Errorf("%+v", got)
	}
	if got := run("", "import", file, "--dry-run"); got.code != exitOK || !strings.HasPrefix(got.out, "good: 5 timers of 1 topic; nothing was changed\norders: 5 timers, the first {\"id\":") {
		t.Errorf("dry run: %+v", got)
	}
	for _, want := range []string{"orders: 5 added, 0 there already; 1 of those added was due more than a minute ago\n", "orders: 0 added, 5 there already\n"} {
		if got := run(before.out, "import", "-"); got.code != exitOK || got.out != want {
			t.Errorf("import: %+v, want %q", got, want)
		}
	}
	if after := run("", "export", "orders"); after.out != before.out {
		t.Errorf("export, import, export:\n%s\nwas:\n%s", after.out, before.out)
	}
	other := strings.Replace(before.out, `"priority":9`, `"priority":8`, 1)
	if got := run(before.out, "import", "-", "--json"); got.out != `{"topic":"orders","added":0,"there":5}`+"\n" {
		t.Errorf("%+v", got)
	}
	if got := run(other, "import", "-"); got.code != exitFailure || !strings.Contains(got.err, "orders/a: ") || !strings.Contains(got.err, "1 of 5 timers were not imported") {
		t.Errorf("import of other content: %+v", got)
	}
}

// TestExportOfWhatAnAddHasNot: an array comes as a plain payload, those behind it and what is
// paused are reported, and a weight that the topic has no use for does not keep a timer out.
func TestExportOfWhatAnAddHasNot(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	_, url := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	run := ctlAt(t, url)
	ctlSays(t, url, "topics", "put", "sums", "--policy", `{"callback":{"url":"http://127.0.0.1:9/"},"retry":{"min_backoff":"1h","max_backoff":"1h"},"per_key":{"fair":true}}`)
	ctlSays(t, url, "add", "sums", "--id", "heavy", "--at", "2032-01-01T00:00:00Z", "--weight", "7")
	ctlSays(t, url, "topics", "set", "sums", "per_key=null", "merge=collect")
	ctlSays(t, url, "add", "sums", "--id", "held", "--at", "2032-01-01T00:00:00Z", "--payload", "1")
	ctlSays(t, url, "add", "sums", "--id", "held", "--at", "2032-01-01T00:00:00Z", "--payload", "2")
	ctlSays(t, url, "timers", "pause", "sums", "held")
	ctlSays(t, url, "add", "sums", "--id", "behind", "--at", "2020-01-01T00:00:00Z", "--payload", "3")
	for end := time.Now().Add(20 * time.Second); !strings.Contains(run("", "--json", "get", "sums", "behind").out, `"attempts":1`); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is not attempted")
		}
	}
	ctlSays(t, url, "add", "sums", "--id", "behind", "--at", "2032-01-01T00:00:00Z", "--payload", "4")
	before := run("", "export", "sums")
	for _, want := range []string{"arrays of 3 timers that collect", "behind the arrays of 1 ids"} {
		if !strings.Contains(before.err, want) {
			t.Errorf("the report lacks %q: %s", want, before.err)
		}
	}
	if strings.Contains(before.out, "weight") || !strings.Contains(before.out, `"payload":[1,2]`) {
		t.Errorf("the export is %s", before.out)
	}
	ctlSays(t, url, "topics", "delete", "sums", "--force")
	got := run(before.out, "import", "-")
	if got.code != exitFailure || !strings.Contains(got.err, "sums/behind: ") || !strings.Contains(got.err, "1 of 4 timers were not imported") {
		t.Errorf("import: %+v", got)
	}
}

// TestExportKeepsArrival: timers of a serial topic that are due at the same time are called in the
// order in which they arrived, also after an import. A listing has them by their ids.
func TestExportKeepsArrival(t *testing.T) {
	row := func(id string, number, dueMs int) string {
		return fmt.Sprintf(`{"id":"{k}%s","uid":"0001-%x-00000001","state":"scheduled","due_ms":%d}`, id, number, dueMs)
	}
	const early, late = 1_900_000_000_000, 1_900_000_000_001
	pages := []string{
		`{"timers":[` + row("z", 9, early) + "," + row("a", 17, late) + "," + row("b", 16, late) + `],"next_cursor":"x"}`,
		`{"timers":[` + row("c", 15, late) + `]}`,
	}
	for policy, want := range map[string][]string{`{"serial":true}`: {"z", "c", "b", "a"}, `{"serial":false}`: {"z", "a", "b", "c"}} {
		lines := []string{`{"export":{"version":1,"topic":"t","policy":` + policy + `}}`}
		for i, id := range want {
			lines = append(lines, fmt.Sprintf(`{"id":"{k}%s","at_ms":%d}`, id, early+min(i, 1)))
		}
		runCtl(t, []ctlCase{{
			name: policy, args: []string{"export", "t"}, asked: []string{"GET /v1/topics/t", "GET /v1/topics/t/timers?limit=1000", "GET /v1/topics/t/timers?cursor=x&limit=1000"},
			replies: []reply{{status: 200, body: `{"topic":"t","policy":` + policy + `}`}, {status: 200, body: pages[0]}, {status: 200, body: pages[1]}},
			out:     []string{strings.Join(append(lines, `{"end":{"timers":4}}`), "\n") + "\n"}, err: []string{"exported 4 timers of t"},
		}})
	}
}

// TestPausedTimersStayPaused: a timer that is paused, also one that is due, is so after an import,
// has its own time, and is not called on the way. The import may be repeated.
func TestPausedTimersStayPaused(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	_, url := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	run := ctlAt(t, url)
	ctlSays(t, url, "topics", "put", "held", "--policy", `{"callback":{"url":"http://127.0.0.1:9/"}}`)
	ctlSays(t, url, "topics", "pause", "held")
	ctlSays(t, url, "add", "held", "--id", "due", "--at", "2020-01-01T00:00:00Z", "--payload", "1", "--header", "X-Two: 2")
	ctlSays(t, url, "add", "held", "--id", "series", "--cron", "0 0 1 1 *", "--zone", "UTC", "--until", "2100-01-01T00:00:00Z")
	ctlSays(t, url, "add", "held", "--id", "plain", "--at", "2032-01-01T00:00:00Z")
	ctlSays(t, url, "timers", "pause", "held", "due")
	ctlSays(t, url, "timers", "pause", "held", "series")
	ctlSays(t, url, "topics", "resume", "held")
	before := run("", "export", "held")
	if strings.Count(before.out, `"paused":true`) != 2 || strings.Contains(before.err, "without") {
		t.Fatalf("%+v", before)
	}
	ctlSays(t, url, "topics", "delete", "held", "--force")
	for _, want := range []string{"held: 3 added, 0 there already\n", "held: 0 added, 3 there already\n"} {
		if got := run(before.out, "import", "-"); got.code != exitOK || got.out != want {
			t.Errorf("import: %+v, want %q", got, want)
		}
		if after := run("", "export", "held"); after.out != before.out {
			t.Errorf("export, import, export:\n%s\nwas:\n%s", after.out, before.out)
		}
	}
	if got := run("", "--json", "get", "held", "due"); !strings.Contains(got.out, `"attempts":0`) {
		t.Errorf("it was called: %s", got.out)
	}
	ctlSays(t, url, "timers", "resume", "held", "series")
	if got := run(before.out, "import", "-"); got.code != exitOK {
		t.Errorf("import: %+v", got)
	}
	if got := run("", "--json", "get", "held", "series"); got.code != exitOK || strings.Contains(got.out, `"paused"`) {
		t.Errorf("what was resumed is paused again: %s", got.out)
	}
}

// TestImportOfLargeTimers: a batch is small enough to arrive in time over a slow line.
func TestImportOfLargeTimers(t *testing.T) {
	file, c := `{"export":{"version":1,"topic":"t","policy":{}}}`+"\n", ctlCase{
		name: "large", args: []string{"import", "-"}, out: []string{"t: 3 added"}, asked: []string{"GET /v1/topics/t"}, replies: []reply{{status: 200, body: `{"topic":"t"}`}},
	}
	for _, id := range []string{"a", "b", "c"} {
		add := fmt.Sprintf(`"id":%q,"at_ms":1,"payload":%q}`, id, strings.Repeat("x", 600<<10))
		file += "{" + add + "\n"
		c.asked = append(c.asked, `POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire",`+add+`]}`)
		c.replies = append(c.replies, reply{status: 200, body: `{"results":[{"status":201,"id":"x"}]}`})
	}
	c.stdin = file + `{"end":{"timers":3}}` + "\n"
	runCtl(t, []ctlCase{c})
}

// TestImportKeepsATopicPaused: a topic that was paused at its export is so when its timers arrive,
// also if it is there already: made by hand, for its secrets, or by an import that went no further.
// Where somebody has timers in it, it stays as it is.
func TestImportKeepsATopicPaused(t *testing.T) {
	const file = `{"export":{"version":1,"topic":"t","paused":true,"policy":{}}}` + "\n" + `{"id":"a","at_ms":1}` + "\n" + `{"end":{"timers":1}}` + "\n"
	const add = `POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","id":"a","at_ms":1}]}`
	added := reply{status: 200, body: `{"results":[{"status":201,"id":"a"}]}`}
	topic := func(text string) reply { return reply{status: 200, body: `{"topic":"t","policy":{},` + text + `}`} }
	paused := topic(`"paused":true`)
	for name, tt := range map[string]struct {
		there  reply
		pauses bool
	}{
		"empty":  {topic(`"paused":false,"counts":{"scheduled":0}`), true},
		"paused": {paused, false},
		"in use": {topic(`"paused":false,"counts":{"scheduled":1}`), false},
		"used":   {topic(`"paused":false,"counts":{"done":1}`), false},
	} {
		c := ctlCase{name: name, args: []string{"import", "-"}, stdin: file, out: []string{"t: 1 added"}, asked: []string{"GET /v1/topics/t"}, replies: []reply{tt.there}}
		if tt.pauses {
			c.asked, c.replies, c.err = append(c.asked, "POST /v1/topics/t/pause"), append(c.replies, paused), []string{"t is paused, as it was at the export"}
		}
		c.asked, c.replies = append(c.asked, add), append(c.replies, added)
		runCtl(t, []ctlCase{c})
	}
	runCtl(t, []ctlCase{{
		name: "may not", args: []string{"import", "-"}, stdin: file, code: exitFailure, err: []string{"t was paused at the export, and is not yet: no (403 forbidden)"},
		asked:   []string{"GET /v1/topics/t", "POST /v1/topics/t/pause"},
		replies: []reply{topic(`"paused":false,"counts":{}`), {status: 403, body: `{"code":"forbidden","detail":"no","status":403}`}},
	}})
}

// TestImportAgainOfPausedTimers: an import finishes what an earlier one has begun, and leaves alone
// what that has finished.
func TestImportAgainOfPausedTimers(t *testing.T) {
	far := time.Date(time.Now().UTC().Year()+2, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	const file = `{"export":{"version":1,"topic":"t","policy":{}}}` + "\n" + `{"id":"a","at_ms":1,"paused":true}` + "\n" + `{"end":{"timers":1}}` + "\n"
	asked := []string{
		"GET /v1/topics/t", fmt.Sprintf(`POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","id":"a","at_ms":%d}]}`, far), "GET /v1/topics/t/timers/a",
	}
	replies := func(bodies ...string) []reply {
		list := []reply{{status: 200, body: `{"topic":"t"}`}, {status: 200, body: `{"results":[{"status":200,"id":"a"}]}`}}
		for _, b := range bodies {
			list = append(list, reply{status: 200, body: b})
		}
		return list
	}
	begun := fmt.Sprintf(`{"id":"a","state":"scheduled","due_ms":%d}`, far)
	runCtl(t, []ctlCase{
		{
			name: "resumed since", args: []string{"import", "-"}, stdin: file, replies: replies(`{"id":"a","state":"scheduled","due_ms":1}`), asked: asked,
			out: []string{"t: 0 added, 1 there already\n"},
		},
		{
			name: "begun", args: []string{"import", "-"}, stdin: file, replies: replies(begun, begun, begun),
			asked: append(slices.Clone(asked), "POST /v1/topics/t/timers/a/pause", `PATCH /v1/topics/t/timers/a {"at_ms":1}`),
			out:   []string{"t: 0 added, 1 there already\n"},
		},
	})
}

// TestImportOfWhatIsThere: an id may be in use by the very timer that the file has, though another
// request made it: by a delay, say. What differs is named.
func TestImportOfWhatIsThere(t *testing.T) {
	const head = `{"export":{"version":1,"topic":"t","policy":{}}}` + "\n"
	const file = `{"id":"a","at_ms":1893456000000,"payload":{"n": 1.50},"callback":{"url":"http://x/","timeout":"1s"},"labels":["eu"]}`
	const series = `{"id":"a","at_ms":1893456000000,"repeat":{"every":"1h"}}`
	const refused = `{"results":[{"status":409,"id":"a","error":{"code":"exists","status":409,"detail":"the id is in use with other content"}}]}`
	for _, test := range []struct{ name, line, there, want string }{
		{"the same", file, `{"id":"a","version":3,"state":"scheduled","due":"2030-01-01T00:00:00.000Z","due_ms":1893456000000,"payload":{"n": 1.50},"callback":{"timeout":"1s","url":"http://x/"},"labels":["eu"],"attempts":0,"weight":2}`, ""},
		{"at", strings.Replace(file, `"at_ms":1893456000000`, `"at":"2030-01-01T01:00:00+01:00"`, 1), `{"id":"a","due_ms":1893456000000,"payload":{"n": 1.50},"callback":{"timeout":"1s","url":"http://x/"},"labels":["eu"]}`, ""},
		{"others", file, `{"id":"a","due_ms":1893456000001,"payload":{"n": 1.5},"callback":{"timeout":"1s","url":"http://x/"},"labels":["eu"],"priority":9}`, "payload, priority, time"},
		{"paused since", file, `{"id":"a","due_ms":1893456000000,"payload":{"n": 1.50},"callback":{"timeout":"1s","url":"http://x/"},"labels":["eu"],"paused":true}`, ""},
		{"a series goes on", series, `{"id":"a","due_ms":1893459600000,"repeat":{"every":"1h"}}`, ""},
		{"another series", series, `{"id":"a","due_ms":1893459600000,"repeat":{"every":"2h"}}`, "repeat, time"},
	} {
		node := &fakeNode{replies: []reply{{status: 200, body: `{"topic":"t"}`}, {status: 200, body: refused}, {status: 200, body: test.there}}}
		server := httptest.NewServer(node)
		got := carillon(t, head+test.line+"\n"+`{"end":{"timers":1}}`, []string{"CARILLON_URL=" + server.URL}, "ctl", "import", "-")
		server.Close()
		if test.want == "" && (got.code != exitOK || got.out != "t: 0 added, 1 there already\n") {
			t.Errorf("%s: %+v", test.name, got)
		}
		if test.want != "" && (got.code != exitFailure || !strings.Contains(got.err, "the file has another "+test.want+"\n")) {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
	}
}

// An import that would lose something that nobody agreed to lose changes nothing.
func TestImportRefuses(t *testing.T) {
	const head = `{"export":{"version":1,"topic":"t","policy":{}}}` + "\n"
	const there = `{"topic":"t"}`
	hidden := head + `{"id":"a","at_ms":1,"callback":{"url":"http://x/","headers":{"X-A":"1","Authorization":"REDACTED"}}}` + "\n" + `{"end":{"timers":1}}` + "\n"
	ok := func(bodies ...string) (replies []reply) {
		for _, b := range bodies {
			replies = append(replies, reply{status: 200, body: b})
		}
		return replies
	}
	gone := reply{status: 404, body: `{"code":"unknown_topic","detail":"no topic","status":404}`}
	import1 := []string{"import", "-"}
	runCtl(t, []ctlCase{
		{name: "cut", args: import1, stdin: head + `{"id":"a","at_ms":1}` + "\n", err: []string{"it was cut"}, code: exitFailure},
		{name: "a line is missing", args: import1, stdin: head + `{"end":{"timers":1}}`, err: []string{"0 timers, and should be 1"}, code: exitFailure},
		{name: "not an export", args: import1, stdin: `{"id":"a"}`, err: []string{"line 1", "not what export wrote"}, code: exitFailure},
		{name: "newer", args: import1, stdin: strings.Replace(head, `"version":1`, `"version":2`, 1), err: []string{"version 2"}, code: exitFailure},
		{name: "no id", args: import1, stdin: head + `{"at_ms":1}`, err: []string{"line 2", "no id"}, code: exitFailure},
		{
			name: "a long line", args: import1, stdin: head + `{"id":"a","at_ms":1,"payload":"` + strings.Repeat("x", 5_000_000) + `"}`,
			err: []string{"line 2 is longer than 2097152 bytes, which no node takes as an add: the file is damaged, or the timer's payload is too large; nothing"}, code: exitFailure,
		},
		{name: "a delay", args: import1, stdin: head + `{"id":"a","delay":"1s"}`, err: []string{"no absolute time"}, code: exitFailure},
		{name: "hidden header", args: import1, stdin: hidden, err: []string{"--without-secrets"}, code: exitUsage},
		{
			name: "hidden header left out", args: append(import1, "--without-secrets"), stdin: hidden,
			replies: ok(there, `{"results":[{"status":201,"id":"a"}]}`), out: []string{"t: 1 added"},
			asked: []string{"GET /v1/topics/t", `POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","at_ms":1,"id":"a","callback":{"headers":{"X-A":"1"},"url":"http://x/"}}]}`},
		},
		{
			name: "a count", args: import1, err: []string{"--restart-counts"}, code: exitUsage,
			stdin: head + `{"id":"a","at_ms":1,"repeat":{"every":"1h","count":3}}` + "\n" + `{"end":{"timers":1}}`,
		},
		{
			name: "secrets of a topic that is not there", args: import1, replies: []reply{gone}, asked: []string{"GET /v1/topics/t"},
			stdin: strings.Replace(head, `{}`, `{"secrets":["sha256:00"]}`, 1) + `{"end":{"timers":0}}`, err: []string{"make it first"}, code: exitUsage,
		},
		{
			name: "what was not done is sent again", args: import1,
			stdin: head + `{"id":"a","at_ms":1}` + "\n" + `{"id":"b","at_ms":1}` + "\n" + `{"end":{"timers":2}}`,
			replies: append([]reply{gone}, ok(there,
				`{"results":[{"status":503,"id":"a","error":{"code":"no_leader","status":503,"retryable":true}},{"status":200,"id":"b"}]}`,
				`{"results":[{"status":201,"id":"a","late_by_ms":61000}]}`)...),
			asked: []string{
				"GET /v1/topics/t", "PUT /v1/topics/t {}",
				`POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","id":"a","at_ms":1},{"op":"add","merge":"reject","if_late":"fire","id":"b","at_ms":1}]}`,
				`POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","id":"a","at_ms":1}]}`,
			},
			out: []string{"t: 1 added, 1 there already; 1 of those added was due more than a minute ago\n"},
		},
		{
			name: "late ones are counted", args: append([]string{"--json"}, import1...), stdin: head + `{"id":"a","at_ms":1}` + "\n" + `{"id":"b","at_ms":1}` + "\n" + `{"end":{"timers":2}}`,
			replies: ok(there, `{"results":[{"status":201,"id":"a","late_by_ms":61000},{"status":201,"id":"b","late_by_ms":62000}]}`),
			asked: []string{
				"GET /v1/topics/t",
				`POST /v1/topics/t/batch?brief=true {"ops":[{"op":"add","merge":"reject","if_late":"fire","id":"a","at_ms":1},{"op":"add","merge":"reject","if_late":"fire","id":"b","at_ms":1}]}`,
			},
			out: []string{`{"topic":"t","added":2,"there":0,"late":2}` + "\n"},
		},
	})
}

// An export outlasts a shard that has no leader for a moment. What is refused at once, before any
// page is there, is said at once.
func TestExportOutlastsARefusal(t *testing.T) {
	t.Parallel()
	topic := reply{status: 200, body: `{"topic":"t","policy":{}}`}
	refused := reply{status: 503, body: `{"code":"no_leader","detail":"shard 2 has no leader","status":503,"retryable":true}`}
	runCtl(t, []ctlCase{
		{
			name: "a later page", args: []string{"export", "t"},
			replies: []reply{
				topic,
				{status: 200, body: `{"timers":[{"id":"a","state":"scheduled","due_ms":1}],"next_cursor":"next"}`},
				refused, refused,
				{status: 200, body: `{"timers":[{"id":"b","state":"scheduled","due_ms":2}]}`},
			},
			asked: []string{
				"GET /v1/topics/t", "GET /v1/topics/t/timers?limit=1000", "GET /v1/topics/t/timers?cursor=next&limit=1000",
				"GET /v1/topics/t/timers?cursor=next&limit=1000", "GET /v1/topics/t/timers?cursor=next&limit=1000",
			},
			out: []string{`"id":"a"`, `"id":"b"`, `{"end":{"timers":2}}`}, err: []string{"exported 2 timers"},
		},
		{
			name: "the first page", args: []string{"export", "t"}, replies: []reply{topic, refused},
			asked: []string{"GET /v1/topics/t", "GET /v1/topics/t/timers?limit=1000"},
			err:   []string{"shard 2 has no leader (503 no_leader); try again"}, code: exitFailure, both: true,
		},
	})
}
