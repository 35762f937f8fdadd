package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Limits of partitions: how soon a node without a majority refuses requests, and how soon a healed
// cluster accepts and fires in every shard (I14).
const (
	refusalLimit = 2 * time.Second
	refusalSlack = 500 * time.Millisecond // for the test on a busy machine
	healLimit    = 10 * time.Second
	cutTime      = 2 * time.Second // how long a cut lasts after others have taken over
)

// partition is one kind of cut in a network of three nodes.
type partition struct {
	name  string
	cut   func(w *network, t testing.TB, victim int)
	quiet bool // no client should notice
	alone bool // the victim can neither send nor receive
	total bool // no node can
}

var partitions = []partition{
	{name: "the node that leads most is alone", alone: true, cut: func(w *network, t testing.TB, victim int) {
		w.isolate(t, victim, peerNet, gossipNet)
	}},
	{name: "it hears and is not heard", cut: func(w *network, t testing.TB, victim int) {
		for other := range w.namespaces {
			if other != victim {
				w.cut(t, victim, other, peerNet, gossipNet)
			}
		}
	}},
	{name: "it is heard and does not hear", cut: func(w *network, t testing.TB, victim int) {
		for other := range w.namespaces {
			if other != victim {
				w.cut(t, other, victim, peerNet, gossipNet)
			}
		}
	}},
	{name: "every node is alone", total: true, cut: func(w *network, t testing.TB, _ int) {
		for host := range w.namespaces {
			w.isolate(t, host, peerNet, gossipNet)
		}
	}},
	{name: "gossip alone is cut", quiet: true, cut: func(w *network, t testing.TB, victim int) {
		w.isolate(t, victim, gossipNet)
	}},
}

// TestClusterPartitions cuts a network of three nodes under load and heals it: by default once in
// each of the first three ways, with CARILLON_E2E_CLUSTER_PARTITIONS=n n times in all ways.
func TestClusterPartitions(t *testing.T) {
	rounds := setting(t, "CARILLON_E2E_CLUSTER_PARTITIONS", 0)
	ways := partitions
	if rounds == 0 {
		rounds, ways = 1, ways[:3]
	}
	needCluster(t)
	w := newNetwork(t, 3)
	c := found(t, w.members(t), "--insecure-no-auth", "--callback-allow", testNets+",127.0.0.0/8")
	rcv := newReceiverAt(t, peerNet+gateway+":0", slowNowAndThen())
	random := seeded(t)
	for range rounds {
		c.allPartitions(t, w, ways, loadOn(t, c, rcv, random))
	}
}

func (c *cluster) allPartitions(t *testing.T, w *network, ways []partition, load *clusterLoad) {
	t.Helper()
	v := &verdict{}
	for _, p := range ways {
		wait(500 * time.Millisecond) // under load
		c.cutAndHeal(t, w, p, load, v)
	}
	load.rounds = len(ways)
	load.finish(t, v)
	t.Logf("%d timers, %d arrivals, %d duplicates", load.ledger.size(), len(v.log), v.duplicates)
	var open int64
	for _, cr := range v.crashes {
		open += cr.open
	}
	load.checkDuplicates(t, v, open)
}

func (c *cluster) cutAndHeal(t *testing.T, w *network, p partition, load *clusterLoad, v *verdict) {
	t.Helper()
	victim := c.busiest(t)
	host := slices.Index(c.all(), victim)
	before := c.view(t)
	led := before.ledBy(victim.name)
	begin := crash{at: time.Now(), open: load.receiver.open.Load()}
	if !p.quiet {
		load.probes.avoid.Store(victim, true)
	}
	p.cut(w, t, host)
	begin.gone = time.Now()

	var took spread
	switch {
	case p.quiet:
		wait(cutTime + 3*time.Second) // until gossip declares the victim dead
		if took = spreadOf(load.probes.pauses(begin.gone)); took.max > handOverLimit {
			t.Errorf("%s: a shard took no adds for %v", p.name, took.max)
		}
	case p.total:
		c.checkRefuses(t, p.name, load.probes, c.all()...)
	default:
		if p.alone {
			c.checkRefuses(t, p.name, load.probes, victim)
		}
		took = spreadOf(load.probes.takeover(t, led, begin.gone, takeoverLimit))
		wait(cutTime)
		if p.alone {
			c.checkRefuses(t, p.name, load.probes, victim)
		}
	}
	if !p.quiet {
		v.crashes = append(v.crashes, begin)
	}
	w.heal(t)
	load.probes.avoid.Delete(victim)
	fired := load.fireEverywhere(t, healLimit)
	c.awaitHealthy(t)
	t.Logf("%s: others took adds after %v; healed: every shard fired after %v", p.name, took, fired)
	for i, s := range c.view(t).Shards {
		if was := before.Shards[i]; !slices.Equal(was.Replicas, s.Replicas) {
			t.Errorf("%s: shard %d moved from %v to %v", p.name, s.Shard, was.Replicas, s.Replicas)
		}
	}
}

// checkRefuses checks that members without a majority answer adds and reads with 503, promptly.
func (c *cluster) checkRefuses(t *testing.T, when string, probes *prober, members ...*member) {
	t.Helper()
	var asking sync.WaitGroup
	ask := func(m *member, method, path, body string) {
		asking.Go(func() {
			a := m.client.do(method, path, body)
			if took := a.answered.Sub(a.sent); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || took > refusalLimit+refusalSlack {
				t.Errorf("%s: %s without a majority answers %s %s with %d (Retry-After %q) after %v: %s %v", when, m.name, method, path,
					a.status, a.header.Get("Retry-After"), took, a.body, a.err)
			}
		})
	}
	for _, key := range probes.keys {
		for _, m := range members {
			ask(m, "POST", "/v1/topics/"+probes.topic+"/timers", farTimer(fmt.Sprintf("{%s}alone%d", key, time.Now().UnixNano()), time.Now()))
			ask(m, "GET", timerPath(probes.topic, "%7B"+key+"%7Dfirst"), "")
		}
	}
	asking.Wait()
}
