package node

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestListeners(t *testing.T) {
	f := func(want string, gossip string, others ...string) {
		t.Helper()
		got := map[netip.AddrPort]bool{}
		listeners(got, gossip, others...)
		var texts []string
		for a := range maps.Keys(got) {
			texts = append(texts, a.String())
		}
		slices.Sort(texts)
		if list := strings.Join(texts, " "); list != want {
			t.Errorf("%s %v: %s, want %s", gossip, others, list, want)
		}
	}
	f("10.0.0.1:7700 10.0.0.1:7702 10.0.0.9:7701", "10.0.0.1:7702", "10.0.0.1:7700", "10.0.0.9:7701")
	f("10.0.0.1:7700 10.0.0.1:7701 10.0.0.1:7702", "[::ffff:10.0.0.1]:7702", "host.example:7700", "[::]:7701")
	f("127.0.0.1:7700", "", "127.0.0.1:7700", "host.example:7701", "nonsense", "127.0.0.1:http")
	f("[fd00::1]:1 [fd00::1]:2", "[fd00::1]:1", "0.0.0.0:2")
}

// TestNoCallbackToTheCluster: neither node of two lets a callback go to any port of the other one, be it given by address or by name.
func TestNoCallbackToTheCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := several(t, 2)
	for i, n := range nodes {
		other := nodes[1-i].node.run.Load()
		for _, address := range []string{other.http.Addr().String(), other.peer.Addr().String(), other.members.Addr()} {
			body := n.must(422, "POST", "/v1/topics/own/timers", `{"delay":"1h","callback":{"url":"http://`+address+`/"}}`)
			if !strings.Contains(body, "callback_refused") {
				t.Errorf("%s: %s", address, body)
			}
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			id := "/v1/topics/own/timers/by-name-" + port
			n.must(201, "PUT", id, `{"delay":"0s","callback":{"url":"http://localhost:`+port+`/"},"retry":{"max_attempts":1}}`)
			var timer struct {
				State     string `json:"state"`
				LastError string `json:"last_error"`
			}
			for deadline := time.Now().Add(20 * time.Second); timer.State != "dead"; <-time.After(20 * time.Millisecond) {
				if err := json.Unmarshal([]byte(n.must(200, "GET", id, "")), &timer); err != nil || time.Now().After(deadline) {
					t.Fatalf("%+v %v", timer, err)
				}
			}
			if !strings.Contains(timer.LastError, "the cluster's own") {
				t.Errorf("localhost:%s: %+v", port, timer)
			}
		}
	}
}
