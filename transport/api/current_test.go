package api

import (
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

// TestUnknownTopicOfANodeThatIsBehind: a node that has just started and does not know a topic
// cannot say that there is none.
func TestUnknownTopicOfANodeThatIsBehind(t *testing.T) {
	h := newHarness(t)
	h.engine.behind = timer.ErrRecovering
	for _, path := range []string{"/v1/topics/none", "/v1/topics/none/timers/a", "/v1/topics/none/timers"} {
		h.do("GET", path, "").problem(503, web.Unavailable)
	}
	h.do("DELETE", "/v1/topics/none/timers/a", "").problem(503, web.Unavailable)
	h.engine.behind = nil
	h.do("GET", "/v1/topics/none/timers/a", "").problem(404, web.UnknownTopic)
}
