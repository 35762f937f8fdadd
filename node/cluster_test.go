package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/test/freeport"
	"carillon/test/testkit"
)

// trio starts three nodes of one cluster in this process.
func trio(t *testing.T) []*running { return several(t, 3) }

func several(t testing.TB, n int, edit ...func(*Config)) []*running {
	t.Helper()
	var gossip []string
	for range n {
		gossip = append(gossip, freeport.Address(t))
	}
	nodes := make([]*running, n)
	key := writeKeys(t, strings.Repeat("ab", 32), 0o600)
	var wait sync.WaitGroup
	for i := range nodes {
		dir := t.TempDir()
		wait.Go(func() {
			nodes[i] = start(t, dir, func(c *Config) {
				c.Name, c.Gossip, c.Join, c.BootstrapExpect, c.Shards = fmt.Sprint("n", i+1), gossip[i], gossip, n, 8
				c.Peer, c.GossipKeyFile = "127.0.0.1:0", key
				c.Logger = slog.New(slog.DiscardHandler)
				for _, e := range edit {
					e(c)
				}
			})
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return nodes
}

// TestThreeNodesShareNothing: three nodes in one process found a cluster; a change at one is known
// to the others; one leaves and the rest goes on.
func TestThreeNodesShareNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	if view := nodes[0].must(200, "GET", "/v1/cluster", ""); strings.Contains(view, `"upgrade"`) {
		t.Errorf("a new cluster waits for an upgrade: %s", view)
	}
	nodes[0].must(201, "PUT", "/v1/topics/shared", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	for i, n := range nodes {
		for k := range 24 {
			n.must(201, "PUT", fmt.Sprintf("/v1/topics/shared/timers/t%d-%d", i, k), `{"delay":"1h","payload":1}`)
		}
	}
	for _, n := range nodes {
		for i := range nodes {
			n.must(200, "GET", fmt.Sprintf("/v1/topics/shared/timers/t%d-7", i), "")
		}
		var list struct{ Timers []struct{ ID string } }
		if err := json.Unmarshal([]byte(n.must(200, "GET", "/v1/topics/shared/timers?limit=1000", "")), &list); err != nil || len(list.Timers) != 72 {
			t.Fatalf("%d timers are listed (%v), want 72", len(list.Timers), err)
		}
		if topic := n.must(200, "GET", "/v1/topics/shared", ""); !strings.Contains(topic, `"scheduled":72`) {
			t.Errorf("the topic: %s", topic)
		}
	}
	leaderIsNamed(t, nodes)
	adds := func(name string) time.Duration {
		began := time.Now()
		for k := range 24 {
			nodes[k%2].must(201, "PUT", fmt.Sprintf("/v1/topics/shared/timers/%s-%d", name, k), `{"delay":"1h","payload":1}`)
		}
		return time.Since(began)
	}
	before := adds("before")
	if err := nodes[2].stop(); err != nil {
		t.Fatalf("it stopped with %v", err)
	}
	if took := adds("after"); took > 3*time.Second+10*before { // before is of a machine that may be busy
		t.Errorf("24 timers took %v after a planned stop, %v before it", took, before)
	}
	for i := range nodes {
		nodes[0].must(200, "GET", fmt.Sprintf("/v1/topics/shared/timers/t%d-9", i), "")
	}
}

// leaderIsNamed: a node that has passed a request on names the node that decided it, and that one
// names nobody.
func leaderIsNamed(t *testing.T, nodes []*running) {
	t.Helper()
	named := func(base string, k int) (address string) {
		resp, err := http.Get(fmt.Sprintf("%s/v1/topics/shared/timers/t0-%d", base, k))
		testkit.Must(t, err)
		defer resp.Body.Close()
		address, _, _ = strings.Cut(strings.TrimPrefix(resp.Header.Get("Carillon-Leader"), `"`), `"`)
		return address
	}
	others := 0
	for k := range 24 {
		for i, asked := range nodes {
			var address, again string
			for range 20 { // a shard's leader may move between the two requests
				if address = named(asked.base, k); address == "" {
					break
				}
				if j := slices.IndexFunc(nodes, func(r *running) bool { return r.base == "http://"+address }); j < 0 || j == i {
					t.Fatalf("the leader that is named is %s", address)
				}
				if again = named("http://"+address, k); again == "" {
					break
				}
			}
			if address == "" {
				continue
			}
			if others++; again != "" {
				t.Errorf("%s, named as the leader, names %s", address, again)
			}
		}
	}
	if others == 0 {
		t.Error("nobody names a leader")
	}
}

// TestNewTopicIsKnownEverywhere: a topic that one node has made is known to every other one from
// the answer on.
func TestNewTopicIsKnownEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	var unknown []string
	for i := range 150 {
		path := fmt.Sprintf("/v1/topics/t%d", i)
		nodes[i%3].must(201, "PUT", path, `{}`)
		for k := range 2 {
			if code, body := nodes[(i+1+k)%3].call("GET", path, ""); code != 200 {
				unknown = append(unknown, fmt.Sprint(path, ": ", code, " ", body))
			}
		}
	}
	if len(unknown) > 0 {
		t.Errorf("%d of 300 times another node did not know a topic that had been made: %q", len(unknown), unknown)
	}
	nodes[0].must(404, "GET", "/v1/topics/none", "")
	nodes[1].must(404, "GET", "/v1/topics/none", "")
}

// TestTopicChangesDeliveryAtAnyNode: a topic's delivery changes at whichever node is asked, and the
// answer is as decided.
func TestTopicChangesDeliveryAtAnyNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/jobs", `{}`)
	for i := range 30 {
		delivery := []string{"pull", "push"}[i%2]
		if body := nodes[i%3].must(200, "PUT", "/v1/topics/jobs", `{"delivery":"`+delivery+`"}`); !strings.Contains(body, `"delivery":"`+delivery+`"`) {
			t.Errorf("change %d is answered %s", i, body)
		}
	}
}

// TestOrdersAreSeenWhereTheyWereGiven: the node that has taken an operator's order shows it from
// the answer on. Who waits for the end of a drain, or of a growth, would else find that there is
// none.
func TestOrdersAreSeenWhereTheyWereGiven(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	var unseen []string
	order := func(i int, method, path, body, word string, shown bool) {
		nodes[i%3].insist(method, "/v1/cluster/"+path, body)
		if view := nodes[i%3].must(200, "GET", "/v1/cluster", ""); strings.Contains(view, word) != shown {
			unseen = append(unseen, path)
		}
	}
	for i := range 12 {
		order(i, "POST", "nodes/n2/drain", "", `"state":"drain`, true)
		order(i+1, "PUT", "replicas", `{"replicas":2}`, `"replicas":2,"shards_total"`, true)
		order(i, "POST", "nodes/n2/resume", "", `"state":"drain`, false)
		order(i+1, "PUT", "replicas", `{"replicas":3}`, `"replicas":3,"shards_total"`, true)
	}
	order(1, "POST", "shards", `{"shards":16}`, `"shards_total":16`, true)
	if len(unseen) > 0 {
		t.Errorf("%d of 49 orders were not to be seen yet at the node that had taken them: %q", len(unseen), unseen)
	}
}

// TestDeletedTopicIsGoneEverywhere: from the answer to a deletion on, no other node takes the topic
// for one that has no timers.
func TestDeletedTopicIsGoneEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	var there []string
	for i := range 150 {
		path := fmt.Sprintf("/v1/topics/t%d", i)
		nodes[i%3].must(201, "PUT", path, `{"callback":{"url":"http://127.0.0.1:1/"}}`)
		nodes[i%3].insist("PUT", path+"/timers/a", `{"delay":"1h"}`)
		nodes[i%3].must(200, "DELETE", path+"?force=true", "")
		for k := range 2 {
			for _, read := range []string{"/timers", ""} {
				if code, body := nodes[(i+1+k)%3].call("GET", path+read, ""); code != 404 {
					there = append(there, fmt.Sprint(path, read, ": ", code, " ", body))
				}
			}
		}
	}
	if len(there) > 0 {
		t.Errorf("%d of 600 reads of a deleted topic were not answered 404: %q", len(there), there)
	}
}

// TestNodeAwayOverTwoDoublings: the number of shards doubles twice while a node is away, so it
// knows neither of the new shards nor of those that they were divided from. It comes back, learns
// of all of them, gets its replicas from their leaders, and is as good as the others: the cluster
// then does without another one.
func TestNodeAwayOverTwoDoublings(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := several(t, 3, func(c *Config) { c.Shards = 2 })
	away, other, stays := nodes[0], nodes[1], nodes[2]
	stays.must(201, "PUT", "/v1/topics/kept", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	const each = 40
	add := func(name string) {
		for k := range each {
			stays.insist("PUT", fmt.Sprintf("/v1/topics/kept/timers/%s-%d", name, k), `{"delay":"1h","payload":1}`)
		}
	}
	add("before")
	testkit.Must(t, away.stop())
	stays.insist("POST", "/v1/cluster/shards", `{"shards":8}`)
	stays.awaitGrown(8)
	add("meanwhile")
	back := start(t, away.node.cfg.DataDir, func(c *Config) { *c = away.node.cfg })
	back.awaitGrown(8)
	until(t, "the cluster is healthy", func() bool {
		_, view := back.call("GET", "/v1/cluster", "")
		return strings.Contains(view, `"healthy":true`)
	})
	testkit.Must(t, other.stop())
	add("after")
	for _, n := range []*running{stays, back} {
		var list struct{ Timers []struct{ ID string } }
		until(t, "all timers are listed", func() bool {
			status, body := n.call("GET", "/v1/topics/kept/timers?limit=1000", "")
			return status == 200 && json.Unmarshal([]byte(body), &list) == nil && len(list.Timers) == 3*each
		})
	}
}

// TestReadyEndsWithTheMajority: a node that was ready is excused for a moment, not for the loss of
// the others.
func TestReadyEndsWithTheMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	for _, n := range nodes[1:] {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}
	until(t, "the last node is not ready", func() bool {
		status, _ := nodes[0].call("GET", "/readyz", "")
		return status == 503
	})
}

// TestNothingFlapsWhileShardsDouble: while the number of shards grows, and leaderships go to the
// nodes that should have them, all nodes stay ready and see a healthy cluster.
func TestNothingFlapsWhileShardsDouble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	for _, n := range nodes {
		until(t, "the cluster is healthy", func() bool {
			_, view := n.call("GET", "/v1/cluster", "")
			return strings.Contains(view, `"healthy":true`)
		})
	}
	nodes[0].insist("POST", "/v1/cluster/shards", `{"shards":32}`)
	// A machine that stands still makes nodes suspect, and a while later elects other leaders.
	looks, last, stood := 0, time.Now(), time.Time{}
	for grown := false; !grown; {
		grown = true
		var wrong []string
		for i, n := range nodes {
			if status, body := n.call("GET", "/readyz", ""); status != 200 {
				wrong = append(wrong, fmt.Sprintf("n%d is not ready: %s", i+1, body))
			}
			_, view := n.call("GET", "/v1/cluster", "")
			if !strings.Contains(view, `"healthy":true`) {
				wrong = append(wrong, fmt.Sprintf("n%d sees %s", i+1, view))
			}
			grown = grown && strings.Contains(view, `"shards_total":32`) && !strings.Contains(view, `"resharding"`)
			if time.Since(last) > 300*time.Millisecond {
				stood = time.Now()
			}
			last = time.Now()
		}
		if time.Since(stood) < 5*time.Second {
			continue
		}
		if looks++; wrong != nil {
			t.Fatalf("look %d: %s", looks, strings.Join(wrong, "; "))
		}
	}
	t.Logf("%d looks", looks)
}

// awaitGrown waits until a node counts with so many shards, and none is being divided.
func (r *running) awaitGrown(shards int) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("there are %d shards", shards), func() bool {
		_, view := r.call("GET", "/v1/cluster", "")
		return strings.Contains(view, fmt.Sprintf(`"shards_total":%d`, shards)) && !strings.Contains(view, `"resharding"`)
	})
}

// TestIdentityPutBackAfterADoubling: a node whose identity.json was put back from before the shards
// doubled does not start, with the reason, and is not to be restarted.
func TestIdentityPutBackAfterADoubling(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	path := filepath.Join(dir, "identity.json")
	before := testkit.File(t, path)
	n.must(202, "POST", "/v1/cluster/shards", `{"shards":8}`)
	n.awaitGrown(8)
	testkit.Must(t, n.stop())
	testkit.Must(t, os.WriteFile(path, before, 0o600))
	again, err := New(n.node.cfg)
	testkit.Must(t, err)
	err = again.Run(t.Context())
	if err == nil || !errors.Is(err, ErrStayDown) || !strings.Contains(err.Error(), "identity.json was put back from before the number of shards grew: it has 4") {
		t.Errorf("%v", err)
	}
}
