package e2e

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	clusterShards = 16

	// formLimit is far above what forming or healing a cluster should take: the machine may be
	// busy.
	formLimit = 45 * time.Second

	lookEvery = 100 * time.Millisecond // at the state of a cluster: looking is work for it

	// memberTimeout is when a client of a cluster gives up on a node and turns to another one.
	memberTimeout = 3 * time.Second
)

// member is one node of a cluster under test. Its name, addresses and directory stay the same from
// run to run.
type member struct {
	name               string
	dir                string
	http, peer, gossip string // addresses
	wrapper            []string
	binary             string // "": the one under test
	env                []string
	client             *client // its requests go to this node
	running            atomic.Pointer[process]
}

// cluster is several processes of `carillon serve` and those who talk to them.
type cluster struct {
	flags   []string      // of every node
	keyless bool          // nodes know each other by nothing
	calls   time.Duration // timeout of calls in a load; callTimeout when 0

	key string // file, by which nodes know each other; made at the first start

	mu      sync.Mutex
	members []*member // in the order of their start; those that were removed stay
}

// loopbackMembers are n nodes at free addresses of this machine, named after the letters of the
// alphabet.
func loopbackMembers(t testing.TB, n int) []*member {
	t.Helper()
	root := t.TempDir()
	var list []*member
	for i := range n {
		m := &member{name: "n" + string(rune('a'+i)), http: freeAddress(t), peer: freeAddress(t), gossip: freeAddress(t)}
		list = append(list, m.settle(t, filepath.Join(root, m.name)))
	}
	return list
}

// settle gives a member its directory and its client.
func (m *member) settle(t testing.TB, dir string) *member {
	m.dir = dir
	m.client = clientAt("http://"+m.http, memberTimeout)
	t.Cleanup(m.client.http.CloseIdleConnections)
	return m
}

// newCluster founds a cluster of n nodes on loopback and waits until it is healthy.
func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	return found(t, loopbackMembers(t, n))
}

// found starts the members as the founders of a cluster and waits until it is healthy.
func found(t testing.TB, members []*member, flags ...string) *cluster {
	t.Helper()
	return foundWith(t, 3, members, flags...)
}

// foundWith is found for another number of replicas.
func foundWith(t testing.TB, replicas int, members []*member, flags ...string) *cluster {
	t.Helper()
	needCluster(t)
	c := &cluster{flags: flags, members: members}
	founding := []string{"--shards", fmt.Sprint(clusterShards), "--replicas", fmt.Sprint(replicas)}
	if len(members) > 1 { // who is alone founds at once, unless it is told of others
		founding = append(founding, "--bootstrap-expect", fmt.Sprint(len(members)))
	}
	for _, m := range members {
		c.start(t, m, founding...)
	}
	c.awaitHealthy(t)
	return c
}

// start runs a member, for the first time or again, and does not wait.
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
	m.running.Store(begin(t, args, m.env...))
}

// keyFile is the cluster's key.
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

// all are the members, those that are down included.
func (c *cluster) all() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

// process is the member's last run.
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

// join adds a new node to the running cluster and waits until it is a healthy part of it.
func (c *cluster) join(t testing.TB, m *member) {
	t.Helper()
	c.joinWithin(t, m, formLimit)
}

// joinWithin is for a cluster with so much in it that to move it takes longer.
func (c *cluster) joinWithin(t testing.TB, m *member, limit time.Duration) {
	t.Helper()
	c.mu.Lock()
	c.members = append(c.members, m)
	c.mu.Unlock()
	c.start(t, m)
	c.awaitHealthyWithin(t, limit)
}

// running are the members whose process has not ended.
func (c *cluster) running() (list []*member) {
	for _, m := range c.all() {
		if m.alive() {
			list = append(list, m)
		}
	}
	return list
}

// awaitHealthy waits until every running member is ready and sees a healthy cluster of exactly
// them, each shard led.
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

// ails says what is not healthy, "" when all is.
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

// busiest is the running member that leads most shards.
func (c *cluster) busiest(t testing.TB) *member {
	t.Helper()
	v := c.view(t)
	return slices.MaxFunc(c.running(), func(a, b *member) int { return len(v.ledBy(a.name)) - len(v.ledBy(b.name)) })
}

// view is what some running member says of the cluster.
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

// anyone is a client whose requests go round the members.
func (c *cluster) anyone() *roundRobin { return &roundRobin{cluster: c} }

// freePorts are handed out once each. They lie below those that the system gives to outgoing
// connections: the address of a node that is down is not taken by somebody else's connection.
var freePorts atomic.Int32

const (
	lowestPort  = 20_000
	highestPort = 31_900
)

// freeAddress is a loopback address whose port nobody uses, for TCP and for UDP.
func freeAddress(t testing.TB) string {
	t.Helper()
	freePorts.CompareAndSwap(0, int32(os.Getpid()%1000*11+1))
	for range highestPort - lowestPort {
		port := lowestPort + int(freePorts.Add(1))%(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		packets, err := net.ListenPacket("udp", address)
		listener.Close()
		if err == nil {
			packets.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// inBatches plays the rounds of a long run in parts, each with its own load and its own check:
// finished timers are not kept for ever, and the check wants to see them all.
func inBatches(rounds int, play func(rounds int)) {
	const batch = 20
	for ; rounds > 0; rounds -= batch {
		play(min(rounds, batch))
	}
}

// needTime leaves a test out of `make ci`, which has twelve minutes for all.
func needTime(t testing.TB) {
	t.Helper()
	if os.Getenv("CARILLON_E2E_LONG") == "" {
		t.Skip("only with CARILLON_E2E_LONG=1, as in make chaos")
	}
}

// needCluster leaves a test out of short runs.
func needCluster(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("clusters are left out by -short")
	}
}
