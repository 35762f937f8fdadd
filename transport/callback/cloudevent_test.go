package callback

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestCloudEvent: a call of a topic with that format carries the attributes of its event, the same
// at each attempt, and all that a plain call has. A ce- header of the callback's own goes first.
func TestCloudEvent(t *testing.T) {
	got := make(chan http.Header, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		for {
			req, _, err := readRequest(in)
			if err != nil {
				return
			}
			got <- req.Header
			_, _ = io.WriteString(c, answer200)
		}
	})
	p := startPool(t, Config{Policy: local})
	headers := func(req *Request) http.Header {
		t.Helper()
		if out := callOnce(t, p, req); out.Err != "" {
			t.Fatalf("%+v", out)
		}
		return <-got
	}
	req := post(r.url)
	req.Timer, req.DueMs = "{order-77}close:a@b", 1_700_000_000_007
	for name := range headers(req) {
		if strings.HasPrefix(strings.ToLower(name), "ce-") {
			t.Errorf("a plain call has %s", name)
		}
	}
	req.CloudEvent = true
	want := map[string]string{
		"ce-specversion": "1.0", "ce-id": req.WebhookID, "ce-source": "/v1/topics/orders", "ce-type": "carillon.timer.due",
		"ce-subject": "{order-77}close:a@b", "ce-time": "2023-11-14T22:13:20.007Z", "Content-Type": req.ContentType, "Carillon-Timer": req.Timer,
	}
	check := func(attempt int) {
		t.Helper()
		req.Attempt, req.Fence = attempt, req.Fence+1
		h := headers(req)
		for name, value := range want {
			if list := h.Values(name); len(list) != 1 || list[0] != value {
				t.Errorf("attempt %d: %s: %q, want %q", attempt, name, list, value)
			}
		}
	}
	check(1)
	check(2)
	req.Headers = []Header{{"Ce-Type", "com.shop.close"}, {"ce-tenant", "7"}}
	want["ce-type"], want["ce-tenant"] = "com.shop.close", "7"
	check(3)
	req.Method = "DELETE" // an event without data
	delete(want, "Content-Type")
	check(4)
}
