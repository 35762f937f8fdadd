package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"carillon/node/member"
	"carillon/ring"
	"carillon/test/freeport"
	"carillon/test/testkit"
)

func TestPortsAreOpenedWhenAskedFor(t *testing.T) {
	for name, want := range map[string]struct {
		edit  func(*Config)
		ports bool
	}{
		"nothing is said":      {func(*Config) {}, false},
		"what a node alone is": {func(c *Config) { c.Name, c.Zone, c.Shards, c.HTTP, c.AuthFile = "n1", "z", 4, "127.0.0.1:1", "t" }, false},
		"the default, said":    {func(c *Config) { c.BootstrapExpect = 1 }, false},
		"insecure":             {func(c *Config) { c.Insecure = true }, false},
		"a peer address":       {func(c *Config) { c.Peer = DefaultPeer }, true},
		"a gossip address":     {func(c *Config) { c.Gossip = DefaultGossip }, true},
		"how others reach it":  {func(c *Config) { c.Advertise = "n1" }, true},
		"others to join":       {func(c *Config) { c.Join = []string{"n2:7702"} }, true},
		"others to found with": {func(c *Config) { c.BootstrapExpect, c.Join = 3, []string{"n2:7702"} }, true},
		"a key":                {func(c *Config) { c.GossipKeyFile = "key" }, true},
		"a certificate":        {func(c *Config) { c.PeerCert = "cert" }, true},
	} {
		var c Config
		want.edit(&c)
		if c = c.withDefaults(); c.ports != want.ports {
			t.Errorf("%s: ports %v", name, c.ports)
		}
		if c.Peer == "" || c.Gossip == "" {
			t.Errorf("%s: no default address", name)
		}
	}
}

func TestWhichDirectoriesHaveOthers(t *testing.T) {
	plan := func(n int) *ring.FoundingPlan { return &ring.FoundingPlan{Nodes: make([]ring.Node, n)} }
	for name, c := range map[string]struct {
		id   member.Identity
		want bool
	}{
		"fresh":             {member.Identity{}, false},
		"about to found":    {member.Identity{AcceptedPlan: plan(3)}, false},
		"founded alone":     {member.Identity{ClusterID: "c", AcceptedPlan: plan(1)}, false},
		"founded with more": {member.Identity{ClusterID: "c", AcceptedPlan: plan(3)}, true},
		"joined":            {member.Identity{ClusterID: "c"}, true},
	} {
		if got := hasOthers(&c.id); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNodeAloneOpensNoPorts: a node that nothing was said to about others listens for its API's
// clients and for nobody else, and does all that a node does. With a key it opens its ports, others
// join it, and from then on it does not start without.
func TestNodeAloneOpensNoPorts(t *testing.T) {
	t.Parallel()
	quiet := func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) }
	dir, seen := t.TempDir(), newReceiver(t, nil)
	r := start(t, dir, quiet)
	p := r.node.run.Load()
	if p.peer != nil || p.members.Addr() != "" {
		t.Fatalf("the ports for others are open: %v, gossip at %q", p.peer, p.members.Addr())
	}
	if len(p.listening()) != 1 {
		t.Errorf("it listens at %v", p.listening())
	}
	for _, port := range []string{p.cfg.Peer, p.cfg.Gossip} { // once others join it, it will listen there
		if body := r.must(422, "POST", "/v1/topics/a/timers", `{"delay":"1h","callback":{"url":"http://`+port+`/"}}`); !strings.Contains(body, "the cluster's own") {
			t.Errorf("%s: %s", port, body)
		}
	}
	r.must(201, "POST", "/v1/topics/a/timers", `{"id":"x","delay":"10ms","callback":{"url":"`+seen.URL+`"}}`)
	seen.await(t, 1)
	var cluster struct {
		Nodes []struct{ Name, Peer, Gossip string }
	}
	if err := json.Unmarshal([]byte(r.must(200, "GET", "/v1/cluster", "")), &cluster); err != nil || len(cluster.Nodes) != 1 || cluster.Nodes[0].Peer != "" {
		t.Errorf("it shows %+v, %v", cluster, err)
	}
	r.must(201, "PUT", "/v1/topics/a/timers/later", `{"delay":"1h","callback":{"url":"`+seen.URL+`"}}`)
	testkit.Must(t, r.stop())
	if testing.Short() {
		t.Skip("the rest takes some seconds")
	}

	key, gossip := writeKeys(t, strings.Repeat("ab", 32), 0o600), freeport.Address(t)
	r = start(t, dir, quiet, func(c *Config) { c.Name, c.Peer, c.Gossip, c.GossipKeyFile = "n1", "127.0.0.1:0", gossip, key })
	second := start(t, t.TempDir(), quiet, func(c *Config) {
		c.Name, c.Peer, c.Gossip, c.Join, c.GossipKeyFile = "n2", "127.0.0.1:0", "127.0.0.1:0", []string{gossip}, key
	})
	second.must(200, "GET", "/v1/topics/a/timers/later", "")
	testkit.Must(t, r.stop())
	lonely, err := New(Config{DataDir: dir, HTTP: "127.0.0.1:0", Name: "n1"})
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := lonely.Run(ctx); !errors.Is(err, errPortsClosed) {
		t.Errorf("one of two nodes runs without its ports: %v", err)
	}
}

// TestWhenOthersProveThatTheyAreNodes: by a key or by certificates. Package member has the use of
// it.
func TestWhenOthersProveThatTheyAreNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		want bool
	}{
		"a key":        {Config{Credentials: Credentials{GossipKeyFile: "key"}}, true},
		"certificates": {Config{Credentials: Credentials{PeerCert: "cert"}}, true},
		"neither":      {Config{}, false},
	} {
		if got := (&process{cfg: tt.cfg}).proven(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
