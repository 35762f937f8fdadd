package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestClusterCutOffNodeDoesNotGuess: topics and timers are created while a node is cut off. For
// them the node answers 503 to reads and changes, and never that they do not exist. After the
// partition heals it has them.
func TestClusterCutOffNodeDoesNotGuess(t *testing.T) {
	t.Parallel()
	needCluster(t)
	w := newNetwork(t, 3)
	c := found(t, w.members(t), "--insecure-no-auth", "--callback-allow", testNets+",127.0.0.0/8", "--no-auto-create-topics")
	const host = 2
	lonely, other := c.all()[host], c.all()[0]
	w.isolate(t, host, peerNet, gossipNet)
	cut := time.Now()
	made := func(method, path, body string) {
		t.Helper()
		var a answer
		if !holdsWithin(2*takeoverLimit, func() bool {
			a = other.client.do(method, path, body)
			return a.status/100 == 2
		}) {
			t.Fatalf("%s %s at a node of the majority: %d %s", method, path, a.status, a.body)
		}
	}
	made("PUT", "/v1/topics/meanwhile", `{"callback":{"url":"http://127.0.0.1:9/"}}`)
	timer := timerPath("meanwhile", "a")
	made("PUT", timer, farTimer("a", time.Now()))
	// Meanwhile its leases end and its news of the peers goes stale.
	for _, at := range []time.Duration{0, 2 * time.Second, 7 * time.Second} {
		wait(time.Until(cut.Add(at)))
		checkSaysNothing(t, lonely, time.Since(cut), [][3]string{
			{"GET", "/v1/topics/meanwhile", ""}, {"GET", timer, ""}, {"PATCH", timer, `{"delay":"5h"}`}, {"DELETE", timer, ""},
			{"POST", "/v1/topics/meanwhile/timers", `{"delay":"5h"}`}, {"PUT", timerPath("meanwhile", "b"), `{"delay":"5h"}`},
			{"GET", "/v1/topics/meanwhile/timers", ""}, {"POST", "/v1/topics/meanwhile/cancel", `{"all":true}`},
			{"POST", "/v1/topics/meanwhile/pause", ""}, {"DELETE", "/v1/topics/meanwhile", ""}, {"GET", "/v1/topics/never", ""},
		})
	}
	w.heal(t)
	if !holdsWithin(healLimit, func() bool { return lonely.client.do("GET", timer, "").status == http.StatusOK }) {
		t.Errorf("%v after healing: %+v", healLimit, lonely.client.do("GET", timer, ""))
	}
	if a := lonely.client.do("GET", "/v1/topics/never", ""); a.status != http.StatusNotFound {
		t.Errorf("a topic that there never was: %d %s", a.status, a.body)
	}
}

// checkSaysNothing checks that a node that is cut off answers 503 with Retry-After, promptly.
func checkSaysNothing(t *testing.T, m *member, at time.Duration, requests [][3]string) {
	t.Helper()
	var asking sync.WaitGroup
	for _, r := range requests {
		asking.Go(func() {
			a := m.client.do(r[0], r[1], r[2])
			if took := a.answered.Sub(a.sent); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || took > refusalLimit+refusalSlack {
				t.Errorf("cut off for %v, %s answers %s %s with %d (Retry-After %q) after %v: %s %v", at.Round(time.Second), m.name, r[0], r[1],
					a.status, a.header.Get("Retry-After"), took, a.body, a.err)
			}
		})
	}
	asking.Wait()
}
