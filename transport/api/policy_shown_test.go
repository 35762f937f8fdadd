package api

import (
	"encoding/json"
	"testing"

	"carillon/transport/api/topics"
)

// TestPolicyAsShown: what a client works out is what a node shows, also of what is shown already.
func TestPolicyAsShown(t *testing.T) {
	h := newHarness(t)
	for _, policy := range []string{
		`{}`, `{"delivery":"pull","lease":"60s","history":"1w"}`, `{"rate":{"per_second":5},"stop_on":[410,404,410]}`,
		`{"callback":{"url":"http://a.example/","headers":{"Authorization":"t0k","X":"1"}},"secrets":["` + signingSecret(24) + `"],"signing_keys":["` + privateKey + `"]}`,
		`{"per_key":{"concurrency":2,"rate":{"per_second":0.5}}}`, `{"per_key":{"fair":false},"serial":true}`,
		`{"window":{"zone":"Europe/Berlin","from":"08:00"},"retry":{"jitter":0},"breaker":{"probes":2}}`,
	} {
		h.do("PUT", orders+"?force=true", policy).want(200 + map[bool]int{true: 1}[policy == `{}`])
		var topic struct{ Policy json.RawMessage }
		if err := json.Unmarshal([]byte(h.do("GET", orders, "").want(200).body), &topic); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ policy, had string }{{policy, ""}, {policy, string(topic.Policy)}, {string(topic.Policy), string(topic.Policy)}} {
			had := []byte(c.had)
			if c.had == "" {
				had = nil
			}
			if shown, err := topics.PolicyAsShown([]byte(c.policy), had); err != nil || string(shown) != string(topic.Policy) {
				t.Errorf("%s is shown as %s, %v; the node shows %s", c.policy, shown, err, topic.Policy)
			}
		}
	}
	for policy, want := range map[string]string{
		`{"secrets":["sha256:0011223344556677"]}`: "secrets: a fingerprint that no stored secret has", `{"lease":1}`: "lease: must be a string",
		`{"callback":{"headers":{"X-Key":"REDACTED"}}}`: "callback.headers: X-Key is REDACTED, but nothing is stored for it to keep",
	} {
		if _, err := topics.PolicyAsShown([]byte(policy), nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", policy, err, want)
		}
	}
}
