package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carillon/test/testkit"
)

// applied runs ctl apply on a file, and checks its exit code, output, and, unless it is "", a part
// of its error.
func applied(t *testing.T, url, file string, code int, out, err string, flags ...string) {
	t.Helper()
	got := carillon(t, file, nil, append([]string{"ctl", "--url", url, "apply", "-f", "-"}, flags...)...)
	if got.code != code || got.out != out || !strings.Contains(got.err, err) || (err == "") != (got.err == "") {
		t.Errorf("apply %v:\n%s\nexit %d\n%s%s\nwant exit %d\n%s%s", flags, file, got.code, got.out, got.err, code, out, err)
	}
}

const aSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// TestApply: a file makes topics, changes what differs and nothing else, and the second time leaves
// everything.
func TestApply(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	policy := func(topic string) string { return ctlSays(t, url, "--json", "topics", "get", topic) }
	const file = `
topics:
  orders:
    callback: {url: "http://127.0.0.1:9/a", headers: {X-Shop: "7"}}
    retry: &often {max_attempts: 3}
    window: {zone: Europe/Berlin, days: mon-fri, from: "08:00", except: [2026-12-25]}
    secrets: [` + aSecret + `]
    rate: {per_second: 5}
  payments:
    <<: {delivery: pull}
    retry: *often
    history: 1w
  mail:
`
	const created = "create orders\ncreate payments\ncreate mail\n"
	applied(t, url, file, 0, created+"to create: 3, to change: 0, to leave: 0, to keep: 0, to delete: 0; nothing was changed\n", "", "--dry-run")
	if out := ctlSays(t, url, "topics"); strings.Contains(out, "orders") {
		t.Errorf("a dry run made %s", out)
	}
	applied(t, url, file, 0, created+"3 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	const left = "leave orders\nleave payments\nleave mail\n0 created, 0 changed, 3 left, 0 kept, 0 deleted\n"
	before := policy("orders")
	applied(t, url, file, 0, left, "")
	applied(t, url, strings.Replace(file, "history: 1w", "history: 7d", 1), 0, left, "") // it means the same
	applied(t, url, strings.Replace(file, "    secrets: ["+aSecret+"]\n", "", 1), 0, left, "")
	if now := policy("orders"); now != before {
		t.Errorf("it was to be left: %s, was %s", now, before)
	}
	changed := strings.NewReplacer("max_attempts: 3", "max_attempts: 5", `from: "08:00", except: [2026-12-25]`, `to: "20:00"`, "per_second: 5", "per_second: 6",
		"headers: {X-Shop: \"7\"}", "timeout: 20s", "    history: 1w\n", "").Replace(file)
	const changes = `change orders  callback.headers {"X-Shop":"7"} -> none, callback.timeout 10s -> 20s, rate.burst 5 -> 6, rate.per_second 5 -> 6, retry.max_attempts 3 -> 5, ` +
		`window.except ["2026-12-25"] -> none, window.from 08:00 -> none, window.to none -> 20:00
change payments  history 168h -> 72h, retry.max_attempts 3 -> 5
leave mail
`
	applied(t, url, changed, 0, changes+"to create: 0, to change: 2, to leave: 1, to keep: 0, to delete: 0; nothing was changed\n", "", "--dry-run")
	applied(t, url, changed, 0, changes+"0 created, 2 changed, 1 left, 0 kept, 0 deleted\n", "")
	applied(t, url, changed, 0, left, "")
	// A topic that an add made is one of the file from then on.
	ctlSays(t, url, "add", "auto", "--delay", "1h", "--callback", "http://127.0.0.1:9/")
	applied(t, url, "topics: {auto: {}}", 0, "change auto  auto_created true -> false\n0 created, 1 changed, 0 left, 0 kept, 0 deleted\n", "")
	applied(t, url, "topics: {auto: {}}", 0, "leave auto\n0 created, 0 changed, 1 left, 0 kept, 0 deleted\n", "")
	got := carillon(t, `{"topics":{"auto":{"serial":true}}}`, nil, "ctl", "--url", url, "apply", "-f", "-", "--json", "--dry-run")
	if want := `{"dry_run":true,"topics":[{"topic":"auto","action":"change","changes":[{"field":"serial","from":false,"to":true}]}]}` + "\n"; got.out != want {
		t.Errorf("%s%s, want %s", got.out, got.err, want)
	}
}

// TestApplyOfAnExport: what export writes is what there is.
func TestApplyOfAnExport(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	policies := []string{
		`{}`, `{"callback":{"url":"http://127.0.0.1:9/","method":"PUT","headers":{"Authorization":"t0k","X":"yes"},"timeout":"1m"},"secrets":["` + aSecret + `"],"stop_on":[404,410],"retry":{"jitter":0}}`,
		`{"delivery":"pull","rate":{"per_second":0.5,"burst":9},"key":"all","serial":true,"history":"0s"}`, `{"callback":{"headers":{}},"breaker":{"failures":9},"merge":"debounce","max_wait":"10m","format":"cloudevents"}`,
		`{"window":{"zone":"Europe/Berlin","days":"fri-mon","from":"22:00","to":"06:00","except":["2026-12-25"]},"dedup":"content","if_late":"reject","stop_on":[]}`,
	}
	want := ""
	for i, policy := range policies {
		topic := string(rune('a' + i))
		ctlSays(t, url, "topics", "put", topic, "--policy", policy)
		want += "leave " + topic + "\n"
	}
	ctlSays(t, url, "add", "auto", "--delay", "1h", "--callback", "http://127.0.0.1:9/")
	file := ctlSays(t, url, "topics", "export")
	for _, text := range []string{"\n  a: {}\n", "      except:\n        - \"2026-12-25\"\n", "        Authorization: REDACTED\n", `        X: "yes"`, `from: "22:00"`} {
		if !strings.Contains(file, text) {
			t.Errorf("the export has no %q:\n%s", text, file)
		}
	}
	if strings.Contains(file, "auto") || strings.Contains(file, "sha256") || strings.Contains(file, "lease") {
		t.Errorf("the export has more than it should:\n%s", file)
	}
	want += "0 created, 0 changed, 5 left, 0 kept, 0 deleted\n"
	applied(t, url, file, 0, want, "", "--prune")
	applied(t, url, ctlSays(t, url, "--json", "topics", "export"), 0, want, "")
	if one := ctlSays(t, url, "topics", "export", "--prefix", "a"); one != "topics:\n  a: {}\n" {
		t.Errorf("of one topic: %s", one)
	}
}

// TestApplyOfOutcomeTopics: what on_done and on_dead name is looked at before anything is changed.
func TestApplyOfOutcomeTopics(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	ctlSays(t, url, "topics", "put", "there", "--policy", "{}")
	ctlSays(t, url, "topics", "put", "queue", "--policy", `{"serial":true}`)
	for file, fault := range map[string]string{
		"topics:\n  a: {}\n  b: {on_dead: {topic: nowhere}}":               "stdin:3: b: on_dead: nowhere: there is no such topic, in the file or in the cluster\n",
		"topics:\n  a: {}\n  b: {on_dead: {topic: queue}}":                 "stdin:3: b: on_dead: queue: the topic is serial\n",
		"topics:\n  a: {serial: true}\n  b:\n    on_done: {topic: a}":      "stdin:4: b: on_done: a: the topic is serial\n",
		"topics:\n  there: {serial: true}\n  b: {on_done: {topic: there}}": "stdin:3: b: on_done: there: the topic is serial\n",
		"topics:\n  a: {}\n  b: {on_dead: {topic: b}}":                     "stdin:3: b: on_dead: b: it needs that topic in order to be made; make it first: carillon ctl topics put b --policy '{}'\n",
		"topics:\n  b: {on_dead: {topic: c}}\n  c: {on_done: {topic: b}}":  "stdin:3: c: on_done: b: it needs that topic in order to be made; make it first: carillon ctl topics put b --policy '{}'\n",
	} {
		applied(t, url, file, 1, "", fault, "--dry-run")
		applied(t, url, file, 1, "", fault)
	}
	if out := ctlSays(t, url, "--json", "topics"); strings.Contains(out, `"topic":"a"`) || strings.Contains(out, `"topic":"b"`) {
		t.Errorf("a file with a fault made a topic: %s", out)
	}
	applied(t, url, "topics: {b: {on_dead: {topic: there}}}", 0, "create b\n1 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	const circle = "topics: {b: {on_dead: {topic: c}}, c: {on_done: {topic: b}}, there: {on_done: {topic: there}}}"
	applied(t, url, circle, 0, "create c\nchange b  on_dead.topic there -> c\n"+
		"change there  on_done none -> {\"topic\":\"there\"}\n1 created, 2 changed, 0 left, 0 kept, 0 deleted\n", "")
	// What is there already is not looked at again.
	ctlSays(t, url, "topics", "delete", "b", "--force")
	applied(t, url, "topics: {c: {on_done: {topic: b}}}", 0, "leave c\n0 created, 0 changed, 1 left, 0 kept, 0 deleted\n", "")
	applied(t, url, "topics: {c: {on_done: {topic: b}, lease: 5m}}", 0, "change c  lease 30s -> 5m\n0 created, 1 changed, 0 left, 0 kept, 0 deleted\n", "")
}

// TestApplyOfHiddenValues: REDACTED and fingerprints keep what is stored; a credential that is
// written out is sent each time.
func TestApplyOfHiddenValues(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	const file = `topics: {orders: {callback: {url: "http://127.0.0.1:9/", headers: {Authorization: t0k}}, secrets: [` + aSecret + `]}}`
	const left = "leave orders\n0 created, 0 changed, 1 left, 0 kept, 0 deleted\n"
	applied(t, url, file, 0, "create orders\n1 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	applied(t, url, file, 0, "change orders  callback.headers sent again, since credentials are not shown\n0 created, 1 changed, 0 left, 0 kept, 0 deleted\n", "")
	hidden := strings.Replace(file, "t0k", "REDACTED", 1)
	applied(t, url, hidden, 0, left, "")
	_, rest, _ := strings.Cut(ctlSays(t, url, "--json", "topics", "get", "orders"), `"secrets":[`)
	shown, _, _ := strings.Cut(rest, "]")
	fingerprint := strings.Replace(hidden, aSecret, shown, 1)
	applied(t, url, fingerprint, 0, left, "")
	applied(t, url, strings.Replace(hidden, "Authorization", "X-Token", 1), 1, "", "stdin:1: orders: callback.headers: X-Token is REDACTED, but nothing is stored for it to keep")
	applied(t, url, strings.Replace(hidden, ":9/", ":10/", 1), 1, "", "another origin")
	applied(t, url, strings.Replace(hidden, aSecret, `"sha256:0011223344556677"`, 1), 1, "", "a fingerprint that no stored secret has")
	applied(t, url, strings.ReplaceAll(hidden, "orders", "other"), 1, "", "nothing is stored for it to keep")
	applied(t, url, strings.Replace(hidden, "["+aSecret+"]", "[]", 1), 1, "not done: change orders  secrets ["+shown+
		"] -> []: the topic has 1 signing secret and would have none; nothing was changed. carillon ctl topics set changes the given fields only; --force does it nevertheless (409 in_use)\n"+
		"0 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "not done: 1 of the changes; nothing was changed")
}

// TestApplyChecksFirst: a fault anywhere in the file is reported with its line, and nothing of the
// file is done.
func TestApplyChecksFirst(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	for name, c := range map[string]struct{ file, want string }{
		"unknown":        {"topics:\n  good: {}\n  bad:\n    serial: true\n    retries: {}\n", `stdin:5: bad: unknown field "retries"`},
		"unknown within": {"topics:\n  bad:\n    retry:\n      jitter: 0\n      max_attempt: 5\n", `stdin:5: bad: unknown field "max_attempt"`},
		"value":          {"topics:\n  bad:\n    retry:\n      jitter: 0\n      max_attempts: 0\n", "stdin:5: bad: retry.max_attempts: must be 1 to 1000"},
		"octal":          {"topics:\n  bad:\n    concurrency: 010\n", "stdin:3: bad: 010: must be a decimal number"},
		"exponent":       {"topics:\n  bad:\n    rate: {per_second: 1e2}\n", "stdin:3: bad: 1e2: must be a decimal number"},
		"two faults":     {"topics:\n  bad:\n    lease: 1ms\n  worse:\n    serial: 7\n", "stdin:3: bad: lease: must be 1s to 12h; stdin:5: worse: serial: "},
		"header":         {"topics:\n  bad:\n    callback:\n      headers: {X-Shop: 7}\n", "stdin:4: bad: callback.headers"},
		"null":           {"topics:\n  bad:\n    serial:\n", "stdin:3: bad: serial: "},
		"topic twice":    {"topics:\n  a: {}\n  b: {}\n  a: {}\n", `stdin:4: mapping key "a" already defined at line 2`},
		"field twice":    {"topics:\n  a:\n    serial: true\n    serial: false\n", `stdin:4: mapping key "serial" already defined at line 3`},
		"name":           {"topics:\n  good: {}\n  a b: {}\n", "stdin:3: a b: "},
		"policy":         {"topics:\n  good: {}\n  bad: 7\n", "stdin:3: bad: its policy must be field: value"},
		"key":            {"topics:\n  bad: {callback: {headers: {7: x}}}\n", "stdin:2: bad: callback: keys must be texts"},
		"syntax":         {"topics:\n  good: {}\n  bad: {\n", "stdin:3: did not find"},
		"other field":    {"version: 1\ntopics:\n  good: {}\n", `stdin:1: unknown field "version"`},
		"list":           {"- topic: good\n", "stdin: has no topics"},
		"nothing":        {"# later\n", "stdin: has no topics"},
		"no value":       {"topics:\n", "stdin:1: topics must be {name: policy}; write topics: {} for none"},
		"list of none":   {"topics: []\n", "stdin:1: topics must be {name: policy}"},
		"two documents":  {"topics: {good: {}}\n---\ntopics: {}\n", "stdin: has a second document"},
		"itself":         {"topics: {good: &a {callback: *a}}\n", "anchor 'a' value contains itself"},
		"tag":            {"topics: {good: {retry: {jitter: .nan}}}\n", "numbers finite"},
	} {
		t.Run(name, func(t *testing.T) { applied(t, url, c.file, exitFailure, "", c.want, "--prune") })
	}
	if out := ctlSays(t, url, "topics"); strings.Count(out, "\n") != 1 {
		t.Errorf("it made %s", out)
	}
	if got := carillon(t, "", nil, "ctl", "apply", "-f", "no.yaml"); got.code != exitFailure || !strings.Contains(got.err, "open no.yaml") {
		t.Errorf("%+v", got)
	}
	if got := carillon(t, "", nil, "ctl", "apply"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

// TestApplyOfARefusedAddress: where the node refuses an address, nothing of the file is done.
func TestApplyOfARefusedAddress(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	ctlSays(t, url, "topics", "put", "bbb", "--policy", "{}")
	const refused = "callback.url: address not allowed: 169.254.169.254 is never called (422 callback_refused)\n"
	for _, file := range []string{
		`topics: {aac: {}, bbb: {serial: true}, zzz: {callback: {url: "http://169.254.169.254/x"}}}`,
		`topics: {aac: {}, bbb: {serial: true}, zzz: {on_dead: {topic: aac}, callback: {url: "http://169.254.169.254/x"}}}`,
	} {
		applied(t, url, file, 1, "create aac\nchange bbb  serial false -> true\nnot done: create zzz: "+refused+
			"to create: 1, to change: 1, to leave: 0, to keep: 0, to delete: 0; nothing was changed\n", "not done: 1 of the changes; nothing was changed", "--dry-run")
		applied(t, url, file, 1, "not done: create aac: not tried\nnot done: change bbb  serial false -> true: not tried\nnot done: create zzz: "+refused+
			"0 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "not done: 3 of the changes; nothing was changed")
	}
	if out := ctlSays(t, url, "--json", "topics"); strings.Contains(out, "aac") || strings.Contains(out, `"serial":true`) {
		t.Errorf("it was changed: %s", out)
	}
}

// TestDryRunOfTopicsPut: topics put and set show what they would change, and change nothing.
func TestDryRunOfTopicsPut(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	ctlSays(t, url, "topics", "put", "orders", "--policy", `{"callback":{"url":"http://127.0.0.1:9/"}}`)
	ctlSays(t, url, "add", "orders", "--delay", "1h")
	for _, c := range []struct{ args, out, err string }{
		{`put|new|--policy|{}`, "create new\nnothing was changed\n", ""},
		{`put|orders|--policy|{"serial":true,"callback":{"url":"http://127.0.0.1:9/","timeout":"5s"}}`, "change orders  callback.timeout 10s -> 5s, serial false -> true\nnothing was changed\n", ""},
		{`set|orders|history=72h`, "leave orders\nnothing was changed\n", ""},
		{`put|orders|--policy|{}`, "", "1 pending timer would have no callback URL"},
		{`put|orders|--policy|{}|--force`, "change orders  callback.url http://127.0.0.1:9/ -> none  (pending timers without a URL: 1, with ids of the former key: 0)\nnothing was changed\n", ""},
		{`put|orders|--policy|{"callback":{"url":"http://169.254.169.254/"}}`, "", "callback_refused"},
	} {
		before := ctlSays(t, url, "--json", "topics")
		got := carillon(t, "", nil, append([]string{"ctl", "--url", url, "topics"}, append(strings.Split(c.args, "|"), "--dry-run")...)...)
		if got.out != c.out || !strings.Contains(got.err, c.err) || (c.err == "") != (got.code == 0) {
			t.Errorf("%s: %+v", c.args, got)
		}
		if after := ctlSays(t, url, "--json", "topics"); after != before {
			t.Errorf("%s has changed something: %s", c.args, after)
		}
	}
}

// TestApplyTakesNothingAway: what pending timers need is refused without --force, and topics with
// timers or dead letters are not pruned.
func TestApplyTakesNothingAway(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	applied(t, url, `topics: {orders: {callback: {url: "http://127.0.0.1:9/"}}, mail: {}, busy: {}, empty: {}}`, 0,
		"create orders\ncreate mail\ncreate busy\ncreate empty\n4 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	for _, topic := range []string{"orders", "busy", "auto"} {
		args := []string{"add", topic, "--delay", "1h"}
		if topic != "orders" {
			args = append(args, "--callback", "http://127.0.0.1:9/")
		}
		ctlSays(t, url, args...)
	}
	const file = `topics: {orders: {}, mail: {serial: true}}`
	const busy = "keep busy  (timers pending: 1, dead letters: 0; carillon ctl topics delete busy --force drops them, too)\n"
	applied(t, url, file, 1, "not done: change orders  callback.url http://127.0.0.1:9/ -> none: 1 pending timer would have no callback URL; "+
		"nothing was changed. carillon ctl topics set changes the given fields only; --force does it nevertheless (409 in_use)\nnot done: change mail  serial false -> true: not tried\n"+busy+"not done: delete empty: not tried\n"+
		"0 created, 0 changed, 0 left, 1 kept, 0 deleted\n", "not done: 3 of the changes; nothing was changed", "--prune")
	applied(t, url, file, 0, "change orders  callback.url http://127.0.0.1:9/ -> none  (pending timers without a URL: 1, with ids of the former key: 0)\nchange mail  serial false -> true\n"+busy+"delete empty\n0 created, 2 changed, 0 left, 1 kept, 1 deleted\n", "", "--prune", "--force")
	if out := ctlSays(t, url, "topics"); strings.Contains(out, "empty") || !strings.Contains(out, "busy") || !strings.Contains(out, "auto") {
		t.Errorf("left are %s", out)
	}
	// The command that deletes a topic that others name is not this one.
	_, url = serve(t)
	applied(t, url, `topics: {orders: {on_dead: {topic: ends}}, ends: {}}`, 0, "create ends\ncreate orders\n2 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	got := carillon(t, `topics: {orders: {on_dead: {topic: ends}}}`, nil, "ctl", "--url", url, "apply", "-f", "-", "--prune")
	if got.code != 1 || !strings.Contains(got.out, "; carillon ctl topics delete ends --force deletes it nevertheless") {
		t.Errorf("%+v", got)
	}
}

// A change goes to the version that was compared, and each refusal concerns its own topic.
func TestApplyOverwritesNobody(t *testing.T) {
	shown := func(topic, version string) reply {
		return reply{status: 200, body: `{"topic":"` + topic + `","version":"` + version + `","auto_created":false,"policy":{"serial":false}}`}
	}
	missing := reply{status: 404, body: `{"code":"unknown_topic"}`}
	const file = "topics: {a: {serial: true}, b: {serial: true}}"
	gets := []string{"GET /v1/topics/a", "GET /v1/topics/b"}
	dry := reply{status: 200, body: `{}`}
	const patchA, patchB = ` [If-Match: "1-4"] {"serial":true}`, ` [If-Match: "2-7"] {"serial":true}`
	const putNew = ` [If-None-Match: *] {"serial":true}`
	runCtl(t, []ctlCase{
		{
			name: "changed meanwhile", args: []string{"apply", "-f", "-"}, stdin: file, both: true, code: exitFailure,
			replies: []reply{shown("a", "1-4"), shown("b", "2-7"), dry, dry, {status: 412, body: `{"code":"version_mismatch"}`}, {status: 200, body: `{}`}},
			asked:   append(gets[:2:2], "PATCH /v1/topics/a?dry_run=true"+patchA, "PATCH /v1/topics/b?dry_run=true"+patchB, "PATCH /v1/topics/a"+patchA, "PATCH /v1/topics/b"+patchB),
			out:     []string{"not done: change a  serial false -> true: somebody changed it meanwhile, which was not overwritten", "\nchange b  serial false -> true\n0 created, 1 changed"},
			err:     []string{"not done: 1 of the changes"},
		},
		{
			name: "made meanwhile", args: []string{"apply", "-f", "-"}, stdin: file, both: true, code: exitFailure,
			replies: []reply{missing, missing, dry, dry, {status: 201, body: `{}`}, {status: 412, body: `{"code":"version_mismatch"}`}},
			asked:   append(gets[:2:2], "PUT /v1/topics/a?dry_run=true"+putNew, "PUT /v1/topics/b?dry_run=true"+putNew, "PUT /v1/topics/a"+putNew, "PUT /v1/topics/b"+putNew),
			out: []string{"create a\nnot done: create b: somebody made it meanwhile, which was not overwritten; look at it and apply again (412 version_mismatch)\n" +
				"1 created, 0 changed"},
			err: []string{"not done: 1 of the changes"},
		},
		{
			name: "plan of a token that may read", args: []string{"apply", "-f", "-", "--dry-run"}, stdin: "topics: {a: {}}", both: true, code: exitFailure,
			replies: []reply{missing, {status: 200, body: `{"scopes":["add","read"]}`}}, asked: []string{gets[0], "GET /v1/cluster"},
			out: []string{"create a\nto create: 1,"}, err: []string{"the token may not make these changes: it lacks the scope admin"},
		},
		{
			name: "plan of a token that may change", args: []string{"apply", "-f", "-", "--dry-run"}, stdin: "topics: {a: {}}",
			replies: []reply{missing, {status: 200, body: `{"scopes":["read","admin"]}`}, dry}, asked: []string{gets[0], "GET /v1/cluster", "PUT /v1/topics/a?dry_run=true [If-None-Match: *] {}"}, out: []string{"create a\nto create: 1,"},
		},
		{
			name: "filled meanwhile", args: []string{"apply", "-f", "-", "--prune", "--force"}, stdin: "topics: {a: {}}",
			replies: []reply{shown("a", "1-4"), {status: 200, body: `{"topics":[{"topic":"old","version":"9-1","counts":{}},{"topic":"auto","auto_created":true,"counts":{}}]}`}, {status: 409, body: `{"code":"not_empty"}`}},
			asked:   []string{gets[0], "GET /v1/topics?counts=true&limit=1000", `DELETE /v1/topics/old [If-Match: "9-1"]`},
			out:     []string{"leave a\nkeep old  (it is not empty any more)\n0 created, 0 changed, 1 left, 1 kept, 0 deleted\n"},
		},
		{
			name: "fields of a newer node, and none that an older one has not", args: []string{"apply", "-f", "-"}, stdin: "topics: {a: {}}",
			replies: []reply{{status: 200, body: `{"topic":"a","version":"1-4","policy":{"serial":false,"colour":"red"}}`}}, asked: gets[:1], out: []string{"leave a\n"},
		},
		{
			name: "refused in the plan", args: []string{"apply", "-f", "-"}, stdin: file, code: exitFailure,
			replies: []reply{{status: 403, body: `{"code":"forbidden","detail":"not its topic"}`}, shown("b", "2-7")}, asked: gets, err: []string{"stdin:1: a: not its topic (403 forbidden)"},
		},
	})
}

// TestApplyWithoutAnAnswer: after a change that nobody has answered, no other is tried.
func TestApplyWithoutAnAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("dry_run"):
			_, _ = io.WriteString(w, `{}`)
			return
		case r.Method != http.MethodGet:
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"unknown_topic"}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "topics.yaml")
	testkit.Must(t, os.WriteFile(file, []byte("topics: {a: {}, b: {}}"), 0o600))
	got := carillon(t, "", nil, "ctl", "--url", server.URL, "apply", "-f", file)
	if got.code != exitFailure || !strings.HasPrefix(got.out, "not done: create a: ") || !strings.Contains(got.out, "EOF\nnot done: create b: not tried\n0 created,") || !strings.Contains(got.err, "not done: 2 of the changes") {
		t.Errorf("%+v", got)
	}
	got = carillon(t, "", nil, "ctl", "--url", "http://127.0.0.1:1", "apply", "-f", file)
	if got.code != exitFailure || !strings.Contains(got.err, "no node answers") || got.out != "" {
		t.Errorf("%+v", got)
	}
}

// TestTopicsFileOfTheDocuments runs what docs/topics.md shows of a file of topics, as it is
// printed.
func TestTopicsFileOfTheDocuments(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	page := testkit.File(t, "../../docs/topics.md")
	_, section, _ := strings.Cut(string(page), "## Topics in a file\n")
	block := func(kind string) string {
		_, rest, _ := strings.Cut(section, "\n```"+kind+"\n")
		text, _, found := strings.Cut(rest, "```\n")
		if !found {
			t.Fatalf("there is no block of %s", kind)
		}
		return text
	}
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "topics.yaml"), []byte(block("yaml")), 0o600))
	run := exampleRunner(t, dir, url)
	var out string
	for line := range strings.Lines(block("sh")) {
		code, text := run(strings.TrimSuffix(line, "\n"))
		if out += text; code != 0 {
			t.Errorf("%s: exit %d", line, code)
		}
	}
	if want := block("text"); out != want {
		t.Errorf("it prints\n%s\nnot\n%s", out, want)
	}
}

// TestApplyOfOutcomes: a topic that others name is made before them, wherever it is in the file.
func TestApplyOfOutcomes(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	file := "topics:\n  a: {on_dead: {topic: c}}\n  b: {}\n  c: {on_done: {topic: d}}\n  d: {delivery: pull}\n"
	applied(t, url, file, 0, "create d\ncreate c\ncreate a\ncreate b\n4 created, 0 changed, 0 left, 0 kept, 0 deleted\n", "")
	applied(t, url, file, 0, "leave d\nleave c\nleave a\nleave b\n0 created, 0 changed, 4 left, 0 kept, 0 deleted\n", "")
	applied(t, url, strings.Replace(file, "a: {on_dead: {topic: c}}", "a: {}", 1), 0,
		"change a  on_dead {\"topic\":\"c\"} -> none\nleave b\nleave d\nleave c\n0 created, 1 changed, 3 left, 0 kept, 0 deleted\n", "")
}
