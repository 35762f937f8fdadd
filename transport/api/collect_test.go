package api

import (
	"strings"
	"testing"

	"carillon/timer"
)

func TestCollect(t *testing.T) {
	h := newHarness(t)
	add := func(fields string) *reply {
		t.Helper()
		return h.do("POST", timersPath, `{"id":"m","delay":"1h","merge":"collect",`+mergeURL+fields+`}`)
	}
	add(`,"payload":{"n": 1}`).want(201).has("payload", `[{"n":1}]`, "collected", "1", "merged", "")
	add(`,"payload":2`).want(200).has("payload", `[{"n":1},2]`, "collected", "2", "merged", "true", "version", "2")
	add(`,"payload":null,"part":"line:1","collect_max":4`).want(200).has("payload", `[{"n":1},2,null]`, "collected", "3")
	h.do("GET", timersPath+"/m", "").want(200).has("collected", "3", "merged", "")
	for fields, want := range map[string]string{
		``: "not_json", `,"payload_base64":"AA=="`: "not_json",
	} {
		add(fields).want(422).has("code", `"`+want+`"`)
	}
	add(`,"payload":"`+strings.Repeat("x", 256<<10-2)+`"`).want(413).has("code", `"too_large"`)
	deep := strings.Repeat("[", 63) + `"]\"["` + strings.Repeat("]", 63)
	add(`,"payload":[`+deep+`]`).want(400).has("code", `"bad_json"`)
	h.do("POST", timersPath, `{"id":"deep","delay":"1h","merge":"collect",`+mergeURL+`,"payload":`+deep+`,"content_type":"text/plain"}`).want(201).has("content_type", `"application/json"`)
	for id, before := range map[string]string{
		"binary": `"payload_base64":"AA=="`, "levels": `"payload":[` + deep + `]`, "series": `"payload":1,"repeat":{"every":"1h"}`,
	} {
		h.do("POST", timersPath, `{"id":"`+id+`","delay":"1h",`+mergeURL+`,`+before+`}`).want(201)
		op := `{"id":"` + id + `","delay":"1h","merge":"collect","payload":2,` + mergeURL
		for _, r := range []*reply{h.do("POST", timersPath, op+`}`).want(409), h.do("POST", batches, `{"ops":[`+op+`,"op":"add"}]}`).want(200)} {
			if !strings.Contains(r.body, `"exists"`) || !strings.Contains(r.body, "repeats, or its payload cannot be an element of an array") {
				t.Errorf("%s: %s", id, r.body)
			}
		}
	}
	for fields, code := range map[string]string{
		`,"payload":1,"collect_max":0`: "bad_request", `,"payload":1,"collect_max":10001`: "bad_request", `,"payload":1,"part":""`: "bad_name",
		`,"payload":1,"part":"` + strings.Repeat("p", 65) + `"`: "bad_name", `,"payload":1,"part":"{a}"`: "bad_name",
		`,"payload":1,"repeat":{"every":"1h"}`: "bad_request",
	} {
		add(fields).want(400).has("code", `"`+code+`"`)
	}
	for _, fields := range []string{`"part":"a"`, `"collect_max":5`, `"merge":"keep","part":"a"`, `"merge":"debounce","collect_max":5`} {
		h.do("POST", timersPath, `{"delay":"1h",`+mergeURL+`,"payload":1,`+fields+`}`).want(400)
	}
	h.do("PUT", timersPath+"/m", `{"delay":"1h",`+mergeURL+`,"part":"a"}`).want(400).has("code", `"unknown_field"`)
	h.do("POST", timersPath+"?dry_run=true", `{"id":"m","delay":"1h","merge":"collect",`+mergeURL+`,"payload":9,"collect_max":9}`).want(200).has("collected", "4", "payload", `[{"n":1},2,null,9]`)
	h.do("GET", timersPath+"/m", "").want(200).has("collected", "3")
}

// TestCollectByTopic: the bound is the add's own, else the topic's, else 1,000.
func TestCollectByTopic(t *testing.T) {
	kept := make(chan *timer.Command, 1)
	h := newHarness(t, func(c *Config) { c.Engine = &keepingEngine{c.Engine.(*fakeEngine), kept} })
	for policy, want := range map[string][3]int{
		``:                                      {1000, 7, 0},
		`,"collect_max":1000`:                   {1000, 7, 0},
		`,"collect_max":50,"max_wait":"1m"`:     {50, 7, 60_000},
		`,"collect_max":10000,"max_wait":"24h"`: {10000, 7, 86_400_000},
	} {
		h.do("PUT", "/v1/topics/orders", `{"merge":"collect","callback":{"url":"http://a.example/"}`+policy+`}`)
		h.do("POST", timersPath, `{"delay":"1h","payload":1}`).want(201)
		if got := <-kept; got.Merge != timer.MergeCollect || got.Spec.Collect.Max != want[0] || got.MaxWaitMs != int64(want[2]) {
			t.Errorf("%s: rule %d, at most %d, %d ms", policy, got.Merge, got.Spec.Collect.Max, got.MaxWaitMs)
		}
		h.do("POST", timersPath, `{"delay":"1h","payload":1,"collect_max":7}`).want(201)
		if got := <-kept; got.Spec.Collect.Max != want[1] {
			t.Errorf("%s: at most %d", policy, got.Spec.Collect.Max)
		}
		h.do("POST", timersPath, `{"delay":"1h","merge":"reject"}`).want(201)
		if got := <-kept; got.Spec.Collect != nil {
			t.Errorf("%s: at most %d of an add that does not collect", policy, got.Spec.Collect.Max)
		}
	}
	h.do("PUT", "/v1/topics/orders", `{"collect_max":10001}`).want(422)
	h.do("PATCH", "/v1/topics/orders", `{"collect_max":null}`).want(200).has("policy.collect_max", "1000")
}
