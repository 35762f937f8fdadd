package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

var contractTopics = []contractCheck{
	{"life", checkTopicLife}, {"defaults", checkPolicyDefaults}, {"bounds", checkPolicyBounds}, {"delete", checkTopicDelete}, {"delivery", checkDeliveryChange}, {"serial", checkSerial},
	{"key", checkTopicKey}, {"dedup", checkDedup}, {"counts", checkCounts}, {"concurrency", checkConcurrency}, {"spread", checkSpread}, {"breaker", checkBreaker}, {"rate", checkRate}, {"destination", checkDestination}, {"secrets", checkSecrets},
}

func checkTopicLife(k *talk) {
	k.ask("PUT", "", `{}`).is(201)
	k.ask("PUT", "", `{"history":"1h"}`).is(200)
	k.ask("GET", "", "").is(200).has("topic", `"`+k.topic+`"`, "paused", "false", "auto_created", "false", "policy/history", `"1h"`, "counts/scheduled", "0", "counts/ready", "0", "counts/leased", "0", "counts/done", "0", "counts/dead", "0")
	k.ask("PUT", "", `{}`).is(200)
	k.ask("GET", "", "").has("policy/history", `"72h"`) // a PUT replaces the whole policy
	k.ask("POST", "/pause", "").is(200).has("topic", `"`+k.topic+`"`, "paused", "true")
	k.ask("POST", "/pause", "").is(200).has("paused", "true")
	k.ask("PUT", "", `{}`).is(200)
	k.ask("GET", "", "").has("paused", "true") // the pause is not part of the policy
	k.ask("POST", "/resume", "").is(200).has("paused", "false")
	k.ask("POST", "/timers", `{"delay":"1h",`+nobody+`}`).is(201)
	k.ask("GET", "", "").has("counts/scheduled", "1")
	// A pull makes no topic: that would be one that calls.
	k.ask("POST", "/v1/topics/"+k.topic+"-pulled/pull", `{}`).refused(404, "unknown_topic")
}

func checkPolicyDefaults(k *talk) {
	k.policy(`{}`)
	k.ask("GET", "", "").has("policy/delivery", `"push"`, "policy/ack", `"response"`, "policy/lease", `"30s"`, "policy/retry/max_attempts", "16", "policy/retry/min_backoff", `"1s"`, "policy/retry/max_backoff", `"1h"`,
		"policy/retry/multiplier", "2", "policy/retry/jitter", "0.2", "policy/stop_on", "[410]", "policy/merge", `"reject"`, "policy/dedup", `"id"`, "policy/serial", "false", "policy/key", "", "policy/if_late", `"fire"`, "policy/window", "",
		"policy/concurrency", "0", "policy/breaker/failures", "5", "policy/breaker/window", `"10s"`, "policy/breaker/open", `"5s"`, "policy/breaker/probes", "1", "policy/destination_concurrency", "256",
		"policy/spread", `"0s"`, "policy/history", `"72h"`, "policy/dead_retention", `"720h"`, "policy/rate", "")
}

func checkPolicyBounds(k *talk) {
	secret := func(n int) string {
		return `"whsec_` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", n))) + `"`
	}
	for _, good := range []string{
		`"lease":"1s"`, `"lease":"12h"`, `"retry":{"max_attempts":1000,"multiplier":10,"jitter":1,"max_backoff":"720h"}`, `"concurrency":1`, `"rate":{"per_second":100,"burst":100}`,
		`"secrets":[` + secret(24) + `,` + secret(64) + `,` + secret(32) + `]`, `"merge":"debounce","max_wait":"5m"`, `"delivery":"pull"`, `"ack":"report"`, `"dedup":"content"`, `"stop_on":[]`, `"stop_on":[404,410]`,
		`"callback":{"url":"http://127.0.0.1:9/","timeout":"15m"}`, `"spread":"10s"`, `"breaker":{"failures":1}`, `"destination_concurrency":1`,
	} {
		if s := k.ask("PUT", "?force=true", `{`+good+`}`); s.status/100 != 2 {
			k.Errorf("%s: %d %s", good, s.status, s.body)
		}
	}
	k.ask("PUT", "", `{"secrets":[`+secret(24)+`]}`).is(200)
	k.ask("PUT", "", `{"concurrency":7}`).refused(409, "in_use")
	k.ask("PUT", "?force=true", `{"concurrency":7}`).is(200)
	for _, bad := range []string{
		`"lease":"999ms"`, `"lease":"12h0m1s"`, `"retry":{"max_attempts":0}`, `"retry":{"max_attempts":1001}`, `"retry":{"multiplier":0.5}`, `"retry":{"multiplier":11}`, `"retry":{"jitter":1.5}`,
		`"retry":{"min_backoff":"2h","max_backoff":"1h"}`, `"retry":{"max_backoff":"721h"}`, `"concurrency":-1`, `"rate":{"per_second":0,"burst":1}`, `"rate":{"per_second":1,"burst":0}`,
		`"secrets":[` + secret(23) + `]`, `"secrets":[` + secret(65) + `]`, `"secrets":[` + many(4, func(int) string { return secret(32) }) + `]`, `"secrets":["whsec_!"]`, `"secrets":["` + strings.Repeat("s", 32) + `"]`,
		`"stop_on":[99]`, `"stop_on":[600]`, `"breaker":{"failures":0}`, `"breaker":{"probes":0}`,
		`"destination_concurrency":0`,
	} {
		k.ask("PUT", "", `{`+bad+`}`).refused(422, "bad_policy")
		k.ask("GET", "", "").has("policy/concurrency", "7")
	}
	for bad, code := range map[string]string{
		`"delivery":"both"`: "bad_request", `"ack":"never"`: "bad_request", `"merge":"maybe"`: "bad_request", `"dedup":"none"`: "bad_request", `"spread":"-1s"`: "bad_request", `"history":"-1s"`: "bad_request",
		`"dead_retention":"-1s"`: "bad_request", `"nosuch":1`: "unknown_field", `"lease":30`: "bad_request", `"Serial":true`: "unknown_field", `"serial":1`: "bad_request",
	} {
		k.ask("PUT", "", `{`+bad+`}`).refused(400, code)
	}
	// An add to a pull topic must have no callback.
	k.ask("PUT", "", `{"delivery":"pull"}`).is(200)
	k.add(`{"delay":"1h",`+nobody+`}`).refused(422, "bad_policy")
	k.add(`{"delay":"1h"}`).is(201)
}

func checkTopicDelete(k *talk) {
	k.policy(`{` + nobody + `}`)
	k.ask("DELETE", "", "").is(200).has("cancelled", "0")
	k.ask("GET", "", "").refused(404, "unknown_topic")
	k.policy(`{` + nobody + `}`)
	k.add(`{"id":"a","delay":"1h"}`).is(201)
	k.add(`{"id":"b","delay":"1h"}`).is(201)
	k.ask("DELETE", "", "").refused(409, "not_empty")
	k.get("a").is(200)
	k.ask("DELETE", "?force=true", "").is(200).has("cancelled", "2")
	k.get("a").refused(404, "unknown_topic")
	k.policy(`{` + nobody + `}`)
	k.get("a").refused(404, "unknown_timer")
	k.add(`{"id":"a","delay":"1h"}`).is(201)
}

// checkDeliveryChange: delivery can change only while no timer is leased.
func checkDeliveryChange(k *talk) {
	r := k.holding(200)
	k.policy(`{}`)
	k.add(fmt.Sprintf(`{"id":"a","delay":"0s","callback":{"url":%q}}`, r.url)).is(201)
	r.await(1)
	if s := k.ask("PUT", "", `{"delivery":"pull"}`); s.status != 409 {
		k.Errorf("delivery changed while one is leased: %d %s", s.status, s.body)
	}
	k.ask("GET", "", "").has("policy/delivery", `"push"`)
	r.letGo()
	k.until("a", "state", `"done"`)
	k.ask("PUT", "", `{"delivery":"pull"}`).is(200)
}

// called returns the timer ids of a callee's calls, in order.
func (r *callee) called() string {
	var ids []string
	for _, c := range r.all() {
		ids = append(ids, c.header.Get("Carillon-Timer"))
	}
	return strings.Join(ids, " ")
}

// checkSerial: a key has one lease at a time, in the order of due times, then adds. A timer blocks
// its key during its backoff. Priorities are ignored.
func checkSerial(k *talk) {
	r := k.callee(500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"serial":true,"retry":{"min_backoff":"30ms","max_backoff":"30ms"}}`, r.url))
	k.ask("POST", "/pause", "").is(200)
	now := time.Now().UnixMilli()
	for i, id := range []string{"{k}late", "{k}head", "{k}second", "{k}third"} {
		due := now - []int64{100, 3000, 2000, 2000}[i]
		k.add(fmt.Sprintf(`{"id":%q,"at_ms":%d,"priority":%d}`, id, due, []int{255, 0, 1, 2}[i])).is(201)
	}
	k.ask("POST", "/resume", "").is(200)
	r.await(5)
	if got := r.called(); got != "{k}head {k}head {k}second {k}third {k}late" {
		k.Errorf("called in the order %s", got)
	}
}

func checkTopicKey(k *talk) {
	r := k.callee(500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"serial":true,"key":"all","retry":{"min_backoff":"30ms","max_backoff":"30ms"}}`, r.url))
	k.ask("POST", "/pause", "").is(200)
	now := time.Now().UnixMilli()
	for i, id := range []string{"d", "a", "b", "c"} {
		k.add(fmt.Sprintf(`{"id":%q,"at_ms":%d}`, id, now-[]int64{100, 3000, 2000, 2000}[i])).is(201)
	}
	k.ask("POST", "/resume", "").is(200)
	r.await(5)
	if got := r.called(); got != "{all}a {all}a {all}b {all}c {all}d" {
		k.Errorf("called in the order %s", got)
	}
}

// checkDedup: with dedup by content an add without an id gets one derived from its topic, payload
// and URL.
func checkDedup(k *talk) {
	k.policy(`{` + nobody + `,"dedup":"content"}`)
	one := k.add(`{"at_ms":4000000000000,"payload":1}`)
	if one.status == 422 {
		one = k.add(`{"at":"2030-01-01T00:00:00Z","payload":1}`)
	}
	id := one.is(201).text("id")
	k.add(`{"at":"2030-01-01T00:00:00Z","payload":1}`).is(200).has("id", `"`+id+`"`)
	if other := k.add(`{"at":"2030-01-01T00:00:00Z","payload":2}`).is(201).text("id"); other == id {
		k.Error("another payload has the same id")
	}
	if other := k.add(`{"at":"2030-01-01T00:00:00Z","payload":1,"callback":{"url":"http://127.0.0.1:9/else"}}`).is(201).text("id"); other == id {
		k.Error("another URL has the same id")
	}
	k.add(`{"id":"own","at":"2030-01-01T00:00:00Z","payload":1}`).is(201).has("id", `"own"`)
}

func checkCounts(k *talk) {
	r, dead := k.callee(200), k.callee(410)
	k.policy(`{}`)
	k.add(fmt.Sprintf(`{"id":"done","delay":"0s","callback":{"url":%q}}`, r.url)).is(201)
	k.add(fmt.Sprintf(`{"id":"dead","delay":"0s","callback":{"url":%q}}`, dead.url)).is(201)
	k.until("done", "state", `"done"`)
	k.until("dead", "state", `"dead"`)
	k.ask("POST", "/pause", "").is(200)
	k.add(`{"delay":"1h",` + nobody + `}`).is(201)
	k.add(`{"delay":"0s",` + nobody + `}`).is(201)
	var s *said
	if !holdsWithinBy(5*time.Millisecond, patience, func() bool {
		s = k.ask("GET", "", "")
		return s.field("counts/ready") == "1" && s.field("oldest_overdue_ms") != "0"
	}) {
		k.Fatalf("%s", s.body)
	}
	// scheduled includes ready.
	s.has("counts/scheduled", "2", "counts/leased", "0", "counts/done", "1", "counts/dead", "1", "oldest_overdue_ms", "*")
}

func checkConcurrency(k *talk) {
	r := k.holding(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"concurrency":2}`, r.url))
	for range 5 {
		k.add(`{"delay":"0s"}`).is(201)
	}
	r.await(2)
	<-time.After(100 * time.Millisecond)
	if n := len(r.all()); n != 2 {
		k.Errorf("%d calls at once, at most 2", n)
	}
	r.letGo()
	r.await(5)
}

// checkSpread: calls of timers with one due time are spread over the window; Carillon-Due stays. The
// best of five: what comes late on a busy machine comes together.
func checkSpread(k *talk) {
	r := k.callee(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"spread":"500ms"}`, r.url))
	apart := time.Duration(0)
	for try := 0; try < 5 && apart < 100*time.Millisecond; try++ {
		due := time.Now().Add(100 * time.Millisecond).UnixMilli()
		for i := range 12 {
			k.add(fmt.Sprintf(`{"id":"t%d-%d","at_ms":%d}`, try, i, due)).is(201).has("due_ms", fmt.Sprint(due))
		}
		r.await(12 * (try + 1))
		first, last := time.Now(), time.Time{}
		for _, c := range r.all()[12*try:] {
			if c.at.Before(first) {
				first = c.at
			}
			if c.at.After(last) {
				last = c.at
			}
			if c.at.UnixMilli() < due || c.header.Get("Carillon-Due") != fmt.Sprint(due) {
				k.Errorf("%+v", c)
			}
		}
		apart = last.Sub(first)
	}
	if apart < 100*time.Millisecond {
		k.Errorf("twelve started within %v", apart)
	}
}

// checkBreaker: failures in a row open the breaker, and timers that wait for it lose no attempts.
func checkBreaker(k *talk) {
	r := k.callee(500, 500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":2,"window":"10s","open":"1s","probes":1},"retry":{"min_backoff":"1ms","max_backoff":"1ms"}}`, r.url))
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	r.await(3)
	k.until("a", "state", `"done"`).has("attempts", "3")
	if calls := r.all(); calls[2].at.Sub(calls[1].at) < 900*time.Millisecond {
		k.Errorf("called again after %v, open for a second", calls[2].at.Sub(calls[1].at))
	}
}

// checkRate: after a burst the topic's rate limits deliveries.
func checkRate(k *talk) {
	r := k.callee(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"rate":{"per_second":10,"burst":1}}`, r.url))
	begin := time.Now() // the first call may come late
	for range 4 {
		k.add(`{"delay":"0s"}`).is(201)
	}
	r.await(4)
	if calls := r.all(); calls[3].at.Sub(begin) < 290*time.Millisecond {
		k.Errorf("four deliveries within %v at ten a second", calls[3].at.Sub(begin))
	}
}

// checkDestination: calls at once per destination are limited, and waiting timers count no attempt.
func checkDestination(k *talk) {
	r := k.holding(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"destination_concurrency":1}`, r.url))
	for i := range 3 {
		k.add(fmt.Sprintf(`{"id":"t%d","delay":"0s"}`, i)).is(201)
	}
	r.await(1)
	<-time.After(50 * time.Millisecond)
	sum := int64(0)
	for i := range 3 {
		sum += k.get(fmt.Sprint("t", i)).number("attempts")
	}
	if n := len(r.all()); n != 1 || sum != 1 {
		k.Errorf("%d calls at once, %d attempts counted", n, sum)
	}
	r.letGo()
	r.await(3)
}

// checkSecrets: answers show fingerprints instead of a policy's secrets.
func checkSecrets(k *talk) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))
	s := k.ask("PUT", "", fmt.Sprintf(`{"secrets":[%q]}`, secret)).is(201)
	for _, s := range []*said{s, k.ask("GET", "", ""), k.ask("GET", "/v1/topics?limit=1000", "")} {
		if strings.Contains(string(s.body), secret) || strings.Contains(string(s.body), secret[6:]) {
			k.Errorf("%s shows a secret", s.asked)
		}
	}
	k.ask("GET", "", "").has("policy/secrets/0", "*", "policy/secrets/1", "")
}
