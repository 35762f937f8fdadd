package sim

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"carillon/internal/secret"
	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/node/route"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/halt"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/transport/api/timers"
	"carillon/transport/peer"
	"carillon/wal"
)

// identityOn reads the node's identity from a disk; false: there is none yet.
func identityOn(disk *memfs.FS) (member.Identity, bool) {
	id, err := member.ReadIdentity(disk, dataDir)
	return id, err == nil
}

// start starts a process on the machine.
func (n *node) start() {
	w := n.w
	n.life++
	n.awake = nil
	n.up, n.paused, n.closed, n.began = true, false, false, n.clock.Mono()
	n.beganOff = n.off()
	n.met, n.calls = map[uint64]process{}, nil
	n.heard, n.refused = map[uint64]time.Duration{}, map[uint64]refused{}
	n.told, n.toldBy = map[uint64]uint64{}, map[uint64]uint64{}
	n.toil = toil{}
	n.low, n.turned, n.laden = map[uint64]time.Duration{}, 0, 0
	n.sights, n.view, n.looked, n.age = map[uint64]*visibility{}, view{}, 0, 0
	n.trustsNobody()
	n.tasks = newTasks(n)
	clear(n.struck)
	n.agreed = agreed{}
	n.drawRelease()
	n.hook()
	_, err := vfs.LockDir(n.disk, dataDir)
	if err == nil {
		n.self, err = member.NewSelf(n.memberConfig())
	}
	if err != nil {
		n.couldNotStart(err)
		return
	}
	if n.successor != nil && n.self.ID() == n.successor.id { // this start has finished setAside
		n.handOn()
		return
	}
	if id := n.self.ID(); id != n.id {
		w.violate("identity", "node %d has identity %d after a start", n.id, id)
	}
	if starts := n.self.Identity().Starts; starts > n.starts {
		n.starts = starts
	} else if n.outdated {
		n.starts = starts
	} else {
		w.violate("identity", "node %d counts start %d after start %d", n.id, starts, n.starts)
	}
	n.gossip = newGossip(n)
	n.self.Connect(&peers{n, n.life}, n.gossip)
	w.note(n, "start", uint64(n.starts), 0, "")
	if w.swarm.replicaFaults.releases {
		n.every(time.Second, n.upgrade)
	}
	n.every(gossipEach, func() {
		if !n.died(nil) {
			n.gossip.look()
		}
	})
	n.tasks.Go(func() {
		if err := n.self.EnsureMembership(n.tasks.ctx); err != nil {
			n.tasks.schedule(0, func() { n.couldNotStart(err) })
			return
		}
		n.gossip.joined(n.self.Identity().ClusterID)
		n.tasks.schedule(0, n.open)
	})
}

// memberConfig is the configuration of the process's member.Self.
func (n *node) memberConfig() member.Config {
	w, life := n.w, n.life
	cfg := member.Config{
		Name: n.name, Version: "sim", Level: n.level, HTTP: n.name + ":7700", Peer: n.address(),
		Shards: w.swarm.shards, Replicas: w.swarm.replicas, BootstrapExpect: 1, NamesProven: true, PeersProven: true, ReplaceAfter: time.Minute,
		FS: n.disk, Dir: dataDir, Clock: n.keeper, Tasks: n.tasks, Random: n.random, Logger: slog.New(slog.DiscardHandler),
		Keys: func() *secret.Keys { return w.keys.of(n) }, LacksKey: func() string { return w.keys.lackedBy(n) },
		Fail: func(err error) {
			w.after(0, func() {
				if n.life == life {
					n.failed(err)
				}
			})
		},
	}
	if w.swarm.zones > 0 {
		cfg.Zone = fmt.Sprint("zone-", n.id%uint64(w.swarm.zones))
	}
	if n.founds {
		cfg.BootstrapExpect = w.swarm.nodes
	}
	if !n.founds || w.swarm.nodes > 1 {
		cfg.Join = []string{"n1:7702"}
	}
	return cfg
}

// random fills b with the bytes that the product draws at random. A request for eight bytes is for
// a node id, which is the machine's number.
func (n *node) random(b []byte) {
	clear(b)
	if len(b) == 8 {
		id := n.id
		if n.successor != nil {
			id = n.successor.id
		}
		binary.LittleEndian.PutUint64(b, id)
		return
	}
	for i := range b {
		b[i] = byte(n.w.ids.Uint32())
	}
	// Of all cluster secrets one in 256 begins like an envelope; here it is one in four.
	if len(b) == ring.SecretBytes && b[1]%4 == 0 {
		b[0] = 1
	}
}

// failed handles a process that ends itself.
func (n *node) failed(err error) {
	n.w.note(n, "ends itself", 0, 0, err.Error())
	if isOld(err) && (n.outdated || n.lied) {
		n.w.counts.ToldOlder++
		n.halts(err)
		return
	}
	if errors.Is(err, ring.ErrTooOld) {
		n.tooOld()
		return
	}
	if !errors.Is(err, member.ErrRemoved) {
		n.w.violate("member", "node %d ends itself: %v", n.id, err)
	}
	n.w.counts.Removed++
	n.gone = true
	n.stop(false)
}

// isOld reports whether a process ends itself because its directory, or its identity, is an older
// copy.
func isOld(err error) bool {
	why, ok := errors.AsType[*halt.Error](err)
	return ok && why.Reason == halt.OldDirectory
}

// couldNotStart handles a process that fails during its start.
func (n *node) couldNotStart(err error) {
	w := n.w
	switch {
	case errors.Is(err, member.ErrRemoved), errors.Is(err, ring.ErrTooOld), isOld(err) && n.outdated && !n.halted:
		n.failed(err)
	case n.crash.struck():
		n.stop(false)
	case n.heldBack(err):
	case n.ofItsDisk(err):
		n.ended(err)
	case n.couldNotRead(err):
		n.blinded(err)
	case n.rotten && shard.Damaged(err):
		n.awaitReplacement(err)
	default:
		w.violate("I11", "node %d does not start again: %v", n.id, err)
	}
}

// open starts the host of a process that belongs to a cluster.
func (n *node) open() {
	w := n.w
	var host *shard.Host
	var router *route.Router // nil: nobody waits yet
	n.member = n.self.NewMember(func(ids ...timer.TopicID) {
		host.TopicsChanged(ids...)
		if router != nil {
			router.TopicsChanged(ids...)
		}
	}, func() {}, func(id timer.ShardID, node uint64) { n.router.NewLeader(id, node) })
	n.state = n.member.State
	host, err := shard.New(n.hostConfig(n.disk, n.self.Identity(), n.state))
	if err != nil {
		w.violate("config", "%v", err)
	}
	if err := host.Open(); err != nil {
		n.couldNotStart(err)
		return
	}
	if n.halted {
		w.violate("halt", "node %d has halted because its disk lacks acknowledged data, but starts on it again", n.id)
	}
	n.crash.opens(false)
	n.host = host
	n.settle()
	if n.died(nil) {
		return
	}
	here := &memberHost{host, n}
	n.member.Attach(here)
	n.decided = w.checker.decided
	n.learned = n.host.Applied(shard.Meta) >= n.decided
	n.vetted()
	router = route.New(route.Config{
		Self: n.id, Host: here, History: noHistory{}, Cluster: n.member, Topic: n.state.Topic, Peers: &peers{n, n.life}, NotSent: peer.ErrNotSent,
		Tasks: n.tasks, BulkPage: 1 + w.featureClients.chance.IntN(12),
		Background: func(run func(context.Context)) { n.tasks.Go(func() { run(n.tasks.ctx) }) },
	})
	n.router = router
	n.topics = route.NewTopics(n.router, n.state.Topics, n.member)
	n.self.SetMember(n.member)
	n.checked = make([]checkedGroup, w.most()+1)
	n.remembers()
	n.every(time.Second, n.housekeep)
	ctx := n.tasks.ctx
	n.tasks.Go(func() { n.member.Run(ctx) })
	n.tasks.Go(func() { n.router.Run(ctx) })
	n.tasks.Go(func() { n.member.MarkFounded(ctx) })
	if w.turning.on {
		n.tasks.Go(func() { route.NewTurns(n.topics, n.tasks).Run(ctx) })
	}
	n.wake(0)
}

// hostConfig is the configuration of a process's host.
func (n *node) hostConfig(disk *memfs.FS, id member.Identity, state *ring.State) shard.Config {
	w := n.w
	cfg := shard.Config{
		Shards: id.Shards, Workers: 1, Loaders: 1, Node: n.id, Incarnation: table.NewIncarnation(n.id, id.Starts), Seed: w.cfg.Seed + n.id,
		FS: disk, Dir: dataDir, Clock: turnClock{n.keeper, n}, Topics: state, Machine: state, Level: n.level, Agreed: state.Level, Applied: n.applied, Zones: n.zones, Describe: timers.Outcomes(),
		Dispatcher: w.calls.dispatcher(n), Peers: &wire{n, n.life}, Observer: &observer{n},
		Logger: slog.New(slog.DiscardHandler),
		Log: wal.Options{
			SegmentBytes: w.swarm.segmentBytes, GenBytes: w.swarm.genBytes, LowDiskBytes: lowLimit,
			QueueFrames: w.swarm.bounds.queueFrames, FrameBytes: w.swarm.bounds.logFrame,
			NowMs: n.keeper.WallMs, Monotonic: n.clock.Mono, Salt: w.salts.Uint64,
		},
		FrameBytes: w.swarm.bounds.frameBytes, UnsyncedBytes: w.swarm.bounds.unsyncedBytes,
		MemoryLimit: w.swarm.bounds.memory,
		RetainBytes: w.swarm.retainBytes, SnapshotLogBytes: w.swarm.snapshotBytes,
	}
	if n.member != nil {
		cfg.Placement, cfg.Shares, cfg.Shortages, cfg.Vet = placement{n.member, n}, n.member.Limits, n.member, n.member.Vet
	}
	if n.tasks != nil {
		t := n.tasks
		cfg.Block = func(register func(wake func())) {
			n.wake(0)
			t.block(register)
		}
		cfg.Ready = func(topic timer.TopicID, timers int) { n.router.Ready(topic, timers) }
		cfg.NewLeader = func(id timer.ShardID, node uint64) { n.router.NewLeader(id, node) }
	}
	if !id.Founded {
		cfg.Meta = id.Meta
	}
	return cfg
}

// placement connects the host to the member, as in the product, and may cut the power at each move.
type placement struct {
	*member.Member
	n *node
}

// Settled implements shard.Placement.
func (p placement) Settled(group timer.ShardID, epoch uint32) {
	p.n.w.cutWithin(300 * time.Millisecond)
	p.Member.Settled(group, epoch)
}

// Fence implements shard.Placement.
func (p placement) Fence(owner table.Incarnation, then func(error)) {
	p.Member.Fence(owner, func(err error) {
		then(err)
		p.n.wake(0)
	})
}

// memberHost is the host as the member and the router see it. It wakes the host after each change.
type memberHost struct {
	*shard.Host
	n *node
}

// Place implements member.Host.
func (h *memberHost) Place(rows []shard.Assignment) {
	h.Host.Place(rows)
	h.n.wake(0)
}

// Cordon implements member.Host.
func (h *memberHost) Cordon(on bool) {
	h.Host.Cordon(on)
	h.n.wake(0)
}

// Restarted implements member.Host.
func (h *memberHost) Restarted() {
	h.Host.Restarted()
	h.n.wake(0)
}

// Propose implements member.Host.
func (h *memberHost) Propose(cmd []byte) (any, error) {
	var c ring.Command
	if json.Unmarshal(cmd, &c) == nil {
		switch c.Verb {
		case ring.Place:
			h.n.w.note(h.n, "place", uint64(c.Group), uint64(c.Epoch), "")
			h.n.w.counts.Moves++
		case ring.Fence:
			h.n.w.counts.Fences++
		case ring.Reseal:
			h.n.w.counts.Resealed++
		}
	}
	return h.Host.Propose(cmd)
}

// Candidates implements route.Host.
func (h *memberHost) Candidates(ctx context.Context, topic timer.TopicID, most int) ([]timer.Candidate, error) {
	pullOf(ctx).looks()
	return h.Host.Candidates(ctx, topic, most)
}

// PullFrom implements route.Host. A timer that the host leases belongs to the consumer from here
// on, even if the answer is lost.
func (h *memberHost) PullFrom(ctx context.Context, topic timer.TopicID, leaseMs int64, shares []timer.Share) ([]timer.PulledTimer, error) {
	asked := h.n.w.now
	pullOf(ctx).takes()
	list, err := h.Host.PullFrom(ctx, topic, leaseMs, shares)
	if h.n.w.crowd.has(topic) {
		h.n.w.crowd.handed(h.n, list)
		return list, err
	}
	if topic == turnedTopic {
		h.n.w.checker.turned.handed(h.n, asked, list)
		return list, err
	}
	h.n.handOut(asked, surely(leaseMs), list)
	return list, err
}

// noHistory keeps no history.
type noHistory struct{}

// List implements route.LocalHistory.
func (noHistory) List(*timer.HistoryQuery) ([]*timer.HistoryEntry, bool, error) {
	return nil, false, nil
}

// Attempts implements route.LocalHistory.
func (noHistory) Attempts(timer.ShardID, timer.TopicID, string, *scheduler.Standing) []timer.HistoryAttempt {
	return nil
}
