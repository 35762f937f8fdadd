package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carillon/node/route"
	"carillon/ring"
	"carillon/test/testkit"
	"carillon/timer"
)

// TestPolicyStaysUsable: a policy does not take away the URL that pending timers need, nor the
// secrets that receivers check, unless it is forced.
func TestPolicyStaysUsable(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, nil)
	secret := "whsec_" + strings.Repeat("A", 32)
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"a","delay":"1h"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"b","delay":"1h","priority":2}`)
	n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"own","delay":"1h","callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"headers","delay":"1h","callback":{"headers":{"X":"1"}}}`)
	refused := func(method, body, words string) {
		t.Helper()
		before := n.must(200, "GET", "/v1/topics/orders", "")
		got := n.must(409, method, "/v1/topics/orders", body)
		if !strings.Contains(got, `"code":"in_use"`) || !strings.Contains(got, words) {
			t.Errorf("%s %s: %s", method, body, got)
		}
		if dry := n.must(409, method, "/v1/topics/orders?dry_run=true", body); dry != got {
			t.Errorf("%s %s: the dry run answers %s, the call %s", method, body, dry, got)
		}
		if after := n.must(200, "GET", "/v1/topics/orders", ""); after != before {
			t.Errorf("it has changed: %s", after)
		}
	}
	refused("PUT", `{"history":"24h"}`, "3 pending timers would have no callback URL")
	refused("PATCH", `{"callback":null}`, "3 pending timers")
	refused("PATCH", `{"callback":{"url":null}}`, "3 pending timers")
	n.must(200, "PATCH", "/v1/topics/orders", `{"history":"24h"}`)
	n.must(200, "DELETE", "/v1/topics/orders/timers/b", "")
	n.must(200, "PATCH", "/v1/topics/orders/timers/headers", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	refused("PUT", `{}`, "1 pending timer ")
	refused("PATCH", `{"key":"all"}`, "3 pending timers would keep ids without the key")
	n.must(200, "POST", "/v1/topics/orders/timers/a/fire", "")
	n.eventually("orders", "a", "done")
	n.must(200, "PUT", "/v1/topics/orders", `{}`) // nobody needs it any more

	// A topic whose timers are pulled needs no URL; one that calls again does.
	n.must(200, "PUT", "/v1/topics/orders", `{"delivery":"pull"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"c","delay":"1h"}`)
	refused("PATCH", `{"delivery":"push"}`, "1 pending timer ")
	n.must(200, "PATCH", "/v1/topics/orders", fmt.Sprintf(`{"delivery":"push","callback":{"url":%q},"secrets":[%q]}`, rec.URL, secret))

	refused("PUT", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL), "1 signing secret ")
	refused("PATCH", `{"secrets":[]}`, "1 signing secret ")
	refused("PUT", `{}`, "the topic has 1 signing secret and would have none; 1 pending timer would have no callback URL; nothing was changed")
	refused("PUT", `{"key":"all"}`, "would have none; 3 pending timers would keep ids without the key, and an add of the same id would make another timer; 1 pending timer would have no")
	n.must(200, "PATCH", "/v1/topics/orders?force=true", `{"secrets":[]}`)
	n.must(200, "PUT", "/v1/topics/orders?force=true", `{}`)
	n.must(200, "PATCH", "/v1/topics/orders", `{"history":"1h"}`) // it had no URL before
}

// TestDryRunOfPolicy: a dry run counts what a change would leave behind, refuses what the change
// would refuse, and changes nothing.
func TestDryRunOfPolicy(t *testing.T) {
	n := start(t, t.TempDir())
	const path = "/v1/topics/orders"
	asked := func(status int, query, body string, wants ...string) {
		t.Helper()
		before := n.must(200, "GET", path, "")
		got := n.must(status, "PATCH", path+query, body)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s %s: %s has no %s", query, body, got, want)
			}
		}
		if after := n.must(200, "GET", path, ""); after != before {
			t.Errorf("%s %s has changed it: %s", query, body, after)
		}
	}
	if got := n.must(200, "PUT", path+"?dry_run=true", `{"serial":true}`); !strings.Contains(got, `"action":"create"`) {
		t.Error(got)
	}
	n.must(404, "GET", path, "")
	n.must(201, "PUT", path, `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(201, "POST", path+"/timers", `{"id":"a","delay":"1h"}`)
	asked(200, "?dry_run=true&force=true", `{"callback":null,"key":"all"}`, `"without_url":1`, `"former_ids":1`, `{"field":"key","to":"all"}`)
	asked(200, "?dry_run=true", `{"delivery":"pull"}`, `"changes":[{"field":"delivery","from":"push","to":"pull"}]`)
	asked(200, "?dry_run=true", `{"delivery":"push"}`, `"action":"leave"`)
	n.must(200, "PATCH", path, `{"delivery":"pull"}`)
	n.must(201, "POST", path+"/timers", `{"id":"b","delay":"0s"}`)
	n.must(200, "POST", path+"/pull", `{"wait":"20s"}`)
	asked(409, "", `{"delivery":"push"}`, "and 1 is; pause")
	asked(409, "?dry_run=true", `{"delivery":"push"}`, "and 1 is; pause")
	asked(409, "?dry_run=true&force=true", `{"delivery":"push"}`, "and 1 is; pause")
}

// slippingMeta has adds made just before the meta group decides about a topic, too late for what is
// counted before a change.
type slippingMeta struct {
	route.Meta
	slip func()
}

func (m slippingMeta) Propose(ctx context.Context, cmd ring.Command) (ring.Reply, error) {
	m.slip()
	return m.Meta.Propose(ctx, cmd)
}

// TestAddsDuringChangeAreCounted: a change of a topic does not see the adds of that very moment,
// but its answer says how many there are that keep their ids, or have no URL.
func TestAddsDuringChangeAreCounted(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/line", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	core := n.node.run.Load().core.Load()
	topics := route.NewTopics(core.router, core.member.State.Topics, slippingMeta{core.member, func() {
		n.must(201, "POST", "/v1/topics/line/timers", `{"id":"slipped","delay":"1h"}`)
	}})
	p, former := timer.DefaultPolicy(), int64(0)
	p.Key = "all"
	if _, _, err := topics.Put(t.Context(), "line", &p, timer.TopicChange{FormerIDs: &former}); err != nil || former != 1 {
		t.Errorf("%d timers keep their ids, %v; want 1", former, err)
	}
	if got := n.must(200, "PATCH", "/v1/topics/line", `{"history":"9h"}`); !strings.Contains(got, `"without_url":1`) {
		t.Error(got)
	}
	n.must(200, "PATCH", "/v1/topics/line/timers/slipped", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	if got := n.must(200, "PATCH", "/v1/topics/line", `{"history":"8h"}`); strings.Contains(got, "without_url") {
		t.Error(got)
	}
}

// TestChangeDuringDeletion: a topic that somebody changes while it is being deleted stays, and
// takes adds again, where the deletion is of a version.
func TestChangeDuringDeletion(t *testing.T) {
	n := start(t, t.TempDir())
	core := n.node.run.Load().core.Load()
	for _, force := range []bool{false, true} {
		for at := 1; at <= 2; at++ { // before it is closed, and before it is deleted
			name := fmt.Sprintf("line-%v-%d", force, at)
			n.must(201, "PUT", "/v1/topics/"+name, `{"callback":{"url":"http://127.0.0.1:1/"}}`)
			topic, _ := core.member.State.Topics.Named(name)
			step := 0
			topics := route.NewTopics(core.router, core.member.State.Topics, slippingMeta{core.member, func() {
				if step++; step == at {
					n.must(200, "PATCH", "/v1/topics/"+name, `{"history":"9h"}`)
				}
			}})
			if _, err := topics.Delete(t.Context(), name, timer.TopicChange{ID: topic.ID, Version: topic.Version, Force: force}); !errors.Is(err, timer.ErrTopicVersion) {
				t.Errorf("%s: it is %v", name, err)
			}
			if got := n.must(200, "GET", "/v1/topics/"+name, ""); !strings.Contains(got, `"history":"9h"`) {
				t.Errorf("%s: %s", name, got)
			}
			n.must(201, "POST", "/v1/topics/"+name+"/timers", `{"id":"a","delay":"1h"}`)
		}
	}
}

// lostMeta loses its leader with the at-th command.
type lostMeta struct {
	route.Meta
	at *int
}

func (m lostMeta) Propose(ctx context.Context, cmd ring.Command) (ring.Reply, error) {
	if *m.at--; *m.at == 0 {
		return ring.Reply{}, timer.ErrNoLeader
	}
	return m.Meta.Propose(ctx, cmd)
}

// TestDeletionThatIsCutOff: a forced deletion that has begun says that it goes on, and what it has
// cancelled; one that has not, or that is undone, says neither.
func TestDeletionThatIsCutOff(t *testing.T) {
	n := start(t, t.TempDir())
	core := n.node.run.Load().core.Load()
	for _, tt := range []struct {
		at, cancelled int
		force, begun  bool
	}{{at: 1}, {at: 2}, {at: 1, force: true}, {at: 2, cancelled: 3, force: true, begun: true}} {
		name := fmt.Sprintf("line-%v-%d", tt.force, tt.at)
		n.must(201, "PUT", "/v1/topics/"+name, `{"delivery":"pull"}`)
		for i := range 3 {
			if tt.force {
				n.must(201, "POST", "/v1/topics/"+name+"/timers", fmt.Sprintf(`{"id":"t%d","delay":"1h"}`, i))
			}
		}
		topics := route.NewTopics(core.router, core.member.State.Topics, lostMeta{core.member, &tt.at})
		cancelled, err := topics.Delete(t.Context(), name, timer.TopicChange{Force: tt.force})
		_, begun := errors.AsType[timer.DeletingError](err)
		if cancelled != tt.cancelled || begun != tt.begun || !errors.Is(err, timer.ErrNoLeader) {
			t.Errorf("%s: %d cancelled, %v", name, cancelled, err)
		}
		if tt.begun {
			n.must(200, "DELETE", "/v1/topics/"+name+"?force=true", "")
		}
	}
}

// TestTopicMadeMeanwhile: a topic that somebody else makes at the very moment of a create keeps its
// policy, and the create is refused.
func TestTopicMadeMeanwhile(t *testing.T) {
	n := start(t, t.TempDir())
	core := n.node.run.Load().core.Load()
	topics := route.NewTopics(core.router, core.member.State.Topics, slippingMeta{core.member, func() {
		n.must(201, "PUT", "/v1/topics/both", `{"history":"9h"}`)
	}})
	p := timer.DefaultPolicy()
	for range 2 {
		if _, _, err := topics.Put(t.Context(), "both", &p, timer.TopicChange{New: true}); !errors.Is(err, timer.ErrTopicVersion) {
			t.Errorf("it is %v", err)
		}
	}
	if got := n.must(200, "GET", "/v1/topics/both", ""); !strings.Contains(got, `"history":"9h"`) {
		t.Error(got)
	}
}

// TestRedriveNeedsURL: a dead letter that has no URL of its own is not redriven in a topic that has
// none by now, and the answer has the reason. With a URL in the redrive, or in the topic again, it
// is.
func TestRedriveNeedsURL(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(410) })
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	uids := map[string]string{}
	for id, callback := range map[string]string{"a": "", "b": "", "own": fmt.Sprintf(`,"callback":{"url":%q}`, rec.URL)} {
		n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"`+id+`","delay":"0s"`+callback+`}`)
		uids[id], _ = n.eventually("orders", id, "dead")["uid"].(string)
	}
	n.must(200, "PUT", "/v1/topics/orders", `{}`)
	redrive := func(query, body string, wants ...string) {
		t.Helper()
		got := n.must(200, "POST", "/v1/topics/orders/dead/redrive"+query, body)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s %s: %s, want %s", query, body, got, want)
			}
		}
	}
	why := func(id string) string {
		return `{"id":"` + id + `","uid":"` + uids[id] + `","code":"no_callback","detail":"neither it nor its topic has a callback URL"}`
	}
	const dry = "?dry_run=true"
	redrive(dry, `{"all":true}`, `"changed":1,"skipped":2`, why("a"), why("b"))
	redrive(dry, `{"ids":["a","own","none"]}`, `"changed":1,"skipped":2`, why("a"), `{"id":"none","code":"not_found"`)
	redrive(dry, `{"uids":["`+uids["a"]+`","`+uids["own"]+`"]}`, `"changed":1,"skipped":1`, why("a"))
	redrive("", `{"ids":["a","none"]}`, `"matched":2,"changed":0,"skipped":2`, `{"id":"a","code":"no_callback"`, `{"id":"none","code":"not_found"`)
	redrive("", `{"uids":["`+uids["b"]+`"]}`, `"matched":1,"changed":0,"skipped":1`, why("b"))
	redrive("", `{"filter":{"reason":"stopped"},"delay":"1h"}`, `"matched":3,"changed":1,"skipped":2`, why("a"), why("b"))
	redrive("", `{"ids":["a"],"callback":{"headers":{"X":"1"}}}`, `"changed":0,"skipped":1`)
	n.must(200, "POST", "/v1/topics/orders/dead/purge"+dry, `{"ids":["a","b"]}`)
	redrive("", fmt.Sprintf(`{"ids":["a"],"delay":"1h","callback":{"url":%q}}`, rec.URL), `"changed":1,"skipped":0}`)
	n.must(200, "PUT", "/v1/topics/orders", `{"delivery":"pull"}`)
	redrive(dry, `{"all":true}`, `"changed":1,"skipped":0`)
	n.must(200, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	redrive("", `{"ids":["b"],"delay":"1h"}`, `"changed":1,"skipped":0}`)
}

// TestTopicVersionThroughAnyNode: whichever node is asked, a change for an older version of a topic
// is refused as that, and so is one that takes away what is needed.
func TestTopicVersionThroughAnyNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/orders", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	nodes[0].must(201, "POST", "/v1/topics/orders/timers", `{"id":"a","delay":"1h"}`)
	version := func(n *running) string {
		_, rest, _ := strings.Cut(n.must(200, "GET", "/v1/topics/orders", ""), `"version":`)
		return strings.TrimSuffix(rest, "}")
	}
	old := version(nodes[0])
	for i, n := range nodes {
		n.must(200, "PATCH", "/v1/topics/orders", fmt.Sprintf(`{"history":"%dh"}`, 1+i))
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			req, err := http.NewRequestWithContext(t.Context(), method, n.base+"/v1/topics/orders", strings.NewReader(`{"history":"9h"}`))
			testkit.Must(t, err)
			if method == "DELETE" {
				req.Body, req.ContentLength = http.NoBody, 0
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("If-Match", old)
			res, err := http.DefaultClient.Do(req)
			testkit.Must(t, err)
			_ = res.Body.Close()
			if res.StatusCode != 412 {
				t.Errorf("%s at %d: %d", method, i, res.StatusCode)
			}
		}
		if got := n.must(409, "PUT", "/v1/topics/orders", `{}`); !strings.Contains(got, "1 pending timer ") {
			t.Error(got)
		}
		n.must(404, "POST", "/v1/topics/none/pull", `{}`)
	}
}

// TestPatchesAtOnce: of changes of different fields that come at once none is lost.
func TestPatchesAtOnce(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/orders", `{}`)
	fields := []string{`"serial":true`, `"key":"all"`, `"concurrency":3`, `"history":"9h"`}
	answers := make(chan int, len(fields))
	for _, field := range fields {
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), "PATCH", n.base+"/v1/topics/orders", strings.NewReader("{"+field+"}"))
			if err != nil {
				answers <- 0
				return
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			_ = res.Body.Close()
			answers <- res.StatusCode
		}()
	}
	for range fields {
		if status := <-answers; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	topic := n.must(200, "GET", "/v1/topics/orders", "")
	for _, field := range fields {
		if !strings.Contains(topic, field) {
			t.Errorf("%s is lost: %s", field, topic)
		}
	}
}
