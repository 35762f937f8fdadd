package api

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/timers"
)

// TestOutcomeTopics: a timer and a policy name topics that are there, are not serial, and that the
// token may add to. null is none.
func TestOutcomeTopics(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/failed", `{"delivery":"pull"}`).want(201)
	h.do("PUT", "/v1/topics/ordered", `{"serial":true}`).want(201)
	h.do("PUT", orders, `{"on_dead":{"topic":"failed"}}`).want(201).has("policy.on_dead", `{"topic":"failed"}`, "policy.on_done", "")
	add := func(fields string) *reply {
		t.Helper()
		return h.do("POST", timersPath, `{"id":"m","delay":"1h",`+mergeURL+fields+`}`)
	}
	add(`,"on_done":{"topic":"failed"},"on_dead":null`).want(201).has("on_done", `{"topic":"failed"}`, "on_dead", "null")
	add(`,"on_done":{"topic":"failed"},"on_dead":null`).want(200)
	add(`,"on_done":{"topic":"failed"}`).problem(409, "exists")
	h.do("PATCH", timersPath+"/m", `{"on_done":null}`).want(200).has("on_done", "null", "on_dead", "null")
	h.do("PATCH", timersPath+"/m", `{"on_dead":{"topic":"failed"}}`).want(200).has("on_done", "null", "on_dead", `{"topic":"failed"}`)
	h.do("GET", timersPath+"/m", "").want(200).has("on_dead", `{"topic":"failed"}`)
	h.do("PUT", timersPath+"/m", `{"delay":"1h"`+","+mergeURL+`}`).want(200).has("on_done", "", "on_dead", "")

	unknown := "unknown_outcome_topic"
	for _, topic := range []string{"nowhere", "ordered"} {
		add(`,"on_dead":{"topic":"`+topic+`"}`).problem(422, unknown)
		h.do("PATCH", timersPath+"/m", `{"on_done":{"topic":"`+topic+`"}}`).problem(422, unknown)
		h.do("PUT", timersPath+"/m?dry_run=true", `{"delay":"1h",`+mergeURL+`,"on_done":{"topic":"`+topic+`"}}`).problem(422, unknown)
		h.do("PATCH", orders, `{"on_done":{"topic":"`+topic+`"}}`).problem(422, unknown)
		h.do("PUT", orders, `{"on_dead":{"topic":"`+topic+`"}}`).problem(422, unknown)
		line := h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"add","delay":"1h",`+mergeURL+`,"on_dead":{"topic":"`+topic+`"}}]}`).want(200).body
		if !strings.Contains(line, unknown) {
			t.Errorf("in a batch: %s", line)
		}
	}
	var cases []refused
	for _, value := range []string{`{}`, `"failed"`, `{"topic":""}`, `{"topic":"a b"}`, `{"topic":null}`, `{"topic":"failed","x":1}`, `{"topic":"failed","topic":"failed"}`, `[]`, `true`} {
		code := "bad_request"
		switch {
		case strings.Contains(value, "x"):
			code = "unknown_field"
		case strings.Count(value, "topic") == 2:
			code = "bad_json"
		}
		cases = append(cases, refused{method: "POST", target: timersPath, body: `{"delay":"1h",` + mergeURL + `,"on_done":` + value + `}`, status: 400, code: code})
	}
	checkRefused(t, h, cases)
	h.do("PATCH", orders, `{"on_dead":null,"on_done":{"topic":"failed"}}`).want(200).has("policy.on_dead", "", "policy.on_done", `{"topic":"failed"}`)
	h.do("PATCH", orders, `{"history":"1h"}`).want(200).has("policy.on_done", `{"topic":"failed"}`)
	h.do("PUT", orders, `{"on_done":null}`).want(200).has("policy.on_done", "")
}

// TestOutcomePayload: an outcome shows the timer as a read does. A payload that does not fit is
// left out.
func TestOutcomePayload(t *testing.T) {
	topic := &timer.Topic{ID: 3, Name: "orders", Policy: timer.DefaultPolicy()}
	x := &timer.Timer{
		Topic: 3, ID: "m", Spec: timer.Spec{DueMs: 1_700_000_000_000, PayloadKind: timer.JSONPayload, Payload: []byte(`{"order": 7}`), OnDead: &timer.OutcomeTopic{ID: 9, Name: "failed"}},
		Seq: 5, Tag: 6, Origin: 7, Version: 1, State: timer.Dead, Reason: timer.Stopped, CreatedMs: 1_700_000_000_000, UpdatedMs: 1_700_000_000_000, FiredMs: 1_700_000_000_001,
		LatenessMs: 1, Attempts: 1, LastStatus: 410, LastError: "status 410",
	}
	log := []timer.HistoryAttempt{{Attempt: 1, StartedMs: 1_700_000_000_001, EndedMs: 1_700_000_000_011, Status: 410, Err: "status 410"}}
	describe := timers.Outcomes()
	type outcome struct {
		Outcome, Reason string
		Timer           struct {
			Topic, ID, State, Reason string
			Payload                  json.RawMessage
			OnDead                   struct{ Topic string } `json:"on_dead"`
			AttemptLog               []struct {
				Attempt, Status int
				Error           string
			} `json:"attempt_log"`
		}
		PayloadLeftOut bool `json:"payload_left_out"`
	}
	var got outcome
	if err := json.Unmarshal(describe(topic, x, log), &got); err != nil {
		t.Fatal(err)
	}
	if got.Outcome != "dead" || got.Reason != "stopped" || got.Timer.Topic != "orders" || got.Timer.ID != "m" || got.Timer.State != "dead" || string(got.Timer.Payload) != `{"order": 7}` ||
		got.Timer.OnDead.Topic != "failed" || len(got.Timer.AttemptLog) != 1 || got.Timer.AttemptLog[0].Status != 410 || got.PayloadLeftOut {
		t.Errorf("%+v", got)
	}
	got = outcome{}
	for n := 2; n <= 101; n++ {
		log = append(log, timer.HistoryAttempt{Attempt: n, Status: 500})
	}
	if err := json.Unmarshal(describe(topic, x, log), &got); err != nil || len(got.Timer.AttemptLog) != 100 || got.Timer.AttemptLog[0].Attempt != 2 {
		t.Errorf("of 101 attempts %d are shown, %v", len(got.Timer.AttemptLog), err)
	}
	x.State, x.Reason = timer.Done, timer.NoReason
	for _, c := range []struct {
		bytes   int
		leftOut bool
	}{{200 << 10, false}, {256 << 10, true}} {
		x.Payload = []byte(`"` + strings.Repeat("x", c.bytes-2) + `"`)
		b := describe(topic, x, nil)
		got = outcome{}
		if err := json.Unmarshal(b, &got); err != nil || len(b) > 256<<10 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if got.Outcome != "done" || got.Reason != "" || got.PayloadLeftOut != c.leftOut || (len(got.Timer.Payload) == 0) != c.leftOut || got.Timer.AttemptLog != nil {
			t.Errorf("with a payload of %d bytes: %+v", c.bytes, got.PayloadLeftOut)
		}
	}
}

// TestOutcomeTopicsOfTokens: a token names only topics that it may add to, and learns nothing of
// others.
func TestOutcomeTopicsOfTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root add,cancel,read,topics,admin,cluster "*"`, `shop add,read "orders","failed"`, `boss admin,read "orders","failed"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	as := func(token, method, target, body string) *reply {
		t.Helper()
		return h.do(method, target, body, "Authorization: Bearer "+token)
	}
	for _, topic := range []string{"orders", "failed", "others"} {
		as("root", "PUT", "/v1/topics/"+topic, `{"callback":{"url":"http://a.example/"}}`).want(201)
	}
	add := func(topic string) *reply {
		return as("shop", "POST", timersPath, `{"delay":"1h","on_dead":{"topic":"`+topic+`"}}`)
	}
	add("failed").want(201)
	hidden, missing := add("others").problem(422, "unknown_outcome_topic"), add("absent").problem(422, "unknown_outcome_topic")
	if strings.ReplaceAll(hidden.body, "others", "absent") != missing.body {
		t.Errorf("%s and %s", hidden.body, missing.body)
	}
	as("boss", "PATCH", orders, `{"on_dead":{"topic":"failed"}}`).problem(422, "unknown_outcome_topic") // it may not add
	as("root", "PATCH", orders, `{"on_dead":{"topic":"others"}}`).want(200)
	as("boss", "PATCH", orders, `{"history":"1h"}`).want(200) // and leaves what is there
}
