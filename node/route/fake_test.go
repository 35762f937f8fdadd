package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/node/task"
	"carillon/shard"
	"carillon/shard/scheduler"
	"carillon/timer"
)

var (
	errNotSentFake = errors.New("not sent")
	errBrokenFake  = errors.New("the connection broke")
)

// fakeCluster is some nodes that share shards, without a network: the leader of a shard when an
// operation comes executes it, and that is written down. Faults are drawn; with none it does as it
// is told.
type fakeCluster struct {
	shards int
	nodes  map[uint64]*fakeNode

	mu       sync.Mutex
	leaders  map[timer.ShardID]uint64 // 0 nobody
	executed map[timer.ShardID][]*timer.Command
	calls    []fakeCall
	timers   map[timer.ShardID][]*timer.Timer
	down     []uint64                         // nodes that nobody hears
	empty    bool                             // there are no timers to count
	past     []*timer.HistoryEntry            // of all shards, in order
	kept     map[timer.HistoryKey][]uint64    // which nodes have which entries; nil all have all
	ready    map[timer.ShardID][]*timer.Timer // of a topic that is pulled, in order
	rand     *rand.Rand                       // nil: no faults
	moves    int                              // percent of calls before which a leadership moves
	faults   int                              // percent of steps that go wrong

	pulled atomic.Pointer[timer.Topic] // as all nodes know it; nil: it is gone

	openState func(n *fakeNode, id timer.ShardID, index uint64) (*shard.State, error)

	// onCall, when set, stands in for the network.
	onCall func(ctx context.Context, c fakeCall, deliver func() ([]byte, error)) ([]byte, error)
}

type fakeCall struct {
	from, to uint64
	method   uint8
}

// fakeNode is a node's host, and the router on it.
type fakeNode struct {
	*Router
	cluster *fakeCluster
	id      uint64

	answer error        // of every operation and read, when set
	thinks uint64       // the leader of every shard, when set
	blind  bool         // knows of no leader
	waits  bool         // is about to know the leader
	counts atomic.Int64 // with so many shards; 0: those that the cluster was founded with
	grows  atomic.Bool  // its host counts with another number just now
	listed atomic.Int64 // timers in all its pages
}

func newFakeCluster(nodes, shards int) *fakeCluster {
	c := &fakeCluster{
		shards: shards, nodes: map[uint64]*fakeNode{}, leaders: map[timer.ShardID]uint64{},
		executed: map[timer.ShardID][]*timer.Command{}, timers: map[timer.ShardID][]*timer.Timer{},
		ready: map[timer.ShardID][]*timer.Timer{},
	}
	c.pulled.Store(&timer.Topic{ID: 1, Policy: timer.Policy{Pull: true}})
	begin := time.Now()
	tasks := task.NewGoroutines(func() time.Duration { return time.Since(begin) })
	for id := uint64(1); id <= uint64(nodes); id++ {
		n := &fakeNode{cluster: c, id: id}
		n.Router = New(Config{
			Self: id, Host: n, History: fakeHistory{n}, Cluster: n, Peers: n, NotSent: errNotSentFake, Tasks: tasks,
			Background: func(run func(context.Context)) { tasks.Go(func() { run(context.Background()) }) },
			Topic: func(timer.TopicID) (*timer.Topic, bool) {
				topic := c.pulled.Load()
				return topic, topic != nil
			},
		})
		c.nodes[id] = n
	}
	for id := 1; id <= shards; id++ {
		c.leaders[timer.ShardID(id)] = uint64(1 + (id-1)%nodes)
	}
	return c
}

// Confirm implements Host.
func (n *fakeNode) Confirm(timer.ShardID) (uint64, error) { return 1, n.answer }

// OpenState implements Host.
func (n *fakeNode) OpenState(id timer.ShardID, index uint64) (*shard.State, error) {
	if n.cluster.openState == nil {
		return nil, n.answer
	}
	return n.cluster.openState(n, id, index)
}

// LikelyLeaders implements Cluster: every node, the same for all shards: mostly wrong.
func (n *fakeNode) LikelyLeaders(timer.ShardID) []uint64 {
	var all []uint64
	for id := uint64(1); id <= uint64(len(n.cluster.nodes)); id++ {
		all = append(all, id)
	}
	return all
}

// Shards implements Cluster.
func (n *fakeNode) Shards() (now, first int) {
	return cmp.Or(int(n.counts.Load()), n.cluster.shards), n.cluster.shards
}

// Steady implements Cluster.
func (n *fakeNode) Steady() bool { return !n.grows.Load() }

// LiveNodes implements Cluster: all others but those that are down.
func (n *fakeNode) LiveNodes() []uint64 {
	return slices.DeleteFunc(n.LikelyLeaders(0), func(id uint64) bool { return id == n.id || slices.Contains(n.cluster.down, id) })
}

// Silent implements Cluster: those that are down.
func (n *fakeNode) Silent(node uint64) bool {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return slices.Contains(n.cluster.down, node)
}

// Replicas implements Cluster: all nodes have one of each shard.
func (n *fakeNode) Replicas(timer.ShardID) []uint64 { return n.LikelyLeaders(0) }

// chance is true in percent of the cases, when faults are drawn.
func (c *fakeCluster) chance(percent int) bool { return c.rand != nil && c.rand.IntN(100) < percent }

func (c *fakeCluster) move() {
	if c.chance(c.moves) {
		c.leaders[timer.ShardID(1+c.rand.IntN(c.shards))] = uint64(c.rand.IntN(len(c.nodes) + 1))
	}
}

func (n *fakeNode) Leads(id timer.ShardID) bool {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	if id == shard.Meta && n.cluster.leaders[id] == 0 || int(id) > max(n.cluster.shards, int(n.counts.Load())) {
		panic(fmt.Sprintf("there is no shard %d", id)) // as the host does
	}
	return n.cluster.leaders[id] == n.id
}

// Takes implements Host: with faults a node that does not lead may think that it will soon know the
// leader.
func (n *fakeNode) Takes(id timer.ShardID) bool {
	if n.Leads(id) || n.waits {
		return true
	}
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return n.cluster.chance(n.cluster.faults)
}

// Leader knows the leader, or the former one.
func (n *fakeNode) Leader(id timer.ShardID) (uint64, bool) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n.blind:
		return 0, false
	case n.thinks != 0:
		return n.thinks, true
	case c.chance(c.faults):
		return uint64(1 + c.rand.IntN(len(c.nodes))), true
	}
	return c.leaders[id], c.leaders[id] != 0
}

func (n *fakeNode) Do(id timer.ShardID, cmd *timer.Command, _ bool) (timer.Result, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.answer != nil {
		return timer.Result{}, n.answer
	}
	if c.leaders[id] != n.id {
		return timer.Result{}, timer.NotLeaderError{Leader: c.leaders[id]}
	}
	if c.chance(c.faults) {
		switch c.rand.IntN(5) {
		case 0:
			return timer.Result{}, timer.ErrUnknown
		case 1:
			return timer.Result{}, timer.ErrOverloaded
		case 2:
			return timer.Result{}, timer.ErrNoLeader
		case 3:
			return timer.Result{}, fmt.Errorf("as wrapped: %w", timer.NotLeaderError{})
		}
		c.executed[id] = append(c.executed[id], cmd)
		return timer.Result{}, timer.ErrUnknown
	}
	c.executed[id] = append(c.executed[id], cmd)
	return timer.Result{Code: timer.OK, Seq: uint64(cmd.IfMatch)}, nil
}

func (n *fakeNode) DoAll(ops []timer.Op) {
	for i := range ops {
		ops[i].Result, ops[i].Err = n.Do(ops[i].Shard, ops[i].Command, ops[i].Brief)
	}
}

func (n *fakeNode) reads(id timer.ShardID) ([]*timer.Timer, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n.answer != nil:
		return nil, n.answer
	case c.leaders[id] != n.id, c.chance(c.faults):
		return nil, timer.ErrNoLeader
	}
	return c.timers[id], nil
}

func (n *fakeNode) Timer(id timer.ShardID, _ timer.TopicID, timer string) (*timer.Timer, error) {
	list, err := n.reads(id)
	for _, t := range list {
		if t.ID == timer {
			return t, nil
		}
	}
	return nil, err
}

// List implements Host, and counts the timers that it gives. With faults a shard may have moved.
func (n *fakeNode) List(ids []timer.ShardID, q *timer.Query) (page timer.Page, led []timer.ShardID, err error) {
	ends := false
	for _, id := range ids {
		list, err := n.reads(id)
		if err != nil && !Refused(err) {
			return timer.Page{}, nil, err
		}
		if err != nil {
			continue
		}
		led = append(led, id)
		for i, t := range list { // in slots from 1 on
			if slot := timer.Handle(1 + i); slot <= q.Slots.From || q.Slots.To != 0 && slot > q.Slots.To {
				ends = ends || slot > q.Slots.To
				continue
			}
			if q.After == nil || q.SortKey(t).Compare(*q.After) > 0 {
				page.Timers = append(page.Timers, t)
			}
		}
	}
	slices.SortFunc(page.Timers, func(a, b *timer.Timer) int { return q.SortKey(a).Compare(q.SortKey(b)) })
	if len(page.Timers) > q.Limit {
		page.Cut(q, q.Limit)
	}
	own, end := timer.NewAllowance(q.Bytes), 0
	for end < len(page.Timers) && (q.Bytes == 0 || own.Take(page.Timers[end].Size())) && (q.Room == nil || q.Room.Take(page.Timers[end].Size())) {
		end++
	}
	if ends && !page.More {
		page.More, page.Next = true, timer.RangeEnd
	}
	if end < len(page.Timers) {
		page.Cut(q, end)
	}
	if q.Waits {
		page.Waits = make([]timer.Wait, len(page.Timers))
	}
	n.listed.Add(int64(len(page.Timers)))
	return page, led, nil
}

// Walk's way is the list: From is how many are behind.
func (n *fakeNode) Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) (marks []timer.Ref, next timer.ScanCursor, err error) {
	list, err := n.reads(id)
	if err != nil {
		return nil, at, err
	}
	next = timer.ScanCursor{From: at.From, High: timer.Handle(len(list)), Begun: true}
	for ; !next.Done() && len(marks) < q.Limit; next.From++ {
		marks = append(marks, timer.Ref{ID: list[next.From].ID, Version: list[next.From].Version})
	}
	return marks, next, nil
}

// keeps says whether an entry is in the node's files.
func (n *fakeNode) keeps(e *timer.HistoryEntry) bool {
	return n.cluster.kept == nil || slices.Contains(n.cluster.kept[e.Key], n.id)
}

// fakeHistory is a node's history: every node has that of all shards, unless the test sets their
// entries.
type fakeHistory struct{ n *fakeNode }

// List implements LocalHistory.
func (h fakeHistory) List(q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error) {
	h.n.cluster.mu.Lock()
	defer h.n.cluster.mu.Unlock()
	if h.n.cluster.chance(h.n.cluster.faults) {
		return nil, false, timer.ErrUnknown
	}
	for _, e := range h.n.cluster.past {
		if slices.Contains(q.Shards, e.Key.Shard) && h.n.keeps(e) && (q.After == nil || e.Key.Compare(*q.After) > 0) {
			if len(page) == q.Limit {
				return page, true, nil
			}
			page = append(page, e)
		}
	}
	return page, false, nil
}

// Counts counts each led shard as its number, so that a sum says which are in it, and as often as
// the topic's number says. Attempts implements LocalHistory: one, which tells whose it is.
func (h fakeHistory) Attempts(id timer.ShardID, _ timer.TopicID, timerID string, s *scheduler.Standing) []timer.HistoryAttempt {
	return []timer.HistoryAttempt{{Attempt: s.Attempts, Err: fmt.Sprint(id, " ", timerID)}}
}

// Standings implements Host: every timer waits for a consumer.
func (n *fakeNode) Standings(id timer.ShardID, q *timer.ProgressQuery) ([]scheduler.Standing, error) {
	if n.answer != nil {
		return nil, n.answer
	}
	if !n.Leads(id) {
		return nil, timer.NotLeaderError{Leader: n.cluster.leaders[id]}
	}
	list := make([]scheduler.Standing, len(q.IDs))
	for i := range list {
		list[i] = scheduler.Standing{Wait: timer.Wait{For: timer.WaitConsumer, On: q.IDs[i]}, State: timer.Scheduled, Attempts: 1}
	}
	return list, nil
}

func (n *fakeNode) Counts(topics []timer.TopicID) ([]timer.Counts, error) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	var sum timer.Counts
	for id, leader := range n.cluster.leaders {
		if leader == n.id && !n.cluster.empty {
			sum.Scheduled += 1 << id
			sum.OldestOverdueMs = max(sum.OldestOverdueMs, int64(id))
		}
	}
	sums := make([]timer.Counts, len(topics))
	for i, topic := range topics {
		sums[i] = timer.Counts{Scheduled: sum.Scheduled * int64(topic), OldestOverdueMs: sum.OldestOverdueMs}
	}
	return sums, n.answer
}

// LeadingNodes implements Cluster.
func (n *fakeNode) LeadingNodes() []uint64 {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []uint64
	for _, node := range c.leaders {
		if node != 0 && !slices.Contains(list, node) {
			list = append(list, node)
		}
	}
	slices.Sort(list)
	return list
}

func (n *fakeNode) Candidates(_ context.Context, _ timer.TopicID, most int) (list []timer.Candidate, err error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, ready := range c.ready {
		for _, t := range ready {
			if c.leaders[id] == n.id {
				list = append(list, timer.Candidate{Shard: id, Priority: t.Priority, DueMs: t.DueMs, Bytes: len(t.Payload)})
			}
		}
	}
	scheduler.SortCandidates(list)
	return list[:min(len(list), most)], n.answer
}

func (n *fakeNode) PullFrom(_ context.Context, _ timer.TopicID, leaseMs int64, of []timer.Share) (list []timer.PulledTimer, err error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.answer != nil {
		return nil, n.answer
	}
	for _, s := range of {
		if c.leaders[s.Shard] != n.id {
			err = timer.NotLeaderError{}
			continue
		}
		ready := c.ready[s.Shard]
		most := min(s.Timers, len(ready))
		for _, t := range ready[:most] {
			list = append(list, timer.PulledTimer{Shard: s.Shard, Handle: 1, UntilMs: leaseMs, Timer: t})
		}
		c.ready[s.Shard] = ready[most:]
	}
	if len(list) > 0 {
		err = nil
	}
	return list, err
}

// becomes makes a timer ready, and has its leader tell.
func (c *fakeCluster) becomes(id timer.ShardID, t *timer.Timer) {
	c.mu.Lock()
	c.ready[id] = append(c.ready[id], t)
	leader, timers := c.nodes[c.leaders[id]], len(c.ready[id])
	c.mu.Unlock()
	if leader != nil {
		leader.Ready(1, timers)
	}
}

// Call implements Peers: the network. It may lose the question, or the answer, or both for ever.
func (n *fakeNode) Call(ctx context.Context, to uint64, method uint8, body []byte) ([]byte, error) {
	c := n.cluster
	call := fakeCall{n.id, to, method}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.move()
	fault := -1
	if c.chance(c.faults) {
		fault = c.rand.IntN(4)
	}
	c.mu.Unlock()
	deliver := func() ([]byte, error) { return c.nodes[to].Serve(ctx, n.id, method, body) }
	if c.onCall != nil {
		return c.onCall(ctx, call, deliver)
	}
	switch fault {
	case 0:
		return nil, fmt.Errorf("as wrapped: %w", errNotSentFake)
	case 1:
		return nil, errBrokenFake
	case 2:
		if _, err := deliver(); err != nil {
			return nil, err
		}
		return nil, errBrokenFake
	case 3:
		<-ctx.Done() // silence
		return nil, ctx.Err()
	}
	return deliver()
}

// after waits, in the test's time.
func after(d time.Duration) {
	<-time.After(d)
}
