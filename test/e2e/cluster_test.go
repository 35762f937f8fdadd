package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/test/freeport"
)

const (
	clusterShards = 16

	// formLimit is far more than forming or healing a cluster should take, because the machine may
	// be busy.
	formLimit = 45 * time.Second

	lookEvery = 100 * time.Millisecond // between views of a cluster: each costs the nodes work

	// memberTimeout is the request timeout of a cluster's clients, which then try another node.
	memberTimeout = 3 * time.Second
)

// member is one node of a cluster under test. A restart does not change its name, addresses and
// directory.
type member struct {
	name               string
	dir                string
	http, peer, gossip string // addresses
	wrapper            []string
	binary             string // "": the binary under test
	env                []string
	arrange            func(*exec.Cmd) // nil: nothing more
	client             *client         // sends its requests to this node only
	of                 *cluster        // since its first start
	running            atomic.Pointer[process]
}

// cluster is a set of `carillon serve` processes and their flags.
type cluster struct {
	flags   []string      // of every node
	keyless bool          // no --gossip-key: nodes do not authenticate each other
	calls   time.Duration // timeout of calls in a load; 0: callTimeout
	shards  int           // 0: clusterShards
	rate    int           // adds a second in a load; 0: 200
	probed  int           // shards that a load probes; 0: all

	key string // file of the cluster's key, written at the first start

	mu      sync.Mutex
	members []*member // in the order of their start, including removed ones
}

// loopbackMembers returns n nodes at free loopback addresses, named na, nb and so on.
func loopbackMembers(t testing.TB, n int) []*member {
	t.Helper()
	root := t.TempDir()
	var list []*member
	for i := range n {
		m := &member{name: "n" + string(rune('a'+i)), http: freeport.Address(t), peer: freeport.Address(t), gossip: freeport.Address(t)}
		list = append(list, m.settle(t, filepath.Join(root, m.name)))
	}
	return list
}

// settle sets a member's directory and client.
func (m *member) settle(t testing.TB, dir string) *member {
	m.dir = dir
	m.client = clientAt("http://"+m.http, memberTimeout)
	t.Cleanup(m.client.http.CloseIdleConnections)
	return m
}

// newCluster bootstraps a cluster of n nodes on loopback and waits until it is healthy.
func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	return found(t, loopbackMembers(t, n))
}

// found bootstraps a cluster of these members and waits until it is healthy.
func found(t testing.TB, members []*member, flags ...string) *cluster {
	t.Helper()
	return foundWith(t, 3, members, flags...)
}

// foundWith is found with another number of replicas.
func foundWith(t testing.TB, replicas int, members []*member, flags ...string) *cluster {
	t.Helper()
	return foundOf(t, clusterShards, replicas, members, flags...)
}

// foundOf is found with other numbers of shards and replicas.
func foundOf(t testing.TB, shards, replicas int, members []*member, flags ...string) *cluster {
	t.Helper()
	needCluster(t)
	c := &cluster{flags: flags, members: members, shards: shards}
	founding := []string{"--shards", fmt.Sprint(shards), "--replicas", fmt.Sprint(replicas)}
	if len(members) > 1 { // a single node without peers bootstraps at once
		founding = append(founding, "--bootstrap-expect", fmt.Sprint(len(members)))
	}
	for _, m := range members {
		c.start(t, m, founding...)
	}
	c.awaitHealthy(t)
	return c
}

// start starts a member's process and does not wait until it is ready.
func (c *cluster) start(t testing.TB, m *member, flags ...string) {
	t.Helper()
	args := append(slices.Clone(m.wrapper), cmp.Or(m.binary, binary), "serve", "--data", m.dir, "--name", m.name,
		"--http", m.http, "--peer", m.peer, "--gossip", m.gossip)
	if len(c.all()) > 1 {
		args = append(args, "--join", c.gossipAddresses())
	}
	if !c.keyless {
		args = append(args, "--gossip-key", c.keyFile(t))
	}
	args = append(append(args, c.flags...), flags...)
	m.of = c
	m.running.Store(beginIn(t, m.arrange, args, m.env...))
}

// shardCount is how many shards the cluster should have.
func (c *cluster) shardCount() int { return cmp.Or(c.shards, clusterShards) }

// keyFile returns the file of the cluster's key.
func (c *cluster) keyFile(t testing.TB) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == "" {
		c.key = filepath.Join(t.TempDir(), "cluster.key")
		writeFile(t, c.key, strings.Repeat("5a", 32)+"\n")
	}
	return c.key
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// all returns the members, including those that are down.
func (c *cluster) all() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

// process is the member's latest process, nil before the first.
func (m *member) process() *process { return m.running.Load() }

func (m *member) alive() bool {
	p := m.process()
	return p != nil && p.alive()
}

func (c *cluster) gossipAddresses() string {
	var list []string
	for _, m := range c.all() {
		list = append(list, m.gossip)
	}
	return strings.Join(list, ",")
}

// join adds a new node to the running cluster and waits until the cluster is healthy with it.
func (c *cluster) join(t testing.TB, m *member) {
	t.Helper()
	c.joinWithin(t, m, formLimit)
}

// joinWithin is join with a limit, for a cluster whose data takes longer to copy.
func (c *cluster) joinWithin(t testing.TB, m *member, limit time.Duration) {
	t.Helper()
	c.mu.Lock()
	c.members = append(c.members, m)
	c.mu.Unlock()
	c.start(t, m)
	c.awaitHealthyWithin(t, limit)
}

// running returns the members whose process has not exited.
func (c *cluster) running() (list []*member) {
	for _, m := range c.all() {
		if m.alive() {
			list = append(list, m)
		}
	}
	return list
}

// awaitHealthy waits until every running member is ready and sees a healthy cluster in which every
// running member is alive and every shard has a leader.
func (c *cluster) awaitHealthy(t testing.TB) {
	t.Helper()
	c.awaitHealthyWithin(t, formLimit)
}

func (c *cluster) awaitHealthyWithin(t testing.TB, limit time.Duration) {
	t.Helper()
	var why string
	if !holdsWithinBy(lookEvery, limit, func() bool { why = c.ails(); return why == "" }) {
		t.Fatalf("the cluster is not healthy within %v: %s", limit, why)
	}
}

// ails returns the first thing that is not healthy, "" if everything is.
func (c *cluster) ails() string {
	members := c.running()
	for _, m := range members {
		if a := m.client.do("GET", "/readyz", ""); a.status != 200 {
			return fmt.Sprintf("%s is not ready: %d %s %v", m.name, a.status, a.body, a.err)
		}
		v, err := m.view()
		if err != nil {
			return err.Error()
		}
		if why := v.ails(members); why != "" {
			return m.name + " sees: " + why
		}
	}
	return ""
}

// busiest returns the running member that leads most shards.
func (c *cluster) busiest(t testing.TB) *member {
	t.Helper()
	v := c.view(t)
	return slices.MaxFunc(c.running(), func(a, b *member) int { return len(v.ledBy(a.name)) - len(v.ledBy(b.name)) })
}

// view returns the first running member's view of the cluster that can be had.
func (c *cluster) view(t testing.TB) view {
	t.Helper()
	var faults []string
	for _, m := range c.running() {
		v, err := m.view()
		if err == nil {
			return v
		}
		faults = append(faults, err.Error())
	}
	t.Fatalf("nobody tells how the cluster is: %v", faults)
	return view{}
}

// anyone returns a client that sends its requests to all members in turn.
func (c *cluster) anyone() *roundRobin { return &roundRobin{cluster: c} }

// inBatches plays a long run in batches of rounds, each with its own load and check. The check
// reads finished timers, and those are kept for a limited time.
func inBatches(rounds int, play func(rounds int)) {
	const batch = 20
	for ; rounds > 0; rounds -= batch {
		play(min(rounds, batch))
	}
}

// needTime skips a test without CARILLON_E2E_LONG: make ci has twelve minutes for all tests.
func needTime(t testing.TB) {
	t.Helper()
	if os.Getenv("CARILLON_E2E_LONG") == "" {
		t.Skip("only with CARILLON_E2E_LONG=1, as in make chaos")
	}
}

// needCluster skips a test in -short runs.
func needCluster(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("clusters are left out by -short")
	}
}
