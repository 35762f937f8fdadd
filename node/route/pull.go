package route

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"carillon/node/task"
	"carillon/shard/wire"
	"carillon/timer"
)

const (
	pullBytes        = 4 << 20          // a pull's answer ends early rather than grow past it
	pullCallIn       = 10 * time.Second // one take elsewhere: longer than the host takes
	candidatesCallIn = time.Second
	awaitTime        = 5 * time.Second // how long another node is asked to notify
	awaitCallIn      = awaitTime + time.Second
	mostTold         = 128 // timers that another node is told of at once, of those that are ready
	giveBackIn       = 5 * time.Second
	watchInterval    = 500 * time.Millisecond // leaders move: others may have to be asked to notify
	lookAgain        = time.Second            // without a place in the queue, or a node that notifies
	racePause        = 5 * time.Millisecond   // after others had taken the offered timers
	longRace         = 100 * time.Millisecond
	raceTries        = 3
)

// pull is one client's pull on its way.
type pull struct {
	*Router
	topic   timer.TopicID
	most    int
	leaseMs int64
	begin   time.Duration
	races   int // times that the offered timers were gone
}

// Pull takes up to most ready timers of a topic, from the nodes that lead its shards, the first in
// order first. It waits until there are some, or for as long as wait; then there are none. When the
// context ends there are none either, and those that it has taken go back. timer.ErrNoTopic: before
// the wait, or during it, the topic was deleted, or has come to call its receivers.
func (r *Router) Pull(ctx context.Context, topic timer.TopicID, most int, leaseMs int64, wait time.Duration) ([]timer.PulledTimer, error) {
	p := pull{Router: r, topic: topic, most: most, leaseMs: leaseMs, begin: r.tasks.Now()}
	b := task.NewBackoff(r.tasks, p.begin)
	// The leases that were taken must be known, to be handed out or given back.
	taking, end := r.tasks.WithTimeout(context.WithoutCancel(ctx), task.Forever)
	defer end()
	woken := false
	for {
		var w *waiter
		notified := false
		if wait > 0 { // first wait, then look: nothing can become ready in between
			w = r.waiters.join(topic, most, p.begin, 0)
			if !r.pulled(topic) { // a change from now on wakes it
				r.waiters.leave(w)
				return nil, timer.ErrNoTopic
			}
			notified = r.watchTopic(topic)
		}
		if ctx.Err() != nil {
			r.waiters.passOn(w, woken)
			return nil, nil
		}
		got, err := p.once(taking)
		if len(got) > 0 && ctx.Err() != nil {
			r.waiters.leave(w)
			r.GiveBack(ctx, topic, got)
			return nil, nil
		}
		left := wait - (r.tasks.Now() - p.begin)
		switch {
		case len(got) > 0:
			r.waiters.leave(w)
			return got, nil
		case Refused(err): // this node knows of no leader
			r.waiters.leave(w)
			if !b.Wait(ctx, false) {
				return nil, timer.ErrNoLeader
			}
			continue
		case err != nil:
			r.waiters.leave(w)
			return nil, err
		case p.races > 0 && (left > 0 || p.races <= raceTries):
			r.waiters.leave(w)
			r.tasks.Sleep(ctx, min(racePause<<min(p.races-1, 10), longRace, max(left, racePause)))
			continue
		}
		if woken = left > 0 && p.await(ctx, w, left, notified); !woken {
			r.waiters.passOn(w, false)
			return nil, nil
		}
	}
}

// pulled reports whether consumers fetch the timers of a topic, by this node's copy.
func (r *Router) pulled(id timer.TopicID) bool {
	t, ok := r.cfg.Topic(id)
	return ok && t.Policy.Pull
}

// TopicsChanged wakes the consumers of topics that nobody can pull from any more; ids: none if any
// topic may have changed. It does not block.
func (r *Router) TopicsChanged(ids ...timer.TopicID) {
	if r.waiters.count.Load() == 0 {
		return
	}
	r.cfg.Background(func(context.Context) {
		if len(ids) == 0 {
			ids = r.waiters.those(func(*topicWaiters) bool { return true })
		}
		for _, id := range ids {
			if !r.pulled(id) {
				r.waiters.notify(id, math.MaxInt, false)
			}
		}
	})
}

// GiveBack returns leases that did not reach their consumer, also when the context has ended. A
// lease that cannot be returned expires.
func (r *Router) GiveBack(ctx context.Context, topic timer.TopicID, got []timer.PulledTimer) {
	ctx, cancel := r.tasks.WithTimeout(context.WithoutCancel(ctx), giveBackIn)
	defer cancel()
	ops := make([]timer.Op, len(got))
	for i := range got {
		t := &got[i]
		ops[i] = timer.Op{Shard: t.Shard, Place: r.PlaceOf(topic, t.Timer.ID), Brief: true, Command: &timer.Command{Kind: timer.ReturnLease, Topic: topic,
			Claim: &timer.LeaseUpdate{Handle: t.Handle, Seq: t.Timer.Seq, Fence: t.Timer.Fence}}}
	}
	r.DoAll(ctx, ops)
}

// await waits until the waiter is woken; false when the time is over. Without a waiter, or if not
// all leaders notify this node, it looks again soon.
func (p *pull) await(ctx context.Context, w *waiter, left time.Duration, notified bool) bool {
	switch {
	case w == nil:
		return p.tasks.Sleep(ctx, min(left, lookAgain))
	case notified:
		return w.wake.Wait(ctx, left)
	case !w.wake.Wait(ctx, min(left, lookAgain)):
		p.waiters.leave(w)
	}
	return ctx.Err() == nil
}

// offered are the timers that a node has ready.
type offered struct {
	node uint64
	list []timer.Candidate
	got  []timer.PulledTimer
	err  error
}

// once looks at the ready timers of all leaders, and takes the first ones. An error means that none
// was taken and no leader could be asked.
func (p *pull) once(ctx context.Context) ([]timer.PulledTimer, error) {
	nodes := p.cfg.Cluster.LeadingNodes()
	if len(nodes) == 0 {
		return nil, timer.ErrNoLeader
	}
	asked := make([]offered, len(nodes))
	for i, node := range nodes {
		asked[i].node = node
	}
	p.each(asked, func(o *offered) { o.list, o.err = p.candidates(ctx, o.node) })
	if !slices.ContainsFunc(asked, func(o offered) bool { return o.err == nil }) {
		return nil, timer.ErrNoLeader
	}
	if p.choose(asked) == 0 {
		p.races = 0
		return nil, nil
	}
	p.each(asked, func(o *offered) {
		if len(o.list) > 0 {
			o.got, o.err = p.take(ctx, o.node, perShard(o.list))
		}
	})
	var got []timer.PulledTimer
	for i := range asked {
		got = append(got, asked[i].got...)
	}
	p.races++
	if len(got) == 0 {
		return nil, lasting(asked)
	}
	slices.SortStableFunc(got, func(a, b timer.PulledTimer) int {
		return cmp.Or(cmp.Compare(b.Timer.Priority, a.Timer.Priority), cmp.Compare(a.Timer.DueMs, b.Timer.DueMs))
	})
	return got, nil
}

// each does something about every node, at once.
func (p *pull) each(list []offered, do func(*offered)) {
	if len(list) == 1 {
		do(&list[0])
		return
	}
	all := task.NewGroup(p.tasks)
	for i := range list {
		all.Go(func() { do(&list[i]) })
	}
	all.Wait()
}

// lasting is an error of a take that left open whether something was leased, or that will not pass
// by itself at once.
func lasting(list []offered) error {
	for i := range list {
		if err := list[i].err; err != nil && len(list[i].list) > 0 && !Refused(err) {
			return err
		}
	}
	return nil
}

// choose leaves in the lists only the timers to be taken, and counts them.
func (p *pull) choose(asked []offered) (chosen int) {
	type choice struct {
		timer.Candidate
		from *offered
	}
	var all []choice
	for i := range asked {
		for _, o := range asked[i].list {
			all = append(all, choice{o, &asked[i]})
		}
		asked[i].list = nil
	}
	slices.SortStableFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.DueMs, b.DueMs))
	})
	size := 0
	for _, c := range all {
		size += c.Bytes
		if chosen == p.most || chosen > 0 && size > pullBytes {
			break
		}
		c.from.list = append(c.from.list, c.Candidate)
		chosen++
	}
	return chosen
}

func perShard(list []timer.Candidate) (out []timer.Share) {
	for _, o := range list {
		at := slices.IndexFunc(out, func(s timer.Share) bool { return s.Shard == o.Shard })
		if at < 0 {
			at = len(out)
			out = append(out, timer.Share{Shard: o.Shard})
		}
		out[at].Timers++
	}
	return out
}

func (p *pull) candidates(ctx context.Context, node uint64) ([]timer.Candidate, error) {
	return readAt(ctx, p.Router, node, &reading[[]timer.Candidate]{
		here:   func() ([]timer.Candidate, error) { return p.host.Candidates(ctx, p.topic, p.most) },
		method: methodCandidates, within: candidatesCallIn,
		ask:  func() []byte { return wire.AppendCandidatesRequest(nil, p.topic, p.most) },
		take: wire.DecodeCandidates,
	})
}

func (p *pull) take(ctx context.Context, node uint64, of []timer.Share) ([]timer.PulledTimer, error) {
	return readAt(ctx, p.Router, node, &reading[[]timer.PulledTimer]{
		here:   func() ([]timer.PulledTimer, error) { return p.host.PullFrom(ctx, p.topic, p.leaseMs, of) },
		method: methodPull, within: pullCallIn,
		ask:  func() []byte { return wire.AppendPullRequest(nil, p.topic, p.leaseMs, of) },
		take: wire.DecodePulled,
	})
}

// Waiting is how many wait here for timers to become ready, other nodes on behalf of their clients
// included.
func (r *Router) Waiting() int { return int(r.waiters.count.Load()) }

// Ready is called with the number of timers of a topic that have become ready in a shard that this
// node leads.
func (r *Router) Ready(topic timer.TopicID, timers int) { r.waiters.notify(topic, timers, false) }

// watchTopic has every node that leads something notify this one when it has timers of a topic
// ready, once. all: there are not too many topics for that.
func (r *Router) watchTopic(topic timer.TopicID) (all bool) {
	all = true
	for _, node := range r.cfg.Cluster.LeadingNodes() {
		if node == r.self {
			continue
		}
		asked, ask := r.waiters.watch(topic, node)
		if ask {
			r.cfg.Background(func(ctx context.Context) { r.watch(ctx, topic, node) })
		}
		all = all && asked
	}
	return all
}

// watch has one node notify as long as somebody waits here. It ends within awaitCallIn of the last
// one's going, or when the node does not answer.
func (r *Router) watch(ctx context.Context, topic timer.TopicID, node uint64) {
	for {
		want := r.waiters.stillWanted(topic, node)
		if want == 0 {
			return
		}
		timers, err := r.awaitAt(ctx, node, topic, want)
		if err != nil {
			r.waiters.unwatch(topic, node)
			return
		}
		switch {
		case timers == 0:
		case r.waiters.stillWanted(topic, node) == 0: // the consumers that waited here have gone
			_, _ = r.awaitAt(ctx, node, topic, 0)
			return
		default:
			r.waiters.notify(topic, timers, true)
			r.tasks.Sleep(ctx, racePause) // for the one that was woken to take it
		}
	}
}

func (r *Router) awaitAt(ctx context.Context, node uint64, topic timer.TopicID, want int) (int, error) {
	ctx, cancel := r.tasks.WithTimeout(ctx, awaitCallIn)
	defer cancel()
	answer, err := r.cfg.Peers.Call(ctx, node, methodAwait, wire.AppendCandidatesRequest(nil, topic, want))
	if err != nil {
		return 0, err
	}
	return wire.DecodeAwaited(answer)
}

// watchLeaders asks nodes to notify this one that have come to lead something.
func (r *Router) watchLeaders() {
	for _, topic := range r.waiters.those(func(t *topicWaiters) bool { return t.wanted > 0 }) {
		r.watchTopic(topic)
	}
}

func (r *Router) serveCandidates(ctx context.Context, body []byte) ([]byte, error) {
	topic, most, err := wire.DecodeCandidatesRequest(body)
	if err != nil {
		return nil, err
	}
	list, err := r.host.Candidates(ctx, topic, most)
	return wire.AppendCandidates(nil, list), err
}

func (r *Router) servePull(ctx context.Context, body []byte) ([]byte, error) {
	topic, leaseMs, of, err := wire.DecodePullRequest(body)
	if err != nil {
		return nil, err
	}
	led := of[:0]
	for _, s := range of {
		if err = r.notLeader(s.Shard); err == nil {
			led = append(led, s)
		}
	}
	if len(led) == 0 && err != nil {
		return nil, err
	}
	got, err := r.host.PullFrom(ctx, topic, leaseMs, led)
	return wire.AppendPulled(nil, got), err
}

// serveAwait holds another node's call until something is ready, or for a while.
func (r *Router) serveAwait(ctx context.Context, from uint64, body []byte) ([]byte, error) {
	topic, want, err := wire.DecodeCandidatesRequest(body)
	if err != nil {
		return nil, err
	}
	if want == 0 { // the one that was notified there has gone: it is another's turn
		r.waiters.notify(topic, 1, false)
		return wire.AppendAwaited(nil, 0), nil
	}
	w := r.waiters.join(topic, want, r.tasks.Now(), from)
	if w == nil {
		return nil, timer.ErrOverloaded
	}
	defer r.waiters.leave(w)
	list, err := r.host.Candidates(ctx, topic, min(want, mostTold))
	switch {
	case err != nil:
		return nil, err
	case len(list) > 0:
		return wire.AppendAwaited(nil, len(list)), nil
	case w.wake.Wait(ctx, awaitTime):
		return wire.AppendAwaited(nil, w.told), nil
	}
	return wire.AppendAwaited(nil, 0), nil
}
