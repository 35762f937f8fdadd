// Package consumers answers consumers of pull topics, and receivers that report later.
package consumers

import (
	"errors"
	"time"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/bulkrun"
	"carillon/transport/api/spec"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
)

// Bounds of API.md sections 3 and 4.
const (
	maxPull     = 1000
	maxReceipts = 1000
	maxReason   = 1024 // bytes
	maxPullWait = time.Minute
)

func readPull(r *web.Reader) (p backend.Pull) {
	p.Max = 1
	r.Body([]string{"max", "wait", "lease"}, func(name string) {
		switch name {
		case "max":
			p.Max = int(r.Ranged("max", 1, maxPull))
		case "wait":
			ms := r.Span("wait")
			if r.Err() == nil && ms > maxPullWait.Milliseconds() {
				r.Reject(web.Bad(web.BadRequest, "wait: must be 0s to 60s"))
			}
			p.Wait = time.Duration(ms) * time.Millisecond
		case "lease":
			p.LeaseMs = spec.ReadLease(r)
		}
	})
	return p
}

// Pull answers with timers that are ready, leased to the client.
func Pull(rq *web.Request) *web.Problem {
	p := backend.Pull{Max: 1}
	if len(rq.Body) > 0 {
		r := rq.Reader()
		if p = readPull(r); r.Err() != nil {
			return r.Problem()
		}
	}
	var topic *timer.Topic
	var got []backend.Pulled
	fault := rq.OnTopic(false, func() (*timer.Topic, *web.Problem) { return rq.FindTopic(false) }, func(t *timer.Topic) (stale bool, fault *web.Problem) {
		topic = t
		if !t.Policy.Pull {
			return false, web.Fail(409, web.WrongDelivery, `the topic calls its receivers; its policy must say "delivery": "pull"`)
		}
		got, stale, fault = pull(rq, t.ID, p)
		return stale, fault
	})
	if fault != nil {
		return fault
	}
	got = deliverable(rq, topic.ID, got)
	w := timers.NewWriter(topic)
	o := web.Object{B: rq.Out()}
	rq.Count = len(got)
	o.List("timers", len(got), func(b []byte, i int) []byte { return appendPulled(&w, b, &got[i]) })
	return rq.JSON(200, o.End())
}

// pull looks at once, and only then waits: to notice that a waiting client hangs up costs a
// goroutine. stale: the topic was deleted meanwhile, or has come to call its receivers.
func pull(rq *web.Request, topic timer.TopicID, p backend.Pull) (got []backend.Pulled, stale bool, fault *web.Problem) {
	wait := p.Wait
	p.Wait = 0
	got, err := rq.Core.Consumers.Pull(rq.Ending, topic, p)
	if err != nil {
		return nil, false, web.Fault(err)
	}
	if len(got) > 0 || wait == 0 {
		return got, false, nil
	}
	token, fault := rq.Polls.Take(rq.Who)
	if fault != nil {
		return nil, false, fault
	}
	defer rq.Polls.Give(token)
	p.Wait = wait
	ctx := rq.Ending
	if c := rq.Conn(); c != nil {
		var stop func()
		ctx, stop = c.WhileConnected(ctx)
		defer stop()
	}
	got, err = rq.Core.Consumers.Pull(ctx, topic, p)
	if fault := rq.Recheck(); fault != nil {
		if len(got) > 0 {
			rq.Core.Consumers.Return(rq.Base, topic, got)
		}
		return nil, false, fault
	}
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return nil, true, nil
	case err != nil:
		return nil, false, web.Fault(err)
	}
	return got, false, nil
}

// deliverable are the timers that a client that is still there gets. Leases of one that is not, or
// that cannot be sent them, are given back.
func deliverable(rq *web.Request, topic timer.TopicID, got []backend.Pulled) []backend.Pulled {
	c := rq.Conn()
	if c == nil || len(got) == 0 {
		return got
	}
	ctx, core := rq.Base, rq.Core
	if c.HungUp() {
		core.Consumers.Return(ctx, topic, got)
		return nil
	}
	c.OnUndelivered(func() { core.Consumers.Return(ctx, topic, got) })
	return got
}

// appendPulled writes a timer and its consumer's lease.
func appendPulled(w *timers.Writer, b []byte, p *backend.Pulled) []byte {
	b = w.Append(b, p.Timer)
	o := web.Object{B: b[:len(b)-1], Begun: true}
	o.Text("receipt", p.Receipt)
	o.Integer("fence", int64(p.Timer.Fence))
	o.Integer("attempt", int64(p.Timer.Attempts))
	o.B = web.AppendTime(o.B, "lease_until", p.UntilMs)
	return o.End()
}

// Ack, Nack and Extend end leases, give them back, or prolong them.
func Ack(rq *web.Request) *web.Problem { return update(rq, timer.AckLease, "receipts") }
func Nack(rq *web.Request) *web.Problem {
	return update(rq, timer.NackLease, "receipts", "delay", "reason")
}
func Extend(rq *web.Request) *web.Problem {
	return update(rq, timer.ExtendLease, "receipts", "lease")
}

// update does one thing about leases, and answers for each receipt.
func update(rq *web.Request, kind timer.Kind, names ...string) *web.Problem {
	r := rq.Reader()
	c := readUpdate(r, names)
	if r.Err() != nil {
		return r.Problem()
	}
	if c.DelayMs > rq.Limits.Horizon.Milliseconds() {
		return rq.Limits.TooFar()
	}
	who := rq.Who
	c.Kind, c.Sees = kind, func(topic string) bool { return who == nil || who.Sees(topic) }
	held := make([]bool, len(c.Receipts))
	if len(held) > 0 {
		var err error
		if held, err = rq.Core.Consumers.UpdateLease(rq.Base, c); err != nil {
			return unfinished(rq, web.Fault(err), held)
		}
	}
	o := web.Object{B: rq.Out()}
	o.Objects("results", len(c.Receipts), func(o *web.Object, i int) {
		o.Text("receipt", c.Receipts[i])
		if held[i] {
			rq.Count++
			o.Integer("status", 200)
		} else {
			o.Integer("status", 410)
			o.Text("code", "over")
		}
	})
	return rq.JSON(200, o.End())
}

// unfinished is the answer when it is open for some receipts: others may have been changed.
func unfinished(rq *web.Request, p *web.Problem, held []bool) *web.Problem {
	changed := int64(0)
	for _, done := range held {
		if done {
			changed++
		}
	}
	if changed == 0 {
		return p
	}
	return bulkrun.Unfinished(rq, p, changed)
}

func readUpdate(r *web.Reader, names []string) (c backend.LeaseUpdate) {
	given := false
	r.Body(names, func(name string) {
		switch name {
		case "receipts":
			given = true
			c.Receipts = readReceipts(r)
		case "delay":
			c.DelayMs, c.HasDelay = r.Delay(), true
		case "reason":
			if c.Reason = r.Text("reason"); len(c.Reason) > maxReason {
				r.Reject(web.Bad(web.BadRequest, "reason: over 1024 bytes"))
			}
			c.Reason = timer.OneLine(c.Reason)
		case "lease":
			c.LeaseMs = spec.ReadLease(r)
		}
	})
	if r.Err() == nil && !given {
		r.Reject(web.Bad(web.BadRequest, "receipts: is required"))
	}
	return c
}

func readReceipts(r *web.Reader) []string {
	return r.Texts("receipts", func(n int, _ string) *web.Problem {
		if n < maxReceipts {
			return nil
		}
		return web.Fail(413, web.TooLarge, "receipts: more than 1000")
	})
}
