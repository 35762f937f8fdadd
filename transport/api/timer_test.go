package api

import (
	"testing"
)

func TestAddReadPatchCancel(t *testing.T) {
	h := newHarness(t)
	r := h.do("POST", "/v1/topics/orders/timers", `{"id":"a","delay":"30m","payload": {"order" : 77} ,`+cb+`}`).want(201)
	r.has("topic", `"orders"`, "id", `"a"`, "version", "1", "state", `"scheduled"`, "due", `"2026-06-01T12:30:00.001Z"`,
		"due_ms", "1780317000001", "content_type", `"application/json"`, "priority", "0", "attempts", "0", "max_attempts", "16",
		"callback.url", `"http://127.0.0.1:9/hook"`, "labels", "", "key", "", "last_error", "", "fired", "", "lateness_ms", "",
		"next_attempt_ms", "1780317000001", "created_ms", "1780315200000", "reason", "", "expires_after", "")
	if got := r.header.Get("ETag"); got != `"1"` {
		t.Fatalf("ETag %s", got)
	}
	r = h.do("GET", "/v1/topics/orders/timers/a", "").want(200)
	if want := `"payload":{"order" : 77},`; !contains(r.body, want) {
		t.Fatalf("payload not as sent: %s", r.body)
	}
	head := h.do("HEAD", "/v1/topics/orders/timers/a", "").want(200)
	if head.body != "" || head.header.Get("ETag") != `"1"` {
		t.Fatalf("HEAD: %q %v", head.body, head.header)
	}
	h.do("PATCH", "/v1/topics/orders/timers/a", `{"priority":9,"at_ms":1780317000500}`, `If-Match: "1"`).want(200).
		has("version", "2", "priority", "9", "due_ms", "1780317000500", "payload.order", "77")
	h.do("PATCH", "/v1/topics/orders/timers/a", `{"priority":1}`, `If-Match: "1"`).problem(412, "version_mismatch")
	h.do("DELETE", "/v1/topics/orders/timers/a", "").want(200).has("outcome", `"prevented"`)
	h.do("DELETE", "/v1/topics/orders/timers/a", "").want(200).has("outcome", `"prevented"`)
	h.do("PATCH", "/v1/topics/orders/timers/a", `{"priority":1}`).problem(410, "over")
	h.do("GET", "/v1/topics/orders/timers/a", "").want(200).has("state", `"cancelled"`)
}
