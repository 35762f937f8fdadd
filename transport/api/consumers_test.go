package api

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// pullHarness has a topic "jobs" that is pulled, with two timers that are ready.
func pullHarness(t *testing.T, edit ...func(*Config)) *harness {
	t.Helper()
	h := newHarness(t, edit...)
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"1m"}`).want(201)
	h.do("POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s","payload":{"n":1}}`).want(201)
	h.do("POST", "/v1/topics/jobs/timers", `{"id":"b","delay":"0s"}`).want(201)
	h.advance(time.Second)
	return h
}

func TestPull(t *testing.T) {
	h := pullHarness(t)
	h.do("POST", "/v1/topics/jobs/pull", "").want(200).has("timers.0.id", `"a"`, "timers.0.receipt", `"jobs/a/1"`, "timers.0.fence", "1", "timers.0.attempt", "1",
		"timers.0.attempts", "1", "timers.0.state", `"leased"`, "timers.0.payload", `{"n":1}`, "timers.0.lease_until", `"2026-06-01T12:00:02.000Z"`,
		"timers.0.lease_until_ms", "1780315202000", "timers.1", "")
	h.do("POST", "/v1/topics/jobs/pull", `{"max":32,"lease":"5s"}`).want(200).has("timers.0.id", `"b"`, "timers.1", "")
	h.do("POST", "/v1/topics/jobs/pull", `{"max":1000,"wait":"0s"}`).want(200).has("timers", "[]")
	if p := h.engine.pulls; p[0] != (backend.Pull{Max: 1}) || p[1] != (backend.Pull{Max: 32, LeaseMs: 5000}) {
		t.Errorf("%+v", p)
	}
	h.do("PATCH", "/v1/topics/jobs/timers/a", `{"priority":1}`).problem(409, "in_flight")
	h.do("POST", "/v1/topics/jobs/timers/a/pause", "").want(409).has("title", `"An attempt is running"`, "detail", `"an attempt of this timer is running; try again when it has ended"`)
	h.do("DELETE", "/v1/topics/jobs/timers/a", "").want(202).has("outcome", `"in_flight"`)
}

func TestPullRefuses(t *testing.T) {
	h := pullHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	h.do("POST", orders+"/pull", "").problem(409, web.WrongDelivery)
	// A consumer makes no topic: that would be one that calls.
	h.do("POST", "/v1/topics/fresh/pull", `{}`).problem(404, web.UnknownTopic)
	h.do("GET", "/v1/topics/fresh", "").problem(404, web.UnknownTopic)
	var cases []refused
	for _, body := range []string{`{"max":0}`, `{"max":1001}`, `{"max":-1}`, `{"max":"1"}`, `{"max":1.5}`, `{"max":null}`, `{"wait":"61s"}`, `{"wait":"-1s"}`, `{"wait":20}`,
		`{"wait":"x"}`, `{"lease":"999ms"}`, `{"lease":"13h"}`, `{"lease":30}`, `[]`, `"a"`} {
		cases = append(cases, refused{method: "POST", target: "/v1/topics/jobs/pull", body: body, status: 400, code: web.BadRequest})
	}
	cases = append(cases, refused{method: "POST", target: "/v1/topics/jobs/pull", body: `{"Max":1}`, status: 400, code: web.UnknownField},
		refused{method: "POST", target: "/v1/topics/jobs/pull", body: `{"max":1,"max":1}`, status: 400, code: web.BadJSON},
		refused{method: "POST", target: "/v1/topics/jobs/pull", body: `{} x`, status: 400, code: web.BadJSON},
		refused{method: "POST", target: "/v1/topics/jobs/pull?max=1", status: 400, code: web.BadRequest},
		refused{method: "GET", target: "/v1/topics/jobs/pull", status: 405, code: "method_not_allowed"},
		refused{method: "POST", target: "/v1/topics/jobs/pull", body: `{}`, headers: []string{"Content-Type: text/plain"}, status: 415, code: "unsupported_media_type"})
	checkRefused(t, h, cases)
	h.engine.err = timer.ErrNoLeader
	h.do("POST", "/v1/topics/jobs/pull", "").problem(503, "no_leader")
}

// TestLongPoll: a wait ends when a timer becomes ready, or with the server.
func TestLongPoll(t *testing.T) {
	h := pullHarness(t)
	h.do("POST", "/v1/topics/jobs/pull", `{"max":9,"wait":"60s"}`).want(200).has("timers.1.id", `"b"`)
	done := make(chan *reply, 1)
	go func() { done <- h.do("POST", "/v1/topics/jobs/pull", `{"wait":"60s"}`) }()
	h.engine.ready <- struct{}{} // it waits, and finds nothing still
	h.engine.set("jobs", "a", func(v *timer.Timer) { v.State = timer.Scheduled })
	var got *reply
	select {
	case h.engine.ready <- struct{}{}:
		got = <-done
	case got = <-done: // it looked for the first time when the change was there
	}
	got.want(200).has("timers.0.id", `"a"`, "timers.0.attempt", "2")

	go func() { done <- h.do("POST", "/v1/topics/jobs/pull", `{"wait":"60s"}`) }()
	h.engine.ready <- struct{}{}
	begin := time.Now()
	h.stop()
	(<-done).want(200).has("timers", "[]")
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the server's end waited %v for one who only waits", took)
	}
}

// TestLongPollOfADeletedTopic: the wait ends with the topic, as the next pull would.
func TestLongPollOfADeletedTopic(t *testing.T) {
	for name, tt := range map[string]struct {
		then   func(h *harness)
		status int
		code   string
	}{
		"deleted": {func(h *harness) { delete(h.engine.topics, "jobs") }, 404, web.UnknownTopic},
		"pushed":  {func(h *harness) { h.engine.topics["jobs"].Policy.Pull = false }, 409, web.WrongDelivery},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"1m"}`).want(201)
			done := make(chan *reply, 1)
			go func() { done <- h.do("POST", "/v1/topics/jobs/pull", `{"wait":"60s"}`) }()
			h.await("it waits", func() bool { return h.server.polls.count() == 1 })
			h.engine.mu.Lock()
			tt.then(h)
			h.engine.mu.Unlock()
			h.engine.gone <- struct{}{}
			(<-done).problem(tt.status, tt.code)
		})
	}
}

// A token that is revoked while its long poll waits gets no timers, and keeps no leases.
func TestLongPollOfARevokedToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	const root, worker = "Authorization: Bearer root", "Authorization: Bearer worker"
	for name, tt := range map[string]struct {
		then   string // the worker's line
		status int
		code   string
	}{
		"its line is gone":     {`someone add "jobs"`, 401, web.Unauthorized},
		"it reaches others":    {`worker add "others"`, 404, web.UnknownTopic},
		"it may read alone":    {`worker read "jobs"`, 403, web.Forbidden},
		"the topics are wider": {`worker add "*"`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			authFile(t, path, `root add,read,admin "*"`, `worker add "jobs"`)
			auth, err := LoadAuth(path)
			if err != nil {
				t.Fatal(err)
			}
			h := newHarness(t, func(c *Config) { c.Auth = auth })
			h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"1m"}`, root).want(201)
			h.do("POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"1m"}`, root).want(201)
			done := make(chan *reply, 1)
			go func() { done <- h.do("POST", "/v1/topics/jobs/pull", `{"wait":"60s"}`, worker) }()
			h.await("it waits", func() bool { return h.server.polls.count() == 1 })
			authFile(t, path, `root add,read,admin "*"`, tt.then)
			if err := auth.Reload(); err != nil {
				t.Fatal(err)
			}
			h.advance(time.Hour)
			var got *reply
			select {
			case h.engine.ready <- struct{}{}:
				got = <-done
			case got = <-done: // it looked for the first time when the timer was due
			}
			if tt.status == 200 {
				got.want(200).has("timers.0.id", `"a"`)
				return
			}
			got.problem(tt.status, tt.code)
			h.do("GET", "/v1/topics/jobs/timers/a", "", root).want(200).has("state", `"scheduled"`, "attempts", "0")
		})
	}
}

func TestClaims(t *testing.T) {
	h := pullHarness(t)
	h.do("POST", "/v1/topics/jobs/pull", `{"max":2}`).want(200)
	h.do("POST", "/v1/ack", `{"receipts":["jobs/a/1","nonsense","jobs/a/7"]}`).want(200).has(
		"results", `[{"receipt":"jobs/a/1","status":200},{"code":"over","receipt":"nonsense","status":410},{"code":"over","receipt":"jobs/a/7","status":410}]`)
	h.do("POST", "/v1/nack", `{"receipts":["jobs/b/1"],"delay":"5s","reason":"no \"stock\""}`).want(200).has("results.0.status", "200")
	h.do("POST", "/v1/nack", `{"receipts":["jobs/b/1"]}`).want(200)
	h.do("POST", "/v1/nack", `{"receipts":["jobs/b/1"],"reason":"no stock:\r\n  Größe\u0001\tXL\n"}`).want(200)
	h.do("POST", "/v1/extend", `{"receipts":["jobs/b/1"],"lease":"12h"}`).want(200).has("results.0.status", "200")
	h.do("POST", "/v1/extend", `{"receipts":["jobs/b/1"]}`).want(200)
	h.do("POST", "/v1/ack", `{"receipts":[]}`).want(200).has("results", "[]")
	want := []backend.LeaseUpdate{{Kind: timer.AckLease}, {Kind: timer.NackLease, DelayMs: 5000, HasDelay: true, Reason: `no "stock"`}, {Kind: timer.NackLease},
		{Kind: timer.NackLease, Reason: "no stock: Größe? XL"}, {Kind: timer.ExtendLease, LeaseMs: 12 * 3_600_000}, {Kind: timer.ExtendLease}}
	if len(h.engine.claims) != len(want) {
		t.Fatalf("%d claims", len(h.engine.claims))
	}
	for i, c := range h.engine.claims {
		c.Receipts, c.Sees = nil, nil
		if fmt.Sprint(c) != fmt.Sprint(want[i]) {
			t.Errorf("claim %d is %+v, want %+v", i, c, want[i])
		}
	}
}

func TestClaimsRefuse(t *testing.T) {
	h := pullHarness(t)
	many := `{"receipts":[` + strings.Repeat(`"x",`, 1000) + `"x"]}`
	var cases []refused
	for path, bodies := range map[string]map[string]string{
		"/v1/ack": {``: web.BadJSON, `{}`: web.BadRequest, `{"receipts":null}`: web.BadRequest, `{"receipts":"x"}`: web.BadRequest, `{"receipts":[1]}`: web.BadRequest, `{"receipts":["x"],"delay":"1s"}`: web.UnknownField,
			`{"receipts":["x"],"receipts":["x"]}`: web.BadJSON, `{"receipts":["x",]}`: web.BadJSON},
		"/v1/nack": {`{"delay":"1s"}`: web.BadRequest, `{"receipts":["x"],"delay":"-1s"}`: web.BadTime, `{"receipts":["x"],"delay":5}`: web.BadTime, `{"receipts":["x"],"reason":1}`: web.BadRequest,
			`{"receipts":["x"],"reason":"` + strings.Repeat("r", 1025) + `"}`: web.BadRequest, `{"receipts":["x"],"lease":"1m"}`: web.UnknownField},
		"/v1/extend": {`{"receipts":["x"],"lease":"1ms"}`: web.BadRequest, `{"receipts":["x"],"lease":"13h"}`: web.BadRequest, `{"receipts":["x"],"lease":null}`: web.BadRequest},
	} {
		for body, code := range bodies {
			cases = append(cases, refused{method: "POST", target: path, body: body, status: 400, code: code})
		}
		cases = append(cases, refused{method: "POST", target: path, body: many, status: 413, code: web.TooLarge})
	}
	checkRefused(t, h, cases)
	for _, delay := range []string{"99999h", "999999w"} {
		h.do("POST", "/v1/nack", `{"receipts":["x"],"delay":"`+delay+`"}`).problem(422, "beyond_horizon").has("detail", `"the time is more than 10 years ahead; give an earlier one"`)
	}
	h.engine.err = timer.ErrUnknown
	h.do("POST", "/v1/ack", `{"receipts":["x"]}`).problem(503, web.Unavailable)
	h.engine.err = nil
	if h.engine.claims[0].Receipts[0] != "x" || len(h.engine.claims) != 1 {
		t.Errorf("%+v", h.engine.claims)
	}
}

func TestCallbackInPulledTopic(t *testing.T) {
	h := pullHarness(t)
	for method, target := range map[string]string{"POST": "/v1/topics/jobs/timers", "PUT": "/v1/topics/jobs/timers/c", "PATCH": "/v1/topics/jobs/timers/b"} {
		h.do(method, target, `{"delay":"1h","callback":{"url":"http://a.example/"}}`).problem(422, web.BadPolicy)
		h.do(method, target, `{"delay":"1h","callback":{"timeout":"1s"}}`).problem(422, web.BadPolicy)
	}
	h.do("PATCH", "/v1/topics/jobs/timers/b", `{"callback":null}`).want(200)
	h.do("POST", "/v1/topics/jobs/batch", `{"ops":[{"op":"add","id":"x","delay":"1h","callback":{"url":"http://a.example/"}},{"op":"add","id":"y","delay":"1h"}]}`).want(200).
		has("results.0.status", "422", "results.0.error.code", `"bad_policy"`, "results.1.status", "201")
	h.do("POST", "/v1/topics/jobs/dead/redrive", `{"all":true,"callback":{"url":"http://a.example/"}}`).problem(422, web.BadPolicy)
}

func TestDeliveryChangesWhenNothingIsLeased(t *testing.T) {
	h := pullHarness(t)
	h.do("POST", "/v1/topics/jobs/pull", "").want(200)
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"push"}`).problem(409, "in_flight")
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull","lease":"2m"}`).want(200).has("policy.lease", `"2m"`)
	h.engine.set("jobs", "a", func(v *timer.Timer) { v.State = timer.Done })
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"push"}`).want(200).has("policy.delivery", `"push"`)
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull"}`).want(200)
	h.engine.err = timer.ErrNoLeader
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"push"}`).problem(503, "no_leader")
}

// TestConsumersNeedTheirTopic: a token fetches only from its topics, and ends only leases of these.
func TestConsumersNeedTheirTopic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root add,admin "*"`, `worker add "jobs"`, `other add "o*"`, `reader read,cancel "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	const root, worker, other, reader = "Authorization: Bearer root", "Authorization: Bearer worker", "Authorization: Bearer other", "Authorization: Bearer reader"
	h.do("PUT", "/v1/topics/jobs", `{"delivery":"pull"}`, root).want(201)
	h.do("POST", "/v1/topics/jobs/timers", `{"id":"a","delay":"0s"}`, worker).want(201)
	h.advance(time.Second)
	h.do("POST", "/v1/topics/jobs/pull", ``).problem(401, "unauthorized")
	h.do("POST", "/v1/topics/jobs/pull", ``, other).problem(404, web.UnknownTopic)
	h.do("POST", "/v1/topics/jobs/pull", ``, reader).problem(403, "forbidden")
	h.do("POST", "/v1/topics/jobs/pull", ``, worker).want(200).has("timers.0.id", `"a"`)
	const ack = `{"receipts":["jobs/a/1"]}`
	h.do("POST", "/v1/ack", ack).problem(401, "unauthorized")
	h.do("POST", "/v1/ack", ack, reader).problem(403, "forbidden")
	h.do("POST", "/v1/ack", ack, other).want(200).has("results.0.status", "410")
	h.do("POST", "/v1/ack", ack, worker).want(200).has("results.0.status", "200")
}
