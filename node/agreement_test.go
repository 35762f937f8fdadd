package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"carillon/internal/feature"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/freeport"
	"carillon/test/testkit"
)

func (r *running) host() *shard.Host { return r.node.run.Load().core.Load().host }

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
		gossip, dirs = append(gossip, freeport.Address(t)), append(dirs, t.TempDir())
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
		until(t, fmt.Sprintf("all know of level %d, of nodes with %v", want, levels), func() bool {
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
		testkit.Must(t, nodes[i].stop())
		nodes[i] = start(t, dirs[i], config(i, level))
	}
	level(1, 1, 1, 1)
	until(t, "states are compared", func() bool {
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
			level(1, 2, 1, 1) // a node that leads the meta group may be ready before it has registered
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
	until(t, "the upgrade waits", func() bool {
		return strings.Contains(nodes[0].must(200, "GET", "/metrics", ""), "\ncarillon_upgrade_waits 1\n")
	})
	if text := nodes[2].must(200, "POST", "/v1/cluster/finalize", ""); text != `{"feature_level":2}` {
		t.Errorf("finalized: %s", text)
	}
	if text := nodes[2].must(200, "GET", "/v1/cluster", ""); !strings.Contains(text, `"feature_level":2,"nodes"`) {
		t.Errorf("the node that finalized shows %s", text)
	}
	level(2, 2, 2, 2)

	testkit.Must(t, nodes[1].stop())
	cfg := Config{DataDir: dirs[1], HTTP: "127.0.0.1:0", Peer: "127.0.0.1:0", Version: "old"}
	config(1, 1)(&cfg)
	old, err := New(cfg)
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err = old.Run(ctx); !errors.Is(err, ring.ErrTooOld) || !strings.Contains(err.Error(), "start the newer release") {
		t.Errorf("a node of the release before ends with %v", err)
	}
	nodes[1] = start(t, dirs[1], config(1, 2))
	level(2, 2, 2, 2)
}
