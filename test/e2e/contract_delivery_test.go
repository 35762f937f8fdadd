package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"time"
)

var contractDelivery = []contractCheck{{"headers", checkHeaders}, {"retry", checkRetry}, {"retryAfter", checkRetryAfter}, {"statuses", checkStatuses}, {"expiry", checkExpiry}, {"priority", checkPriority}}

func checkHeaders(k *talk) {
	r := k.callee(500, 200)
	keys := [][]byte{[]byte("01234567890123456789abcd"), []byte(strings.Repeat("k", 64))}
	var secrets []string
	for _, key := range keys {
		secrets = append(secrets, `"whsec_`+base64.StdEncoding.EncodeToString(key)+`"`)
	}
	k.policy(fmt.Sprintf(`{"callback":{"url":%q,"headers":{"X-Topic":"t"}},"secrets":[%s],"retry":{"min_backoff":"1ms","max_backoff":"1ms"}}`, r.url, strings.Join(secrets, ",")))
	due := time.Now().Add(20 * time.Millisecond).UnixMilli()
	k.add(fmt.Sprintf(`{"id":"{k}a","at_ms":%d,"payload":{"a": 1},"callback":{"method":"PUT","headers":{"X-Tenant":"7"}}}`, due)).is(201)
	r.await(2)
	calls := r.all()
	for i, c := range calls {
		h := c.header
		if c.method != "PUT" || c.body != `{"a": 1}` || c.at.UnixMilli() < due {
			k.Errorf("call %+v, due %d", c, due)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Tenant": "7", "Carillon-Topic": k.topic, "Carillon-Timer": "{k}a", "Carillon-Due": fmt.Sprint(due), "Carillon-Attempt": fmt.Sprint(i + 1), "Carillon-Receipt": "",
		} {
			if h.Get(name) != want {
				k.Errorf("%s: %q, want %q", name, h.Get(name), want)
			}
		}
		if !regexp.MustCompile(`^Carillon/\S+$`).MatchString(h.Get("User-Agent")) || h.Get("Webhook-Id") == "" || strings.Contains(h.Get("Webhook-Id"), ".") {
			k.Errorf("%v", h)
		}
		values := "carillon-v1"
		for _, name := range []string{
			"webhook-id", "webhook-timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt",
		} {
			values += "\n" + h.Get(name)
		}
		for name, text := range map[string]string{
			"Webhook-Signature":  h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "." + c.body,
			"Carillon-Signature": values,
		} {
			var want []string
			for _, key := range keys {
				mac := hmac.New(sha256.New, key)
				mac.Write([]byte(text))
				want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
			}
			if got := h.Get(name); got != strings.Join(want, " ") {
				k.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	if calls[0].header.Get("Webhook-Id") != calls[1].header.Get("Webhook-Id") || calls[0].fence() >= calls[1].fence() {
		k.Errorf("%v\n%v", calls[0].header, calls[1].header)
	}
	k.ask("GET", "", "").is(200).has("policy/secrets/2", "")
	if s := k.ask("GET", "", ""); strings.Contains(string(s.body), "whsec_") {
		k.Errorf("secrets are shown: %s", s.body)
	}
	for _, method := range []string{"GET", "DELETE"} { // sent without a body
		r := k.callee(200)
		k.add(fmt.Sprintf(`{"delay":"0s","callback":{"url":%q,"method":%q}}`, r.url, method)).is(201)
		if c := r.await(1); c.method != method || c.body != "" {
			k.Errorf("%+v", c)
		}
	}
}

// checkRetry: attempts wait as the policy says, are counted, and end after max_attempts.
func checkRetry(k *talk) {
	r := k.callee(500)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":1000},"retry":{"max_attempts":4,"min_backoff":"40ms","max_backoff":"100ms","multiplier":2,"jitter":0}}`, r.url))
	k.add(`{"id":"a","delay":"0s"}`).is(201)
	k.until("a", "state", `"dead"`).has("reason", `"max_attempts"`, "attempts", "4", "max_attempts", "4", "last_status", "500")
	calls := r.all()
	for i, least := range []time.Duration{40, 80, 100} {
		if len(calls) != 4 || calls[i+1].at.Sub(calls[i].at) < least*time.Millisecond {
			k.Fatalf("wait %d is shorter than %d ms, or there are not four calls: %+v", i, least, calls)
		}
	}
	// A patch between attempts keeps the count of attempts.
	k.add(`{"id":"b","delay":"0s","retry":{"min_backoff":"1h","max_backoff":"1h"}}`).is(201)
	s := k.until("b", "last_status", "500").has("state", `"scheduled"`, "attempts", "1", "next_attempt_ms", "*", "fired_ms", "*")
	if s.number("next_attempt_ms") < s.number("fired_ms")+3_600_000 {
		k.Errorf("%s", s.body)
	}
	k.ask("PATCH", "/timers/b", `{"retry":{"max_attempts":2}}`).is(200).has("attempts", "1")
	k.ask("PATCH", "/timers/b", `{"delay":"0s"}`).is(200)
	k.until("b", "state", `"dead"`).has("attempts", "2")
	// A cancel between attempts.
	k.add(`{"id":"c","delay":"0s","retry":{"min_backoff":"1h","max_backoff":"1h"}}`).is(201)
	k.until("c", "last_status", "500")
	k.ask("DELETE", "/timers/c", "").is(200).has("outcome", `"prevented"`)
}

func checkRetryAfter(k *talk) {
	k.policy(`{"retry":{"min_backoff":"1ms","max_backoff":"1ms"},"breaker":{"failures":1000}}`)
	for value, most := range map[string]int64{"2": 2000, "0": 1000, "100000": 3_600_000, "a date": 30_000} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			after := value
			if value == "a date" {
				after = time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
			}
			w.Header().Set("Retry-After", after)
			w.WriteHeader(429)
		}))
		k.Cleanup(server.Close)
		id := k.add(fmt.Sprintf(`{"delay":"0s","callback":{"url":%q}}`, server.URL)).is(201).text("id")
		s := k.until(id, "last_status", "429")
		if wait := s.number("next_attempt_ms") - s.number("fired_ms"); wait < most-2000 && most > 3000 || wait < most && most <= 2000 || wait > most+5000 {
			k.Errorf("Retry-After: %s, and the next attempt is %d ms later", value, wait)
		}
		k.ask("DELETE", "/timers/"+id, "").is(200)
	}
}

// checkStatuses: the end of a timer for each status of its receiver.
func checkStatuses(k *talk) {
	k.policy(`{"retry":{"max_attempts":1},"stop_on":[410,404]}`)
	for status, want := range map[int][2]string{
		200: {`"done"`, ""}, 204: {`"done"`, ""}, 202: {`"done"`, ""}, 299: {`"done"`, ""}, 302: {`"dead"`, `"max_attempts"`}, 404: {`"dead"`, `"stopped"`}, 410: {`"dead"`, `"stopped"`},
		400: {`"dead"`, `"max_attempts"`}, 500: {`"dead"`, `"max_attempts"`},
	} {
		r := k.callee(status)
		id := fmt.Sprint("s", status)
		k.add(fmt.Sprintf(`{"id":%q,"delay":"0s","callback":{"url":%q}}`, id, r.url)).is(201)
		k.until(id, "state", want[0]).has("reason", want[1], "last_status", fmt.Sprint(status), "attempts", "1")
		if n := len(r.all()); n != 1 {
			k.Errorf("%d: %d calls", status, n)
		}
	}
	// The timeout covers the whole exchange.
	r := k.holding()
	k.add(fmt.Sprintf(`{"id":"slow","delay":"0s","callback":{"url":%q,"timeout":"100ms"}}`, r.url)).is(201)
	k.until("slow", "state", `"dead"`).has("last_status", "", "last_error", "*")
}

// checkExpiry: after expires_after no attempt starts; the timer becomes a dead letter within a
// second.
func checkExpiry(k *talk) {
	r := k.callee(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q}}`, r.url))
	k.ask("POST", "/pause", "").is(200)
	k.add(`{"id":"a","delay":"0s","expires_after":"50ms"}`).is(201)
	begin := time.Now()
	k.until("a", "state", `"dead"`).has("reason", `"expired"`, "attempts", "0")
	if took := time.Since(begin); took > 5*time.Second { // promised: one second
		k.Errorf("dead after %v", took)
	}
	k.ask("POST", "/resume", "").is(200)
	k.add(fmt.Sprintf(`{"id":"late","at_ms":%d,"expires_after":"1s"}`, time.Now().Add(-time.Minute).UnixMilli())).is(201)
	k.until("late", "state", `"dead"`).has("reason", `"expired"`)
	if n := len(r.all()); n != 0 {
		k.Errorf("%d calls of what had expired", n)
	}
}

// checkPriority: due timers are called by priority, then in the order of their adds.
func checkPriority(k *talk) {
	r := k.callee(200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"concurrency":1}`, r.url))
	k.ask("POST", "/pause", "").is(200)
	now := time.Now().UnixMilli()
	for _, x := range []struct {
		id       string
		priority int
	}{{"{k}low", 0}, {"{k}first", 255}, {"{k}middle", 7}, {"{k}second", 255}} {
		k.add(fmt.Sprintf(`{"id":%q,"at_ms":%d,"priority":%d}`, x.id, now, x.priority)).is(201)
	}
	poll(k, patience, "all are ready", func() bool { return k.ask("GET", "", "").field("counts/ready") == "4" })
	k.ask("POST", "/resume", "").is(200)
	r.await(4)
	if got := r.called(); got != "{k}first {k}second {k}middle {k}low" {
		k.Errorf("called in the order %s", got)
	}
}
