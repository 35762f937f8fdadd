package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/test/memfs"
	"carillon/timer"
)

// healLimit is how soon a healed cluster must serve and fire (I14).
const healLimit = 10 * time.Second

// live runs both phases.
func (w *World) live() {
	w.lay()
	if w.swarm.early {
		w.after(0, w.nemesis)
	}
	if w.swarm.ordeals.any() {
		w.after(0, w.undergo)
	}
	if a := &w.swarm.ailments; a.blinds > 0 || a.lies > 0 || a.hangs > 0 || a.putsBack > 0 {
		w.after(0, w.suffer)
	}
	if w.swarm.clocks != (clockFaults{}) {
		w.after(0, w.mistime)
	}
	w.found()
	w.employ()
	w.beginWorkloads()
	w.featureClients.begin()
	w.keys.begin()
	w.merging.begin()
	w.makers.begin()
	w.windowed.begin()
	w.outcomes.begin()
	w.perKey.begin()
	w.collecting.begin()
	w.turning.begin()
	w.sicken()
	if w.swarm.replicaFaults != (replicaFaults{}) {
		w.after(0, w.failReplicas)
	}
	if !w.swarm.early {
		w.after(0, w.nemesis)
	}
	w.grow()
	w.pass(w.swarm.safety)
	w.conclude()
}

// conclude heals the cluster and checks that it serves and has lost nothing.
func (w *World) conclude() {
	w.heal()
	if w.growing.on {
		w.resumeAll()
		w.growOut()
		w.healed = w.now
	}
	healed := w.now
	fired := w.probe(healed + w.believed)
	w.resumeAll()
	w.keys.done()
	w.prove(healed+w.believed, fired)
	w.keys.prove()
	for _, n := range w.nodes {
		if n.held {
			n.held = false
			n.start()
		}
	}
	w.drain()
	w.proveTurned()
	w.checkShardClocks()
	w.proveReplicas()
	w.proveApart()
	w.proveCrowd()
	w.proveIdle()
	w.checkEnd()
}

// lay makes the network, the receivers and the topics' names.
func (w *World) lay() {
	w.net = network{cut: map[[2]uint64]bool{}, false: map[[2]uint64]falseWord{}, last: map[[2]uint64]time.Duration{}, connections: map[[2]uint64]connection{}}
	w.calls = &receivers{w: w, all: map[uint64]*dispatcher{}}
	w.topics = append(slices.Clone(topicNames), sickName)
	if w.turning.on || w.crowd.size > 0 || w.outcomes.on {
		w.topics = append(w.topics, turnedName)
	}
	w.topics = append(w.topics, w.crowd.names()...)
	w.topics = append(w.topics, w.outcomes.topics(len(w.topics))...)
}

// employ starts the clients.
func (w *World) employ() {
	for i := range w.swarm.clients {
		c := &client{w: w, number: i}
		w.clients = append(w.clients, c)
		w.after(w.chance.between(0, w.swarm.think), c.act)
	}
}

// found starts the first nodes, which found the cluster.
func (w *World) found() {
	for i := range w.swarm.nodes {
		n := w.newNode(fmt.Sprintf("n%d", i+1))
		n.founds = true
	}
	for _, n := range w.nodes {
		n.start()
	}
	for i, name := range w.topics {
		p := timer.DefaultPolicy()
		p.Callback.URL = "http://" + name
		p.Callback.TimeoutMs = callTimeout.Milliseconds()
		p.MinBackoffMs, p.MaxBackoffMs, p.MaxAttempts = 200, 3000, 1000
		w.workloads.shape(timer.TopicID(i+1), &p)
		w.featureClients.shape(timer.TopicID(i+1), &p)
		if timer.TopicID(i+1) == sickTopic {
			sickPolicy(&p)
		}
		if timer.TopicID(i+1) == turnedTopic {
			p = *w.turning.policy(w.turning.pull)
		}
		w.windowed.shape(timer.TopicID(i+1), &p)
		w.outcomes.shape(timer.TopicID(i+1), &p)
		w.perKey.shape(timer.TopicID(i+1), &p)
		w.batches.shape(timer.TopicID(i+1), &p)
		w.crowd.shape(timer.TopicID(i+1), &p)
		w.keys.shape(timer.TopicID(i+1), &p)
		w.policies[timer.TopicID(i+1)] = p
		if !w.insist(putTopic(name, &p)) {
			w.violate("I14", "no node accepts a topic within five minutes: %s", w.describe())
		}
		w.keys.laid(timer.TopicID(i+1), w.tries)
		w.laid = i + 1
	}
	w.endLull()
	// on a bad network not all groups may serve: only the second phase requires that
	w.passUntil(20*time.Second, w.serving)
}

// serving reports whether every group has a leader that serves.
func (w *World) serving() bool {
	for id := range w.shards() + 1 {
		if w.leader(timer.ShardID(id)) == nil {
			return false
		}
	}
	return true
}

// heal ends the first phase and all its faults: links, processes, disks, clocks and receivers.
func (w *World) heal() {
	w.note(nil, "heal", 0, 0, "")
	w.calm, w.sick.down = true, false
	w.swarm.calm()
	w.net.heal(w.now)
	w.cure()
	if n := w.dispensable(); n != nil && w.chance.IntN(2) == 0 && !n.crash.plans() {
		n.held = true
		n.stop(true)
	}
	w.rightClocks()
	w.moreMemory()
	w.learnZones()
	for _, n := range w.nodes {
		n.crash.left, n.crash.says, n.crash.fail = 0, 0, [memfs.OpSyncDir + 1]int{}
		n.hungUntil = 0
		n.disk.SetCapacity(0)
		n.resume()
		if !n.up && !n.gone && !n.held {
			n.start()
		}
	}
	w.believed = w.believedIn()
	for _, c := range w.clients {
		c.done = true
	}
	w.workloads.done()
	w.merging.done()
	w.outcomes.done()
	w.collecting.done()
	w.makers.ended = true
	w.turning.done()
	w.healed = w.now
	w.perKey.done()
	w.featureClients.part()
}

// resumeAll resumes all topics, through all machines at once. The meta group must accept that
// within healLimit (I14). A machine whose copy of the topics is behind answers late. It holds up no
// other.
func (w *World) resumeAll() {
	w.windowed.done()
	var all []func(context.Context, *node) error
	for _, name := range w.topics {
		all = append(all, pauseTopic(name, false))
	}
	w.insist(all...)
	// a request to pause may still be on its way
	for _, later := range [...]time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second} {
		w.after(later, w.resumeTopics)
	}
	if took := w.now - w.healed; took > healLimit {
		w.violate("I14", "after the repair the meta group took %s to accept commands (last error: %v): %s", took, w.refusal, w.describe())
	}
}

// resumeTopics asks to resume all topics.
func (w *World) resumeTopics() {
	leader := w.metaLeader()
	for _, name := range w.topics {
		if leader != nil {
			w.operator(leader, pauseTopic(name, false), func(error) {})
		}
	}
}

// backlogLimit is the additional time after a period in which untrusted clocks kept all timers from
// firing: the backlog comes first.
const backlogLimit = 20 * time.Second

// settlesIn is how soon all groups have a new number of replicas, without faults.
const settlesIn = 20 * time.Second

// refusedIn is how soon a node whose disk was damaged has ended itself, if it has to.
const refusedIn = 10 * time.Second

// dispensable is a node that every group can lose and still have most of its voters, so the cluster
// must go on without it; nil: there is none, or replicas are being moved.
func (w *World) dispensable() *node {
	var best *ring.State
	for _, n := range w.nodes {
		if n.state != nil && (best == nil || n.state.Version() > best.Version()) {
			best = n.state
		}
	}
	for _, n := range w.nodes {
		// its start may be refused, also once it hears what it had acknowledged
		if n.rotten && !n.gone && (n.host == nil || w.now-n.stoppedAt < refusedIn) {
			return nil
		}
	}
	rows := best.Rows()
	without := w.any()
	if len(rows) == 0 { // no process could read its state
		return nil
	}
	// groups are about to shrink, perhaps to two replicas, which are both needed
	if w.numbered > 0 && w.now-w.numbered < settlesIn {
		return nil
	}
	// clocks are about to be set right: the first of two members that sees it has only the other's
	// word, from before
	if wrong := func(n *node) bool { return !n.gone && !n.isRight() }; len(best.Nodes()) == 2 && slices.ContainsFunc(w.nodes, wrong) {
		return nil
	}
	for _, row := range rows {
		voters, alive := 0, 0
		for _, r := range row.Replicas {
			if n := w.node(r.Node); !r.Learner {
				voters++
				// a replica with a flipped bit may have to be made anew from the others
				alive += int(b2u(!n.gone && n != without && !n.struck[row.Group]))
				if n.gone && w.growing.on {
					// its replica is about to move, perhaps to the node that would be stopped, and
					// a shard that moves is not divided
					return nil
				}
			}
		}
		if !row.Settled || 2*alive <= voters || w.numbered > 0 && row.Group != shard.Meta && voters != w.swarm.replicas {
			return nil
		}
	}
	return without
}

// probeName is the topic of the timers that prove that a shard takes and fires timers (I14). It is
// never paused and has a receiver of its own. In another topic they would wait behind all timers of
// that topic that became due before: the promise is that these drain at the rate of their receiver,
// however many there are, and that no other topic waits for them.
const probeName = "probe"

const probeTopic timer.TopicID = 17

// probe adds a timer to every shard. It returns a function that reports whether all have fired.
func (w *World) probe(healed time.Duration) (fired func() bool) {
	prover := &client{w: w, number: len(w.clients)}
	var keys []idKey
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		key := idKey{probeTopic, w.nameIn(probeName, id, probeName)}
		keys = append(keys, key)
		w.probeIn(prover, id, key.id, healed)
	}
	return func() bool {
		return !slices.ContainsFunc(keys, func(k idKey) bool {
			for _, wrote := range w.checker.features.id(k).writes {
				if len(wrote.over) > 0 {
					return false
				}
			}
			return true
		})
	}
}

// probeIn adds a timer, again and again until an add succeeds. If the process that was asked has
// ended, it does not wait for the answer.
func (w *World) probeIn(c *client, id timer.ShardID, name string, healed time.Duration) {
	o := &operation{number: w.checker.nextOp(), topic: probeTopic, id: name, shard: w.place(probeTopic, name)}
	w.fill(o, timer.Add, 50*time.Millisecond)
	o.then = func(ok bool) {
		if !ok && w.now-healed < healLimit {
			w.probeIn(c, id, name, healed)
		}
	}
	c.start(o)
	var look func()
	look = func() {
		switch {
		case o.over || w.now-healed >= healLimit:
		case o.asked.life != o.life || !o.asked.up:
			w.probeIn(c, id, name, healed)
		default:
			w.after(100*time.Millisecond, look)
		}
	}
	w.after(100*time.Millisecond, look)
}

// prove checks that every shard takes and fires a timer soon after the repair (I14).
func (w *World) prove(healed time.Duration, fired func() bool) {
	limit := healLimit
	if w.believed > 0 {
		limit += backlogLimit
	}
	if !w.passUntil(healed+limit-w.now, fired) {
		w.violate("I14", "ten seconds after the repair, not every shard has taken and fired a timer: %s", w.describe())
	}
}

// drain waits until all timers of clients are delivered and all replicas have caught up.
func (w *World) drain() {
	w.pass(15 * time.Second)
	w.featureClients.settleAll()
	limit := 60*time.Second + w.rationed()
	if !w.passUntil(limit, func() bool { return w.left() == 0 }) {
		w.violate("I14", "%s after the repair, %d timers have not ended:%s%s%s", limit, w.left(), w.leftWhere(), w.describe(), w.remaining())
	}
	// a move to a node that died is redirected after half a minute
	if !w.passUntil(60*time.Second, w.agreed) {
		w.violate("I14", "replicas do not catch up, or memberships do not become final: %s", w.describe())
	}
}

// rationed bounds how long the topics with limits take to end. Where a limit is smaller than the
// number of leaders, the leaders take turns of a second, and each turn delivers at least one timer.
// So the bound is a second for each waiting timer of the leader that has the most.
func (w *World) rationed() (longest time.Duration) {
	byNode := map[*node]int64{}
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		if leader := w.leader(id); leader != nil {
			table := leader.host.Table(id)
			byNode[leader] += table.Counts(fewTopic).Scheduled + table.Counts(pacedTopic).Scheduled + table.Counts(rankedTopic).Scheduled + table.Counts(briefTopic).Scheduled
			if w.workloads.pull.Concurrency > 0 {
				byNode[leader] += table.Counts(pullTopic).Scheduled
			}
			longest = max(longest, time.Duration(byNode[leader])*time.Second)
		}
	}
	return longest * time.Duration(len(byNode))
}

// leftWhere lists the shards and topics of the timers that have not ended.
func (w *World) leftWhere() (text string) {
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		leader := w.leader(id)
		if leader == nil {
			text += fmt.Sprintf(" shard %d has no leader;", id)
			continue
		}
		table := leader.host.Table(id)
		for i, name := range w.topics {
			if c := table.Counts(timer.TopicID(i + 1)); c.Scheduled+c.Leased > 0 {
				text += fmt.Sprintf(" %d scheduled and %d leased of %s in shard %d at node %d;", c.Scheduled, c.Leased, name, id, leader.id)
			}
		}
	}
	return text
}

// left counts the timers that have not ended.
func (w *World) left() (n int64) {
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		leader := w.leader(id)
		if leader == nil {
			return 1
		}
		table := leader.host.Table(id)
		for topic := range w.topics {
			c := table.Counts(timer.TopicID(topic + 1))
			n += c.Scheduled + c.Leased
		}
	}
	return n - w.skippedAhead()
}

// remaining prints some of the timers that have not ended, and the clocks.
func (w *World) remaining() (text string) {
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		leader := w.leader(id)
		if leader == nil {
			continue
		}
		table := leader.host.Table(id)
		for h, shown := timer.Handle(1), 0; int(h) <= 100_000 && shown < 5; h++ {
			if t := table.Due(h); t.State == timer.Scheduled || t.State == timer.Leased {
				shown++
				text += fmt.Sprintf("\nshard %d of node %d: %s %+v", id, leader.id, table.Copy(h).ID, t)
			}
		}
	}
	return text + w.clockwork()
}

// agreed reports whether every group's membership is final and each replica exists and has all
// entries but the last.
func (w *World) agreed() bool {
	meta := w.metaLeader()
	if meta == nil {
		return false
	}
	for _, row := range meta.state.Rows() {
		leader := w.leader(row.Group)
		if leader == nil || !row.Settled {
			return false
		}
		last := leader.host.Progress(row.Group).Applied
		for _, r := range row.Replicas {
			n := w.node(r.Node)
			if n.gone {
				continue
			}
			if n.host == nil {
				return false
			}
			if p := n.host.Progress(row.Group); p.Replica != r.ID || p.Applied+8 < last {
				return false
			}
		}
		_, status := leader.host.Inspect(row.Group)
		if status.Joint || len(status.Voters)+len(status.Learners) != len(row.Replicas) {
			return false
		}
	}
	return true
}

// describe prints the state of all groups, for a report.
func (w *World) describe() string {
	text := w.clockwork()
	for _, n := range w.nodes {
		if n.host == nil {
			text += fmt.Sprintf("\nnode %d: no host (up %v, gone %v, held %v)", n.id, n.up, n.gone, n.held)
			if n.self != nil {
				text += " " + n.self.Waiting()
			}
			continue
		}
		for id := range w.shards() + 1 {
			if p := n.host.Progress(timer.ShardID(id)); p.Replica != 0 {
				_, s := n.host.Inspect(timer.ShardID(id))
				text += fmt.Sprintf("\nnode %d group %d: %+v leader %d voters %x learners %x joint %v behind %v", n.id, id, p, s.Leader, s.Voters, s.Learners, s.Joint, s.Behind)
			}
		}
	}
	if m := w.metaLeader(); m != nil {
		for _, r := range m.state.Rows() {
			text += fmt.Sprintf("\nrow %+v", r)
		}
		for _, n := range m.state.Nodes() {
			text += fmt.Sprintf("\nmember %d %s %s", n.ID, n.Name, n.State)
		}
	}
	return text
}
