package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

type destinationList struct {
	Destinations []struct {
		Destination string
		State       string
		Since       int64 `json:"since_ms"`
		Waiting     int
		LastError   string `json:"last_error"`
		Probe       int64  `json:"next_probe_ms"`
		Nodes       []string
	}
	Missing []string
}

func (r *running) destinations() (list destinationList) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.must(200, "GET", "/v1/destinations", "")), &list); err != nil {
		r.t.Fatal(err)
	}
	return list
}

func TestDestinationWithOpenBreaker(t *testing.T) {
	n := start(t, t.TempDir(), func(c *Config) { c.Name = "n1" })
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(500) })
	n.must(201, "PUT", "/v1/topics/sick", fmt.Sprintf(`{"callback":{"url":"%s/hook"},"breaker":{"failures":1,"open":"10m"}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/sick/timers", `{"id":"first","delay":"0s","retry":{"min_backoff":"1h"}}`)
	n.eventuallyAttempted("sick", "first")
	for i := range 3 {
		n.must(201, "POST", "/v1/topics/sick/timers", fmt.Sprintf(`{"id":"next%d","delay":"0s"}`, i))
	}
	until(t, "three timers wait for it", func() bool {
		list := n.destinations().Destinations
		return len(list) == 1 && list[0].Waiting == 3
	})
	d := n.destinations().Destinations[0]
	if d.Destination != rec.URL || d.State != "open" || d.Since == 0 || d.LastError != "status 500" || d.Probe <= d.Since || fmt.Sprint(d.Nodes) != "[n1]" {
		t.Errorf("%+v", d)
	}
}

// eventuallyAttempted waits until a timer has been attempted and goes on.
func (r *running) eventuallyAttempted(topic, id string) {
	r.t.Helper()
	until(r.t, id+" was attempted", func() bool { v := r.timer(topic, id); return v["attempts"] == 1.0 && v["state"] == "scheduled" })
}

// TestDestinationsOfAllNodes: any node tells of the receivers that the others call.
func TestDestinationsOfAllNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(500) })
	nodes[0].must(201, "PUT", "/v1/topics/sick", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":1,"open":"10m"}}`, rec.URL))
	nodes[0].must(201, "POST", "/v1/topics/sick/timers", `{"id":"first","delay":"0s","retry":{"min_backoff":"1h"}}`)
	for _, n := range nodes { // two of them, at least, have not called it
		until(t, "the breaker of the node that called it shows", func() bool {
			list := n.destinations()
			return len(list.Missing) == 0 && len(list.Destinations) == 1 && list.Destinations[0].State == "open" && len(list.Destinations[0].Nodes) == 1
		})
	}
}
