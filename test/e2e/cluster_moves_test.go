package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The longest that an add may wait while its shard moves, and while only its leadership moves.
const (
	movePause     = 500 * time.Millisecond
	handOverPause = 200 * time.Millisecond
)

// pauseLimit is four times the limit under the race detector, which makes everything far slower.
func pauseLimit(limit time.Duration) time.Duration {
	if os.Getenv("CARILLON_E2E_RACE") != "" {
		return 4 * limit
	}
	return limit
}

// TestClusterMoves moves replicas under load, by nodes that join, are drained and are resumed,
// until CARILLON_E2E_CLUSTER_MOVES replicas have moved. No timer is lost or altered, no timer fires
// twice, no add waits long for a shard that moves, and after each step the cluster is balanced.
func TestClusterMoves(t *testing.T) {
	target := setting(t, "CARILLON_E2E_CLUSTER_MOVES", 8)
	kept := setting(t, "CARILLON_E2E_CLUSTER_KEPT", 1000)
	members := loopbackMembers(t, 5)
	c := found(t, slices.Clip(members[:3]))
	c.keepTimers(t, "kept", 0, kept)
	before := c.timersOf(t, "kept")
	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), seeded(t))
	watch := c.watchMoves(t, load.probes)
	for next := 0; watch.moved() < target || next > 2 && next%2 == 1; next++ { // leave none drained
		c.move(t, watch, members, next)
	}
	t.Logf("%d replicas moved, in %d epochs", watch.moved(), watch.epochs())
	watch.finish(t, movePause)
	load.finish(t, &verdict{}) // nothing crashes, so every duplicate is an error
	c.checkSame(t, "kept", before)
}

// move is one step: a cluster of three nodes grows by two, then nodes are drained and resumed in
// turn. About the share of a node that comes may move. When a node leaves, its replicas and a
// quarter more may, because the other nodes may need balancing.
func (c *cluster) move(t testing.TB, w *moveWatch, members []*member, n int) {
	t.Helper()
	begin, moved := time.Now(), w.moved()
	busy := members
	var what string
	var share int
	switch {
	case n < 2:
		busy = members[:4+n]
		what, share = members[3+n].name+" joins", fairShare(len(busy))
		c.join(t, members[3+n])
	case n%2 == 0:
		m := members[n/2%5]
		what, share = m.name+" is drained", len(c.view(t).heldBy(m.name))
		busy = slices.DeleteFunc(slices.Clone(members), func(o *member) bool { return o == m })
		c.drain(t, m)
	default:
		m := members[n/2%5]
		what, share = m.name+" takes part again", fairShare(len(busy))
		m.client.must(t, 200, "POST", "/v1/cluster/nodes/"+m.name+"/resume", "")
	}
	v := c.awaitSettled(t, busy, 3)
	moved = w.moved() - moved
	t.Logf("%s: %d replicas moved, the share is %d, settled after %v; %s", what, moved, share, time.Since(begin)-stillFor, v.summary())
	if drained := len(busy) < len(members) && n >= 2; 10*moved > 11*share+10 && (!drained || 4*moved > 5*share+4) {
		t.Errorf("%s: %d replicas moved, the share is %d", what, moved, share)
	}
}

// fairShare is the number of replicas, rounded up, that each node should hold with three replicas a
// shard.
func fairShare(nodes int) int { return (3*clusterShards + nodes - 1) / nodes }

// drain moves all replicas off a member and waits for it. The member stays in the cluster.
func (c *cluster) drain(t testing.TB, m *member) {
	t.Helper()
	m.client.must(t, 202, "POST", "/v1/cluster/nodes/"+m.name+"/drain", "")
	c.awaitView(t, settleLimit, m.name+" is drained", func(v view) bool { return v.stateOf(m.name) == "drained" && len(v.heldBy(m.name)) == 0 })
}

// moveWatch polls the placement. It counts replicas that arrive at a node, and records when each
// shard moved.
type moveWatch struct {
	cluster *cluster
	probes  *prober
	stop    func()

	mu       sync.Mutex
	last     view
	count    int
	changes  int
	moves    []move        // finished ones
	underway map[int]*move // by shard
}

// move is a period in which a shard's replicas or leader changed. It begins with the last poll
// before the change and ends with the first at which the shard is ok and led by its preferred
// replica.
type move struct {
	shard    int
	from, to time.Time
	why      string
}

// moveLimit is how long a move is watched: the preferred replica may not regain the leadership
// soon.
const moveLimit = 15 * time.Second

// viewDelay is how long a node may take to hear of a new leader.
const viewDelay = 500 * time.Millisecond

func (c *cluster) watchMoves(t testing.TB, probes *prober) *moveWatch {
	t.Helper()
	w := &moveWatch{cluster: c, probes: probes, last: c.view(t), underway: map[int]*move{}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		looked := time.Now()
		for {
			select {
			case <-tick.C:
				began := time.Now()
				if v, ok := c.anyView(); ok {
					w.look(v, looked)
					looked = began
				}
			case <-stop:
				return
			}
		}
	}()
	w.stop = sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(w.stop)
	return w
}

// anyView is the view of the first running member that answers.
func (c *cluster) anyView() (view, bool) {
	for _, m := range c.running() {
		if v, err := m.view(); err == nil {
			return v, true
		}
	}
	return view{}, false
}

// look compares a view with the previous one, which was requested at looked.
func (w *moveWatch) look(v view, looked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !slices.ContainsFunc(v.Shards, func(s shardView) bool { return s.Leader != "" }) {
		return // of a node that has just started, and knows of no leader
	}
	before := map[int]shardView{}
	for _, s := range w.last.Shards {
		before[s.Shard] = s
	}
	for _, s := range v.Shards {
		old := before[s.Shard]
		if s.Epoch < old.Epoch {
			return // another node's view, which lags
		}
	}
	w.count += v.arrivedSince(w.last)
	for _, s := range v.Shards {
		old := before[s.Shard]
		m := w.underway[s.Shard]
		if s.Epoch != old.Epoch || s.State == "moving" || s.Leader != old.Leader {
			if m == nil {
				m = &move{shard: s.Shard, from: looked.Add(-viewDelay)}
				w.underway[s.Shard] = m
			}
			if s.Epoch != old.Epoch || s.Leader != old.Leader {
				m.why += fmt.Sprintf(" %s@%d by %s", strings.Join(s.Replicas, ","), s.Epoch, s.Leader)
			}
			w.changes += s.Epoch - old.Epoch
			continue
		}
		if m != nil && (s.State == "ok" && s.Leader == s.Replicas[0] || now.Sub(m.from) > moveLimit) {
			m.to = now
			w.moves = append(w.moves, *m)
			delete(w.underway, s.Shard)
		}
	}
	w.last = v
}

func (w *moveWatch) moved() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

func (w *moveWatch) epochs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

// finish checks how long adds waited for each shard that moved. It compares a long wait with those
// of shards that did not move at the time: without processor or disk time all are slow. A transfer
// of leadership takes several commits in a row.
func (w *moveWatch) finish(t testing.TB, promised time.Duration) {
	t.Helper()
	w.stop()
	for _, m := range w.underway {
		m.to = time.Now()
		w.moves = append(w.moves, *m)
	}
	worst, apart := w.sort()
	during, waits := make([]time.Duration, len(worst)), make([]time.Duration, len(apart))
	for i := range worst {
		during[i] = worst[i].took()
	}
	for i := range apart {
		waits[i] = apart[i].took()
	}
	t.Logf("longest wait for an add of a shard, in each of %d moves: %v; of any of %d adds of shards that did not move: %v",
		len(w.moves), spreadOf(during), len(waits), spreadOf(waits))
	limit := pauseLimit(promised)
	for i, m := range w.moves {
		if during[i] <= limit {
			continue
		}
		usual, longest := waitsBeside(apart, &worst[i])
		report := t.Errorf
		if during[i] <= stallLimit && (during[i] <= handOverCommits*usual || during[i] <= 2*longest) {
			report = t.Logf
		}
		report("shard %d kept an add waiting while it moved (%s–%s:%s), those that did not kept one waiting for %v, and one for %v: %s",
			m.shard, m.from.Format(clockFormat), m.to.Format(clockFormat), m.why, usual, longest, worst[i].String())
	}
}

const (
	// stallLimit is the longest wait that may be attributed to the machine.
	stallLimit = 4 * time.Second
	// handOverCommits is the number of commits in a transfer of leadership: those in flight, the
	// vote, the takeover, the add itself, and one for the way to the new leader.
	handOverCommits = 5
)

// sort returns the slowest add during each move, and all adds outside moves.
func (w *moveWatch) sort() (worst, apart []ack) {
	worst = make([]ack, len(w.moves))
	for shard := range w.probes.keys {
		for _, a := range w.probes.since(shard, time.Time{}) {
			within := false
			for i, m := range w.moves {
				if m.shard == shard && a.answered.After(m.from) && a.began.Before(m.to) {
					within = true
					if a.took() > worst[i].took() {
						worst[i] = a
					}
				}
			}
			if !within {
				apart = append(apart, a)
			}
		}
	}
	return worst, apart
}

// waitsBeside returns the median wait of adds within a second of a, and the longest wait of those
// that overlap by half of the shorter one.
func waitsBeside(others []ack, a *ack) (usual, longest time.Duration) {
	var near []time.Duration
	for i := range others {
		o := &others[i]
		from, to := later(o.began, a.began), o.answered
		if a.answered.Before(to) {
			to = a.answered
		}
		if to.Sub(from) > -time.Second {
			near = append(near, o.took())
		}
		if 2*to.Sub(from) >= min(o.took(), a.took()) {
			longest = max(longest, o.took())
		}
	}
	return spreadOf(near).p50, longest
}
