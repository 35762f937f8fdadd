package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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
		if got := n.must(409, method, "/v1/topics/orders", body); !strings.Contains(got, `"code":"in_use"`) || !strings.Contains(got, words) {
			t.Errorf("%s %s: %s", method, body, got)
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
	refused("PUT", `{}`, "1 pending timers")
	refused("PATCH", `{"key":"all"}`, "3 pending timers would keep ids without the key")
	n.must(200, "POST", "/v1/topics/orders/timers/a/fire", "")
	n.eventually("orders", "a", "done")
	n.must(200, "PUT", "/v1/topics/orders", `{}`) // nobody needs it any more

	// A topic whose timers are pulled needs no URL; one that calls again does.
	n.must(200, "PUT", "/v1/topics/orders", `{"delivery":"pull"}`)
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"c","delay":"1h"}`)
	refused("PATCH", `{"delivery":"push"}`, "1 pending timers")
	n.must(200, "PATCH", "/v1/topics/orders", fmt.Sprintf(`{"delivery":"push","callback":{"url":%q},"secrets":[%q]}`, rec.URL, secret))

	refused("PUT", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL), "1 signing secrets")
	refused("PATCH", `{"secrets":[]}`, "1 signing secrets")
	n.must(200, "PATCH", "/v1/topics/orders?force=true", `{"secrets":[]}`)
	n.must(200, "PUT", "/v1/topics/orders?force=true", `{}`)
	n.must(200, "PATCH", "/v1/topics/orders", `{"history":"1h"}`) // it had no URL before
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
			if err != nil {
				t.Fatal(err)
			}
			if method == "DELETE" {
				req.Body, req.ContentLength = http.NoBody, 0
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("If-Match", old)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != 412 {
				t.Errorf("%s at %d: %d", method, i, res.StatusCode)
			}
		}
		if got := n.must(409, "PUT", "/v1/topics/orders", `{}`); !strings.Contains(got, "1 pending timers") {
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
