package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
)

const orders = "/v1/topics/orders"

func TestTopicLife(t *testing.T) {
	h := newHarness(t)
	h.do("GET", orders, "").problem(404, web.UnknownTopic)
	def := `{"ack":"response","answers":"failed","breaker":{"failures":5,"open":"5s","probes":1,"window":"10s"},"callback":{"method":"POST","timeout":"10s"},"collect_max":1000,"concurrency":0,"dead_retention":"720h","dedup":"id","delivery":"push",` +
		`"destination_concurrency":256,"format":"plain","history":"72h","if_late":"fire","lease":"30s","merge":"reject","retry":{"jitter":0.2,"max_attempts":16,"max_backoff":"1h","min_backoff":"1s","multiplier":2},"secrets":[],"serial":false,"signing_keys":[],"spread":"0s","stop_on":[410]}`
	h.do("PUT", orders, `{}`).want(201).has("topic", `"orders"`, "policy", def, "paused", "false", "auto_created", "false",
		"counts", `{"dead":0,"done":0,"leased":0,"ready":0,"scheduled":0}`, "oldest_overdue_ms", "0")
	h.do("POST", orders+"/pause", "").want(200).has("paused", "true")
	h.do("POST", orders+"/pause", "{}").want(200).has("paused", "true")
	h.do("POST", orders+"/pause", `{"x":1}`).problem(400, web.UnknownField)
	h.do("POST", orders+"/pause", `{}`, "Content-Type: text/plain").problem(415, "unsupported_media_type")
	h.do("POST", orders+"/resume", "").want(200).has("paused", "false")
	h.do("POST", timersPath, `{"delay":"1h"}`).problem(422, "no_callback")
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`).want(200)
	h.do("POST", timersPath, `{"id":"a","delay":"1h"}`).want(201)
	h.do("GET", orders, "").want(200).has("counts.scheduled", "1")
	h.do("DELETE", orders, "").problem(409, "not_empty")
	h.do("DELETE", orders+"?force=false", "").problem(409, "not_empty")
	h.do("DELETE", orders+"?force=true", "").want(200).has("cancelled", "1")
	h.do("GET", orders, "").problem(404, web.UnknownTopic)
	h.do("PUT", timersPath+"/x", `{"delay":"1h",`+cb+`}`).want(201)
	h.do("GET", orders, "").want(200).has("auto_created", "true")
}

// With auto_create_topics off, only a person makes a topic.
func TestTopicsAreNotMadeByTheWay(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.KnownTopicsOnly = true })
	for _, call := range [][3]string{
		{"POST", timersPath, `{"delay":"1h",` + cb + `}`}, {"PUT", timersPath + "/x", `{"delay":"1h",` + cb + `}`},
		{"POST", orders + "/pull", ""},
	} {
		h.do(call[0], call[1], call[2]).problem(404, web.UnknownTopic)
	}
	h.do("POST", orders+"/batch", `{"ops":[{"op":"add","id":"a","delay":"1h",`+cb+`}]}`).want(200).has("results.0.status", "404")
	h.do("GET", orders, "").problem(404, web.UnknownTopic)
	h.do("PUT", orders, `{}`).want(201)
	h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`).want(201)
}

func signingSecret(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
}

// The answer to a GET can be PUT back and changes nothing.
func TestPolicyRoundTrip(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	for _, policy := range []string{
		`{}`,
		`{"callback":{"url":"http://a.example/x?y","method":"PATCH","headers":{"X":"é\"\\","X-Token":"t0k"},"timeout":"15m"},"retry":{"max_attempts":1,"min_backoff":"1ms","max_backoff":"720h","multiplier":1,"jitter":1}}`,
		`{"stop_on":[],"breaker":{"failures":1},"destination_concurrency":1,"history":"0s","dead_retention":"1h0m0.5s","secrets":["` + signingSecret(24) + `","` + signingSecret(64) + `"]}`,
		`{"serial":true,"concurrency":3,"rate":{"per_second":0.5,"burst":7},"spread":"1m30s"}`,
		`{"rate":{"per_second":1e6},"concurrency":2147483647}`, `{"serial":true,"key":"all","if_late":"reject"}`,
		`{"window":{"zone":"Europe/Berlin","days":"fri-mon","from":"22:00","to":"06:00","except":["2026-12-25","2026-12-26"]}}`, `{"window":{"to":"24:00"}}`,
		`{"batch":{"max":2}}`, `{"batch":{"max":1000,"wait":"1m","by":"key"},"callback":{"method":"PUT"}}`,
		`{"delivery":"pull","ack":"report","lease":"1s"}`, `{"lease":"12h"}`, `{"format":"cloudevents"}`, `{"format":"plain"}`, `{"signing_keys":["` + privateKey + `"]}`,
		`{"delivery":"push","ack":"response","lease":"30s","merge":"reject","dedup":"id","serial":false,"concurrency":0,"spread":"0s","stop_on":[410,410,500]}`,
	} {
		first := h.do("PUT", orders+"?force=true", policy).want(200)
		if strings.Contains(first.body, "whsec_") || strings.Contains(first.body, "whsk_") || strings.Contains(first.body, "t0k") {
			t.Fatalf("a secret is shown: %s", first.body)
		}
		before, _ := topicsOf(h.engine).Here("orders")
		again := h.do("PUT", orders, pick(first.json(), "policy")).want(200)
		after, _ := topicsOf(h.engine).Here("orders")
		if pick(again.json(), "policy") != pick(first.json(), "policy") || !reflect.DeepEqual(before.Policy, after.Policy) {
			t.Fatalf("%s\n%s\n%+v\n%+v", first.body, again.body, before.Policy, after.Policy)
		}
	}
	h.do("PUT", orders+"?force=true", `{}`).want(200)
	if topic, _ := topicsOf(h.engine).Here("orders"); topic.Policy.OwnBreaker || topic.Policy.Secrets != nil {
		t.Fatalf("%+v", topic.Policy)
	}
	h.do("PUT", "/v1/topics/own", `{"breaker":{}}`).want(201)
	if topic, _ := topicsOf(h.engine).Here("own"); !topic.Policy.OwnBreaker {
		t.Fatal("a topic that sets a breaker has its own")
	}
}

func TestPolicyRefuses(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	var cases []refused
	for body, want := range map[string]string{
		``: "400 bad_json", `[]`: "400 bad_request", `null`: "400 bad_request", `{"Delivery":"push"}`: "400 unknown_field", `{"foo":1}`: "400 unknown_field", `{} x`: "400 bad_json",
		`{"serial":false,"serial":false}`: "400 bad_json", `{"callback":null}`: "400 bad_request", `{"callback":{"url":null}}`: "400 bad_request", `{"retry":{"jitter":null}}`: "400 bad_request", `{"rate":null}`: "400 bad_request",
		`{"key":""}`: "422 bad_policy", `{"key":"a b"}`: "422 bad_policy", `{"key":null}`: "400 bad_request", `{"key":1}`: "400 bad_request", `{"if_late":"x"}`: "400 bad_request", `{"if_late":null}`: "400 bad_request",
		`{"window":{}}`: "422 bad_policy", `{"window":null}`: "400 bad_request", `{"window":"08:00"}`: "400 bad_request", `{"window":{"zone":"Europe/Berlin"}}`: "422 bad_policy", `{"window":{"zone":"Mars","from":"08:00"}}`: "422 bad_policy",
		`{"window":{"zone":"","from":"08:00"}}`: "422 bad_policy", `{"window":{"days":"mo"}}`: "422 bad_policy", `{"window":{"from":8}}`: "400 bad_request", `{"window":{"from":"8:00"}}`: "422 bad_policy", `{"window":{"From":"08:00"}}`: "400 unknown_field",
		`{"window":{"from":"08:00","from":"09:00"}}`: "400 bad_json", `{"window":{"from":"08:00","to":"08:00"}}`: "422 bad_policy", `{"window":{"except":["2026-02-30"]}}`: "422 bad_policy", `{"window":{"except":"2026-12-25"}}`: "400 bad_request",
		`{"batch":{}}`: "400 bad_request", `{"batch":null}`: "400 bad_request", `{"batch":9}`: "400 bad_request", `{"batch":{"wait":"1s"}}`: "400 bad_request", `{"batch":{"max":1}}`: "422 bad_policy", `{"batch":{"max":1001}}`: "422 bad_policy",
		`{"batch":{"max":2,"wait":"61s"}}`: "422 bad_policy", `{"batch":{"max":2,"wait":1}}`: "400 bad_request", `{"batch":{"max":2,"by":"id"}}`: "400 bad_request", `{"batch":{"max":2,"x":1}}`: "400 unknown_field", `{"batch":{"max":2,"max":2}}`: "400 bad_json",
		`{"batch":{"max":2},"delivery":"pull"}`: "422 bad_policy", `{"ack":"report","batch":{"max":2}}`: "422 bad_policy", `{"batch":{"max":2},"serial":true}`: "422 bad_policy", `{"batch":{"max":2},"callback":{"method":"GET"}}`: "422 bad_policy",
		// Not in this version: checked, then refused.
		`{"format":"x"}`: "400 bad_request", `{"signing_keys":["x"]}`: "422 bad_policy", `{"signing_keys":["` + publicOfIt + `"]}`: "422 bad_policy", `{"signing_keys":["` + strings.Repeat(privateKey+`","`, 3) + privateKey + `"]}`: "422 bad_policy", `{"signing_keys":[null]}`: "400 bad_request", `{"format":true}`: "400 bad_request", `{"delivery":"x"}`: "400 bad_request", `{"delivery":1}`: "400 bad_request", `{"ack":"x"}`: "400 bad_request", `{"ack":true}`: "400 bad_request",
		`{"lease":"999ms"}`: "422 bad_policy", `{"lease":"12h0m1s"}`: "422 bad_policy", `{"lease":"x"}`: "400 bad_request", `{"lease":"-1s"}`: "400 bad_request", `{"lease":30}`: "400 bad_request", `{"merge":"x"}`: "400 bad_request", `{"max_wait":"0s"}`: "422 bad_policy", `{"max_wait":1}`: "400 bad_request",
		`{"dedup":"x"}`: "400 bad_request", `{"serial":"true"}`: "400 bad_request", `{"ordered":true}`: "400 unknown_field", `{"concurrency":-1}`: "422 bad_policy",
		`{"concurrency":1.5}`: "400 bad_request", `{"rate":{}}`: "400 bad_request", `{"rate":{"burst":1}}`: "400 bad_request", `{"rate":{"per_second":0}}`: "422 bad_policy", `{"rate":{"per_second":-1}}`: "422 bad_policy", `{"rate":{"per_second":1e9}}`: "422 bad_policy", `{"rate":{"per_second":"1"}}`: "400 bad_request",
		`{"rate":{"per_second":1,"burst":0}}`: "422 bad_policy", `{"rate":{"per_second":1,"burst":1.5}}`: "400 bad_request", `{"rate":{"per_second":1,"per_second":1}}`: "400 bad_json", `{"concurrency":2147483648}`: "422 bad_policy", `{"rate":100}`: "400 bad_request", `{"rate":{"foo":1}}`: "400 unknown_field", `{"spread":"169h"}`: "422 bad_policy", `{"spread":"-1s"}`: "400 bad_request",
		// Out of range.
		`{"retry":{"max_attempts":0}}`: "422 bad_policy", `{"retry":{"max_attempts":1001}}`: "422 bad_policy", `{"retry":{"multiplier":11}}`: "422 bad_policy", `{"retry":{"jitter":2}}`: "422 bad_policy", `{"retry":{"min_backoff":"2h"}}`: "422 bad_policy",
		`{"retry":{"max_backoff":"721h"}}`: "422 bad_policy", `{"retry":{"max_backoff":"x"}}`: "400 bad_request", `{"stop_on":[200]}`: "422 bad_policy", `{"stop_on":[600]}`: "422 bad_policy", `{"stop_on":["410"]}`: "400 bad_request", `{"stop_on":410}`: "400 bad_request",
		`{"breaker":{"failures":0}}`: "422 bad_policy", `{"breaker":{"window":"0s"}}`: "422 bad_policy", `{"breaker":{"open":"25h"}}`: "422 bad_policy", `{"breaker":{"probes":0}}`: "422 bad_policy", `{"breaker":{"x":0}}`: "400 unknown_field", `{"breaker":{"probes":1,"probes":1}}`: "400 bad_json",
		`{"destination_concurrency":0}`: "422 bad_policy", `{"destination_concurrency":"9"}`: "400 bad_request", `{"history":"99999h"}`: "422 bad_policy", `{"history":"-1s"}`: "400 bad_request", `{"history":72}`: "400 bad_request", `{"dead_retention":"9999999999h"}`: "422 bad_policy",
		`{"callback":{"timeout":"1ms"}}`: "422 bad_policy", `{"callback":{"timeout":"x"}}`: "400 bad_request", `{"callback":{"url":"ftp://x"}}`: "400 bad_url", `{"callback":{"headers":{"Host":"x"}}}`: "400 bad_header", `{"callback":{"headers":{"X-Key":"REDACTED"}}}`: "400 bad_header",
		`{"secrets":["x"]}`: "422 bad_policy", `{"secrets":["` + signingSecret(23) + `"]}`: "422 bad_policy", `{"secrets":["` + signingSecret(65) + `"]}`: "422 bad_policy", `{"secrets":[1]}`: "400 bad_request", `{"secrets":"x"}`: "400 bad_request",
		`{"secrets":["` + strings.Repeat(signingSecret(24)+`","`, 3) + signingSecret(24) + `"]}`: "422 bad_policy", `{"secrets":["sha256:0011223344556677"]}`: "422 bad_policy",
	} {
		var status int
		var code string
		_, _ = fmt.Sscan(want, &status, &code)
		cases = append(cases, refused{method: "PUT", target: orders, body: body, status: status, code: code})
	}
	cases = append(cases, refused{method: "PUT", target: orders, body: "{}", status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: text/plain"}},
		refused{method: "PUT", target: orders, body: "{}", status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: application/json; charset=latin1"}},
		refused{method: "PUT", target: orders, body: "{}", status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: application/x-ndjson"}},
		refused{method: "PUT", target: orders, body: "{}", status: 415, code: "unsupported_media_type", headers: []string{"Content-Type: application/json", "Content-Encoding: gzip"}},
		refused{method: "PUT", target: orders, body: "{}", status: 400, code: web.BadRequest, headers: []string{`If-Match: 1`}},
		refused{method: "PUT", target: orders + "?x=1", body: "{}", status: 400, code: web.BadRequest})
	checkRefused(t, h, cases)
}

// TestHeadersOfACallback: at most 32, and no name twice.
func TestHeadersOfACallback(t *testing.T) {
	h := newHarness(t)
	policy := func(headers int, more string) string {
		b := []byte(`{"callback":{"headers":{`)
		for i := range headers {
			b = fmt.Appendf(b, `"X-%d":"",`, i)
		}
		return string(b) + more + `}}}`
	}
	h.do("PUT", orders, policy(31, `"X-A":"1"`)).want(201)
	for _, body := range []string{policy(32, `"X-A":"1"`), policy(0, `"X-A":"1","x-a":"2"`)} {
		h.do("PUT", orders, body).problem(400, "bad_header")
	}
}

func TestTopicPages(t *testing.T) {
	h := newHarness(t)
	for i := range 25 {
		h.do("PUT", fmt.Sprintf("/v1/topics/t%02d", i), `{}`).want(201)
	}
	seen, cursor := 0, ""
	for page := 0; ; page++ {
		target := "/v1/topics?limit=10"
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		r := h.do("GET", target, "").want(200).json()
		for _, topic := range r["topics"].([]any) {
			if name := topic.(map[string]any)["topic"]; name != fmt.Sprintf("t%02d", seen) {
				t.Fatalf("%v at place %d", name, seen)
			}
			seen++
		}
		if cursor, _ = r["next_cursor"].(string); cursor == "" {
			break
		}
	}
	if seen != 25 {
		t.Fatal(seen)
	}
	var empty struct{ Topics []json.RawMessage }
	fresh := newHarness(t)
	if err := json.Unmarshal([]byte(fresh.do("GET", "/v1/topics", "").want(200).body), &empty); err != nil || empty.Topics == nil {
		t.Fatal(empty, err)
	}
}

// A listing may be of names that begin in a way, and with counts, which are asked for once a page.
func TestTopicListing(t *testing.T) {
	h := newHarness(t)
	for _, name := range []string{"a", "ab", "ab.1", "ab.2", "ac", "b", "orders"} {
		h.do("PUT", "/v1/topics/"+name, `{}`).want(201)
	}
	h.do("POST", timersPath, `{"id":"t","delay":"1h",`+cb+`}`).want(201)
	names := func(query string) string {
		t.Helper()
		var got []string
		for cursor := ""; ; {
			target := "/v1/topics?" + query
			if cursor != "" {
				target += "&cursor=" + cursor
			}
			var page struct {
				Topics []struct{ Topic string }
				Next   string `json:"next_cursor"`
			}
			if err := json.Unmarshal([]byte(h.do("GET", target, "").want(200).body), &page); err != nil {
				t.Fatal(err)
			}
			for _, topic := range page.Topics {
				got = append(got, topic.Topic)
			}
			if cursor = page.Next; cursor == "" {
				return strings.Join(got, " ")
			}
		}
	}
	for query, want := range map[string]string{
		"": "a ab ab.1 ab.2 ac b orders", "prefix=ab": "ab ab.1 ab.2", "prefix=ab&limit=1": "ab ab.1 ab.2", "prefix=ab.": "ab.1 ab.2", "prefix=c": "", "prefix=orders": "orders",
		"prefix=ordersx": "", "limit=2": "a ab ab.1 ab.2 ac b orders",
	} {
		if got := names(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	before := h.engine.calls["Counts"]
	h.do("GET", "/v1/topics?counts=true", "").want(200).has("topics.6.counts.scheduled", "1", "topics.0.counts.scheduled", "0", "topics.6.oldest_overdue_ms", "0")
	if n := h.engine.calls["Counts"] - before; n != 1 {
		t.Errorf("a page was counted in %d goes", n)
	}
	h.do("GET", "/v1/topics", "").want(200).has("topics.6.counts", "")
	checkRefused(t, h, []refused{
		{method: "GET", target: "/v1/topics?prefix=%2f", status: 400, code: web.BadName}, {method: "GET", target: "/v1/topics?prefix=" + strings.Repeat("a", 129), status: 400, code: web.BadName},
		{method: "GET", target: "/v1/topics?counts=yes", status: 400, code: web.BadRequest}, {method: "GET", target: "/v1/topics?prefix=a&prefix=b", status: 400, code: web.BadRequest},
	})
	cursor := h.do("GET", "/v1/topics?limit=1", "").json()["next_cursor"].(string)
	h.do("GET", "/v1/topics?limit=1&prefix=a&cursor="+cursor, "").problem(400, web.BadRequest)
}

// Pages of topics with much policy end early.
func TestTopicPageIsBounded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.ResponseBytes = 100 << 10 })
	var headers []string
	for i := range 16 {
		headers = append(headers, fmt.Sprintf(`"X-%d":"%s"`, i, strings.Repeat("v", 2000)))
	}
	for i := range 20 {
		h.do("PUT", fmt.Sprintf("/v1/topics/t%02d", i), `{"callback":{"url":"http://127.0.0.1:9/","headers":{`+strings.Join(headers, ",")+`}}}`).want(201)
	}
	r := h.do("GET", "/v1/topics?limit=1000", "").want(200)
	if len(r.body) > 150<<10 || r.json()["next_cursor"] == nil {
		t.Errorf("a page of %d bytes", len(r.body))
	}
}

// A token sees the same topics whichever way its patterns begin and however the names are looked
// for.
func TestTopicsSeenAgainstAllNames(t *testing.T) {
	e := newFakeEngine(time.Now)
	s, err := New(Config{Settings: web.Settings{Engine: e}})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var names []string
	for i := range 2000 {
		name := fmt.Sprintf("%s%s%d", []string{"orders.", "orders", "pay-", "a", "Z."}[i%5], []string{"", "x.", "eu."}[rng.IntN(3)], i)
		names = append(names, name)
		e.newTopic(name, timer.DefaultPolicy(), true)
	}
	slices.Sort(names)
	for _, patterns := range [][]string{{"*"}, {"orders.*"}, {"orders.x.*", "pay-*"}, {"*1"}, {"Z.eu.4*", "a*7", "orders5"}, {names[7]}, {"nothing*"}, {"orders*", "orders.*", "o*"}} {
		core, _ := e.Core()
		rq := &web.Request{Node: &s.node, Core: core, Who: &web.Principal{Topics: patterns, Prefixes: web.PatternPrefixes(patterns)}}
		for _, prefix := range []string{"", "orders", "p", "Z.eu.4"} {
			var want, got []string
			for _, name := range names {
				if rq.Who.Sees(name) && strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			for after, more := "", true; more; {
				var page []*timer.Topic
				if page, after, more = rq.TopicsSeen(after, prefix, 7); len(page) > 7 {
					t.Fatal(len(page))
				}
				for _, topic := range page {
					got = append(got, topic.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q with %q: %d names, want %d", patterns, prefix, len(got), len(want))
			}
		}
	}
}
