package api

import (
	"fmt"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

const batches = "/v1/topics/orders/batch"

func TestBatch(t *testing.T) {
	h := newHarness(t)
	r := h.do("POST", batches, `{"ops":[
		{"op":"add","id":"a","delay":"1h",`+cb+`},
		{"op":"add","id":"a","delay":"2h",`+cb+`},
		{"id":"a","priority":3,"if_match":1,"op":"patch"},
		{"op":"patch","id":"a","priority":4,"if_match":1},
		{"op":"fire","id":"a"},
		{"op":"put","id":"b","delay_ms":5,`+cb+`},
		{"op":"cancel","id":"a"},
		{"op":"cancel","id":"nope"},
		{"op":"add","delay":"1h","key":"k",`+cb+`},
		{"op":"add","id":"c","delay":"1h"},
		{"op":"add","id":"c","delay":"1h","foo":1},
		{"op":"add","id":"c","delay":"1h","priority":"x","payload":{"deep":[1,2,{"ops":[]}]}},
		{"op":"add","id":"c","id":"c","delay":"1h"},
		{"op":"add","id":"c/","delay":"1h"},
		{"op":"add","id":"c","if_match":1,"delay":"1h"},
		{"op":"cancel","id":"b","priority":1},
		{"op":"cancel"},
		{"op":"explode","id":"b"},
		{"id":"b"},
		{"op":"patch","id":"b"},
		{"op":"patch","id":"b","if_match":0,"priority":1},
		17, null, "x", [], {},
		{"op":"add","id":"c","delay":"1h","payload_base64":"?"},
		{"op":"add","id":"c","delay":"999999h",`+cb+`},
		{"op":"cancel","id":"b"}
	]}`).want(200)
	want := []string{"201", "409 exists", "200", "412 version_mismatch", "200", "201", "200 prevented", "404 unknown_timer", "201", "422 no_callback", "400 unknown_field", "400 bad_request",
		"400 bad_json", "400 bad_name", "400 unknown_field", "400 unknown_field", "400 bad_request", "400 bad_request", "400 bad_request", "400 bad_request", "400 bad_request",
		"400 bad_request", "400 bad_request", "400 bad_request", "400 bad_request", "400 bad_request", "400 bad_request", "422 beyond_horizon", "200 prevented"}
	checkResults(t, r.json()["results"].([]any), want, r.body)
	r.has("results.0.id", `"a"`, "results.0.timer.id", `"a"`, "results.2.timer.version", "2", "results.6.timer", "", "results.8.timer.key", `"k"`, "results.1.id", `"a"`, "results.1.error.status", "409")

	r = h.do("POST", batches+"?brief=true", `{"ops":[{"op":"add","id":"d","delay":"1h",`+cb+`}]}`).want(200)
	if r.body != `{"results":[{"status":201,"id":"d"}]}` {
		t.Fatal(r.body)
	}
	h.do("POST", batches, `{"ops":[]}`).want(200).has("results", "[]")
	h.do("POST", "/v1/topics/fresh/batch", `{"ops":[{"op":"cancel","id":"d"}]}`).want(200).has("results.0.error.code", `"unknown_topic"`)
	h.engine.set("orders", "d", func(t *timer.Timer) { t.State = timer.Done })
	h.do("POST", batches, `{"ops":[{"op":"cancel","id":"d"}]}`).want(200).has("results.0.status", "410", "results.0.error.outcome", `"already_fired"`)
	// A result names its id, as far as it has been read, whatever the fault.
	const faults = `{"op":"patch","id":"x","priority":300},{"op":"fire","id":"x","priority":1},{"op":"patch","priority":300,"id":"x"}`
	h.do("POST", batches, `{"ops":[`+faults+`]}`).want(200).has("results.0.error.detail", `"priority: must be 0 to 255"`,
		"results.0.id", `"x"`, "results.1.id", `"x"`, "results.2.id", "")
	if r := h.do("POST", batches, `{"op":"patch","id":"x","priority":300}`, "Content-Type: application/x-ndjson").want(200); !strings.Contains(r.body, `"id":"x"`) {
		t.Error(r.body)
	}
}

func checkResults(t *testing.T, results []any, want []string, body string) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d: %s", len(results), len(want), body)
	}
	for i := range want {
		status, rest, _ := strings.Cut(want[i], " ")
		got := results[i].(map[string]any)
		told := strings.Trim(pick(got, "error.code")+pick(got, "outcome"), `"`)
		if pick(got, "status") != status || told != rest {
			t.Errorf("result %d: %v, want %s", i, got, want[i])
		}
	}
}

func TestBatchRefusedWhole(t *testing.T) {
	h := newHarness(t)
	good := `{"op":"add","id":"a","delay":"1h",` + cb + `}`
	var cases []refused
	for body, code := range map[string]string{
		``: web.BadJSON, `{}`: web.BadRequest, `[]`: web.BadRequest, `{"ops":{}}`: web.BadRequest, `{"ops":null}`: web.BadRequest, `{"Ops":[]}`: web.UnknownField, `{"ops":[],"ops":[]}`: web.BadJSON,
		`{"ops":[` + good + `],"x":1}`: web.UnknownField, `{"ops":[` + good + `,]}`: web.BadJSON, `{"ops":[` + good + `]`: web.BadJSON, `{"ops":[` + good + `]} x`: web.BadJSON,
		`{"ops":[` + good + `,{"op":}]}`: web.BadJSON, `{"ops":[` + good + `,{"priority":"x","p":}]}`: web.BadJSON, `{"ops":[` + good + `,"` + "\xff" + `"]}`: web.BadJSON,
		`{"ops":[` + good + `,{"op":"add","payload":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}]}`: web.BadJSON,
	} {
		cases = append(cases, refused{method: "POST", target: batches, body: body, status: 400, code: code})
	}
	many := strings.Repeat(good+",", 1000) + good
	cases = append(cases, refused{method: "POST", target: batches, body: `{"ops":[` + many + `]}`, status: 413, code: web.TooLarge},
		refused{method: "POST", target: batches, body: strings.Repeat(good+"\n", 1001), status: 413, code: web.TooLarge, headers: []string{"Content-Type: application/x-ndjson"}},
		refused{method: "POST", target: batches, body: `{"ops":[]}`, status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: text/json"}},
		refused{method: "POST", target: batches + "?brief=1", body: `{"ops":[]}`, status: 400, code: web.BadRequest})
	checkRefused(t, h, cases)
	h.do("POST", batches, `{"ops":[`+strings.TrimSuffix(strings.Repeat(`{"op":"cancel","id":"x"},`, 1000), ",")+`]}`).want(200)
}

func TestBatchLines(t *testing.T) {
	h := newHarness(t)
	const ndjson = "Content-Type: application/x-ndjson; charset=utf-8"
	r := h.do("POST", batches+"?brief=true", `{"op":"add","id":"a","delay":"1h",`+cb+"}\n"+"{\"op\":\r\n"+"\n"+`{"op":"cancel","id":"a"} x`+"\n\xff\n"+`{"op":"cancel","id":"a"}`+"\r\n", ndjson).want(200)
	if ct := r.header.Get("Content-Type"); ct != "application/x-ndjson" {
		t.Fatal(ct)
	}
	lines := strings.Split(strings.TrimSuffix(r.body, "\n"), "\n")
	if len(lines) != 6 || lines[0] != `{"status":201,"id":"a"}` || lines[5] != `{"status":200,"id":"a","outcome":"prevented"}` {
		t.Fatal(r.body)
	}
	for _, line := range lines[1:5] {
		if !strings.HasPrefix(line, `{"status":400,"error":{`) || !strings.Contains(line, `"code":"bad_json"`) {
			t.Fatal(line)
		}
	}
	if r := h.do("POST", batches, "\n", ndjson).want(200); r.body != "" {
		t.Fatalf("%q", r.body)
	}
}

// Strings of a command are its own: the next requests on the connection do not show in it.
func TestCommandsOutliveRequests(t *testing.T) {
	h := newHarness(t)
	kept := make(chan *timer.Command, 1000)
	keeping := &keepingEngine{fakeEngine: h.engine, kept: kept}
	h.server.node.Engine = keeping
	for i := range 50 {
		h.do("POST", timersPath, fmt.Sprintf(`{"id":"keep-%02d","delay":"1h","labels":["l%02d"],"payload":"p%02d",`+cb+`}`, i, i, i)).want(201)
		h.do("PATCH", timersPath+fmt.Sprintf("/keep-%02d", i), fmt.Sprintf(`{"payload":"q%02d"}`, i)).want(200)
		h.do("POST", batches, fmt.Sprintf(`{"ops":[{"op":"put","id":"keep-%02d","delay":"2h","labels":["l%02d"],"payload":"p%02d",`+cb+`},{"op":"patch","id":"keep-%02d","payload":"q%02d"}]}`, i, i, i, i, i)).want(200)
	}
	close(kept)
	i := 0
	for cmd := range kept {
		n := i / 4
		if cmd.ID != fmt.Sprintf("keep-%02d", n) {
			t.Fatalf("command %d is now of %q", i, cmd.ID)
		}
		if cmd.Spec != nil && (string(cmd.Spec.Payload) != fmt.Sprintf(`"p%02d"`, n) || cmd.Spec.Labels[0] != fmt.Sprintf("l%02d", n)) {
			t.Fatalf("command %d: %s %v", i, cmd.Spec.Payload, cmd.Spec.Labels)
		}
		if cmd.Patch != nil && string(cmd.Patch.Spec.Payload) != fmt.Sprintf(`"q%02d"`, n) {
			t.Fatalf("command %d: %s", i, cmd.Patch.Spec.Payload)
		}
		i++
	}
}
