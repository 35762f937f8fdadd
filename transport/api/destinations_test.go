package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"carillon/transport/api/backend"
)

func TestDestinations(t *testing.T) {
	h := newHarness(t)
	h.do("GET", "/v1/destinations", "").want(200).has("destinations", "[]")
	for i := range 25 {
		h.engine.destinations = append(h.engine.destinations, backend.Destination{Destination: fmt.Sprintf("http://h%02d:80", i), State: backend.DestinationStates[i%3], Calls: i})
	}
	h.engine.destinations[3] = backend.Destination{
		Destination: "https://sick:443", State: backend.DestinationOpen, SinceMs: noonMs, Waiting: 7, LatencyUs: 1500, LastError: `no "way"`, FailedMs: noonMs - 5, Failures: 12,
		NextProbeMs: noonMs + 5000, Nodes: []string{"n1", "n2"}, Topics: []string{"mail", "orders"}, MoreTopics: true,
	}
	h.engine.missing = []string{"n3"}
	var names []string
	for cursor, pages := "", 0; ; pages++ {
		r := h.do("GET", "/v1/destinations?limit=4"+cursor, "").want(200).json()
		for _, d := range r["destinations"].([]any) {
			names = append(names, fmt.Sprint(d.(map[string]any)["state"], " ", d.(map[string]any)["destination"]))
		}
		next, more := r["next_cursor"].(string)
		if !more {
			if pages != 6 || fmt.Sprint(r["missing"]) != "[n3]" {
				t.Errorf("%d pages, missing %v", pages, r["missing"])
			}
			break
		}
		cursor = "&cursor=" + next
	}
	if len(names) != 25 || names[0] != "open http://h00:80" || !strings.HasPrefix(names[9], "half-open") || !strings.HasPrefix(names[24], "closed") {
		t.Errorf("%d: %v", len(names), names)
	}
	r := h.do("GET", "/v1/destinations?state=open&limit=1000", "").want(200).json()["destinations"].([]any)
	want := map[string]any{
		"destination": "https://sick:443", "state": "open", "since": "2026-06-01T12:00:00.001Z", "since_ms": float64(noonMs), "calls": 0.0, "waiting": 7.0,
		"latency_ms": 1.5, "last_error": `no "way"`, "failed": "2026-06-01T11:59:59.996Z", "failed_ms": float64(noonMs - 5), "failures": 12.0,
		"next_probe": "2026-06-01T12:00:05.001Z", "next_probe_ms": float64(noonMs + 5000), "nodes": []any{"n1", "n2"},
		"topics": []any{"mail", "orders"}, "more_topics": true,
	}
	if len(r) != 9 || !reflect.DeepEqual(r[8], want) {
		t.Errorf("%d: %v\nwant %v", len(r), r[len(r)-1], want)
	}
	next := h.do("GET", "/v1/destinations?limit=1", "").want(200).json()["next_cursor"].(string)
	for _, query := range []string{"state=sick", "state=open,", "state=", "limit=0", "cursor=x", "state=open&cursor=" + next, "topic=a"} {
		if r := h.do("GET", "/v1/destinations?"+query, ""); r.status != 400 {
			t.Errorf("%s: %d", query, r.status)
		}
	}
}

// The rows of several nodes for one destination are one row: of those that are worst off, since
// when the first is and when the next is probed.
func TestMergeDestinations(t *testing.T) {
	got := backend.MergeDestinations(
		[]backend.Destination{{Destination: "a", State: backend.DestinationClosed, Calls: 1, Failures: 2, LatencyUs: 9, FailedMs: 50, LastError: "late", Topics: []string{"z", "a"}}, {Destination: "b", State: backend.DestinationOpen, SinceMs: 7, NextProbeMs: 90, Nodes: []string{"n2"}}},
		nil,
		[]backend.Destination{{Destination: "b", State: backend.DestinationOpen, SinceMs: 5, NextProbeMs: 95, Waiting: 3, Nodes: []string{"n1"}, Topics: []string{"8", "7", "6", "5", "4"}}, {Destination: "a", State: backend.DestinationHalfOpen, Calls: 2, Failures: 3, LatencyUs: 4, FailedMs: 40, LastError: "early", Nodes: []string{"n1"}, Topics: []string{"a", "b"}}},
		[]backend.Destination{{Destination: "b", State: backend.DestinationClosed, SinceMs: 1, Waiting: 1, Topics: []string{"9", "3", "2", "1"}}},
	)
	want := []backend.Destination{
		{Destination: "b", State: backend.DestinationOpen, SinceMs: 5, NextProbeMs: 90, Waiting: 4, Nodes: []string{"n1", "n2"}, Topics: []string{"1", "2", "3", "4", "5", "6", "7", "8"}, MoreTopics: true},
		{Destination: "a", State: backend.DestinationHalfOpen, Calls: 3, Failures: 5, LatencyUs: 9, FailedMs: 50, LastError: "late", Nodes: []string{"n1"}, Topics: []string{"a", "b", "z"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
