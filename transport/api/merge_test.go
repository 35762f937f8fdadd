package api

import (
	"fmt"
	"strings"
	"testing"

	"carillon/timer"
)

const mergeURL = `"callback":{"url":"http://a.example/"}`

func TestMergeRules(t *testing.T) {
	h := newHarness(t)
	add := func(fields string) *reply {
		t.Helper()
		return h.do("POST", timersPath, `{"id":"m",`+mergeURL+`,`+fields+`}`)
	}
	add(`"delay":"1h","payload":1`).want(201).has("merged", "", "successor", "")
	add(`"delay":"2h","payload":2`).want(409)
	add(`"delay":"2h","payload":2,"merge":"keep"`).want(200).has("merged", "true", "payload", "1", "version", "1")
	add(`"delay":"2h","payload":2,"merge":"replace"`).want(200).has("merged", "true", "payload", "2", "version", "2")
	h.do("GET", timersPath+"/m", "").want(200).has("merged", "", "payload", "2")
	h.engine.set("orders", "m", func(x *timer.Timer) { x.State = timer.Leased })
	add(`"delay":"3h","payload":3`).want(409).has("code", `"in_flight"`)
	add(`"delay":"3h","payload":3,"merge":"debounce","max_wait":"5m"`).want(200).has("merged", "true", "successor", "true", "payload", "2")
	h.do("GET", timersPath+"/m", "").want(200).has("successor", "true", "merged", "")
	line := h.do("POST", "/v1/topics/orders/batch", `{"ops":[{"op":"add","id":"m",`+mergeURL+`,"delay":"1h","merge":"replace"}]}`).want(200).body
	if !strings.Contains(line, `"status":200`) || !strings.Contains(line, `"merged":true`) {
		t.Errorf("a merged add of a batch answers %s", line)
	}
}

// The rule, the longest wait and the way ids are made are the add's own, else the topic's.
func TestMergeByTopic(t *testing.T) {
	kept := make(chan *timer.Command, 1)
	h := newHarness(t, func(c *Config) { c.Engine = &keepingEngine{c.Engine.(*fakeEngine), kept} })
	h.do("PUT", "/v1/topics/orders", `{"merge":"debounce","max_wait":"5m","callback":{"url":"http://a.example/"}}`).want(201).
		has("policy.merge", `"debounce"`, "policy.max_wait", `"5m"`, "policy.dedup", `"id"`)
	for fields, want := range map[string]timer.Command{
		``:                                    {Merge: timer.MergeDebounce, MaxWaitMs: 300_000},
		`,"max_wait":"1m"`:                    {Merge: timer.MergeDebounce, MaxWaitMs: 60_000},
		`,"merge":"debounce"`:                 {Merge: timer.MergeDebounce, MaxWaitMs: 300_000},
		`,"merge":"keep"`:                     {Merge: timer.MergeKeep},
		`,"merge":"reject"`:                   {},
		`,"merge":"replace"`:                  {Merge: timer.MergeReplace},
		`,"merge":"debounce","max_wait":"1s"`: {Merge: timer.MergeDebounce, MaxWaitMs: 1000},
	} {
		h.do("POST", timersPath, `{"delay":"1h"`+fields+`}`).want(201)
		if got := <-kept; got.Merge != want.Merge || got.MaxWaitMs != want.MaxWaitMs {
			t.Errorf("%s: rule %d, %d ms", fields, got.Merge, got.MaxWaitMs)
		}
	}
	h.do("PUT", "/v1/topics/orders", `{"callback":{"url":"http://a.example/"}}`).want(200).has("policy.max_wait", "")
	h.do("POST", timersPath, `{"delay":"1h","max_wait":"1m"}`).want(400)
}

func TestDedupByContent(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", `{"dedup":"content","merge":"keep","callback":{"url":"http://a.example/"}}`).want(201).has("policy.dedup", `"content"`)
	add := func(fields string, status int) string {
		t.Helper()
		return h.do("POST", timersPath, `{"delay":"1h"`+fields+`}`).want(status).json()["id"].(string)
	}
	first := add(`,"payload":[1]`, 201)
	if again := add(`,"payload":[1],"priority":7`, 200); again != first {
		t.Errorf("the same payload is %s, then %s", first, again)
	}
	seen := map[string]bool{first: true}
	for _, fields := range []string{`,"payload":[2]`, `,"payload":[1],"callback":{"url":"http://b.example/"}`, ``, `,"payload":[1],"key":"k"`} {
		id := add(fields, 201)
		if seen[id] {
			t.Errorf("%s has an id that other content has", fields)
		}
		seen[id] = true
	}
	if id := add(`,"payload":[1],"callback":{"url":"http://a.example/"}`, 200); id != first {
		t.Error("the topic's URL, said by the add, makes another id")
	}
	add(`,"payload":[1],"id":"own"`, 201)
}

func TestRepeatFirstTime(t *testing.T) {
	h := newHarness(t)
	at := func(fields string) *reply {
		t.Helper()
		return h.do("POST", timersPath, `{`+mergeURL+`,`+fields+`}`).want(201)
	}
	minute := int64(60_000)
	at(`"repeat":{"cron":"* * * * *"}`).has("due_ms", fmt.Sprint(noonMs-noonMs%minute+(noonMs%minute+minute-1)/minute*minute), "repeat.cron", `"* * * * *"`)
	at(`"at_ms":`+fmt.Sprint(noonMs+minute/2)+`,"repeat":{"cron":"* * * * *","zone":"Europe/Berlin"}`).has("due_ms", fmt.Sprint((noonMs+minute/2+minute-1)/minute*minute), "repeat.zone", `"Europe/Berlin"`)
	at(`"at_ms":100000000000,"repeat":{"cron":"* * * * *","count":3,"until":"2100-01-01T00:00:00+01:00","catch_up":"skip","overlap":true}`).
		has("repeat.count", "3", "repeat.until", `"2099-12-31T23:00:00.000Z"`, "repeat.catch_up", `"skip"`, "repeat.overlap", "true")
	at(`"delay":"5s","repeat":{"every":"1h30m"}`).has("due_ms", fmt.Sprint(noonMs+5000), "repeat.every", `"1h30m"`)
	h.do("POST", timersPath, `{"id":"r",`+mergeURL+`,"delay":"1h"}`).want(201)
	h.do("PATCH", timersPath+"/r", `{"repeat":{"cron":"0 0 1 1 *"}}`).want(200).has("repeat.cron", `"0 0 1 1 *"`)
	if due := h.do("GET", timersPath+"/r", "").want(200).json()["due"].(string); !strings.Contains(due, "-01-01T00:00:00.000Z") {
		t.Errorf("after a patch the series begins at %s", due)
	}
}
