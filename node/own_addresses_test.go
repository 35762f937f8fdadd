package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
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

// TestNoCallbackToTheCluster: neither node of two lets a callback go to any port of the other one,
// be it given by address or by name.
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
			testkit.Must(t, err)
			id := "/v1/topics/own/timers/by-name-" + port
			n.must(201, "PUT", id, `{"delay":"0s","callback":{"url":"http://localhost:`+port+`/"},"retry":{"max_attempts":1}}`)
			var timer struct {
				State     string `json:"state"`
				LastError string `json:"last_error"`
			}
			until(t, "its call is refused", func() bool {
				testkit.Must(t, json.Unmarshal([]byte(n.must(200, "GET", id, "")), &timer))
				return timer.State == "dead"
			})
			if !strings.Contains(timer.LastError, "the cluster's own") {
				t.Errorf("localhost:%s: %+v", port, timer)
			}
		}
	}
}

// TestWhereCallbacksGo: private receivers are for a first try, on a node that only its own machine
// reaches and that asks for no tokens.
func TestWhereCallbacksGo(t *testing.T) {
	local, open := netip.MustParseAddrPort("127.0.0.1:7700"), netip.MustParseAddrPort("[::]:7700")
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f := func(cfg Config, api netip.AddrPort, words string, may map[string]bool) {
		t.Helper()
		p := cfg.where([]netip.AddrPort{api})
		if got := allowedText(p); !strings.HasPrefix(got, words) {
			t.Errorf("%+v: %s", cfg, got)
		}
		for host, want := range may {
			if err := p.CheckURLHost(host); (err == nil) != want {
				t.Errorf("%+v on %s: %s: %v", cfg, api, host, err)
			}
		}
	}
	f(Config{}, local, "public, private and loopback", map[string]bool{"8.8.8.8": true, "127.0.0.1": true, "10.0.0.1": true, "169.254.169.254": false})
	f(Config{Credentials: Credentials{AuthFile: "tokens.yaml"}}, local, "public addresses alone", map[string]bool{"8.8.8.8": true, "127.0.0.1": false, "10.0.0.1": false, "localhost": false, "localhost:8080": false})
	f(Config{Credentials: Credentials{AuthFile: "tokens.yaml"}, CallbackAllow: ten}, local, "public addresses, and by --callback-allow 10.0.0.0/8", map[string]bool{"8.8.8.8": true, "127.0.0.1": false, "10.0.0.1": true})
	f(Config{Credentials: Credentials{Insecure: true}}, open, "public addresses alone", map[string]bool{"8.8.8.8": true, "127.0.0.1": false, "shop.localhost": false, "shop:8080": true})
}

// TestOwnPortsAreKnownAtTheStart: those of the node and those that its process has beside, before
// anything is known of a cluster.
func TestOwnPortsAreKnownAtTheStart(t *testing.T) {
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer admin.Close()
	own, api := netip.MustParseAddrPort(admin.Addr().String()), netip.MustParseAddrPort("127.0.0.1:7700")
	cfg := Config{Own: []netip.AddrPort{own}, Peer: "127.0.0.1:7701", Gossip: "127.0.0.1:7702"}
	p := cfg.where([]netip.AddrPort{api})
	for _, host := range []string{own.String(), api.String(), "127.0.0.1:7701", "127.0.0.1:7702"} {
		if err := p.CheckURLHost(host); err == nil {
			t.Errorf("%s may be called before the node has begun", host)
		}
	}
	n := start(t, t.TempDir(), func(c *Config) { c.Own, c.Peer, c.Gossip = cfg.Own, "127.0.0.1:0", "127.0.0.1:0" })
	run := n.node.run.Load()
	for name, address := range map[string]string{
		"admin": admin.Addr().String(), "http": run.http.Addr().String(), "peer": run.peer.Addr().String(), "gossip": run.members.Addr(),
	} {
		if body := n.must(422, "POST", "/v1/topics/own/timers", `{"delay":"1h","callback":{"url":"http://`+address+`/"}}`); !strings.Contains(body, "the cluster's own") {
			t.Errorf("%s: %s", name, body)
		}
		_, port, err := net.SplitHostPort(address)
		testkit.Must(t, err)
		n.must(201, "PUT", "/v1/topics/own/timers/"+name, `{"delay":"0s","callback":{"url":"http://localhost:`+port+`/"},"retry":{"max_attempts":1}}`)
		if v := n.eventually("own", name, "dead"); !strings.Contains(fmt.Sprint(v["last_error"]), "the cluster's own") {
			t.Errorf("%s: %v", name, v["last_error"])
		}
	}
}

func TestBoundTo(t *testing.T) {
	f := func(bind, actual, want string) {
		t.Helper()
		got, ok := boundTo(bind, actual)
		if text := fmt.Sprint(got, ok); text != want {
			t.Errorf("%q, %q: %s, want %s", bind, actual, text, want)
		}
	}
	f("127.0.0.1:7702", "", "127.0.0.1:7702 true")
	f("127.0.0.1:0", "10.0.0.1:4711", "127.0.0.1:4711 true")
	f(":7702", "", "0.0.0.0:7702 true")
	f("localhost:7702", "", "0.0.0.0:7702 true")
	f("[::1]:0", "[::1]:9", "[::1]:9 true")
	f("127.0.0.1:0", "", "invalid AddrPort false")
	f("nonsense", "", "invalid AddrPort false")
}
