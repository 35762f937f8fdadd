package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The checkers of the cluster tests are tested themselves: a checker that finds nothing proves
// nothing.

func TestCheckerLeavesOutWhatAStoppedNodeHadInItsHands(t *testing.T) {
	resumed := time.Now()
	call := func(fence uint64, after time.Duration) arrival { return arrival{fence: fence, at: resumed.Add(after)} }
	for _, c := range []struct {
		name         string
		list         []arrival
		left, counts int
	}{
		{"in order", []arrival{call(1, -time.Second), call(2, time.Millisecond)}, 2, 0},
		{"outdated on resuming", []arrival{call(2, -time.Second), call(1, time.Millisecond)}, 1, 1},
		{"the same call again on resuming", []arrival{call(2, -time.Second), call(2, time.Millisecond)}, 1, 1},
		{"outdated before", []arrival{call(2, -2*time.Second), call(1, -time.Second)}, 2, 0},
		{"outdated long after", []arrival{call(2, -time.Second), call(1, 2*resumeSlack)}, 2, 0},
	} {
		v := &verdict{resumes: []time.Time{resumed}}
		if got := v.withoutResumed(c.list); len(got) != c.left || v.resumed != c.counts {
			t.Errorf("%s: %d left, %d counted; want %d, %d", c.name, len(got), v.resumed, c.left, c.counts)
		}
	}
}

// membersThatAnswer returns members that answer with one status each; with 0 nothing listens.
func membersThatAnswer(t testing.TB, statuses ...int) *cluster {
	t.Helper()
	c := &cluster{}
	for _, status := range statuses {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if t.Cleanup(server.Close); status == 0 {
			server.Close()
		}
		m := (&member{http: strings.TrimPrefix(server.URL, "http://")}).settle(t, "")
		m.running.Store(&process{exited: make(chan struct{})})
		c.members = append(c.members, m)
	}
	return c
}

func TestCheckerKnowsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		statuses []int // by member; requests go to the second member first
		method   string
		want     effect
	}{
		{"acknowledged", []int{201, 201}, "POST", acked},
		{"nobody there, then acknowledged", []int{201, 0}, "POST", acked},
		{"unavailable, then acknowledged", []int{200, 503}, "POST", acked},
		{"refused", []int{409, 409}, "POST", refused},
		{"unavailable, then refused: it may be there", []int{409, 503}, "POST", unknown},
		{"a change is not repeated", []int{200, 503}, "PATCH", unknown},
		{"a change is sent on where nobody was there", []int{200, 0}, "PATCH", acked},
	} {
		client := membersThatAnswer(t, c.statuses...).anyone()
		if got := effectOf(client.do(c.method, "/v1/topics/t/timers", `{}`)); got != c.want {
			t.Errorf("%s: effect %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCheckerFindsWhatIsOutOfBalance(t *testing.T) {
	members := []*member{{name: "a"}, {name: "b"}, {name: "c"}}
	even, before := view{Healthy: true}, view{}
	for i := range clusterShards {
		leader := members[i%3].name
		even.Shards = append(even.Shards, shardView{Shard: i + 1, Leader: leader, Replicas: []string{"a", "b", "c"}, State: "ok"})
		before.Shards = append(before.Shards, shardView{Shard: i + 1, Leader: "a", Replicas: []string{"a", "b"}, State: "ok"})
	}
	if why := even.balanced(members); why != "" {
		t.Error(why)
	}
	if why := before.balanced(members); why == "" {
		t.Error("one member leads all, and that is called balanced")
	}
	if why := even.settledOn(nil, 3); why == "" {
		t.Error("replicas are on nodes that are none of the members, and that is called settled")
	}
	if n := even.arrivedSince(before); n != clusterShards {
		t.Errorf("%d replicas arrived, want %d", n, clusterShards)
	}
}

func TestCheckerTellsTheMachineFromTheMove(t *testing.T) {
	start := time.Now()
	wait := func(from, to time.Duration) ack { return ack{began: start.Add(from), answered: start.Add(to)} }
	slow := wait(100*time.Millisecond, 800*time.Millisecond)
	for _, c := range []struct {
		name           string
		other          ack
		usual, longest time.Duration
	}{
		{"at the same time", wait(200*time.Millisecond, 780*time.Millisecond), 580 * time.Millisecond, 580 * time.Millisecond},
		{"short, meanwhile", wait(300*time.Millisecond, 310*time.Millisecond), 10 * time.Millisecond, 10 * time.Millisecond},
		{"before", wait(0, 90*time.Millisecond), 90 * time.Millisecond, 0},
		{"mostly before", wait(-900*time.Millisecond, 150*time.Millisecond), 1050 * time.Millisecond, 0},
		{"long before", wait(-9*time.Second, -8*time.Second), 0, 0},
	} {
		if usual, longest := waitsBeside([]ack{c.other}, &slow); usual != c.usual || longest != c.longest {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, usual, longest, c.usual, c.longest)
		}
	}
}
