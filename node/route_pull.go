package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// What one node asks of another for those who pull. The values are part of the protocol between nodes.
const (
	methodOffers uint8 = 32 + iota // shard.AppendOffersRequest → AppendOffers
	methodTake                     // shard.AppendTakeRequest → AppendTaken
	methodAwait                    // shard.AppendAwaitRequest → AppendAwaited
)

const (
	pullBytes   = 4 << 20          // a pull's answer ends early rather than grow past it
	takeCallIn  = 10 * time.Second // one take elsewhere: longer than the host takes
	offerCallIn = time.Second
	awaitFor    = 5 * time.Second // how long another node is asked to call
	awaitCallIn = awaitFor + time.Second
	tendEach    = 500 * time.Millisecond // leaders move: others may have to be asked to call
	racePause   = 5 * time.Millisecond   // after what was offered had been taken by others
	longRace    = 100 * time.Millisecond
	raceTries   = 3
)

// pull is one client's pull on its way.
type pull struct {
	*router
	topic   shard.TopicID
	most    int
	leaseMs int64
	begin   time.Time
	races   int // times that what was offered was gone
}

// Pull takes up to most ready timers of a topic, from whatever nodes lead its shards, what comes first first. It waits until there is
// something, or for as long as wait; then there are none. What it has taken when the context ends runs out by itself.
func (r *router) Pull(ctx context.Context, topic shard.TopicID, most int, leaseMs int64, wait time.Duration) ([]shard.Taken, error) {
	p := pull{router: r, topic: topic, most: most, leaseMs: leaseMs, begin: time.Now()}
	pace := patience{begin: p.begin}
	for {
		var s *seat
		if wait > 0 { // first sit down, then look: nothing can become ready in between
			s = r.lounge.sit(topic, most, p.begin, 0)
			r.askToCall(topic)
		}
		got, err := p.once(ctx)
		left := wait - time.Since(p.begin)
		switch {
		case len(got) > 0:
			r.lounge.leave(s)
			return got, nil
		case refused(err): // nobody leads anything, as far as can be seen from here
			r.lounge.leave(s)
			if !pace.wait(ctx, false) {
				return nil, shard.ErrNoLeader
			}
			continue
		case err != nil:
			r.lounge.leave(s)
			return nil, err
		case p.races > 0 && (left > 0 || p.races <= raceTries):
			r.lounge.leave(s)
			pause(ctx, min(racePause<<min(p.races-1, 10), longRace, max(left, racePause)))
			continue
		}
		if left <= 0 || !p.await(ctx, s, left) {
			r.lounge.leave(s)
			return nil, nil
		}
	}
}

// await sits until the seat is called; false when the time is over. Without a seat it looks again soon.
func (p *pull) await(ctx context.Context, s *seat, left time.Duration) bool {
	if s == nil {
		pause(ctx, min(left, time.Second))
		return ctx.Err() == nil
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-s.wake:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// offered is what a node has ready.
type offered struct {
	node uint64
	list []shard.Offer
	got  []shard.Taken
	err  error
}

// once looks at what all leaders have ready, and takes what comes first. An error means that nothing was taken and nobody could be asked.
func (p *pull) once(ctx context.Context) ([]shard.Taken, error) {
	nodes := p.leaders()
	if len(nodes) == 0 {
		return nil, shard.ErrNoLeader
	}
	asked := make([]offered, len(nodes))
	for i, node := range nodes {
		asked[i].node = node
	}
	each(asked, func(o *offered) { o.list, o.err = p.offers(ctx, o.node) })
	if !slices.ContainsFunc(asked, func(o offered) bool { return o.err == nil }) {
		return nil, shard.ErrNoLeader
	}
	if p.choose(asked) == 0 {
		p.races = 0
		return nil, nil
	}
	each(asked, func(o *offered) {
		if len(o.list) > 0 {
			o.got, o.err = p.take(ctx, o.node, perShard(o.list))
		}
	})
	var got []shard.Taken
	for i := range asked {
		got = append(got, asked[i].got...)
	}
	p.races++
	if len(got) == 0 {
		return nil, lasting(asked)
	}
	slices.SortStableFunc(got, func(a, b shard.Taken) int {
		return cmp.Or(cmp.Compare(b.Timer.Priority, a.Timer.Priority), cmp.Compare(a.Timer.DueMs, b.Timer.DueMs))
	})
	return got, nil
}

// each does something about every node, at once.
func each(list []offered, do func(*offered)) {
	if len(list) == 1 {
		do(&list[0])
		return
	}
	var wg fan.Group
	for i := range list {
		wg.Go(func() { do(&list[i]) })
	}
	wg.Wait()
}

// lasting is an error of a take that left open whether something was leased, or that will not pass by itself at once.
func lasting(list []offered) error {
	for i := range list {
		if err := list[i].err; err != nil && len(list[i].list) > 0 && !refused(err) {
			return err
		}
	}
	return nil
}

// choose leaves in the lists only what is to be taken, and says how much that is.
func (p *pull) choose(asked []offered) (chosen int) {
	type choice struct {
		shard.Offer
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
		c.from.list = append(c.from.list, c.Offer)
		chosen++
	}
	return chosen
}

func perShard(list []shard.Offer) (out []shard.Share) {
	for _, o := range list {
		at := slices.IndexFunc(out, func(s shard.Share) bool { return s.Shard == o.Shard })
		if at < 0 {
			at = len(out)
			out = append(out, shard.Share{Shard: o.Shard})
		}
		out[at].Timers++
	}
	return out
}

func (p *pull) offers(ctx context.Context, node uint64) (list []shard.Offer, err error) {
	err = p.readAt(ctx, node, &reading{
		here: func() error {
			list, err = p.host.Offers(ctx, p.topic, p.most)
			return err
		},
		method: methodOffers, within: offerCallIn,
		ask: func() []byte { return shard.AppendOffersRequest(nil, p.topic, p.most) },
		take: func(answer []byte) error {
			list, err = shard.DecodeOffers(answer)
			return err
		},
	})
	return list, err
}

func (p *pull) take(ctx context.Context, node uint64, of []shard.Share) (got []shard.Taken, err error) {
	if node == p.self {
		return p.host.Take(ctx, p.topic, p.leaseMs, of)
	}
	ctx, cancel := context.WithTimeout(ctx, takeCallIn)
	defer cancel()
	answer, err := p.call(ctx, node, methodTake, shard.AppendTakeRequest(nil, p.topic, p.leaseMs, of))
	switch {
	case errors.Is(err, p.notSent):
		return nil, shard.ErrNoLeader
	case err != nil:
		return nil, shard.ErrUnknown
	}
	got, err = shard.DecodeTaken(answer)
	return got, remotely(err)
}

// askToCall has every node that leads something call when it has timers of a topic ready, once.
func (r *router) askToCall(topic shard.TopicID) {
	for _, node := range r.leaders() {
		if node != r.self && r.lounge.watch(topic, node) {
			r.spawn(func(ctx context.Context) { r.watch(ctx, topic, node) })
		}
	}
}

// watch has one node call as long as somebody waits here. It ends within awaitCallIn of the last one's going, or when the node does not answer.
func (r *router) watch(ctx context.Context, topic shard.TopicID, node uint64) {
	for {
		want := r.lounge.stillWanted(topic, node)
		if want == 0 {
			return
		}
		timers, err := r.awaitAt(ctx, node, topic, want)
		if err != nil {
			r.lounge.unwatch(topic, node)
			return
		}
		if timers > 0 {
			r.lounge.ready(topic, timers, true)
			pause(ctx, racePause) // for who was woken to take it
		}
	}
}

func (r *router) awaitAt(ctx context.Context, node uint64, topic shard.TopicID, want int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitCallIn)
	defer cancel()
	answer, err := r.call(ctx, node, methodAwait, shard.AppendAwaitRequest(nil, topic, want))
	if err != nil {
		return 0, err
	}
	return shard.DecodeAwaited(answer)
}

// tend asks nodes to call that have come to lead something.
func (r *router) tend() {
	for _, topic := range r.lounge.waitedFor() {
		r.askToCall(topic)
	}
}

func (r *router) serveOffers(ctx context.Context, body []byte) []byte {
	topic, most, err := shard.DecodeOffersRequest(body)
	var list []shard.Offer
	if err == nil {
		list, err = r.host.Offers(ctx, topic, most)
	}
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	return shard.AppendOffers(nil, list)
}

func (r *router) serveTake(ctx context.Context, body []byte) []byte {
	topic, leaseMs, of, err := shard.DecodeTakeRequest(body)
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	led := of[:0]
	for _, s := range of {
		if err = r.notLeader(s.Shard); err == nil {
			led = append(led, s)
		}
	}
	if len(led) == 0 && err != nil {
		return shard.AppendFailure(nil, err)
	}
	got, err := r.host.Take(ctx, topic, leaseMs, led)
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	return shard.AppendTaken(nil, got)
}

// serveAwait holds another node's call until something is ready, or for a while.
func (r *router) serveAwait(ctx context.Context, from uint64, body []byte) []byte {
	topic, want, err := shard.DecodeAwaitRequest(body)
	if err != nil {
		return shard.AppendFailure(nil, err)
	}
	s := r.lounge.sit(topic, max(want, 1), time.Now(), from)
	if s == nil {
		return shard.AppendFailure(nil, shard.ErrOverloaded)
	}
	defer r.lounge.leave(s)
	list, err := r.host.Offers(ctx, topic, 1)
	switch {
	case err != nil:
		return shard.AppendFailure(nil, err)
	case len(list) > 0:
		return shard.AppendAwaited(nil, want)
	}
	t := time.NewTimer(awaitFor)
	defer t.Stop()
	select {
	case <-s.wake:
		return shard.AppendAwaited(nil, want)
	case <-t.C:
	case <-ctx.Done():
	}
	return shard.AppendAwaited(nil, 0)
}
