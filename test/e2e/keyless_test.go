package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// keylessCall is how long the receiver takes.
const keylessCall = 50 * time.Millisecond

// addWithoutKeys adds timers without a key, which lie in all shards, and one with a key.
func addWithoutKeys(t *testing.T, c *client, n int) {
	var ops []string
	for i := range n {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%d","delay":"0s"}`, i))
	}
	c.batch(t, "keys", append(ops, `{"op":"add","id":"{k}1","delay":"0s"}`))
}

// checkKeyless checks that timers without a key share one in the whole cluster: so many of them are
// called at once, and a second.
func checkKeyless(t *testing.T, c *client, nodes int) {
	const timers = 24
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { <-time.After(keylessCall) })
	calls := func(t *testing.T, policy string) (list []arrival, from time.Time) {
		rcv.forget()
		c.topic(t, "keys", rcv.url(), policy)
		from = time.Now()
		addWithoutKeys(t, c, timers)
		pollEach(t, 2*time.Minute, "the calls", func() bool { return rcv.answered() == timers+1 })
		list = slices.DeleteFunc(rcv.arrivals(), func(a arrival) bool { return a.timer == "{k}1" })
		slices.SortFunc(list, func(a, b arrival) int { return a.at.Compare(b.at) })
		c.must(t, 200, "DELETE", "/v1/topics/keys?force=true", "")
		return list, from
	}
	t.Run("concurrency", func(t *testing.T) {
		list, _ := calls(t, `,"per_key":{"concurrency":1}`)
		for i, a := range list[1:] {
			if before := list[i]; a.at.Before(before.done) {
				t.Errorf("%s runs until %v, %s from %v", before.timer, before.done, a.timer, a.at)
			}
		}
	})
	t.Run("rate", func(t *testing.T) {
		const perSecond = 10
		list, from := calls(t, fmt.Sprintf(`,"per_key":{"rate":{"per_second":%d,"burst":%d}}`, perSecond, nodes))
		bursts := nodes
		if nodes > 1 { // a leadership that moves may add one
			bursts *= 2
		}
		if took, least := list[len(list)-1].at.Sub(from), time.Duration(timers-bursts)*time.Second/perSecond; took < least {
			t.Errorf("%d timers without a key start within %v, want %v at least", timers, took, least)
		}
	})
}

// TestKeylessShareOne: on one node with four shards.
func TestKeylessShareOne(t *testing.T) {
	checkKeyless(t, newClient(serve(t, t.TempDir())), 1)
}

// TestKeylessShareOneOverNodes: on three nodes.
func TestKeylessShareOneOverNodes(t *testing.T) {
	needTime(t)
	checkKeyless(t, newCluster(t, 3).all()[0].client, 3)
}
