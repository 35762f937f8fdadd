package e2e

import (
	"fmt"
	"time"
)

var contractPull = []contractCheck{{"pull", checkPull}, {"bounds", checkPullBounds}, {"ack", checkAck}, {"nack", checkNack}, {"lease", checkLeaseEnds}, {"wait", checkLongPoll}, {"report", checkReport}}

// pulled repeats a pull until its answer has at least n timers.
func (k *talk) pulled(n int, body string) *said {
	k.Helper()
	var s *said
	if !holdsWithinBy(5*time.Millisecond, patience, func() bool {
		s = k.ask("POST", "/pull", body).is(200)
		return s.field(fmt.Sprintf("timers/%d/id", n-1)) != ""
	}) {
		k.Fatalf("%s: %s", s.asked, s.body)
	}
	return s
}

// ofReceipts is the beginning of a JSON object with these receipts; the caller closes it.
func ofReceipts(list ...string) string {
	return `{"receipts":[` + many(len(list), func(i int) string { return fmt.Sprintf("%q", list[i]) }) + `]`
}

func checkPull(k *talk) {
	k.policy(`{"delivery":"pull"}`)
	k.add(`{"id":"a","delay":"0s","payload":{"x":1},"labels":["l"]}`).is(201)
	k.add(`{"id":"later","delay":"1h"}`).is(201)
	before := time.Now().UnixMilli()
	s := k.pulled(1, `{"max":10,"lease":"10s"}`).has("timers/0/id", `"a"`, "timers/0/payload/x", "1", "timers/0/labels/0", `"l"`, "timers/0/receipt", "*", "timers/0/fence", "*", "timers/0/attempt", "1",
		"timers/0/lease_until", "*", "timers/0/lease_until_ms", "*", "timers/0/state", `"leased"`, "timers/1", "")
	if until := s.number("timers/0/lease_until_ms"); until < before+9_000 || until > time.Now().UnixMilli()+10_001 {
		k.Errorf("leased until %d, asked at %d", until, before)
	}
	k.get("a").has("state", `"leased"`, "attempts", "1")
	k.ask("POST", "/pull", `{}`).is(200).has("timers", "[]") // it is leased already
	k.ask("PATCH", "/timers/a", `{"priority":1}`).refused(409, "in_flight")
	k.ask("POST", "/v1/ack", ofReceipts(s.text("timers/0/receipt"))+`}`).is(200).has("results/0/status", "200")
	k.get("a").has("state", `"done"`)
	// max is 1 by default.
	k.add(`{"delay":"0s"}`).is(201)
	k.add(`{"delay":"0s"}`).is(201)
	k.pulled(1, `{}`).has("timers/1", "")
}

func checkPullBounds(k *talk) {
	k.policy(`{"delivery":"pull"}`)
	for _, good := range []string{`{}`, `{"max":1}`, `{"max":1000}`, `{"wait":"0s"}`, `{"lease":"1s"}`, `{"lease":"12h"}`} {
		k.ask("POST", "/pull", good).is(200).has("timers", "[]")
	}
	k.ask("POST", "/pull", "").is(200).has("timers", "[]")
	for _, bad := range []string{`{"max":0}`, `{"max":1001}`, `{"max":1.0}`, `{"max":"1"}`, `{"wait":"-1s"}`, `{"wait":"60.001s"}`, `{"wait":1}`, `{"lease":"999ms"}`, `{"lease":"12h0m0.001s"}`, `{"more":1}`, `{"Max":1}`, `{"max":null}`, `[]`, `{`} {
		if s := k.ask("POST", "/pull", bad); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
	for _, path := range []string{"/v1/ack", "/v1/nack", "/v1/extend"} {
		for _, bad := range []string{`{}`, `{"receipts":"x"}`, `{"receipts":[1]}`, `{"receipts":null}`, `{"receipts":["x"],"more":1}`} {
			if s := k.ask("POST", path, bad); s.status != 400 {
				k.Errorf("%s: %d %s", s.asked, s.status, s.body)
			}
		}
	}
	for _, bad := range []string{`"lease":"999ms"`, `"lease":"12h0m0.001s"`, `"lease":1`, `"delay":"1s"`} {
		if s := k.ask("POST", "/v1/extend", `{"receipts":["x"],`+bad+`}`); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
	for _, bad := range []string{`"delay":"-1s"`, `"delay":1`, `"reason":1`, `"lease":"1s"`} {
		if s := k.ask("POST", "/v1/nack", `{"receipts":["x"],`+bad+`}`); s.status != 400 {
			k.Errorf("%s: %d %s", s.asked, s.status, s.body)
		}
	}
	for _, good := range []string{`"lease":"1s"`, `"lease":"12h"`} {
		k.ask("POST", "/v1/extend", `{"receipts":["x"],`+good+`}`).is(200).has("results/0/status", "410", "results/0/code", "*")
	}
	k.ask("POST", "/v1/topics/"+k.topic+"-push", "").refused(405, "method_not_allowed")
	k.ask("PUT", "/v1/topics/"+k.topic+"-push", `{}`).is(201)
	k.ask("POST", "/v1/topics/"+k.topic+"-push/pull", `{}`).refused(409, "wrong_delivery")
}

func checkAck(k *talk) {
	k.policy(`{"delivery":"pull"}`)
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	receipt := k.pulled(1, `{"max":2}`).text("timers/0/receipt")
	k.ask("POST", "/v1/extend", ofReceipts(receipt)+`,"lease":"1h"}`).is(200).has("results/0/status", "200", "results/0/receipt", fmt.Sprintf("%q", receipt))
	s := k.ask("POST", "/v1/ack", ofReceipts(receipt, "nonsense")+`}`).is(200).has("results/0/status", "200", "results/1/receipt", `"nonsense"`)
	if st := s.field("results/1/status"); st != "410" {
		k.Errorf("a receipt that is none: %s", s.body)
	}
	s.has("results/1/code", "*")
	// An ack may be repeated.
	k.ask("POST", "/v1/ack", ofReceipts(receipt)+`}`).is(200).has("results/0/status", "200")
	k.ask("POST", "/v1/nack", ofReceipts(receipt)+`}`).is(200).has("results/0/status", "410", "results/0/code", "*")
	k.ask("POST", "/v1/extend", ofReceipts(receipt)+`,"lease":"30s"}`).is(200).has("results/0/status", "410")
	k.get("a").has("state", `"done"`)
}

func checkNack(k *talk) {
	k.policy(`{"delivery":"pull","retry":{"max_attempts":3,"min_backoff":"1h","max_backoff":"1h","jitter":0}}`)
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	first := k.pulled(1, `{}`)
	k.ask("POST", "/v1/nack", ofReceipts(first.text("timers/0/receipt"))+`,"delay":"0s","reason":"not\n now"}`).is(200).has("results/0/status", "200")
	second := k.pulled(1, `{}`).has("timers/0/attempt", "2")
	if second.number("timers/0/fence") <= first.number("timers/0/fence") {
		k.Errorf("fence %d after %d", second.number("timers/0/fence"), first.number("timers/0/fence"))
	}
	k.get("a").has("last_error", `"not now"`)
	// The receipt of an earlier lease.
	k.ask("POST", "/v1/ack", ofReceipts(first.text("timers/0/receipt"))+`}`).is(200).has("results/0/status", "410")
	now := time.Now().UnixMilli()
	k.ask("POST", "/v1/nack", ofReceipts(second.text("timers/0/receipt"))+`}`).is(200).has("results/0/status", "200")
	s := k.get("a").has("state", `"scheduled"`, "attempts", "2") // after the backoff
	if next := s.number("next_attempt_ms"); next < now+3_600_000 {
		k.Errorf("next attempt %d ms later", next-now)
	}
	k.ask("POST", "/timers/a/fire", "").is(200)
	k.ask("POST", "/v1/nack", ofReceipts(k.pulled(1, `{}`).has("timers/0/attempt", "3").text("timers/0/receipt"))+`,"delay":"0s"}`).is(200)
	k.until("a", "state", `"dead"`).has("reason", `"max_attempts"`, "attempts", "3")
}

// checkLeaseEnds: the end of a lease makes its timer ready at once, and counts as an attempt.
func checkLeaseEnds(k *talk) {
	k.policy(`{"delivery":"pull","lease":"1s","retry":{"max_attempts":2,"min_backoff":"1h","max_backoff":"1h"}}`)
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	begin := time.Now()
	first := k.pulled(1, `{}`)
	k.pulled(1, `{"wait":"10s","lease":"1s"}`).has("timers/0/attempt", "2")
	if took := time.Since(begin); took < 900*time.Millisecond || took > 15*time.Second {
		k.Errorf("ready again after %v", took)
	}
	k.ask("POST", "/v1/ack", ofReceipts(first.text("timers/0/receipt"))+`}`).is(200).has("results/0/status", "410")
	k.until("a", "state", `"dead"`).has("reason", `"max_attempts"`)
}

func checkLongPoll(k *talk) {
	k.policy(`{"delivery":"pull"}`)
	begin := time.Now()
	k.ask("POST", "/pull", `{"wait":"200ms"}`).is(200).has("timers", "[]")
	if took := time.Since(begin); took < 190*time.Millisecond {
		k.Errorf("an empty answer after %v", took)
	}
	k.add(`{"id":"a","delay":"100ms"}`).is(201)
	begin = time.Now()
	k.ask("POST", "/pull", `{"wait":"20s"}`).is(200).has("timers/0/id", `"a"`)
	if took := time.Since(begin); took > 10*time.Second {
		k.Errorf("it came after %v", took)
	}
}

// checkReport: with "ack":"report" a 202 keeps the lease open until the receipt is acked.
func checkReport(k *talk) {
	r := k.callee(202)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"ack":"report","lease":"1h","retry":{"max_attempts":2,"min_backoff":"10ms","max_backoff":"10ms"}}`, r.url))
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	receipt := r.await(1).header.Get("Carillon-Receipt")
	if receipt == "" {
		k.Fatal("no receipt")
	}
	k.ask("POST", "/v1/extend", ofReceipts(receipt)+`,"lease":"2h"}`).is(200).has("results/0/status", "200")
	k.get("a").has("state", `"leased"`)
	k.ask("POST", "/v1/ack", ofReceipts(receipt)+`}`).is(200).has("results/0/status", "200")
	k.get("a").has("state", `"done"`)
	if n := len(r.all()); n != 1 {
		k.Errorf("%d calls", n)
	}
	// Without a report the lease ends and the timer is called again, up to max_attempts.
	k.ask("PATCH", "", `{"lease":"1s"}`).is(200)
	silent := k.callee(202)
	k.add(fmt.Sprintf(`{"id":"b","delay":"0s","callback":{"url":%q}}`, silent.url)).is(201)
	silent.await(2)
	if calls := silent.all(); calls[1].at.Sub(calls[0].at) < 900*time.Millisecond || calls[1].attempt() != "2" {
		k.Errorf("%+v", calls)
	}
	k.until("b", "state", `"dead"`).has("reason", `"max_attempts"`)
	// Another 2xx ends the timer.
	plain := k.callee(200)
	k.add(fmt.Sprintf(`{"id":"c","delay":"0s","callback":{"url":%q}}`, plain.url)).is(201)
	k.until("c", "state", `"done"`)
}
