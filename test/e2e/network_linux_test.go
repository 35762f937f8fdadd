package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// network is a bridge of hosts, each of which is a network namespace. A host has one address for
// peers and clients and another for gossip, so that either traffic can be cut alone. To cut the
// traffic from one host to another, the sender is given a wrong link address: its packets are lost
// without an error, like on a broken path. The test itself reaches all hosts at any time.
type network struct {
	bridge     string
	namespaces []string
}

// networks counts the networks, for their names. They share addresses: oneNetwork is held while one
// is up.
var (
	networks   atomic.Int32
	oneNetwork sync.Mutex
)

// The addresses are reserved for tests of network devices (RFC 2544).
const (
	peerNet   = "198.18.77."
	gossipNet = "198.18.78."
	testNets  = "198.18.0.0/15"
	gateway   = "254" // the test's own host part in either net
	nowhere   = "02:00:00:00:00:fe"
)

func hostAddress(net string, host int) string { return fmt.Sprint(net, host+1) }

// newNetwork makes the bridge and n hosts, and removes them when the test ends.
func newNetwork(t testing.TB, n int) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root: partitions are not tried")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip is not installed: partitions are not tried")
	}
	oneNetwork.Lock()
	t.Cleanup(oneNetwork.Unlock)
	id := fmt.Sprintf("crl%d%c", os.Getpid(), 'a'+networks.Add(1)%26)
	if err := ip("link", "add", id, "type", "bridge"); err != nil {
		t.Skipf("bridges are not permitted here: partitions are not tried: %v", err)
	}
	w := &network{bridge: id}
	t.Cleanup(func() { w.remove(t) })
	mustIP(t, "addr", "add", peerNet+gateway+"/24", "dev", id)
	mustIP(t, "addr", "add", gossipNet+gateway+"/24", "dev", id)
	mustIP(t, "link", "set", id, "up")
	for i := range n {
		w.addHost(t, i)
	}
	return w
}

func (w *network) addHost(t testing.TB, i int) {
	t.Helper()
	namespace, port := fmt.Sprintf("%s-%d", w.bridge, i), fmt.Sprintf("%sp%d", w.bridge, i)
	if err := ip("netns", "add", namespace); err != nil {
		t.Skipf("network namespaces are not permitted here: partitions are not tried: %v", err)
	}
	w.namespaces = append(w.namespaces, namespace)
	mustIP(t, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
	mustIP(t, "link", "set", port, "master", w.bridge, "up")
	mustIP(t, "-n", namespace, "addr", "add", hostAddress(peerNet, i)+"/24", "dev", "eth0")
	mustIP(t, "-n", namespace, "addr", "add", hostAddress(gossipNet, i)+"/24", "dev", "eth0")
	mustIP(t, "-n", namespace, "link", "set", "lo", "up")
	mustIP(t, "-n", namespace, "link", "set", "eth0", "up")
}

func (w *network) remove(t testing.TB) {
	for _, namespace := range w.namespaces { // this removes their links, too
		if err := ip("netns", "del", namespace); err != nil {
			t.Error(err)
		}
	}
	if err := ip("link", "del", w.bridge); err != nil {
		t.Error(err)
	}
}

// members returns a node for each host.
func (w *network) members(t testing.TB) []*member {
	t.Helper()
	root := t.TempDir()
	var list []*member
	for i, namespace := range w.namespaces {
		peers := hostAddress(peerNet, i)
		m := &member{name: fmt.Sprintf("h%d", i), http: peers + ":7700", peer: peers + ":7701", gossip: hostAddress(gossipNet, i) + ":7702",
			wrapper: []string{"ip", "netns", "exec", namespace}}
		list = append(list, m.settle(t, filepath.Join(root, m.name)))
	}
	return list
}

// cut drops the packets from one host to another.
func (w *network) cut(t testing.TB, from, to int, nets ...string) {
	t.Helper()
	for _, net := range nets {
		mustIP(t, "-n", w.namespaces[from], "neigh", "replace", hostAddress(net, to), "lladdr", nowhere, "dev", "eth0", "nud", "permanent")
	}
}

// isolate cuts a host off from all others in both directions.
func (w *network) isolate(t testing.TB, host int, nets ...string) {
	t.Helper()
	for other := range w.namespaces {
		if other != host {
			w.cut(t, host, other, nets...)
			w.cut(t, other, host, nets...)
		}
	}
}

// heal removes all cuts.
func (w *network) heal(t testing.TB) {
	t.Helper()
	for _, namespace := range w.namespaces {
		mustIP(t, "-n", namespace, "neigh", "flush", "dev", "eth0", "nud", "permanent")
	}
}

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}

func mustIP(t testing.TB, args ...string) {
	t.Helper()
	if err := ip(args...); err != nil {
		t.Fatal(err)
	}
}

// TestNetwork tests network itself: cut traffic does not pass, other traffic does, and heal
// restores all.
func TestNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	w := newNetwork(t, 2)
	p := launch(t, []string{"ip", "netns", "exec", w.namespaces[1]}, t.TempDir(), "--http", ":7700", "--insecure-no-auth")
	p.awaitReady(t)
	slowest := 200 * time.Millisecond // of what passed
	passes := func(net string, limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		ask := exec.CommandContext(ctx, "ip", "netns", "exec", w.namespaces[0], binary, "ctl", "topics", "--url", "http://"+hostAddress(net, 1)+":7700")
		ask.Env = cleanEnv()
		return ask.Run() == nil
	}
	fromHere := clientAt("http://"+hostAddress(peerNet, 1)+":7700", patience)
	check := func(what string, peer, gossip bool) {
		t.Helper()
		for net, want := range map[string]bool{peerNet: peer, gossipNet: gossip} {
			limit, begun := patience, time.Now()
			if !want {
				limit = 4 * slowest
			}
			if got := passes(net, limit); got != want {
				t.Errorf("%s: traffic of %s passes: %v, want %v", what, net, got, want)
			}
			if want {
				slowest = max(slowest, time.Since(begun))
			}
		}
		if a := fromHere.do("GET", "/healthz", ""); a.status != 200 {
			t.Errorf("%s: the test does not reach the host: %v", what, a.err)
		}
	}
	check("at first", true, true)
	w.isolate(t, 0, gossipNet)
	check("gossip is cut", true, false)
	w.cut(t, 1, 0, peerNet) // answers do not come back
	check("and one way of the peers'", false, false)
	w.heal(t)
	check("healed", true, true)
}
