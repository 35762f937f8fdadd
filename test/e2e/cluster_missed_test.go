package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	missedPerBatch = 1000
	missedWorkers  = 4 // batches at once

	// wholeShardBytes is more than the 4 MiB of log that a shard keeps in memory for a follower. A
	// follower that missed more needs a snapshot.
	wholeShardBytes = 6 << 20
	bulkyPayload    = 16 << 10
)

// TestClusterCatchUp stops a node for CARILLON_E2E_CLUSTER_MISSED adds. Started again under load,
// the node must catch up by snapshots. Its states must then equal those of the other replicas, and
// the cluster must survive the loss of another node.
func TestClusterCatchUp(t *testing.T) {
	n := setting(t, "CARILLON_E2E_CLUSTER_MISSED", 2000)
	random := seeded(t)
	c := newCluster(t, 3)
	timers := c.keepTimers(t, "kept", 0, 500)
	away, other := c.all()[0], c.all()[1]
	away.process().kill()
	begin := time.Now()
	c.addMany(t, "missed", n)
	bulky := c.fillShard(t, "bulky")
	t.Logf("%d adds while %s was down, in %v; resident %s", n, away.name, time.Since(begin), c.resident(t))

	load := loadOn(t, c, newReceiver(t, slowNowAndThen()), random)
	wait(time.Second)
	begin = time.Now()
	c.start(t, away)
	took := c.awaitCaughtUp(t, away, catchUpPatience(n))
	caughtUp := time.Now()
	c.awaitHealthy(t)
	away.process().awaitReady(t)
	snapshots := away.process().number(t, `carillon_snapshot_transfers_total{direction="received"}`)
	bytes := away.process().number(t, `carillon_snapshot_transfer_bytes_total{direction="received"}`)
	t.Logf("caught up after %v by %.0f snapshots of %.1f MiB in all; resident %s; longest wait for an add of each shard %v",
		took, snapshots, bytes/(1<<20), c.resident(t), spreadOf(load.probes.pauses(begin)))
	if snapshots < 1 {
		t.Error("no snapshot was received: what is to be tested was not")
	}
	wait(time.Second)
	load.finish(t, &verdict{crashes: nil})
	t.Logf("lateness meanwhile %v", load.latenessBetween(begin, caughtUp, load.arrivals()))
	c.checkAgreed(t, c.all())
	c.checkCount(t, "missed", n)
	c.checkCount(t, "bulky", bulky)

	other.process().kill()
	for id, due := range c.keepTimers(t, "kept", 500, 500) {
		timers[id] = due
	}
	c.checkKept(t, "kept", timers)
	c.checkCount(t, "missed", n)
}

// catchUpPatience is far more than catching up with n missed adds should take.
func catchUpPatience(n int) time.Duration { return formLimit + time.Duration(n)*200*time.Microsecond }

// addMany adds timers that are due in a day, through all running members, and waits until all adds
// are acknowledged.
func (c *cluster) addMany(t testing.TB, topic string, n int) {
	t.Helper()
	due := time.Now().Add(24 * time.Hour).UnixMilli()
	padding := strings.Repeat("m", 98)
	var next atomic.Int64
	var workers sync.WaitGroup
	for k := range missedWorkers {
		workers.Go(func() {
			client := clientAt("http://"+c.running()[k%len(c.running())].http, 30*time.Second)
			for {
				from := int(next.Add(missedPerBatch)) - missedPerBatch
				if from >= n {
					return
				}
				var ops []string
				for i := from; i < min(from+missedPerBatch, n); i++ {
					ops = append(ops, fmt.Sprintf(`{"op":"add","id":"m%d","at_ms":%d,"payload":%q,"callback":{"url":"http://127.0.0.1:9/"}}`, i, due+int64(i), padding))
				}
				if !client.insist(topic, ops) {
					t.Errorf("adds from %d on were not acknowledged", from)
					return
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// insist repeats adds until all are acknowledged: a busy cluster refuses some.
func (c *client) insist(topic string, ops []string) bool {
	return holdsWithinBy(100*time.Millisecond, time.Minute, func() bool {
		statuses, ok := c.tryBatch(topic, ops)
		if !ok {
			return false
		}
		left := ops[:0]
		for i, status := range statuses {
			if status != 201 && status != 200 {
				left = append(left, ops[i])
			}
		}
		ops = left
		return len(ops) == 0
	})
}

// fillShard adds wholeShardBytes of timers to one shard, so that its log in memory does not reach
// back to the first. It returns their number.
func (c *cluster) fillShard(t testing.TB, topic string) (n int) {
	t.Helper()
	due := time.Now().Add(24 * time.Hour).UnixMilli()
	client := clientAt("http://"+c.running()[0].http, 30*time.Second)
	padding := strings.Repeat("b", bulkyPayload)
	var ops []string
	for ; n < wholeShardBytes/bulkyPayload; n++ {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"{one}b%d","at_ms":%d,"payload":%q,"callback":{"url":"http://127.0.0.1:9/"}}`, n, due, padding))
	}
	for part := range slices.Chunk(ops, 32) {
		if !client.insist(topic, part) {
			t.Fatal("adds to one shard were not acknowledged")
		}
	}
	return n
}

// shardDetail is the state of a member's own replica, from GET /v1/cluster/shards/{n}.
type shardDetail struct {
	Applied int64  `json:"applied"`
	Hash    string `json:"hash"`
	Timers  int64  `json:"timers"`
}

func (m *member) shard(t testing.TB, n int) (d shardDetail) {
	if a := m.client.do("GET", fmt.Sprintf("/v1/cluster/shards/%d", n), ""); a.status == 200 {
		a.decode(t, &d)
	}
	return d
}

// awaitCaughtUp waits until a member has applied, in each shard, the highest index that another
// member had applied when the wait began.
func (c *cluster) awaitCaughtUp(t testing.TB, m *member, limit time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	goal := map[int]int64{}
	for _, s := range c.view(t).Shards {
		for _, o := range c.all() {
			if o != m {
				goal[s.Shard] = max(goal[s.Shard], o.shard(t, s.Shard).Applied)
			}
		}
	}
	if !holdsWithinBy(lookEvery, limit, func() bool {
		for shard, index := range goal {
			if m.shard(t, shard).Applied < index {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("%s has not caught up within %v", m.name, limit)
	}
	return time.Since(begin)
}

// checkAgreed waits until all replicas of each shard have applied the same index and have equal
// hashes.
func (c *cluster) checkAgreed(t testing.TB, members []*member) {
	t.Helper()
	for _, s := range c.view(t).Shards {
		var last []shardDetail
		same := holdsWithin(20*time.Second, func() bool {
			last = last[:0]
			for _, m := range members {
				if slices.Contains(s.Replicas, m.name) {
					last = append(last, m.shard(t, s.Shard))
				}
			}
			return !slices.ContainsFunc(last, func(d shardDetail) bool { return d != last[0] || d.Hash == "" })
		})
		if !same {
			t.Errorf("shard %d: the replicas differ: %+v", s.Shard, last)
		}
	}
}

// checkCount waits until the topic has this many scheduled timers.
func (c *cluster) checkCount(t testing.TB, topic string, want int) {
	t.Helper()
	var answer struct {
		Counts struct {
			Scheduled int `json:"scheduled"`
		} `json:"counts"`
	}
	poll(t, patience, fmt.Sprintf("%d timers of %s are there", want, topic), func() bool {
		a := c.anyone().do("GET", "/v1/topics/"+topic, "")
		if a.status != 200 {
			return false
		}
		a.decode(t, &answer)
		return answer.Counts.Scheduled == want
	})
}

// resident describes the resident memory of each member, current and peak.
func (c *cluster) resident(t testing.TB) string {
	var list []string
	for _, m := range c.running() {
		list = append(list, fmt.Sprintf("%s %d MiB (at most %d)", m.name, residentBytes(t, m.process())>>20, peakBytes(t, m.process())>>20))
	}
	return strings.Join(list, ", ")
}

// number is gauge as a number, 0 for a series that does not exist yet.
func (p *process) number(t testing.TB, series string) float64 {
	t.Helper()
	text := p.gauge(t, series)
	if text == "" {
		return 0
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s %q: %v", series, text, err)
	}
	return f
}
