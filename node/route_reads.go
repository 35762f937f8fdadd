package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"carillon/fan"
	"carillon/shard"
)

// Timer reads one timer, linearizably, from its shard's leader; nil when there is none.
func (r *router) Timer(ctx context.Context, id shard.ID, topic shard.TopicID, timer string) (*shard.Timer, error) {
	begin := time.Now()
	if r.leads(id) {
		if found, err := r.host.Timer(ctx, id, topic, timer); !readAgain(err) {
			return found, err
		}
	}
	return r.timerAnywhere(ctx, id, topic, timer, begin)
}

func (r *router) timerAnywhere(ctx context.Context, id shard.ID, topic shard.TopicID, timer string, begin time.Time) (found *shard.Timer, err error) {
	err = r.read(ctx, id, begin, reading{
		here: func() error {
			found, err = r.host.Timer(ctx, id, topic, timer)
			return err
		},
		method: methodTimer, within: timerCallIn,
		ask: func() []byte { return shard.AppendTimerRequest(nil, id, topic, timer) },
		take: func(answer []byte) error {
			found, err = shard.DecodeTimer(answer)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// List answers a query on one shard from its leader: at most q.Limit timers, in order. What is too much for one answer between
// nodes is asked for in parts, each as of its own moment.
func (r *router) List(ctx context.Context, id shard.ID, q *shard.Query) ([]*shard.Timer, error) {
	var out []*shard.Timer
	for rest := *q; ; {
		page, cut, err := r.page(ctx, id, &rest)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = page
		} else {
			out = append(out, page...)
		}
		if !cut || len(page) == 0 || len(out) >= q.Limit {
			return out, nil
		}
		last := q.Place(page[len(page)-1])
		rest.After, rest.Limit = &last, q.Limit-len(out)
	}
}

func (r *router) page(ctx context.Context, id shard.ID, q *shard.Query) (page []*shard.Timer, cut bool, err error) {
	err = r.read(ctx, id, time.Now(), reading{
		here: func() error {
			cut = false
			page, err = r.host.List(ctx, id, q)
			return err
		},
		method: methodList, within: scanCallIn,
		ask: func() []byte { return shard.AppendQuery(nil, id, q) },
		take: func(answer []byte) error {
			page, cut, err = shard.DecodeTimers(answer)
			shorten(page, q.Room)
			return err
		},
	})
	return page, cut, err
}

// shorten leaves out of a page from elsewhere what there is no room for here.
func shorten(page []*shard.Timer, room shard.Room) {
	for _, t := range page {
		if room != nil && !t.Short && !room.Take(t.Size()) {
			t.Shorten()
		}
	}
}

// reading is how one shard is read, here or elsewhere.
type reading struct {
	here   func() error
	method uint8
	within time.Duration // one try elsewhere
	ask    func() []byte
	take   func(answer []byte) error
}

// read has a shard's leader answer; what fails is tried again, elsewhere if need be.
func (r *router) read(ctx context.Context, id shard.ID, begin time.Time, rd reading) error {
	p := patience{begin: begin}
	var a aim
	for {
		a.take(r, id)
		err := r.readAt(ctx, a.node, &rd)
		if !readAgain(err) {
			return err
		}
		if !p.wait(ctx, a.heed(err)) {
			return shard.ErrNoLeader
		}
	}
}

// readAgain says of an error that a read may still succeed.
func readAgain(err error) bool { return refused(err) || errors.Is(err, shard.ErrUnknown) }

func (r *router) readAt(ctx context.Context, node uint64, rd *reading) error {
	switch node {
	case 0:
		return shard.ErrNoLeader
	case r.self:
		return rd.here()
	}
	ctx, cancel := context.WithTimeout(ctx, rd.within)
	defer cancel()
	answer, err := r.call(ctx, node, rd.method, rd.ask())
	switch {
	case errors.Is(err, r.notSent):
		return shard.ErrNoLeader
	case err != nil:
		return shard.ErrUnknown
	}
	return remotely(rd.take(answer))
}

// Counts sums up each of the topics over all shards: every leader is asked once, all at once. It is tried again until each shard has been
// counted, and counted once.
func (r *router) Counts(ctx context.Context, topics []shard.TopicID) ([]shard.Counts, error) {
	p := patience{begin: time.Now()}
	census := census{router: r, topics: topics, aims: make([]aim, r.shards)}
	for {
		sums, whole, err := census.take(ctx)
		if whole || err != nil {
			return sums, err
		}
		if !p.wait(ctx, false) {
			return nil, shard.ErrNoLeader
		}
	}
}

// census is one request's counting.
type census struct {
	*router
	topics []shard.TopicID
	aims   []aim // of shards 1…
}

// share is what one node counted.
type share struct {
	node   uint64
	shards []shard.ID
	counts []shard.Counts
	err    error
}

// take asks every node that may lead a shard. whole says that the shares fit together. An error is one that stays.
func (c *census) take(ctx context.Context) (sums []shard.Counts, whole bool, err error) {
	shares := c.nodes()
	var wg fan.Group
	for i := range shares {
		wg.Go(func() { c.count(ctx, &shares[i]) })
	}
	wg.Wait()
	sums = make([]shard.Counts, len(c.topics))
	counted := make([]int, 1+c.shards)
	for i := range shares {
		s := &shares[i]
		if s.err != nil {
			if !readAgain(s.err) {
				return nil, false, s.err
			}
			continue
		}
		for _, id := range s.shards {
			if id == shard.Meta || int(id) >= len(counted) {
				continue
			}
			counted[id]++
			c.aims[id-1].told = s.node // should it take another round
		}
		for i := range s.counts {
			add(&sums[i], &s.counts[i])
		}
	}
	for _, n := range counted[1:] {
		if n != 1 {
			return nil, false, nil
		}
	}
	return sums, true, nil
}

// nodes are those that may lead, by now, the shards; where a shard's leader was not found before, another one.
func (c *census) nodes() []share {
	var shares []share
	for i := range c.aims {
		a := &c.aims[i]
		a.take(c.router, shard.ID(1+i))
		known := func(s share) bool { return s.node == a.node }
		if a.node != 0 && !slices.ContainsFunc(shares, known) {
			shares = append(shares, share{node: a.node})
		}
	}
	return shares
}

func (c *census) count(ctx context.Context, s *share) {
	if s.node == c.self {
		s.shards, s.counts, s.err = c.countHere(ctx, c.topics)
		return
	}
	s.err = c.readAt(ctx, s.node, &reading{
		method: methodCounts, within: scanCallIn,
		ask: func() []byte { return shard.AppendCountsRequest(nil, c.topics) },
		take: func(answer []byte) (err error) {
			s.shards, s.counts, err = shard.DecodeCounts(answer)
			if err == nil && len(s.counts) != len(c.topics) {
				err = shard.ErrFormat
			}
			return err
		},
	})
}

// countHere sums up topics over the shards that this node leads, and says which. Leaderships that moved meanwhile refuse it.
func (r *router) countHere(ctx context.Context, topics []shard.TopicID) ([]shard.ID, []shard.Counts, error) {
	led := r.led()
	counts, err := r.host.Counts(ctx, topics)
	if err == nil && !slices.Equal(led, r.led()) {
		err = shard.ErrNoLeader
	}
	return led, counts, err
}

// led are the shards that this node leads.
func (r *router) led() (ids []shard.ID) {
	for i := range r.shards {
		if id := shard.ID(1 + i); r.leads(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func add(sum, c *shard.Counts) {
	sum.Scheduled += c.Scheduled
	sum.Ready += c.Ready
	sum.Leased += c.Leased
	sum.Done += c.Done
	sum.Dead += c.Dead
	sum.OldestOverdueMs = max(sum.OldestOverdueMs, c.OldestOverdueMs)
}
