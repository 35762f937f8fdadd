package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/internal/feature"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
)

// within waits for something that other goroutines do.
func within(t *testing.T, what string, limit time.Duration, so func() bool) {
	t.Helper()
	// A client polls, too.
	for deadline := time.Now().Add(limit); !so(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is not so that %s", limit, what)
		}
	}
}

func (r *running) host() *shard.Host { return r.node.run.Load().core.Load().host }

// sameStates says whether all nodes have the same state of a shard, and none of them has a fault.
func sameStates(nodes []*running, id timer.ShardID) bool {
	var hash, applied uint64
	for i, n := range nodes {
		g := n.host().Groups()[id]
		if i == 0 {
			hash, applied = g.Hash, g.Applied
		}
		if g.Fault != "" || n.host().Fault() != "" || g.Hash != hash || g.Applied != applied {
			return false
		}
	}
	return true
}

// TestFlippedBitInOneOfThree: a bit flips in the memory of one of three nodes, of a shard's leader
// or of a follower, in a timer that will not be due for a long time. No node ends, timers are
// taken and read all the while, and the replica whose state is wrong gets the state of another. A
// node that starts again afterwards does start.
func TestFlippedBitInOneOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for _, leads := range []bool{true, false} {
		t.Run(map[bool]string{true: "leader", false: "follower"}[leads], func(t *testing.T) {
			t.Parallel()
			nodes := trio(t)
			const path = "/v1/topics/t/timers/"
			var id timer.ShardID
			var topic timer.TopicID
			nodes[0].must(201, "PUT", "/v1/topics/t", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
			nodes[0].must(201, "PUT", path+"struck", `{"delay":"24h","payload":1}`)
			if v, ok := nodes[0].node.run.Load().core.Load().member.State.Named("t"); ok {
				topic, id = v.ID, timer.ShardOf(v, "struck", 8)
			}
			within(t, "all nodes have it", 10*time.Second, func() bool { return sameStates(nodes, id) })
			at := slices.IndexFunc(nodes, func(n *running) bool { return n.host().Leads(id) == leads })
			if at < 0 || !nodes[at].host().Strike(id, table.FaultOfSlot, topic, "struck", 9) {
				t.Fatalf("nothing was struck on node %d", at)
			}
			began, taken := time.Now(), 0
			within(t, "the node has found its fault", time.Minute, func() bool {
				nodes[taken%3].must(201, "PUT", fmt.Sprint(path, "a", taken), `{"delay":"24h","payload":1}`)
				taken++
				return nodes[at].host().Fault() != ""
			})
			within(t, "its replica has another's state", time.Minute, func() bool {
				nodes[taken%3].must(201, "PUT", fmt.Sprint(path, "a", taken), `{"delay":"24h","payload":1}`)
				taken++
				return nodes[at].host().Fault() == ""
			})
			within(t, "all have the same states", 10*time.Second, func() bool { return sameStates(nodes, id) })
			t.Logf("repaired after %s, %d timers taken meanwhile", time.Since(began), taken)
			for k := range taken {
				nodes[k%3].must(200, "GET", fmt.Sprint(path, "a", k), "")
			}
			within(t, "the cluster is healthy", 20*time.Second, func() bool {
				_, body := nodes[0].call("GET", "/v1/cluster", "")
				return strings.Contains(body, `"healthy":true`)
			})
		})
	}
}

func init() { highestLevel = feature.LevelOfTests }

// TestReleasesAgreeOnALevel: three nodes are upgraded one after the other. All of them may go back
// until an operator finalizes the upgrade, which is refused while one is of the release before. A
// node that is too old is told so and ends.
func TestReleasesAgreeOnALevel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	var gossip, dirs []string
	key := writeKeys(t, strings.Repeat("ab", 32), 0o600)
	for range 3 {
		gossip, dirs = append(gossip, freeAddress(t)), append(dirs, t.TempDir())
	}
	config := func(i, level int) func(*Config) {
		return func(c *Config) {
			c.Name, c.Gossip, c.Join, c.BootstrapExpect, c.Shards = fmt.Sprint("n", i+1), gossip[i], gossip, 3, 4
			c.FeatureLevel, c.Logger = level, slog.New(slog.DiscardHandler)
			c.Peer, c.GossipKeyFile = "127.0.0.1:0", key
		}
	}
	nodes := make([]*running, 3)
	begun := make(chan int)
	for i := range nodes {
		go func() {
			nodes[i] = start(t, dirs[i], config(i, 1))
			begun <- i
		}()
	}
	for range nodes {
		<-begun
	}
	level := func(want int, levels ...int) {
		t.Helper()
		within(t, fmt.Sprintf("all know of level %d, of nodes with %v", want, levels), 15*time.Second, func() bool {
			for _, n := range nodes {
				var view struct {
					Level int `json:"feature_level"`
					Nodes []struct {
						Level int `json:"feature_level"`
					}
				}
				_, body := n.call("GET", "/v1/cluster", "")
				if err := json.Unmarshal([]byte(body), &view); err != nil || view.Level != want || len(view.Nodes) != 3 {
					return false
				}
				for i := range levels {
					if view.Nodes[i].Level != levels[i] {
						return false
					}
				}
			}
			return true
		})
	}
	restart := func(i, level int) {
		t.Helper()
		if err := nodes[i].stop(); err != nil {
			t.Fatal(err)
		}
		nodes[i] = start(t, dirs[i], config(i, level))
	}
	level(1, 1, 1, 1)
	within(t, "states are compared", 30*time.Second, func() bool {
		for _, n := range nodes {
			for _, g := range n.host().Groups() {
				if g.Replica != 0 && g.Compared == 0 {
					return false
				}
			}
		}
		return true
	})

	for i := range nodes {
		switch i {
		case 0:
			nodes[i].must(200, "POST", "/v1/cluster/finalize", "") // there is nothing to finalize
		case 1:
			if text := nodes[i].must(409, "POST", "/v1/cluster/finalize", ""); !strings.Contains(text, `n2 (release`) || !strings.Contains(text, `n3 (release`) {
				t.Errorf("refused with %s", text)
			}
		}
		restart(i, 2)
	}
	level(1, 2, 2, 2)
	for i := range nodes { // back, all of them
		restart(i, 1)
	}
	level(1, 1, 1, 1)
	for i := range nodes {
		restart(i, 2)
	}
	level(1, 2, 2, 2)
	within(t, "the upgrade waits", 10*time.Second, func() bool {
		return strings.Contains(nodes[0].must(200, "GET", "/metrics", ""), "\ncarillon_upgrade_waits 1\n")
	})
	if text := nodes[2].must(200, "POST", "/v1/cluster/finalize", ""); text != `{"feature_level":2}` {
		t.Errorf("finalized: %s", text)
	}
	if text := nodes[2].must(200, "GET", "/v1/cluster", ""); !strings.Contains(text, `"feature_level":2,"nodes"`) {
		t.Errorf("the node that finalized shows %s", text)
	}
	level(2, 2, 2, 2)

	if err := nodes[1].stop(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{DataDir: dirs[1], HTTP: "127.0.0.1:0", Peer: "127.0.0.1:0", Version: "old"}
	config(1, 1)(&cfg)
	old, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err = old.Run(ctx); !errors.Is(err, ring.ErrTooOld) || !strings.Contains(err.Error(), "start the newer release") {
		t.Errorf("a node of the release before ends with %v", err)
	}
	nodes[1] = start(t, dirs[1], config(1, 2))
	level(2, 2, 2, 2)
}
