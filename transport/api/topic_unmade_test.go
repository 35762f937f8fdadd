package api

import (
	"context"
	"fmt"
	"testing"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// TestRefusedAddMakesNoTopic: an add or a put that is refused leaves no topic behind, alone or in a
// batch. One that is taken makes its topic without asking first whether it is there.
func TestRefusedAddMakesNoTopic(t *testing.T) {
	h := newHarness(t)
	past := fmt.Sprintf(`"at_ms":%d,"if_late":"reject"`, noonMs-3_600_000)
	checkRefused(t, h, []refused{
		{method: "POST", target: timersPath, body: `{"delay":"1h"}`, status: 422, code: "no_callback"},
		{method: "PUT", target: timersPath + "/a", body: `{"delay":"1h"}`, status: 422, code: "no_callback"},
		{method: "POST", target: timersPath, body: `{"delay":"1h",` + cb + `,"max_wait":"1m"}`, status: 400, code: web.BadRequest},
		{method: "POST", target: timersPath, body: `{"delay":"1h",` + cb + `,"retry":{"min_backoff":"2h"}}`, status: 400, code: web.BadRequest},
		{method: "POST", target: timersPath, body: `{` + past + `,` + cb + `}`, status: 410, code: "over"},
		{method: "PUT", target: timersPath + "/a", body: `{` + past + `,` + cb + `}`, status: 410, code: "over"},
		{method: "PUT", target: timersPath + "/a", body: `{"delay":"1h",` + cb + `}`, headers: []string{`If-Match: "3"`}, status: 412, code: "version_mismatch"},
		{method: "PUT", target: timersPath + "/a", body: `{"delay":"1h","callback":{"url":"http://127.0.0.1:9/","headers":{"X-Token":"REDACTED"}}}`, status: 400, code: web.BadHeader},
	})
	const bare, bad, good = `{"op":"add","id":"b","delay":"1h"}`, `{"op":"put","id":"c","if_match":3,"delay":"1h",` + cb + `}`, `{"op":"add","id":"d","delay":"1h",` + cb + `}`
	before, calls := h.engine.changes(), h.engine.called("FindTopic")
	h.do("POST", batches, `{"ops":[`+bare+`,`+bad+`,{"op":"cancel","id":"x"},`+bare+`]}`).want(200).has("results.0.error.code", `"no_callback"`, "results.1.error.code", `"version_mismatch"`,
		"results.2.error.code", `"unknown_topic"`, "results.3.error.code", `"no_callback"`)
	if h.engine.changes() != before {
		t.Error("refused operations of a batch have made the topic")
	}
	if n := h.engine.called("FindTopic") - calls; n > 2 {
		t.Errorf("the topic was looked for %d times", n)
	}
	calls = h.engine.called("FindTopic")
	h.do("POST", batches, `{"ops":[`+bare+`,`+good+`,`+bad+`]}`).want(200).has("results.0.error.code", `"no_callback"`, "results.1.status", "201", "results.2.error.code", `"version_mismatch"`)
	h.do("POST", "/v1/topics/another/timers", `{"delay":"1h",`+cb+`}`).want(201)
	if n := h.engine.called("FindTopic") - calls; n > 0 {
		t.Errorf("a topic that an add makes was looked for %d times", n)
	}
}

// farTopics has topics that this node's copy lacks.
type farTopics struct{ fakeTopics }

func (farTopics) Here(string) (*timer.Topic, bool) { return nil, false }

func (ft farTopics) Core() (*backend.Core, error) { return ft.with(ft.fakeEngine, ft) }

func (ft farTopics) Ensure(ctx context.Context, name string) (*timer.Topic, error) {
	if t, ok := ft.fakeTopics.Here(name); ok {
		return t, nil
	}
	return ft.fakeTopics.Ensure(ctx, name)
}

// TestAddToTopicOfOthers: what a new topic would refuse is taken by one that others have made and
// this node does not know of yet.
func TestAddToTopicOfOthers(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Engine = farTopics{topicsOf(c.Engine.(*fakeEngine))} })
	h.do("PUT", orders, `{`+cb+`}`).want(201)
	h.do("POST", timersPath, `{"delay":"1h"}`).want(201)
	h.do("POST", batches, `{"ops":[{"op":"add","delay":"1h"},{"op":"put","id":"p","delay":"1h"}]}`).want(200).has("results.0.status", "201", "results.1.status", "201")
}

// goneTopics has topics that this node's copy shows as being deleted, and that are gone.
type goneTopics struct{ fakeTopics }

func (g goneTopics) Here(name string) (*timer.Topic, bool) {
	return &timer.Topic{ID: 1, Name: name, Policy: timer.DefaultPolicy(), Closing: true}, true
}

func (g goneTopics) Named(context.Context, string) (*timer.Topic, error) {
	return nil, timer.ErrNoTopic
}

func (g goneTopics) Core() (*backend.Core, error) { return g.with(g.fakeEngine, g) }

// TestDeletedTopicIsUnknown: a topic that this node's copy shows as being deleted may be gone.
// Reads and changes of its timers do not take it for one that has none.
func TestDeletedTopicIsUnknown(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Engine = goneTopics{topicsOf(c.Engine.(*fakeEngine))} })
	const topic = "/v1/topics/orders"
	for _, read := range []string{"", "/timers", "/timers/a", "/history", "/dead"} {
		h.do("GET", topic+read, "").problem(404, web.UnknownTopic)
	}
	h.do("DELETE", topic+"/timers/a", "").problem(404, web.UnknownTopic)
	h.do("POST", topic+"/cancel", `{"all":true}`).problem(404, web.UnknownTopic)
	h.do("POST", topic+"/batch", `{"ops":[{"op":"cancel","id":"a"}]}`).want(200).has("results.0.error.code", `"unknown_topic"`)
	h.do("POST", topic+"/pull", `{}`).problem(404, web.UnknownTopic)
}
