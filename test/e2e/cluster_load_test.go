package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// roundRobin sends each request to the next member, like a client behind a round-robin DNS name. It
// repeats an add, which is idempotent, until a member answers or addPatience is over. It repeats
// any other request only if that cannot have reached a node.
type roundRobin struct {
	cluster *cluster
	turn    atomic.Uint32
}

const (
	addPatience = 4 * time.Second
	retryPause  = 50 * time.Millisecond
)

func (s *roundRobin) do(method, path, body string, header ...string) answer {
	repeatable := method == "POST" && strings.HasSuffix(path, "/timers")
	var first time.Time
	mayHaveArrived := false
	for {
		a := s.next().client.do(method, path, body, header...)
		if first.IsZero() {
			first = a.sent
		}
		a.sent = first
		over := a.answered.Sub(first) > addPatience
		switch effect := effectOf(a); {
		case effect == acked:
			a.repeated = mayHaveArrived
			return a
		case effect == refused && !a.unsent || over || effect == unknown && !repeatable:
			if mayHaveArrived { // an earlier try may have taken effect
				a.status, a.unsent = 0, false
			}
			return a
		case effect == unknown:
			mayHaveArrived = true
		}
		wait(retryPause)
	}
}

func (s *roundRobin) next() *member {
	members := s.cluster.all()
	for range members {
		m := members[int(s.turn.Add(1))%len(members)]
		if m.alive() { // DNS soon drops a node that is down
			return m
		}
	}
	return members[0]
}

// clusterLoad is steady traffic through all members to a receiver in the test, and a prober of all
// shards.
type clusterLoad struct {
	*traffic
	cluster  *cluster
	receiver *receiver
	probes   *prober
	halt     func() // ends traffic and probes, once
	rounds   int    // of faults, for the counts
}

// callTimeout is the timeout of a call, so a new leader waits that long for calls of the old one.
const callTimeout = time.Second

// loads counts the loads, which gives each its own topics.
var loads atomic.Int32

// loadOn starts the traffic and the probes.
func loadOn(t testing.TB, c *cluster, r *receiver, random *rand.Rand) *clusterLoad {
	t.Helper()
	n := loads.Add(1)
	topic := fmt.Sprintf("load%d", n)
	c.eventually(t, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q,"timeout":%q}}`, r.url(), cmp.Or(c.calls, callTimeout)))
	load := &clusterLoad{cluster: c, receiver: r, traffic: &traffic{client: c.anyone(), ledger: newLedger(), topic: topic, prefix: "c",
		perSecond: setting(t, "CARILLON_E2E_CLUSTER_RATE", cmp.Or(c.rate, 200)), workers: 256, maxDelayMs: 2000, reads: true,
		random: rand.New(rand.NewPCG(random.Uint64(), 3))}}
	load.probes = newProber(t, c, fmt.Sprintf("probes%d", n))
	load.begin()
	load.probes.begin()
	load.halt = sync.OnceFunc(func() { load.end(); load.probes.end() })
	t.Cleanup(func() {
		load.probes.over.Store(t.Failed())
		load.halt()
	})
	return load
}

// eventually asks members in turn until an answer is 2xx. The request must be idempotent.
func (c *cluster) eventually(t testing.TB, method, path, body string) answer {
	t.Helper()
	var a answer
	anyone := c.anyone()
	if !holdsWithinBy(lookEvery, 20*time.Second, func() bool { a = anyone.do(method, path, body); return effectOf(a) == acked }) {
		t.Fatalf("%s %s: status %d (%v): %s", method, path, a.status, a.err, a.body)
	}
	return a
}

// finish ends the load, waits until no timer is left to fire, and checks the whole run.
func (l *clusterLoad) finish(t testing.TB, v *verdict) {
	t.Helper()
	l.halt()
	l.cluster.awaitHealthy(t)
	poll(t, patience, "all is delivered and nothing is scheduled or leased", func() bool {
		var page struct{ Timers []timer }
		a := l.client.do("GET", "/v1/topics/"+l.topic+"/timers?limit=1", "")
		if a.status != 200 {
			return false
		}
		a.decode(t, &page)
		return len(page.Timers) == 0 && l.receiver.open.Load() == 0
	})
	v.timeout = cmp.Or(l.cluster.calls, callTimeout)
	v.attempts = func(id string) []attempt {
		var page struct {
			Entries []struct {
				Log []attempt `json:"attempt_log"`
			} `json:"entries"`
		}
		a := l.client.do("GET", "/v1/topics/"+l.topic+"/history?limit=1&id="+id, "")
		if err := json.Unmarshal(a.body, &page); err != nil || len(page.Entries) == 0 {
			t.Logf("%s: its attempts are not known: status %d (%v)", id, a.status, a.err)
			return nil
		}
		return page.Entries[0].Log
	}
	v.ledger, v.log, v.final = l.ledger, l.arrivals(), map[string]timer{}
	for _, tm := range l.cluster.running()[0].client.all(t, l.topic) {
		v.final[tm.ID] = tm
	}
	v.check(t)
	v.lost += l.probes.check(t)
	counts.add(t.Name(), l, v)
}

// arrivals returns the calls for the traffic's topic, without those of fireEverywhere.
func (l *clusterLoad) arrivals() []arrival {
	return slices.DeleteFunc(l.receiver.arrivals(), func(a arrival) bool { return a.topic != l.topic })
}

// latenessBetween is the lateness of timers that were due in that period. It runs to the first call
// from the due time, or from the add's acknowledgement if that came later.
func (l *clusterLoad) latenessBetween(from, to time.Time, log []arrival) spread {
	return spreadOf(l.lateBetween(from, to, log))
}

// lateBetween is the lateness of each of these timers, in order.
func (l *clusterLoad) lateBetween(from, to time.Time, log []arrival) []time.Duration {
	seen := map[string]bool{}
	var late []time.Duration
	for _, a := range log {
		due := time.UnixMilli(a.dueMs)
		if seen[a.webhook] || due.Before(from) || due.After(to) {
			continue
		}
		seen[a.webhook] = true
		if w := l.ledger.byID[a.timer].writeOf(a); w != nil && w.effect == acked {
			late = append(late, max(a.at.Sub(later(due, w.answered)), 0))
		}
	}
	slices.Sort(late)
	return late
}

// writeOf returns the write whose payload the call carried, nil if there is none.
func (e *entry) writeOf(a arrival) *written {
	for i := range e.versions {
		if e.versions[i].sum == a.sum {
			return &e.versions[i]
		}
	}
	return nil
}

// fireEverywhere adds a timer that is due at once to each shard, and returns the time until the
// last one was called.
func (l *clusterLoad) fireEverywhere(t testing.TB, limit time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	client, topic := l.cluster.anyone(), l.probes.topic
	var adding sync.WaitGroup
	var ids []string
	for _, key := range l.probes.keys {
		id := fmt.Sprintf("{%s}now%d", key, start.UnixNano())
		ids = append(ids, id)
		body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"callback":{"url":%q}}`, id, start.UnixMilli(), l.receiver.url())
		adding.Go(func() {
			holdsWithin(limit, func() bool { return effectOf(client.do("POST", "/v1/topics/"+topic+"/timers", body)) == acked })
		})
	}
	poll(t, limit, "a timer of every shard has fired", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return l.receiver.called(topic, id) == 0 })
	})
	took := time.Since(start)
	adding.Wait()
	return took
}
