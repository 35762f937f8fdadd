package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// callsByKey gives ten keys a backlog, one alone in its place (a shard, or the node that leads it)
// and nine in another. It returns how many of count calls, after the first skip ones, the one has
// had, and how many each of the nine had on average.
func callsByKey(t *testing.T, c *client, place func(shard string) string, policy string, skip, count int) (one, other float64) {
	const crowd = 9
	each := (skip+count)/2 + 50 // even with half of the calls a key has some left
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { <-time.After(turnsCall) })
	c.topic(t, "keys", rcv.url(), policy)
	keys := map[string][]string{}
	alone, crowded := "", ""
	for i := 0; crowded == ""; i++ {
		var timer struct{ UID string }
		c.must(t, 201, "POST", "/v1/topics/keys/timers", fmt.Sprintf(`{"id":"{k%d}probe","delay":"0s"}`, i)).decode(t, &timer)
		at := place(strings.Split(timer.UID, "-")[0])
		if keys[at] = append(keys[at], fmt.Sprintf("{k%d}", i)); alone == "" {
			alone = at
		} else if at != alone && len(keys[at]) == crowd {
			crowded = at
		}
	}
	chosen := append(slices.Clone(keys[crowded]), keys[alone][0])
	instant := time.UnixMilli(time.Now().Add(2*time.Second + time.Duration(each)*5*time.Millisecond).UnixMilli())
	var ops []string
	for i := range each {
		for _, key := range chosen {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%s%d","at_ms":%d}`, key, i, instant.UnixMilli()))
		}
	}
	for i, status := range c.batch(t, "keys", ops) {
		if status != 201 {
			t.Fatalf("%s: %d", ops[i], status)
		}
	}
	if !time.Now().Before(instant) {
		t.Fatal("it took too long to add the backlog")
	}
	// ours reports a call of this test's backlog: a node of another test may call an address that was
	// given back.
	ours := func(a *arrival) (key string, ok bool) {
		key, id, _ := strings.Cut(a.timer, "}")
		key += "}"
		return key, a.topic == "keys" && id != "probe" && slices.Contains(chosen, key)
	}
	var called []string
	pollEach(t, 2*time.Minute, "the calls", func() bool {
		called = called[:0]
		for _, a := range rcv.arrivals() {
			if key, ok := ours(&a); ok {
				called = append(called, key)
			}
		}
		return len(called) >= skip+count
	})
	first := map[string]time.Duration{} // after the instant
	for _, a := range rcv.arrivals() {
		key, ok := ours(&a)
		if _, seen := first[key]; ok && !seen {
			if first[key] = a.at.Sub(instant); first[key] < 0 {
				t.Errorf("%s is called %v early", a.timer, -first[key])
			}
		}
	}
	t.Logf("first calls after the instant: %v; alone is %s", first, keys[alone][0])
	for _, key := range called[skip : skip+count] {
		if key == keys[alone][0] {
			one++
		} else {
			other += 1.0 / crowd
		}
	}
	return one, other
}

// TestKeysTakeTurnsOverShards: a key that is alone in its shard has no more calls at a receiver than
// one of a shard with many, where the receiver's slots on the node are the bottleneck.
func TestKeysTakeTurnsOverShards(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	c := newClient(serve(t, t.TempDir()))
	one, other := callsByKey(t, c, func(shard string) string { return shard }, fmt.Sprintf(`,"destination_concurrency":%d,"per_key":{"fair":true}`, turnsSlots), 0, 2700)
	t.Logf("a key alone in its shard has had %.0f calls, one of nine in another %.0f", one, other)
	if one > 1.25*other || one < 0.6*other {
		t.Errorf("a key alone in its shard has had %.0f calls, one of nine in another %.0f", one, other)
	}
}

// TestKeysTakeTurnsOverNodes: the slots of a receiver are each node's own, so a key that is alone on
// its node has more of them. A concurrency of the topic is shared by the keys of all nodes.
func TestKeysTakeTurnsOverNodes(t *testing.T) {
	needTime(t)
	cl := newCluster(t, 3)
	leader := map[string]string{}
	for _, s := range cl.view(t).Shards {
		leader[fmt.Sprintf("%04x", s.Shard)] = s.Leader
	}
	c := cl.all()[0].client
	for _, f := range []struct {
		name, policy string
		most         float64
	}{
		{"destination_concurrency", fmt.Sprintf(`,"destination_concurrency":%d,"per_key":{"fair":true}`, turnsSlots), 10},
		{"concurrency", fmt.Sprintf(`,"concurrency":%d,"per_key":{"fair":true}`, 2*turnsSlots), 1.5},
	} {
		one, other := callsByKey(t, c, func(shard string) string { return leader[shard] }, f.policy, 5000, 3000) // the parts of nodes take a second or two
		t.Logf("by %s a key alone on its node has had %.0f calls, one of nine on another %.0f: %.1f times", f.name, one, other, one/other)
		if one > f.most*other || one < other/1.5 {
			t.Errorf("by %s a key alone on its node has had %.1f times the calls, want at most %.1f", f.name, one/other, f.most)
		}
		c.must(t, 200, "DELETE", "/v1/topics/keys?force=true", "")
	}
}
