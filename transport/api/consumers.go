package api

import (
	"context"
	"slices"
	"time"

	"carillon/timer"
)

// Consumers is the part of a node that the API needs for consumers of pull topics, and for
// receivers that report later. Its rules are those of Timers.
type Consumers interface {
	// Pull leases up to p.Max ready timers of a topic, and waits for some if there are none; none
	// after that. When the context ends it returns none, and the timers that it had leased go back.
	Pull(ctx context.Context, topic timer.TopicID, p Pull) ([]Pulled, error)
	// Return gives leases back that nobody has used. They do not count, and go to the next
	// consumer. A lease that cannot be given back runs out.
	Return(ctx context.Context, topic timer.TopicID, leases []Pulled)
	// UpdateLease says for each receipt whether its lease was held still, and then did as asked.
	// After an error it is open for each.
	UpdateLease(ctx context.Context, c LeaseUpdate) ([]bool, error)
}

// Pull is the request of a consumer.
type Pull struct {
	Max     int
	Wait    time.Duration
	LeaseMs int64 // 0: the topic's
}

// Pulled is a timer that a consumer has, with the proof of it.
type Pulled struct {
	Timer   *timer.Timer
	Receipt string
	UntilMs int64 // end of the lease
}

// LeaseUpdate is a consumer's change of leases. Kind is timer.AckLease, NackLease or ExtendLease.
type LeaseUpdate struct {
	Kind     timer.Kind
	Receipts []string
	Sees     func(topic string) bool // the client may know of the topic

	LeaseMs  int64 // ExtendLease; 0: the topic's
	DelayMs  int64 // NackLease, when HasDelay
	HasDelay bool
	Reason   string
}

// Bounds of API.md sections 3 and 4.
const (
	maxPull      = 1000
	maxReceipts  = 1000
	maxReason    = 1024 // bytes
	maxPullWait  = time.Minute
	leastLeaseMs = 1_000
	mostLeaseMs  = 12 * 3_600_000
)

// lease reads how long a consumer wants to have timers.
func (r *reader) lease() int64 {
	return r.rangedSpan("lease", leastLeaseMs, mostLeaseMs)
}

// members reads an object whose members are named, each at most once; read takes the value of one.
func (r *reader) members(names []string, read func(name string)) {
	var given field
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return
		}
		at := slices.Index(names, string(name))
		if at < 0 {
			r.fail(unknown(name, names))
			return
		}
		if !r.first(&given, 1<<at, "", name) {
			return
		}
		read(names[at])
	}
	r.End()
}

func (r *reader) pull() (p Pull) {
	p.Max = 1
	r.members([]string{"max", "wait", "lease"}, func(name string) {
		switch name {
		case "max":
			v := r.Integer("max")
			if r.Err() == nil && (v < 1 || v > maxPull) {
				r.fail(bad(badRequest, "max: must be 1 to 1000"))
			}
			p.Max = int(v)
		case "wait":
			ms := r.span("wait")
			if r.Err() == nil && ms > maxPullWait.Milliseconds() {
				r.fail(bad(badRequest, "wait: must be 0s to 60s"))
			}
			p.Wait = time.Duration(ms) * time.Millisecond
		case "lease":
			p.LeaseMs = r.lease()
		}
	})
	return p
}

// pullTimers answers with timers that are ready, leased to the client.
func (rq *request) pullTimers() *problem {
	p := Pull{Max: 1}
	if len(rq.body) > 0 {
		if _, p := rq.mediaType(); p != nil {
			return p
		}
		r := rq.reader()
		if p = r.pull(); r.Err() != nil {
			return r.problem()
		}
	}
	var topic *timer.Topic
	var got []Pulled
	fault := rq.onTopic(nil, noVerb, func(t *timer.Topic) (bool, *problem) {
		topic = t
		if !t.Policy.Pull {
			return false, fail(409, wrongDelivery, `the topic calls its receivers; its policy must say "delivery": "pull"`)
		}
		var fault *problem
		got, fault = rq.pull(t.ID, p)
		return false, fault
	})
	if fault != nil {
		return fault
	}
	got = rq.deliverable(topic.ID, got)
	w := rq.timerWriter(topic)
	o := object{b: rq.out()}
	o.name("timers")
	list := array{b: o.b}
	rq.count = len(got)
	for i := range got {
		list.next()
		list.b = w.appendPulled(list.b, &got[i])
	}
	o.b = list.end()
	rq.json(200, o.end())
	return nil
}

// pull looks at once, and only then waits: to notice that a waiting client hangs up costs a
// goroutine.
func (rq *request) pull(topic timer.TopicID, p Pull) ([]Pulled, *problem) {
	wait := p.Wait
	p.Wait = 0
	got, err := rq.core.Consumers.Pull(rq.s.ending, topic, p)
	if err != nil {
		return nil, engineFault(err)
	}
	if len(got) > 0 || wait == 0 {
		return got, nil
	}
	token, fault := rq.s.polls.take(rq.who)
	if fault != nil {
		return nil, fault
	}
	defer rq.s.polls.give(token)
	p.Wait = wait
	ctx := rq.s.ending
	if c, ok := rq.ctx.Conn().(*framedConn); ok {
		var stop func()
		ctx, stop = c.whileConnected(ctx)
		defer stop()
	}
	if got, err = rq.core.Consumers.Pull(ctx, topic, p); err != nil {
		return nil, engineFault(err)
	}
	return got, nil
}

// deliverable are the timers that a client that is still there gets. Leases of one that is not, or
// that cannot be told, go back.
func (rq *request) deliverable(topic timer.TopicID, got []Pulled) []Pulled {
	c, ok := rq.ctx.Conn().(*framedConn)
	if !ok || len(got) == 0 {
		return got
	}
	ctx, core := rq.s.base, rq.core
	if c.hungUp() {
		core.Consumers.Return(ctx, topic, got)
		return nil
	}
	before := c.undelivered // of pipelined requests that were answered into the same buffer
	c.undelivered = func() {
		if before != nil {
			before()
		}
		core.Consumers.Return(ctx, topic, got)
	}
	return got
}

// appendPulled writes a timer and its consumer's lease.
func (w *timerWriter) appendPulled(b []byte, p *Pulled) []byte {
	b = w.append(b, p.Timer)
	o := object{b: b[:len(b)-1], begun: true}
	o.str("receipt", p.Receipt)
	o.integer("fence", int64(p.Timer.Fence))
	o.integer("attempt", int64(p.Timer.Attempts))
	o.b = appendTime(o.b, "lease_until", p.UntilMs)
	return o.end()
}

func (rq *request) ackReceipts() *problem { return rq.leaseUpdate(timer.AckLease, "receipts") }
func (rq *request) nackReceipts() *problem {
	return rq.leaseUpdate(timer.NackLease, "receipts", "delay", "reason")
}
func (rq *request) extendReceipts() *problem {
	return rq.leaseUpdate(timer.ExtendLease, "receipts", "lease")
}

// leaseUpdate does one thing about leases, and answers for each receipt.
func (rq *request) leaseUpdate(kind timer.Kind, names ...string) *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	r := rq.reader()
	c := r.leaseUpdate(names)
	if r.Err() != nil {
		return r.problem()
	}
	if c.DelayMs > rq.s.cfg.Limits.Horizon.Milliseconds() {
		return fail(422, "beyond_horizon", "delay: too long")
	}
	who := rq.who
	c.Kind, c.Sees = kind, func(topic string) bool { return who == nil || who.sees(topic) }
	held := make([]bool, len(c.Receipts))
	if len(held) > 0 {
		var err error
		if held, err = rq.core.Consumers.UpdateLease(rq.s.base, c); err != nil {
			return engineFault(err)
		}
	}
	o := object{b: rq.out()}
	o.name("results")
	list := array{b: o.b}
	for i, receipt := range c.Receipts {
		list.next()
		e := object{b: list.b}
		e.str("receipt", receipt)
		if held[i] {
			rq.count++
			e.integer("status", 200)
		} else {
			e.integer("status", 410)
			e.str("code", "over")
		}
		list.b = e.end()
	}
	o.b = list.end()
	rq.json(200, o.end())
	return nil
}

func (r *reader) leaseUpdate(names []string) (c LeaseUpdate) {
	given := false
	r.members(names, func(name string) {
		switch name {
		case "receipts":
			given = true
			c.Receipts = r.receipts()
		case "delay":
			c.DelayMs, c.HasDelay = r.spanCode("delay", badTime), true
		case "reason":
			if c.Reason = r.Text("reason"); len(c.Reason) > maxReason {
				r.fail(bad(badRequest, "reason: over 1024 bytes"))
			}
		case "lease":
			c.LeaseMs = r.lease()
		}
	})
	if r.Err() == nil && !given {
		r.fail(bad(badRequest, "receipts: is required"))
	}
	return c
}

func (r *reader) receipts() []string {
	out := []string{}
	n := r.Open('[', "receipts")
	for ; r.More(n, ']'); n++ {
		if n == maxReceipts {
			r.fail(fail(413, tooLarge, "receipts: more than 1000"))
			return nil
		}
		s := r.Text("receipts")
		if r.Err() != nil {
			return nil
		}
		out = append(out, s)
	}
	return out
}
