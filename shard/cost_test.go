//go:build !race

package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
)

// On a shared machine times mean little, but an operation allocates the same objects and bytes
// anywhere. The bounds are about a tenth above the measured values. A change that exceeds one on
// purpose says why; a change that falls far below one lowers it. These tests skip the race
// detector, under which pools drop their contents.

const (
	costRounds = 10
	costShared = 16  // adds that share an entry and a frame
	costFired  = 256 // timers due at the same instant
)

// costPeers buffers frames. It delivers them once the sender's work has been counted.
type costPeers struct {
	noPeers
	frames []costFrame
}

type costFrame struct {
	node  uint64
	frame []byte
}

func (p *costPeers) Send(node uint64, frame []byte) {
	p.frames = append(p.frames, costFrame{node, frame})
}

// costCluster is a set of hosts with one shard, on cheap disks.
type costCluster struct {
	t     *testing.T
	hosts []*hostHarness
	peers []*costPeers
	spent []testkit.Cost
	next  int
}

func newCostCluster(t *testing.T, nodes int) *costCluster {
	c := &costCluster{t: t, spent: make([]testkit.Cost, nodes)}
	var rows []Assignment
	for id := range timer.ShardID(2) {
		row := Assignment{Group: id, Epoch: 1, Settled: true}
		for i := range nodes {
			row.Members = append(row.Members, Member{Node: firstNode + uint64(i), Replica: ReplicaID(firstNode+uint64(i), 1)})
		}
		rows = append(rows, row)
	}
	for i := range nodes {
		r := makeHarness(t, memfs.New(), nil)
		p := &costPeers{}
		r.rows = rows
		r.change = func(cfg *Config) {
			cfg.Node, cfg.Peers, cfg.Dispatcher, cfg.Observer = firstNode+uint64(i), p, &costReceiver{r.clock}, benchObserver{}
			cfg.Incarnation = table.NewIncarnation(cfg.Node, r.starts)
		}
		c.hosts, c.peers = append(c.hosts, r), append(c.peers, p)
		r.clock = c.hosts[0].clock
		if err := r.open(); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; !c.hosts[0].host.group(1).serving; n++ {
		if n > 100 {
			t.Fatal("the shard has no leader")
		}
		if g := c.hosts[0].host.group(1); n%10 == 0 && !g.leader {
			_ = g.raft.Campaign()
			g.w.touchNext(g)
		}
		c.runIdle()
		c.hosts[0].step(tickInterval)
	}
	c.runIdle()
	return c
}

// runIdle runs all hosts until they are idle, and counts the allocations of each.
func (c *costCluster) runIdle() {
	for busy, n := true, 0; busy; n++ {
		if n > 10_000 {
			c.t.Fatal("the hosts do not come to rest")
		}
		busy = false
		for i, r := range c.hosts {
			for r.busy() {
				busy = true
				c.spent[i].Spent(r.turn)
			}
			for _, f := range c.peers[i].frames {
				busy = true
				to := int(f.node - firstNode)
				own := slices.Clone(f.frame) // as if read from the network
				c.spent[to].Spent(func() { c.hosts[to].host.Deliver(firstNode+uint64(i), own) })
			}
			c.peers[i].frames = c.peers[i].frames[:0]
		}
	}
}

// round submits the given number of adds to the first host, the leader, and returns each host's
// cost.
func (c *costCluster) round(operations int, delay time.Duration) []testkit.Cost {
	r := c.hosts[0]
	payload := []byte(`{"d":"` + strings.Repeat("x", 192) + `"}`)
	commands := make([]timer.Command, operations)
	for i := range commands {
		c.next++
		commands[i] = timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("order-%08d", c.next),
			Spec: &timer.Spec{DueMs: r.clock.wallMs + delay.Milliseconds(), Payload: payload, PayloadKind: timer.JSONPayload}}
	}
	clear(c.spent)
	waiters := make([]*waiter, len(commands))
	for i := range commands {
		waiters[i] = fakeWaiter()
		c.spent[0].Spent(func() {
			o, err := r.host.newOp(1, &commands[i], true, nil, waiters[i])
			if err == nil {
				err = o.shard.g.w.box.offer(o)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		})
	}
	c.runIdle()
	for _, w := range waiters {
		select {
		case <-w.ch:
		default:
			c.t.Fatal("an add has no answer")
		}
	}
	return slices.Clone(c.spent)
}

// costReceiver accepts every call and ends it at once.
type costReceiver struct{ clock *fakeClock }

func (r *costReceiver) Route(*timer.Topic, *timer.Callback) (scheduler.Destination, error) {
	return r, nil
}
func (r *costReceiver) Tenant(*timer.Topic) string { return "" }

func (r *costReceiver) Acquire(scheduler.Destination, *timer.Topic, delivery.Ask) (delivery.Permit, delivery.Verdict) {
	return r, delivery.Verdict{}
}
func (r *costReceiver) State(scheduler.Destination, *timer.Topic) delivery.State {
	return delivery.State{}
}
func (r *costReceiver) Cancel() {}
func (r *costReceiver) StartBatch(delivery.Permit, *scheduler.BatchCall, func([]delivery.Outcome)) {
	panic("no topic has calls of many timers")
}
func (r *costReceiver) Start(_ delivery.Permit, _ *scheduler.Delivery, done func(delivery.Outcome)) {
	done(delivery.Outcome{Status: 200, StartedMs: r.clock.wallMs, EndedMs: r.clock.wallMs})
}

func TestCostOfAnAdd(t *testing.T) {
	c := newCostCluster(t, 1)
	var rounds []testkit.Cost
	for range costRounds {
		rounds = append(rounds, c.round(costShared, time.Hour)[0])
	}
	testkit.Within(t, "an add to a node alone", rounds, costShared, 5.4, 890)
}

// TestCostOfABatch bounds the allocations of each add of a thousand in one call, those of the log's
// files included.
func TestCostOfABatch(t *testing.T) {
	const adds, shards = 1000, 4
	h, _ := benchHost(t, shards)
	topic, payload := &timer.Topic{Name: "bench"}, []byte(`{"d":"`+strings.Repeat("x", 192)+`"}`)
	list, commands, specs := make([]timer.Op, adds), make([]timer.Command, adds), make([]timer.Spec, adds)
	var rounds []testkit.Cost
	for round := range 2 * costRounds {
		for i := range list {
			id := fmt.Sprintf("order-%08d", round*adds+i)
			specs[i] = timer.Spec{DueMs: 1 << 41, Payload: payload, PayloadKind: timer.JSONPayload}
			commands[i] = timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &specs[i]}
			list[i] = timer.Op{Shard: timer.ShardOf(topic, id, shards), Command: &commands[i], Brief: true}
		}
		var c testkit.Cost
		c.Spent(func() { h.DoAll(list) })
		rounds = append(rounds, c)
		for i := range list {
			if list[i].Err != nil || list[i].Result.Code != timer.Created {
				t.Fatal(list[i].Result.Code, list[i].Err)
			}
		}
	}
	testkit.Within(t, "an add of a batch", rounds, adds, 0.45, 1200)
}

func TestCostOfAReplicatedAdd(t *testing.T) {
	c := newCostCluster(t, 3)
	var leader, follower []testkit.Cost
	for range costRounds {
		spent := c.round(costShared, time.Hour)
		leader, follower = append(leader, spent[0]), append(follower, spent[1])
	}
	testkit.Within(t, "an add to its leader", leader, costShared, 8.3, 1900)
	testkit.Within(t, "an add to a follower", follower, costShared, 4.4, 780)
}

func TestCostOfFiring(t *testing.T) {
	c := newCostCluster(t, 3)
	var leader, follower []testkit.Cost
	for range costRounds {
		c.round(costFired, time.Second)
		clear(c.spent)
		for range 24 {
			c.hosts[0].step(50 * time.Millisecond)
			c.runIdle()
		}
		leader, follower = append(leader, c.spent[0]), append(follower, c.spent[1])
		if counts := shardOf(c.hosts[0].host.group(1)).table.Counts(1); counts.Scheduled+counts.Leased > 0 {
			t.Fatalf("not all have fired: %+v", counts)
		}
	}
	testkit.Within(t, "a timer's firing to its leader", leader, costFired, 13, 1650)
	testkit.Within(t, "a timer's firing to a follower", follower, costFired, 2, 150)
}
