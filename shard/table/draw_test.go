package table

import (
	"bytes"
	"fmt"
	"strings"

	"carillon/timer"
)

func (g *modelHarness) spec() *timer.Spec {
	s := &timer.Spec{DueMs: g.now + int64(g.pick(200_000)) - 20_000, Priority: uint8(g.pick(3))}
	if n := g.pick(4); n > 0 {
		s.PayloadKind = timer.PayloadKind(1 + n&1)
		s.Payload = bytes.Repeat([]byte{byte('a' + n)}, []int{1, 40, 300, 1_500}[g.pick(4)])
	}
	if g.pick(3) == 0 {
		s.HasExpiry, s.ExpiresAfterMs = true, int64(g.pick(60_000))
	}
	if n := g.pick(6); n < 3 {
		s.Callback.URL = fmt.Sprint("http://receiver.example/", n)
		s.Callback.HasHeaders = n > 0
		for i := range n {
			s.Callback.Headers = append(s.Callback.Headers, timer.Header{Name: fmt.Sprint("X-", i), Value: "v"})
		}
	}
	for i := range g.pick(3) {
		s.Labels = append(s.Labels, fmt.Sprint("label", i))
	}
	if g.pick(5) == 0 {
		s.Retry = timer.Retry{MaxAttempts: 3, Multiplier: 1.5, HasJitter: true, MinBackoffMs: 10, MaxBackoffMs: 99}
		s.ContentType = "text/plain"
	}
	if g.pick(4) == 0 {
		s.Repeat = &timer.Repeat{EveryMs: 5000, Count: int64(g.pick(4)), CatchUp: timer.CatchUp(g.pick(3)), Overlap: g.pick(2) == 0}
		if g.pick(3) == 0 {
			s.Repeat.UntilMs = g.now + int64(g.pick(100_000))
		}
	}
	if g.outcomes {
		s.OnDone, s.OnDead = g.outcomeTopic(), g.outcomeTopic()
	}
	return s
}

// outcomeTopic draws what a timer says of an outcome.
func (g *modelHarness) outcomeTopic() *timer.OutcomeTopic {
	switch n := timer.TopicID(g.pick(6)); n {
	case 1, 2:
		return &timer.OutcomeTopic{ID: n, Name: fmt.Sprint("topic", n)}
	case 3:
		return &timer.OutcomeTopic{}
	}
	return nil
}

func (g *modelHarness) patch() *timer.Patch {
	p := &timer.Patch{Spec: *g.spec()}
	bits := g.pick(1 << 16)
	for i, set := range []*bool{
		&p.Due, &p.Payload, &p.ContentType, &p.Priority, &p.Labels, &p.Expiry, &p.URL, &p.Method, &p.Headers, &p.Timeout,
		&p.MaxAttempts, &p.MinBackoff, &p.MaxBackoff, &p.Multiplier, &p.Jitter, &p.Repeat,
	} {
		*set = bits&(1<<i) != 0
	}
	if g.outcomes {
		p.OnDone, p.OnDead = g.pick(4) == 0, g.pick(4) == 0
	}
	if p.Payload && p.Spec.PayloadKind == timer.NoPayload {
		p.Spec.Payload = nil
	}
	return p
}

func (g *modelHarness) randomCommand() *timer.Command {
	kinds := []timer.Kind{timer.Add, timer.Add, timer.Add, timer.Add, timer.Put, timer.Put, timer.Modify, timer.Modify, timer.Cancel, timer.Fire, timer.Redrive, timer.Purge}
	c := &timer.Command{Kind: kinds[g.pick(len(kinds))], Topic: timer.TopicID(1 + g.pick(2)), ID: fmt.Sprint("timer-", g.pick(12))}
	if g.pick(150) == 0 {
		c.Kind = timer.CloseTopic
		c.Force = g.pick(2) == 0
	} else if g.pick(30) == 0 {
		c.Kind = timer.OpenTopic
	}
	if g.delivers && g.pick(12) == 0 {
		d := g.model.deliveries[c.Topic]
		c.Kind, c.ID, c.Pull = timer.Deliver, "", g.pick(2) == 0
		c.Turn = uint32(max(0, int(d.turn)+g.pick(4)-1))
		return c
	}
	if g.pauses && g.pick(8) == 0 {
		c.Kind = []timer.Kind{timer.Pause, timer.Resume}[g.pick(2)]
		c.DueMs = []int64{0, g.now + 9}[g.pick(2)]
		c.IfMatch = uint32(max(0, g.pick(6)-2))
		if x := g.of(timer.Scheduled); x != nil && g.pick(2) == 0 {
			c.Topic, c.ID = x.Topic, x.ID
		}
		return c
	}
	switch c.Kind {
	case timer.CloseTopic, timer.OpenTopic:
		c.ID = ""
	case timer.Add, timer.Put:
		c.Spec, c.Content, c.Tag = g.spec(), uint64(1+g.pick(3)), uint32(g.pick(1<<30))
		c.Absolute = g.pick(2) == 0
		c.NotLate = g.notLate && g.pick(4) == 0
		if c.Kind == timer.Add && g.pick(2) == 0 {
			c.Merge, c.MaxWaitMs = timer.Merge(g.pick(4)), int64(g.pick(2)*g.pick(60_000))
		}
		if g.collects && c.Kind == timer.Add && g.pick(2) == 0 {
			g.collecting(c)
		}
		c.CreateOnly = c.Kind == timer.Put && g.pick(4) == 0
	case timer.Modify:
		c.Patch = g.patch()
		c.Shift = g.deadByVersion && g.pick(2) == 0
	case timer.Cancel:
		if g.deadByVersion && g.pick(2) == 0 {
			if x := g.any(); x != nil {
				c.Topic, c.ID, c.Seq = x.Topic, x.ID, x.Seq
			}
		}
	case timer.Fire:
		if g.deadByVersion {
			c.DueMs = []int64{0, g.now - 3}[g.pick(2)]
		}
	case timer.Redrive:
		if g.pick(2) == 0 {
			c.Patch = g.patch()
		}
		c.DueMs = []int64{0, g.now + 5_000}[g.pick(2)]
	}
	if g.deadByVersion && (c.Kind == timer.Redrive || c.Kind == timer.Purge) {
		if x := g.of(timer.Dead); x != nil && g.pick(3) > 0 {
			c.Topic, c.ID, c.Seq = x.Topic, x.ID, x.Seq
		}
	}
	versioned := timer.Fire
	if g.deadByVersion {
		versioned = timer.Purge
	}
	if c.Kind >= timer.Put && c.Kind <= versioned && g.pick(4) == 0 {
		c.IfMatch = uint32(1 + g.pick(3))
	}
	return c
}

// collecting makes an add one that collects; most of those go to few ids.
func (g *modelHarness) collecting(c *timer.Command) {
	c.Merge, c.MaxWaitMs, c.ID = timer.MergeCollect, int64(g.pick(2)*g.pick(60_000)), fmt.Sprint("timer-", g.pick(4))
	s := c.Spec
	s.Collect = &timer.Collect{Max: []int{0, 1, 2, 3, 5}[g.pick(5)]}
	if g.pick(2) == 0 {
		s.Collect.Part = fmt.Sprint("part", g.pick(6))
	}
	if g.pick(20) > 0 {
		s.Repeat, s.PayloadKind, s.Payload = nil, timer.JSONPayload, fmt.Append(nil, g.pick(1000))
	}
}

func (g *modelHarness) any() *modelTimer {
	if len(g.model.all) == 0 {
		return nil
	}
	return g.model.all[g.pick(len(g.model.all))]
}

func (g *modelHarness) of(state timer.State) *modelTimer {
	for range 8 {
		if x := g.any(); x != nil && x.State == state {
			return x
		}
	}
	return g.any()
}

// item adds a random item to the batch. The item refers to the state before the batch, so it may be
// stale.
func (g *modelHarness) item(b *Batch) step {
	switch g.pick(8) {
	default:
		c := g.randomCommand()
		g.belong(c)
		g.drawn = c
		b.Command(c)
		return func() (timer.Code, *modelTimer) { return g.model.command(c) }
	case 0, 1:
		x := g.of(timer.Scheduled)
		if x == nil {
			b.Takeover(9)
			return func() (timer.Code, *modelTimer) { return timer.OK, nil }
		}
		h, seq, rev, dur := x.handle, x.Seq, x.rev, int64(1000*(1+g.pick(2)))
		if g.pick(10) == 0 {
			rev++
		}
		holder, now := ByCall, g.now
		if g.pick(3) == 0 {
			holder = ByPuller
			b.Pull(dur, h, seq, rev)
		} else {
			b.Lease(dur, h, seq, rev)
		}
		return func() (timer.Code, *modelTimer) { return g.model.lease(g.at(h), seq, rev, dur, holder, now), nil }
	case 2, 3:
		return g.outcomeItem(b)
	case 4:
		x := g.of(timer.Dead)
		if x == nil || g.pick(3) > 0 {
			b.Tick()
			return func() (timer.Code, *modelTimer) { return timer.OK, nil }
		}
		h, seq, rev := x.handle, x.Seq, x.rev
		if x.State == timer.Dead {
			b.Forget(h, seq)
			return func() (timer.Code, *modelTimer) {
				if y := g.at(h); y != nil && y.Seq == seq && y.State == timer.Dead {
					g.model.drop(y)
					return timer.OK, nil
				}
				return timer.Skipped, nil
			}
		}
		until, again := g.now+90_000, g.again()
		if x.State == timer.Scheduled && g.pick(2) == 0 {
			b.Skip(h, seq, rev, again)
			return func() (timer.Code, *modelTimer) { return g.model.skip(g.at(h), seq, rev, again), nil }
		}
		then := g.followUp(b)
		b.Expire(h, seq, rev, until, again)
		return func() (timer.Code, *modelTimer) {
			if y := g.at(h); y != nil && y.Seq == seq && y.State == timer.Scheduled && y.rev == rev {
				paused := y.Paused
				g.model.kill(y, timer.Expired, g.model.clock, until)
				g.model.continues(y, again, paused)
				g.model.yield(y)
				then(timer.Dead)
				return timer.OK, nil
			}
			return timer.Skipped, nil
		}
	}
}

func (g *modelHarness) outcomeItem(b *Batch) step {
	x := g.of(timer.Leased)
	if x == nil {
		b.Tick()
		return func() (timer.Code, *modelTimer) { return timer.OK, nil }
	}
	o := &Outcome{
		Handle: x.handle, Seq: x.Seq, Fence: x.Fence, Kind: OutcomeKind(1 + g.pick(6)),
		StartedMs: g.now - int64(g.pick(900)), Status: []int{0, 200, 503}[g.pick(3)],
	}
	o.EndedMs = o.StartedMs + int64(g.pick(500))
	if g.pick(20) == 0 {
		o.EndedMs = 0
	}
	switch o.Kind {
	case RetryLater:
		o.NextMs, o.Err = g.now+int64(g.pick(9000)), "no answer in time"
		o.Logged = g.outcomes && g.pick(3) > 0
	case Kill:
		o.Reason, o.RetainUntilMs, o.Err = timer.MaxAttempts, g.now+100_000, "connection refused"
	case Accepted, Extended:
		o.LeaseMs = int64(1000 * (1 + g.pick(50)))
	}
	if g.answers && (o.Kind == RetryLater || o.Kind == Kill) && g.pick(2) == 0 {
		o.Answer = &timer.Answer{Body: strings.Repeat("no ", 1+g.pick(300)), Type: []string{"", "text/plain"}[g.pick(2)]}
	}
	if at := g.again(); at != 0 && x.Repeat != nil && g.pick(2) == 0 {
		b.Overlap(o.Handle, o.Seq, o.Fence, at)
		return func() (timer.Code, *modelTimer) { return g.model.overlap(g.at(o.Handle), o.Seq, o.Fence, at), nil }
	}
	if o.Kind == Ack || o.Kind == Kill {
		o.AgainMs = g.again()
	}
	then := func(timer.State) {}
	if o.Kind == Ack || o.Kind == Kill {
		then = g.followUp(b)
	}
	b.Outcome(o)
	return func() (timer.Code, *modelTimer) {
		x := g.at(o.Handle)
		code := g.model.outcome(x, o)
		if code == timer.OK {
			then(x.State)
		}
		return code, nil
	}
}

// again draws the due time of a next occurrence, or 0.
func (g *modelHarness) again() int64 { return []int64{0, g.now + 5_000, g.now - 5_000}[g.pick(3)] }

// followUp draws the outcome of the timer that the next item may end. The result is the model's
// version of it.
func (g *modelHarness) followUp(b *Batch) func(end timer.State) {
	if !g.outcomes || g.pick(2) == 0 {
		return func(timer.State) {}
	}
	c := &timer.Command{Kind: timer.Add, Topic: timer.TopicID(1 + g.pick(2)), ID: fmt.Sprint("outcome-", g.pick(20)), Content: 77, Tag: uint32(g.pick(1 << 30))}
	c.Spec = &timer.Spec{DueMs: g.now, OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{}, Labels: []string{timer.OutcomeLabel}}
	g.belong(c)
	b.FollowUp(c)
	return func(end timer.State) {
		if end != timer.Done && end != timer.Dead {
			return
		}
		if code, x := g.model.command(c); code == timer.Created {
			g.model.made = append(g.model.made, x)
		} else {
			g.model.lost++
		}
	}
}
