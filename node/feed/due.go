package feed

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/transport/api/backend"
)

const (
	gatherTimeout = 6 * time.Second
	dueTries      = 3 // until each shard has been counted once
	duePause      = 300 * time.Millisecond
	// dueAtOnce shards of a node are counted at once: in each the leader is confirmed first, which
	// takes as long for all of them as for one.
	dueAtOnce = 16
)

// Host is the part of the node's own shards that a Feed needs: shard.Host.
type Host interface {
	Leads(id timer.ShardID) bool
	Forecast(id timer.ShardID, topics map[timer.TopicID]bool, f *table.Forecast) error
	Stats() shard.Stats
}

// each asks all nodes at the same time: here for this one, and the others by a method. take gets
// one answer at a time; node 0 is this one.
func (f *Feed) each(ctx context.Context, method uint8, body []byte, here func() ([]byte, error), take func(node uint64, answer []byte, err error)) {
	nodes := append([]uint64{0}, f.cfg.Nodes()...)
	answers, errs := make([][]byte, len(nodes)), make([]error, len(nodes))
	ctx, cancel := f.cfg.Tasks.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	all := task.NewGroup(f.cfg.Tasks)
	for i, node := range nodes {
		all.Go(func() {
			if node == 0 {
				answers[i], errs[i] = here()
			} else {
				answers[i], errs[i] = f.cfg.Call(ctx, node, method, body)
			}
		})
	}
	all.Wait()
	for i, node := range nodes {
		take(node, answers[i], errs[i])
	}
}

// dueAsk asks for the timers that come due in the shards that a node leads.
type dueAsk struct {
	Topics   []timer.TopicID `json:"topics,omitempty"`
	All      bool            `json:"all,omitempty"` // of all topics
	FromMs   int64           `json:"from_ms"`
	BucketMs int64           `json:"bucket_ms"`
	Buckets  int             `json:"buckets"`
	Of       int             `json:"of,omitempty"` // the number of shards, where it has ever grown
}

// dueHere is one node's answer.
type dueHere struct {
	Shards  []timer.ShardID `json:"shards"` // that were counted
	Buckets []int64         `json:"buckets"`
	Overdue int64           `json:"overdue"`
	Later   int64           `json:"later"`
}

// Due counts the timers that come due, over all shards. Shards that no node counted, since they
// have no leader now, are missing in the answer: see its Counted.
func (f *Feed) Due(ctx context.Context, q *backend.DueQuery) (*backend.Due, error) {
	ask := dueAsk{Topics: q.Topics, All: q.All, FromMs: q.FromMs, BucketMs: q.BucketMs, Buckets: q.Buckets}
	for try := 1; ; try++ {
		shards, first := f.cfg.Shards()
		d := &backend.Due{Buckets: make([]int64, q.Buckets), Shards: shards}
		if shards != first {
			ask.Of = shards
		}
		body, err := json.Marshal(&ask)
		if err != nil {
			return nil, err
		}
		counted := map[timer.ShardID]bool{}
		twice := false
		f.each(ctx, methodDue, body, func() ([]byte, error) { return f.serveDue(body) }, func(_ uint64, answer []byte, err error) {
			var h dueHere
			if err != nil || json.Unmarshal(answer, &h) != nil || len(h.Buckets) != q.Buckets {
				return
			}
			for _, id := range h.Shards {
				twice = twice || counted[id]
				counted[id] = true
			}
			for i, n := range h.Buckets {
				d.Buckets[i] += n
			}
			d.Overdue += h.Overdue
			d.Later += h.Later
		})
		d.Counted = len(counted)
		if !twice && d.Counted == d.Shards || !twice && try >= dueTries {
			return d, nil
		}
		if try > 2*dueTries || !f.cfg.Tasks.Sleep(ctx, f.pause) {
			return nil, timer.ErrNoLeader // leaders change all the time
		}
	}
}

// maxBuckets bounds the buckets that another node may ask for; the API allows less.
const maxBuckets = 10_000

func (f *Feed) serveDue(body []byte) ([]byte, error) {
	var a dueAsk
	if err := json.Unmarshal(body, &a); err != nil || a.BucketMs < 1 || a.Buckets < 1 || a.Buckets > maxBuckets {
		return nil, encoding.ErrFormat
	}
	var topics map[timer.TopicID]bool
	if !a.All {
		topics = make(map[timer.TopicID]bool, len(a.Topics))
		for _, id := range a.Topics {
			topics[id] = true
		}
	}
	shards, first := f.cfg.Shards()
	if a.Of == 0 && shards != first || a.Of != 0 && a.Of != shards || !f.cfg.Steady() {
		return nil, timer.ErrShards // one of both does not know yet that there are more
	}
	h := dueHere{Shards: []timer.ShardID{}}
	var led []timer.ShardID
	for id := timer.ShardID(1); int(id) <= shards; id++ {
		if f.host.Leads(id) {
			led = append(led, id)
		}
	}
	forecast := func() table.Forecast {
		return table.Forecast{FromMs: a.FromMs, BucketMs: a.BucketMs, Buckets: make([]int64, a.Buckets)}
	}
	sum := forecast()
	var mu sync.Mutex
	task.Lanes(f.cfg.Tasks, dueAtOnce, len(led), func(i int) bool {
		if one := forecast(); f.host.Forecast(led[i], topics, &one) == nil {
			mu.Lock()
			defer mu.Unlock()
			sum.Add(&one)
			h.Shards = append(h.Shards, led[i])
		}
		return true
	})
	if now, _ := f.cfg.Shards(); now != shards || !f.cfg.Steady() {
		return nil, timer.ErrShards
	}
	slices.Sort(h.Shards)
	h.Buckets, h.Overdue, h.Later = sum.Buckets, sum.Overdue, sum.Later
	return json.Marshal(&h)
}
