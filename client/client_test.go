package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeNode answers each request with the next of its replies, the last one again and again, and
// remembers its requests.
type fakeNode struct {
	*httptest.Server
	mu      sync.Mutex
	replies []reply
	asked   []string // "METHOD target [conditions] body"
}

type reply struct {
	status int
	body   string
	after  string // Retry-After
	leader string // LeaderHeader
	cut    bool   // the connection breaks instead
}

func newNode(t *testing.T, replies ...reply) *fakeNode {
	f := &fakeNode{replies: replies}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// noNode is an address where nothing listens. One whose node was closed may be another's soon.
func noNode() *fakeNode { return &fakeNode{Server: &httptest.Server{URL: "http://127.0.0.1:1"}} }

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + r.RequestURI
	for _, name := range []string{"Authorization", "If-Match", "If-None-Match", "Idempotency-Key"} {
		if v := r.Header.Get(name); v != "" {
			line += " [" + name + ": " + v + "]"
		}
	}
	f.asked = append(f.asked, strings.TrimSpace(line+" "+string(body)))
	next := f.replies[0]
	if len(f.replies) > 1 {
		f.replies = f.replies[1:]
	}
	if next.cut {
		panic(http.ErrAbortHandler)
	}
	if next.after != "" {
		w.Header().Set("Retry-After", next.after)
	}
	if next.leader != "" {
		w.Header().Set(LeaderHeader, next.leader)
	}
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body)
}

// seen are the requests so far; then to answer next.
func (f *fakeNode) seen(next ...reply) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(next) > 0 {
		f.replies = next
	}
	return slices.Clone(f.asked)
}

func problem(status int, code string) reply {
	return reply{status: status, body: fmt.Sprintf(`{"type":"x","title":"T","status":%d,"detail":"why","code":%q,"retryable":%v}`, status, code, status == 503), after: "2"}
}

// newClient is a client that does not wait but writes down how long it would.
func newClient(t *testing.T, o Options, nodes ...*fakeNode) (*Client, *[]time.Duration) {
	t.Helper()
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.URL)
	}
	c, err := New(urls, o)
	must(t, err)
	waits := new([]time.Duration)
	c.sleep = func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return ctx.Err()
	}
	return c, waits
}

const oneTimer = `{"topic":"orders","id":"a","uid":"0001-1-2","version":3,"state":"scheduled","due":"2030-01-01T00:00:00.250Z","due_ms":1893456000250,"payload":{"a": 1},"priority":5,"labels":["x"],"attempts":1,"max_attempts":16,"last_status":503,"callback":{"url":"http://a/","timeout":"1m30s"},"expires_after":"10m"}`

var at = time.Date(2030, 1, 1, 0, 0, 0, 250_000_000, time.UTC)

// Each call makes the request of API.md.
func TestCalls(t *testing.T) {
	ctx := t.Context()
	n := 7
	jitter := 0.0
	for _, tt := range []struct {
		name string
		do   func(c *Client) (any, error)
		want string
		body string // answer
		got  string // the value that it becomes, as JSON; "" is not looked at
	}{
		{"add", func(c *Client) (any, error) {
			return c.Add(ctx, "orders", Spec{ID: "{k}a", At: at, Payload: map[string]any{"h": "<&>"}, Callback: &Callback{URL: "http://a/", Timeout: 90 * time.Second}, Priority: 5, Labels: []string{"x"}, ExpiresAfter: new(time.Duration(0))})
		}, `POST /v1/topics/orders/timers {"id":"{k}a","at":"2030-01-01T00:00:00.25Z","payload":{"h":"<&>"},"callback":{"url":"http://a/","timeout":"1m30s"},"priority":5,"labels":["x"],"expires_after":"0s"}`, oneTimer, ""},
		{"add at once", func(c *Client) (any, error) { return c.Add(ctx, "o", Spec{Delay: Now, Bytes: []byte{1, 2}}) }, `POST /v1/topics/o/timers {"delay":"1ns","payload_base64":"AQI="}`, oneTimer, ""},
		{"add by cron", func(c *Client) (any, error) {
			return c.Add(ctx, "o", Spec{Repeat: &Repeat{Cron: "0 8 * * *", Zone: "Europe/Berlin", CatchUp: "one"}})
		}, `POST /v1/topics/o/timers {"repeat":{"cron":"0 8 * * *","zone":"Europe/Berlin","catch_up":"one"}}`, oneTimer, ""},
		{"add with debounce", func(c *Client) (any, error) {
			return c.Add(ctx, "o", Spec{ID: "a", Delay: time.Minute, Merge: "debounce", MaxWait: new(5 * time.Minute)})
		}, `POST /v1/topics/o/timers {"id":"a","delay":"1m0s","merge":"debounce","max_wait":"5m0s"}`, oneTimer, ""},
		{"add, not late", func(c *Client) (any, error) { return c.Add(ctx, "o", Spec{ID: "a", At: at, IfLate: "reject"}) },
			`POST /v1/topics/o/timers {"id":"a","at":"2030-01-01T00:00:00.25Z","if_late":"reject"}`, oneTimer, ""},
		{"put", func(c *Client) (any, error) {
			return c.Put(ctx, "o", "{k}a", Spec{At: at, Payload: json.RawMessage("null")}, Cond{Version: 3})
		}, `PUT /v1/topics/o/timers/%7Bk%7Da [If-Match: "3"] {"id":"{k}a","at":"2030-01-01T00:00:00.25Z","payload":null}`, oneTimer, ""},
		{"add by the clocks of a zone", func(c *Client) (any, error) {
			return c.Add(ctx, "o", Spec{AtLocal: "2027-03-28T09:00:00", Zone: "Europe/Berlin"})
		}, `POST /v1/topics/o/timers {"at_local":"2027-03-28T09:00:00","zone":"Europe/Berlin"}`, oneTimer, ""},
		{"patch to a local time", func(c *Client) (any, error) {
			return c.Patch(ctx, "o", "a", Patch{AtLocal: "2027-03-28T09:00:00", Zone: "Europe/Berlin"}, Cond{})
		}, `PATCH /v1/topics/o/timers/a {"at_local":"2027-03-28T09:00:00","zone":"Europe/Berlin"}`, oneTimer, ""},
		{"dry add", func(c *Client) (any, error) { return c.DryAdd(ctx, "o", Spec{Delay: time.Second}) }, `POST /v1/topics/o/timers?dry_run=true {"delay":"1s"}`, oneTimer, ""},
		{"dry put", func(c *Client) (any, error) {
			return c.DryPut(ctx, "o", "a", Spec{Delay: time.Second}, Cond{Version: 3})
		},
			`PUT /v1/topics/o/timers/a?dry_run=true [If-Match: "3"] {"id":"a","delay":"1s"}`, oneTimer, ""},
		{"dry patch", func(c *Client) (any, error) { return c.DryPatch(ctx, "o", "a", Patch{Labels: []string{"x"}}, Cond{}) },
			`PATCH /v1/topics/o/timers/a?dry_run=true {"labels":["x"]}`, oneTimer, ""},
		{"next times", func(c *Client) (any, error) { return c.GetNext(ctx, "o", "a", 7) }, `GET /v1/topics/o/timers/a?next=7`, oneTimer, ""},
		{"reschedule to a local time", func(c *Client) (any, error) {
			return c.Reschedule(ctx, "o", Selector{All: true}, RescheduleTo{AtLocal: "2027-03-28T09:00:00", Zone: "Europe/Berlin"})
		}, `POST /v1/topics/o/reschedule {"filter":{},"all":true,"at_local":"2027-03-28T09:00:00","zone":"Europe/Berlin"}`, `{"matched":1,"changed":1,"skipped":0}`, ""},
		{"put new", func(c *Client) (any, error) { return c.Put(ctx, "o", "a", Spec{Delay: time.Second}, Cond{New: true}) }, `PUT /v1/topics/o/timers/a [If-None-Match: *] {"id":"a","delay":"1s"}`, oneTimer, ""},
		{"patch", func(c *Client) (any, error) {
			return c.Patch(ctx, "o", "a", Patch{Delay: new(time.Hour), Priority: &n, Labels: []string{}, Retry: &Retry{MaxAttempts: 3, Jitter: &jitter}}, Cond{Version: 9})
		}, `PATCH /v1/topics/o/timers/a [If-Match: "9"] {"delay":"1h0m0s","priority":7,"labels":[],"retry":{"max_attempts":3,"jitter":0}}`, oneTimer, ""},
		{"patch back", func(c *Client) (any, error) {
			return c.Patch(ctx, "o", "a", Patch{At: at, Callback: &Callback{URL: "http://b/"}, Reset: []string{"expires_after", "callback.timeout", "retry.jitter"}}, Cond{})
		}, `PATCH /v1/topics/o/timers/a {"at":"2030-01-01T00:00:00.25Z","callback":{"timeout":null,"url":"http://b/"},"expires_after":null,"retry":{"jitter":null}}`, oneTimer, ""},
		{"get", func(c *Client) (any, error) {
			v, err := c.Get(ctx, "orders", "a")
			if err == nil && (!v.Due.Equal(at) || string(v.Payload) != `{"a": 1}` || v.Callback.Timeout != 90*time.Second || *v.ExpiresAfter != 10*time.Minute || v.Version != 3 || v.LastStatus != 503) {
				t.Errorf("%+v", v)
			}
			return v, err
		}, `GET /v1/topics/orders/timers/a`, oneTimer, ""},
		{"cancel", func(c *Client) (any, error) { return c.Cancel(ctx, "o", "a", Cond{Version: 2}) }, `DELETE /v1/topics/o/timers/a [If-Match: "2"]`, `{"outcome":"in_flight"}`, `"in_flight"`},
		{"pause a timer", func(c *Client) (any, error) { return c.Timers("o").Pause(ctx, "a", Cond{Version: 4}) }, `POST /v1/topics/o/timers/a/pause [If-Match: "4"]`, oneTimer, ""},
		{"resume a timer", func(c *Client) (any, error) { return c.Timers("o").Resume(ctx, "a", Cond{}) }, `POST /v1/topics/o/timers/a/resume`, oneTimer, ""},
		{"pause all", func(c *Client) (any, error) { return c.Timers("o").PauseAll(ctx, Selector{All: true}) }, `POST /v1/topics/o/pause-timers {"filter":{},"all":true}`, `{"matched":2,"changed":1,"skipped":1}`, ""},
		{"resume all", func(c *Client) (any, error) { return c.Timers("o").ResumeAll(ctx, Selector{All: true}) }, `POST /v1/topics/o/resume-timers {"filter":{},"all":true}`, `{"matched":2,"changed":1,"skipped":1}`, ""},
		{"fire", func(c *Client) (any, error) { return c.Fire(ctx, "o", "a", Cond{}) }, `POST /v1/topics/o/timers/a/fire`, oneTimer, ""},
		{"batch", func(c *Client) (any, error) {
			return c.Batch(ctx, "o", []Op{AddOp(Spec{Delay: time.Second}), PutOp("b", Spec{At: at}, 2), PatchOp("c", Patch{Labels: []string{"x"}}, 0), CancelOp("d", 4), FireOp("e", 0)}, true)
		}, `POST /v1/topics/o/batch?brief=true {"ops":[{"delay":"1s","op":"add"},{"at":"2030-01-01T00:00:00.25Z","id":"b","if_match":2,"op":"put"},{"id":"c","labels":["x"],"op":"patch"},{"id":"d","if_match":4,"op":"cancel"},{"id":"e","op":"fire"}]}`,
			`{"results":[{"status":201,"id":"x"},{},{},{"status":200,"outcome":"prevented"},{"status":409,"error":{"status":409,"code":"in_flight"}}]}`, ""},
		{"cancel all", func(c *Client) (any, error) {
			return c.CancelAll(ctx, "o", Selector{Filter: Filter{States: []State{Scheduled}, Labels: []string{"x", "y"}, IDPrefix: "p", DueTo: at}})
		}, `POST /v1/topics/o/cancel {"filter":{"state":["scheduled"],"due_to":"2030-01-01T00:00:00.25Z","label":["x","y"],"id_prefix":"p"}}`, `{"matched":3,"changed":2,"skipped":1}`, `{"matched":3,"changed":2,"skipped":1}`},
		{"reschedule", func(c *Client) (any, error) {
			return c.Reschedule(ctx, "o", Selector{All: true}, RescheduleTo{Shift: -5 * time.Minute})
		}, `POST /v1/topics/o/reschedule {"filter":{},"all":true,"shift":"-5m0s"}`, `{"matched":1,"changed":1,"skipped":0}`, ""},
		{"reschedule to", func(c *Client) (any, error) {
			return c.Reschedule(ctx, "o", Selector{All: true}, RescheduleTo{NotBefore: at})
		},
			`POST /v1/topics/o/reschedule {"filter":{},"all":true,"not_before":"2030-01-01T00:00:00.25Z"}`, `{}`, ""},
		{"redrive", func(c *Client) (any, error) {
			return c.RedriveDead(ctx, "o", DeadSelector{Filter: &DeadFilter{Reason: "expired", From: at}}, Redrive{Delay: time.Second, Callback: &Callback{URL: "http://b/"}})
		}, `POST /v1/topics/o/dead/redrive {"filter":{"reason":"expired","from":"2030-01-01T00:00:00.25Z"},"delay":"1s","callback":{"url":"http://b/"}}`, `{}`, ""},
		{"redrive by uid", func(c *Client) (any, error) {
			n, err := c.RedriveDead(ctx, "o", DeadSelector{UIDs: []string{"0001-2-00000003"}}, Redrive{})
			if len(n.Skips) != 1 || n.Skips[0] != (Skip{ID: "a", UID: "0001-2-00000003", Code: "in_use", Detail: "x"}) {
				t.Errorf("%+v", n)
			}
			return n, err
		}, `POST /v1/topics/o/dead/redrive {"uids":["0001-2-00000003"]}`, `{"matched":1,"skipped":1,"skips":[{"id":"a","uid":"0001-2-00000003","code":"in_use","detail":"x"}]}`, ""},
		{"purge", func(c *Client) (any, error) { return c.PurgeDead(ctx, "o", DeadSelector{IDs: []string{"a"}}) }, `POST /v1/topics/o/dead/purge {"ids":["a"]}`, `{}`, ""},
		{"add under a key", func(c *Client) (any, error) { return c.Add(ctx, "orders", Spec{IdempotencyKey: "k", Delay: time.Hour}) },
			`POST /v1/topics/orders/timers [Idempotency-Key: "k"] {"delay":"1h0m0s"}`, oneTimer, ""},
		{"put topic", func(c *Client) (any, error) {
			return c.PutTopic(ctx, "o", Policy{Delivery: "pull", Lease: time.Minute, Rate: &Rate{PerSecond: 5, Burst: 1}, StopOn: []int{}})
		}, `PUT /v1/topics/o {"delivery":"pull","lease":"1m0s","stop_on":[],"rate":{"per_second":5,"burst":1}}`, `{"topic":"o","counts":{"scheduled":4,"dead":2}}`, ""},
		{"put topic if", func(c *Client) (any, error) {
			return c.PutTopicIf(ctx, "o", Policy{Key: "all", Serial: true, IfLate: LateReject, Window: &Window{Days: "mon-fri", From: "08:00"}}, TopicCondition{Version: "7-3", Force: true})
		}, `PUT /v1/topics/o?force=true [If-Match: "7-3"] {"serial":true,"key":"all","if_late":"reject","window":{"days":"mon-fri","from":"08:00"}}`, `{"topic":"o","version":"7-4","counts":{"waiting":{"window":2}}}`, ""},
		{"patch topic", func(c *Client) (any, error) {
			return c.PatchTopic(ctx, "o", PolicyPatch{Set: Policy{History: 24 * time.Hour, Retry: &Retry{MaxAttempts: 5}}, Reset: []string{"window", "retry.jitter"}}, TopicCondition{})
		}, `PATCH /v1/topics/o {"history":"24h0m0s","retry":{"jitter":null,"max_attempts":5},"window":null}`, `{"topic":"o"}`, ""},
		{"put topic, dry run", func(c *Client) (any, error) {
			return c.PutTopicIf(ctx, "o", Policy{}, TopicCondition{Force: true, DryRun: true})
		}, `PUT /v1/topics/o?dry_run=true&force=true {}`, `{"topic":"o","action":"change","changes":[{"field":"serial","from":true,"to":false}]}`, ""},
		{"add that is late", func(c *Client) (any, error) { return c.DryAdd(ctx, "o", Spec{At: time.Unix(1577836800, 0)}) },
			`POST /v1/topics/o/timers?dry_run=true {"at":"2020-01-01T00:00:00Z"}`, `{"topic":"o","id":"a","late_by_ms":61000}`, ""},
		{"rotate", func(c *Client) (any, error) { return c.RotateSecret(ctx, "o", "whsec_x") }, `POST /v1/topics/o/secrets/rotate {"secret":"whsec_x"}`,
			`{"topic":"o","secrets":["sha256:1","sha256:2"]}`, `{"topic":"o","secret":"","secrets":["sha256:1","sha256:2"]}`},
		{"rotate to one of the node's", func(c *Client) (any, error) { return c.RotateSecret(ctx, "o", "") }, `POST /v1/topics/o/secrets/rotate {}`, `{"secret":"whsec_x"}`, ""},
		{"finish", func(c *Client) (any, error) { return c.FinishRotation(ctx, "o", "") }, `POST /v1/topics/o/secrets/finish {}`, `{}`, ""},
		{"finish with another", func(c *Client) (any, error) { return c.FinishRotation(ctx, "o", "sha256:2") }, `POST /v1/topics/o/secrets/finish {"keep":"sha256:2"}`, `{}`, ""},
		{"pause", func(c *Client) (any, error) { return c.Pause(ctx, "o") }, `POST /v1/topics/o/pause`, `{"topic":"o","paused":true}`, ""},
		{"resume", func(c *Client) (any, error) { return c.Resume(ctx, "o") }, `POST /v1/topics/o/resume`, `{"topic":"o"}`, ""},
		{"delete topic", func(c *Client) (any, error) { return c.DeleteTopic(ctx, "o", true) }, `DELETE /v1/topics/o?force=true`, `{"cancelled":4}`, `4`},
		{"pull", func(c *Client) (any, error) {
			leases, err := c.Pull(ctx, "o", PullOptions{Max: 3, Wait: 20 * time.Second})
			if err == nil && (len(leases) != 1 || leases[0].ID != "a" || leases[0].Receipt != "r" || leases[0].Fence != 1<<63 || !leases[0].LeaseUntil.Equal(at)) {
				t.Errorf("%+v", leases)
			}
			return leases, err
		}, `POST /v1/topics/o/pull {"max":3,"wait":"20s"}`, `{"timers":[{"id":"a","receipt":"r","fence":9223372036854775808,"attempt":1,"lease_until":"2030-01-01T00:00:00.250Z"}]}`, ""},
		{"ack", func(c *Client) (any, error) {
			results, err := c.Ack(ctx, "r", "s")
			if !errors.Is(err, ErrOver) {
				return results, fmt.Errorf("one is over: %w", err)
			}
			return results, nil
		}, `POST /v1/ack {"receipts":["r","s"]}`, `{"results":[{"receipt":"r","status":200},{"receipt":"s","status":410,"code":"over"}]}`, `[{"receipt":"r","status":200,"code":""},{"receipt":"s","status":410,"code":"over"}]`},
		{"nack", func(c *Client) (any, error) { return c.Nack(ctx, 0, "no", "r") }, `POST /v1/nack {"receipts":["r"],"delay":"0s","reason":"no"}`, `{}`, ""},
		{"extend", func(c *Client) (any, error) { return c.Extend(ctx, time.Minute, "r") }, `POST /v1/extend {"receipts":["r"],"lease":"1m0s"}`, `{}`, ""},
		{"cluster", func(c *Client) (any, error) {
			v, err := c.Cluster(ctx)
			if err == nil && (v.ID != "c0ffee" || len(v.Nodes) != 1 || v.Nodes[0].State != NodeDraining || *v.Nodes[0].ClockOffsetMs != -3 || v.Shards[0].State != ShardNoQuorum || v.Shards[0].Number != 7) {
				t.Errorf("%+v", v)
			}
			return v, err
		}, `GET /v1/cluster`, `{"cluster_id":"c0ffee","nodes":[{"name":"n1","state":"draining","clock_offset_ms":-3}],"shards":[{"shard":7,"replicas":["n1"],"state":"no_quorum"}]}`, ""},
		{"cancel as a dry run", func(c *Client) (any, error) { return c.CancelAll(ctx, "o", Selector{All: true, DryRun: true}) },
			`POST /v1/topics/o/cancel?dry_run=true {"filter":{},"all":true}`, `{"matched":3,"changed":2,"skipped":1,"dry_run":true,"first":"a"}`, `{"matched":3,"changed":2,"skipped":1,"dry_run":true,"first":"a"}`},
		{"redrive as a dry run", func(c *Client) (any, error) {
			return c.RedriveDead(ctx, "o", DeadSelector{IDs: []string{"a"}, DryRun: true}, Redrive{})
		}, `POST /v1/topics/o/dead/redrive?dry_run=true {"ids":["a"]}`, `{"matched":1}`, ""},
		{"shards", func(c *Client) (any, error) { return nil, c.SetShards(ctx, 16) }, `POST /v1/cluster/shards {"shards":16}`, `{"shards":16}`, ""},
		{"what shards need", func(c *Client) (any, error) { return c.PreviewShards(ctx, 16) }, `POST /v1/cluster/shards?dry_run=true {"shards":16}`,
			`{"bytes":1024,"memory_bytes":512,"lasting_memory_bytes":256,"moves":3}`, ""},
		{"replicas", func(c *Client) (any, error) { return nil, c.SetReplicas(ctx, 3) }, `PUT /v1/cluster/replicas {"replicas":3}`, `{"replicas":3}`, ""},
		{"finalize", func(c *Client) (any, error) { return c.FinalizeUpgrade(ctx) }, `POST /v1/cluster/finalize`, `{"feature_level":3}`, `3`},
		{"clock", func(c *Client) (any, error) { return TestClock{c}.Now(ctx) }, `GET /v1/clock`, `{"now":"2026-01-01T00:00:00.000Z","now_ms":1767225600000}`, `"2026-01-01T00:00:00Z"`},
		{"advance the clock", func(c *Client) (any, error) { return TestClock{c}.Advance(ctx, 36*time.Hour) }, `POST /v1/clock {"advance":"36h0m0s"}`,
			`{"now":"2026-01-02T12:00:00.000Z","now_ms":1767355200000,"calls":3,"left":1}`, `{"now":"2026-01-02T12:00:00Z","calls":3,"left":1,"stopped":false}`},
		{"move the clock", func(c *Client) (any, error) {
			return TestClock{c}.AdvanceTo(ctx, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
		}, `POST /v1/clock {"to":"2026-02-01T00:00:00Z"}`,
			`{"now":"2026-01-02T12:00:00.000Z","now_ms":1767355200000,"calls":100001,"left":1,"stopped":true}`, `{"now":"2026-01-02T12:00:00Z","calls":100001,"left":1,"stopped":true}`},
		{"drain", func(c *Client) (any, error) { return c.DrainNode(ctx, "n/1") }, `POST /v1/cluster/nodes/n%2F1/drain`, `{"name":"n/1","state":"draining"}`, `"draining"`},
		{"resume a node", func(c *Client) (any, error) { return c.ResumeNode(ctx, "n1") }, `POST /v1/cluster/nodes/n1/resume`, `{"name":"n1","state":"alive"}`, `"alive"`},
		{"remove", func(c *Client) (any, error) { return c.RemoveNode(ctx, "n1", Removal{Force: true}) }, `DELETE /v1/cluster/nodes/n1?force=true`, `{"name":"n1","state":"left"}`, `"left"`},
		{"remove all the same", func(c *Client) (any, error) { return c.RemoveNode(ctx, "n1", Removal{AcceptLoss: true}) }, `DELETE /v1/cluster/nodes/n1?accept_loss=true`, `{"name":"n1","state":"left"}`, `"left"`},
		{"do", func(c *Client) (any, error) {
			b, err := c.Do(ctx, Request{Method: http.MethodPost, Path: Path("a b", "{c}"), Query: url.Values{"d": {"e&f"}}, Body: []byte(`{"g": 1}`), IfMatch: 3, CreateOnly: true})
			return string(b), err
		}, `POST /v1/a%20b/%7Bc%7D?d=e%26f [If-Match: "3"] [If-None-Match: *] {"g": 1}`, "as it\tcame\n", `"as it\tcame\n"`},
	} {
		node := newNode(t, reply{status: 200, body: tt.body})
		c, _ := newClient(t, Options{}, node)
		v, err := tt.do(c)
		if err != nil || len(node.seen()) != 1 || node.seen()[0] != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.name, err, node.seen(), tt.want)
		}
		if got, _ := json.Marshal(v); tt.got != "" && string(got) != tt.got {
			t.Errorf("%s gives %s, want %s", tt.name, got, tt.got)
		}
	}
}

// Only calls that are safe to repeat are repeated.
func TestRetries(t *testing.T) {
	ctx := t.Context()
	timer := reply{status: 200, body: oneTimer}
	busy, quota, broken := problem(503, "no_leader"), problem(429, "quota"), reply{cut: true}
	for _, tt := range []struct {
		name    string
		replies []reply
		do      func(c *Client) error
		asked   int
		good    bool
	}{
		{"get", []reply{broken, busy, quota, timer}, func(c *Client) error { _, err := c.Get(ctx, "o", "a"); return err }, 4, true},
		{"get gives up", []reply{busy}, func(c *Client) error { _, err := c.Get(ctx, "o", "a"); return err }, 5, false},
		{"get of nothing", []reply{problem(404, "unknown_timer")}, func(c *Client) error { _, err := c.Get(ctx, "o", "a"); return err }, 1, false},
		{"internal", []reply{problem(500, "internal")}, func(c *Client) error { _, err := c.Get(ctx, "o", "a"); return err }, 1, false},
		{"named add with a delay", []reply{busy, timer}, func(c *Client) error { _, err := c.Add(ctx, "o", Spec{ID: "a", Delay: 1}); return err }, 1, false},
		{"add under a key", []reply{broken, timer}, func(c *Client) error {
			_, err := c.Add(ctx, "o", Spec{IdempotencyKey: "k", Delay: 1})
			return err
		}, 2, true},
		{"add without a name", []reply{busy, timer}, func(c *Client) error { _, err := c.Add(ctx, "o", Spec{At: at}); return err }, 1, false},
		{"add that merges", []reply{busy, timer}, func(c *Client) error {
			_, err := c.Add(ctx, "o", Spec{ID: "a", At: at, Merge: "replace"})
			return err
		}, 1, false},
		{"add of a part", []reply{broken, timer}, func(c *Client) error {
			_, err := c.Add(ctx, "o", Spec{ID: "a", Delay: 1, Merge: MergeCollect, CollectMax: 9, Part: "p"})
			return err
		}, 2, true},
		{"put", []reply{broken, timer}, func(c *Client) error { _, err := c.Put(ctx, "o", "a", Spec{At: at}, Cond{}); return err }, 2, true},
		{"put of a version", []reply{broken, timer}, func(c *Client) error { _, err := c.Put(ctx, "o", "a", Spec{At: at}, Cond{Version: 2}); return err }, 1, false},
		{"patch", []reply{busy, timer}, func(c *Client) error {
			_, err := c.Patch(ctx, "o", "a", Patch{Labels: []string{"x"}}, Cond{})
			return err
		}, 1, false},
		{"cancel", []reply{broken, {status: 200, body: `{"outcome":"prevented"}`}}, func(c *Client) error { _, err := c.Cancel(ctx, "o", "a", Cond{}); return err }, 2, true},
		{"fire", []reply{broken, timer}, func(c *Client) error { _, err := c.Fire(ctx, "o", "a", Cond{}); return err }, 1, false},
		{"ack", []reply{broken, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.Ack(ctx, "r"); return err }, 2, true},
		{"nack", []reply{busy, broken, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.Nack(ctx, Backoff, "", "r"); return err }, 3, true},
		{"extend", []reply{busy, broken, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.Extend(ctx, time.Minute, "r"); return err }, 3, true},
		{"pull", []reply{busy, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.Pull(ctx, "o", PullOptions{}); return err }, 1, false},
		{"rotate", []reply{broken, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.RotateSecret(ctx, "o", "whsec_x"); return err }, 2, true},
		{"rotate to one of the node's", []reply{busy, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.RotateSecret(ctx, "o", ""); return err }, 1, false},
		{"drain", []reply{broken, {status: 202, body: `{}`}}, func(c *Client) error { _, err := c.DrainNode(ctx, "n1"); return err }, 2, true},
		{"remove", []reply{busy, {status: 200, body: `{}`}}, func(c *Client) error { _, err := c.RemoveNode(ctx, "n1", Removal{}); return err }, 1, false},
		{"batch", []reply{busy, {status: 200, body: `{"results":[]}`}}, func(c *Client) error { _, err := c.Batch(ctx, "o", nil, false); return err }, 1, false},
		{"answer that is cut", []reply{{status: 200, body: `{"topic":`}}, func(c *Client) error { _, err := c.Get(ctx, "o", "a"); return err }, 1, false},
	} {
		node := newNode(t, tt.replies...)
		c, waits := newClient(t, Options{}, node)
		err := tt.do(c)
		if (err == nil) != tt.good || len(node.seen()) != tt.asked || len(*waits) != tt.asked-1 {
			t.Errorf("%s: %v after %d requests and %v, want %d", tt.name, err, len(node.seen()), *waits, tt.asked)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	node := newNode(t, problem(503, "overloaded"))
	c, waits := newClient(t, Options{Retries: 2, MaxWait: 3 * time.Second}, node)
	if _, err := c.Get(t.Context(), "o", "a"); !errors.Is(err, ErrOverloaded) {
		t.Error(err)
	}
	if len(*waits) != 2 || (*waits)[0] != 2*time.Second {
		t.Errorf("waited %v, the node asked for 2s", *waits)
	}
	node.seen(reply{status: 503, body: problem(503, "overloaded").body, after: "3600"})
	_, _ = c.Get(t.Context(), "o", "a")
	if last := (*waits)[len(*waits)-1]; last != 3*time.Second {
		t.Errorf("waited %s, at most 3s", last)
	}
	// More than a time.Duration holds.
	node.seen(reply{status: 503, body: problem(503, "overloaded").body, after: "9999999999999"})
	_, err := c.Get(t.Context(), "o", "a")
	if p, ok := errors.AsType[*Problem](err); !ok || p.RetryAfter < 3600*time.Second {
		t.Errorf("%+v", err)
	}
	never, waits := newClient(t, Options{Retries: -1}, node)
	if _, err := never.Get(t.Context(), "o", "a"); err == nil || len(*waits) != 0 {
		t.Errorf("%v after %v", err, *waits)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	asked := len(node.seen())
	if _, err := c.Get(ctx, "o", "a"); !errors.Is(err, ErrOverloaded) || len(node.seen()) != asked+1 {
		t.Errorf("%v, %d requests", err, len(node.seen())-asked)
	}
}

// Another node is asked when one is gone or cannot.
func TestNodes(t *testing.T) {
	minority, good := newNode(t, problem(503, "no_leader")), newNode(t, reply{status: 200, body: oneTimer})
	c, _ := newClient(t, Options{Token: "crl_x"}, noNode(), minority, good)
	for range 3 {
		if _, err := c.Get(t.Context(), "o", "a"); err != nil {
			t.Error(err)
		}
	}
	if len(minority.seen()) != 1 || len(good.seen()) != 3 || !strings.Contains(good.seen()[0], "[Authorization: Bearer crl_x]") {
		t.Errorf("%v, %v", minority.seen(), good.seen())
	}
}

// A node that takes no connection has seen nothing: a call that must not be made twice goes to the
// next node as well, at once, and fails only when none is there.
func TestUnconnectedNodeIsPassedOver(t *testing.T) {
	gone, good := noNode(), newNode(t, reply{status: 200, body: oneTimer})
	c, waits := newClient(t, Options{Retries: -1}, gone, gone, good)
	for n := range 2 {
		if _, err := c.Fire(t.Context(), "o", "a", Cond{}); err != nil || len(good.seen()) != n+1 || len(*waits) != 0 {
			t.Errorf("%v, asked %v, waited %v", err, good.seen(), *waits)
		}
	}
	none, _ := newClient(t, Options{Retries: -1}, gone, gone)
	if _, err := none.Fire(t.Context(), "o", "a", Cond{}); !neverSent(err) {
		t.Error(err)
	}
	twice, _ := newClient(t, Options{Retries: -1}, good, good)
	good.seen(reply{cut: true}) // this one has the request
	asked := len(good.seen())
	if _, err := twice.Fire(t.Context(), "o", "a", Cond{}); err == nil || len(good.seen()) != asked+1 {
		t.Errorf("%v after %d requests", err, len(good.seen())-asked)
	}
}

func TestProblems(t *testing.T) {
	node := newNode(t, reply{status: 410, body: `{"type":"/errors/over","title":"Timer has ended","status":410,"detail":"the timer has been delivered","code":"over","retryable":false,"outcome":"already_fired"}`})
	c, _ := newClient(t, Options{}, node)
	outcome, err := c.Cancel(t.Context(), "o", "a", Cond{})
	var p *Problem
	if outcome != AlreadyFired || !errors.Is(err, ErrOver) || errors.Is(err, ErrInFlight) || !errors.As(err, &p) || p.Status != 410 {
		t.Errorf("%s, %v", outcome, err)
	}
	if got := err.Error(); got != "carillon: the timer has been delivered (410 over): already fired" {
		t.Error(got)
	}
	node.seen(reply{status: 502, body: "<html>"})
	if _, err := c.Get(t.Context(), "o", "a"); !errors.As(err, &p) || p.Status != 502 || !strings.Contains(err.Error(), "<html>") {
		t.Error(err)
	}
	c, _ = newClient(t, Options{}, noNode())
	if _, err := c.Fire(t.Context(), "o", "a", Cond{}); err == nil || errors.As(err, &p) {
		t.Errorf("no answer is %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, urls := range [][]string{nil, {"127.0.0.1:7700"}, {"ftp://a"}, {"http://"}, {"http://user:secret@a/"}, {"http://a?b=c"}} {
		if _, err := New(urls, Options{}); err == nil {
			t.Errorf("%v is taken", urls)
		}
	}
}

func TestList(t *testing.T) {
	node := newNode(t, reply{status: 200, body: `{"timers":[{"id":"a"},{"id":"b"}],"next_cursor":"c+1"}`}, problem(503, "no_leader"), reply{status: 200, body: `{"timers":[{"id":"c"}]}`})
	c, _ := newClient(t, Options{}, node)
	var ids []string
	for timer, err := range c.List(t.Context(), "o", Filter{States: []State{Done, Dead}, Labels: []string{"x", "y"}, IDPrefix: "{k}", DueFrom: at.In(time.FixedZone("", 3600))}) {
		must(t, err)
		ids = append(ids, timer.ID)
	}
	const first = "GET /v1/topics/o/timers?due_from=2030-01-01T00%3A00%3A00.25Z&id_prefix=%7Bk%7D&label=x&label=y&limit=1000&state=done%2Cdead"
	if fmt.Sprint(ids) != "[a b c]" || node.seen()[0] != first || !strings.Contains(node.seen()[2], "cursor=c%2B1") {
		t.Errorf("%v of %v", ids, node.seen())
	}
	node.seen(reply{status: 200, body: `{"timers":[{"topic":"o","id":"a"}]}`})
	for timer, err := range c.List(t.Context(), "", Filter{ID: "a", States: []State{Done}}) {
		if err != nil || timer.Topic != "o" {
			t.Error(timer, err)
		}
	}
	if got := node.seen(); got[len(got)-1] != "GET /v1/timers?id=a&limit=1000&state=done" {
		t.Error(got)
	}
	node.seen(reply{status: 200, body: `{"timers":[{"id":"a"},{"id":"b"}],"next_cursor":"c"}`}, problem(404, "unknown_topic"))
	n := 0
	for _, err := range c.DeadLetters(t.Context(), "o", DeadFilter{Reason: "expired"}) {
		if n++; n == 3 && !errors.Is(err, ErrUnknownTopic) {
			t.Error(err)
		}
	}
	if n != 3 {
		t.Errorf("%d steps", n)
	}
	for range c.Topics(t.Context()) {
		break
	}
	for entry, err := range c.History(t.Context(), "o", HistoryFilter{ID: "a"}) {
		if err == nil || entry != nil {
			t.Error(entry, err)
		}
	}
}

// TestSpecWithoutATime: it is refused here, and not taken for one that is due at once.
func TestSpecWithoutATime(t *testing.T) {
	c, err := New([]string{"http://127.0.0.1:1"}, Options{})
	must(t, err)
	for _, s := range []Spec{{ID: "a"}, {ID: "a", Zone: "UTC"}, {ID: "a", Repeat: &Repeat{Every: time.Hour}}} {
		if _, err := c.Add(t.Context(), "o", s); !errors.Is(err, ErrNoTime) {
			t.Errorf("%+v: %v", s, err)
		}
		if _, err := c.Put(t.Context(), "o", "a", s, Cond{}); !errors.Is(err, ErrNoTime) {
			t.Errorf("put of %+v: %v", s, err)
		}
		if _, err := c.Batch(t.Context(), "o", []Op{AddOp(s)}, false); !errors.Is(err, ErrNoTime) {
			t.Errorf("batch of %+v: %v", s, err)
		}
	}
}

// must ends a test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
