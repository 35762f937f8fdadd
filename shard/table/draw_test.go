package table

import (
	"bytes"
	"fmt"
	"strings"

	"carillon/timer"
)

func (mh *modelHarness) spec() *timer.Spec {
	s := &timer.Spec{DueMs: mh.now + int64(mh.pick(200_000)) - 20_000, Priority: uint8(mh.pick(3))}
	if n := mh.pick(4); n > 0 {
		s.PayloadKind = timer.PayloadKind(1 + n&1)
		s.Payload = bytes.Repeat([]byte{byte('a' + n)}, []int{1, 40, 300, 1_500}[mh.pick(4)])
	}
	if mh.pick(3) == 0 {
		s.HasExpiry, s.ExpiresAfterMs = true, int64(mh.pick(60_000))
	}
	if n := mh.pick(6); n < 3 {
		s.Callback.URL = fmt.Sprint("http://receiver.example/", n)
		s.Callback.HasHeaders = n > 0
		for i := range n {
			s.Callback.Headers = append(s.Callback.Headers, timer.Header{Name: fmt.Sprint("X-", i), Value: "v"})
		}
	}
	for i := range mh.pick(3) {
		s.Labels = append(s.Labels, fmt.Sprint("label", i))
	}
	if mh.pick(5) == 0 {
		s.Retry = timer.Retry{MaxAttempts: 3, Multiplier: 1.5, HasJitter: true, MinBackoffMs: 10, MaxBackoffMs: 99}
		s.ContentType = "text/plain"
	}
	if mh.pick(4) == 0 {
		s.Repeat = &timer.Repeat{EveryMs: 5000, Count: int64(mh.pick(4)), CatchUp: timer.CatchUp(mh.pick(3)), Overlap: mh.pick(2) == 0}
		if mh.pick(3) == 0 {
			s.Repeat.UntilMs = mh.now + int64(mh.pick(100_000))
		}
	}
	if mh.outcomes {
		s.OnDone, s.OnDead = mh.outcomeTopic(), mh.outcomeTopic()
	}
	return s
}

// outcomeTopic draws what a timer says of an outcome.
func (mh *modelHarness) outcomeTopic() *timer.OutcomeTopic {
	switch n := timer.TopicID(mh.pick(6)); n {
	case 1, 2:
		return &timer.OutcomeTopic{ID: n, Name: fmt.Sprint("topic", n)}
	case 3:
		return &timer.OutcomeTopic{}
	}
	return nil
}

func (mh *modelHarness) patch() *timer.Patch {
	p := &timer.Patch{Spec: *mh.spec()}
	bits := mh.pick(1 << 16)
	for i, set := range []*bool{
		&p.Due, &p.Payload, &p.ContentType, &p.Priority, &p.Labels, &p.Expiry, &p.URL, &p.Method, &p.Headers, &p.Timeout,
		&p.MaxAttempts, &p.MinBackoff, &p.MaxBackoff, &p.Multiplier, &p.Jitter, &p.Repeat,
	} {
		*set = bits&(1<<i) != 0
	}
	if mh.outcomes {
		p.OnDone, p.OnDead = mh.pick(4) == 0, mh.pick(4) == 0
	}
	if p.Payload && p.Spec.PayloadKind == timer.NoPayload {
		p.Spec.Payload = nil
	}
	return p
}

func (mh *modelHarness) randomCommand() *timer.Command {
	kinds := []timer.Kind{timer.Add, timer.Add, timer.Add, timer.Add, timer.Put, timer.Put, timer.Modify, timer.Modify, timer.Cancel, timer.Fire, timer.Redrive, timer.Purge}
	c := &timer.Command{Kind: kinds[mh.pick(len(kinds))], Topic: timer.TopicID(1 + mh.pick(2)), ID: fmt.Sprint("timer-", mh.pick(12))}
	if mh.pick(150) == 0 {
		c.Kind = timer.CloseTopic
		c.Force = mh.pick(2) == 0
	} else if mh.pick(30) == 0 {
		c.Kind = timer.OpenTopic
	}
	if mh.delivers && mh.pick(12) == 0 {
		d := mh.model.deliveries[c.Topic]
		c.Kind, c.ID, c.Pull = timer.Deliver, "", mh.pick(2) == 0
		c.Turn = uint32(max(0, int(d.turn)+mh.pick(4)-1))
		return c
	}
	if mh.pauses && mh.pick(8) == 0 {
		c.Kind = []timer.Kind{timer.Pause, timer.Resume}[mh.pick(2)]
		c.DueMs = []int64{0, mh.now + 9}[mh.pick(2)]
		c.IfMatch = uint32(max(0, mh.pick(6)-2))
		if x := mh.of(timer.Scheduled); x != nil && mh.pick(2) == 0 {
			c.Topic, c.ID = x.Topic, x.ID
		}
		return c
	}
	switch c.Kind {
	case timer.CloseTopic, timer.OpenTopic:
		c.ID = ""
	case timer.Add, timer.Put:
		c.Spec, c.Content, c.Tag = mh.spec(), uint64(1+mh.pick(3)), uint32(mh.pick(1<<30))
		c.Absolute = mh.pick(2) == 0
		c.NotLate = mh.notLate && mh.pick(4) == 0
		if c.Kind == timer.Add && mh.pick(2) == 0 {
			c.Merge, c.MaxWaitMs = timer.Merge(mh.pick(4)), int64(mh.pick(2)*mh.pick(60_000))
		}
		if mh.collects && c.Kind == timer.Add && mh.pick(2) == 0 {
			mh.collecting(c)
		}
		c.CreateOnly = c.Kind == timer.Put && mh.pick(4) == 0
	case timer.Modify:
		c.Patch = mh.patch()
		c.Shift = mh.deadByVersion && mh.pick(2) == 0
	case timer.Cancel:
		if mh.deadByVersion && mh.pick(2) == 0 {
			if x := mh.any(); x != nil {
				c.Topic, c.ID, c.Seq = x.Topic, x.ID, x.Seq
			}
		}
	case timer.Fire:
		if mh.deadByVersion {
			c.DueMs = []int64{0, mh.now - 3}[mh.pick(2)]
		}
	case timer.Redrive:
		if mh.pick(2) == 0 {
			c.Patch = mh.patch()
		}
		c.DueMs = []int64{0, mh.now + 5_000}[mh.pick(2)]
	}
	if mh.deadByVersion && (c.Kind == timer.Redrive || c.Kind == timer.Purge) {
		if x := mh.of(timer.Dead); x != nil && mh.pick(3) > 0 {
			c.Topic, c.ID, c.Seq = x.Topic, x.ID, x.Seq
		}
	}
	versioned := timer.Fire
	if mh.deadByVersion {
		versioned = timer.Purge
	}
	if c.Kind >= timer.Put && c.Kind <= versioned && mh.pick(4) == 0 {
		c.IfMatch = uint32(1 + mh.pick(3))
	}
	return c
}

// collecting makes an add one that collects; most of those go to few ids.
func (mh *modelHarness) collecting(c *timer.Command) {
	c.Merge, c.MaxWaitMs, c.ID = timer.MergeCollect, int64(mh.pick(2)*mh.pick(60_000)), fmt.Sprint("timer-", mh.pick(4))
	s := c.Spec
	s.Collect = &timer.Collect{Max: []int{0, 1, 2, 3, 5}[mh.pick(5)]}
	if mh.pick(2) == 0 {
		s.Collect.Part = fmt.Sprint("part", mh.pick(6))
	}
	if mh.pick(20) > 0 {
		s.Repeat, s.PayloadKind, s.Payload = nil, timer.JSONPayload, fmt.Append(nil, mh.pick(1000))
	}
}

func (mh *modelHarness) any() *modelTimer {
	if len(mh.model.all) == 0 {
		return nil
	}
	return mh.model.all[mh.pick(len(mh.model.all))]
}

func (mh *modelHarness) of(state timer.State) *modelTimer {
	for range 8 {
		if x := mh.any(); x != nil && x.State == state {
			return x
		}
	}
	return mh.any()
}

// item adds a random item to the batch. The item refers to the state before the batch, so it may be
// stale.
func (mh *modelHarness) item(b *Batch) step {
	switch mh.pick(8) {
	default:
		c := mh.randomCommand()
		mh.belong(c)
		mh.drawn = c
		b.Command(c)
		return func() (timer.Code, *modelTimer) { return mh.model.command(c) }
	case 0, 1:
		x := mh.of(timer.Scheduled)
		if x == nil {
			b.Takeover(9)
			return func() (timer.Code, *modelTimer) { return timer.OK, nil }
		}
		h, seq, rev, dur := x.handle, x.Seq, x.rev, int64(1000*(1+mh.pick(2)))
		if mh.pick(10) == 0 {
			rev++
		}
		holder, now := ByCall, mh.now
		if mh.pick(3) == 0 {
			holder = ByPuller
			b.Pull(dur, h, seq, rev)
		} else {
			b.Lease(dur, h, seq, rev)
		}
		return func() (timer.Code, *modelTimer) { return mh.model.lease(mh.at(h), seq, rev, dur, holder, now), nil }
	case 2, 3:
		return mh.outcomeItem(b)
	case 4:
		x := mh.of(timer.Dead)
		if x == nil || mh.pick(3) > 0 {
			b.Tick()
			return func() (timer.Code, *modelTimer) { return timer.OK, nil }
		}
		h, seq, rev := x.handle, x.Seq, x.rev
		if x.State == timer.Dead {
			b.Forget(h, seq)
			return func() (timer.Code, *modelTimer) {
				if y := mh.at(h); y != nil && y.Seq == seq && y.State == timer.Dead {
					mh.model.drop(y)
					return timer.OK, nil
				}
				return timer.Skipped, nil
			}
		}
		until, again := mh.now+90_000, mh.again()
		if x.State == timer.Scheduled && mh.pick(2) == 0 {
			b.Skip(h, seq, rev, again)
			return func() (timer.Code, *modelTimer) { return mh.model.skip(mh.at(h), seq, rev, again), nil }
		}
		then := mh.followUp(b)
		b.Expire(h, seq, rev, until, again)
		return func() (timer.Code, *modelTimer) {
			if y := mh.at(h); y != nil && y.Seq == seq && y.State == timer.Scheduled && y.rev == rev {
				paused := y.Paused
				mh.model.kill(y, timer.Expired, mh.model.clock, until)
				mh.model.continues(y, again, paused)
				mh.model.yield(y)
				then(timer.Dead)
				return timer.OK, nil
			}
			return timer.Skipped, nil
		}
	}
}

func (mh *modelHarness) outcomeItem(b *Batch) step {
	x := mh.of(timer.Leased)
	if x == nil {
		b.Tick()
		return func() (timer.Code, *modelTimer) { return timer.OK, nil }
	}
	o := &Outcome{
		Handle: x.handle, Seq: x.Seq, Fence: x.Fence, Kind: OutcomeKind(1 + mh.pick(6)),
		StartedMs: mh.now - int64(mh.pick(900)), Status: []int{0, 200, 503}[mh.pick(3)],
	}
	o.EndedMs = o.StartedMs + int64(mh.pick(500))
	if mh.pick(20) == 0 {
		o.EndedMs = 0
	}
	switch o.Kind {
	case RetryLater:
		o.NextMs, o.Err = mh.now+int64(mh.pick(9000)), "no answer in time"
		o.Logged = mh.outcomes && mh.pick(3) > 0
	case Kill:
		o.Reason, o.RetainUntilMs, o.Err = timer.MaxAttempts, mh.now+100_000, "connection refused"
	case Accepted, Extended:
		o.LeaseMs = int64(1000 * (1 + mh.pick(50)))
	}
	if mh.answers && (o.Kind == RetryLater || o.Kind == Kill) && mh.pick(2) == 0 {
		o.Answer = &timer.Answer{Body: strings.Repeat("no ", 1+mh.pick(300)), Type: []string{"", "text/plain"}[mh.pick(2)]}
	}
	if at := mh.again(); at != 0 && x.Repeat != nil && mh.pick(2) == 0 {
		b.Overlap(o.Handle, o.Seq, o.Fence, at)
		return func() (timer.Code, *modelTimer) { return mh.model.overlap(mh.at(o.Handle), o.Seq, o.Fence, at), nil }
	}
	if o.Kind == Ack || o.Kind == Kill {
		o.AgainMs = mh.again()
	}
	then := func(timer.State) {}
	if o.Kind == Ack || o.Kind == Kill {
		then = mh.followUp(b)
	}
	b.Outcome(o)
	return func() (timer.Code, *modelTimer) {
		x := mh.at(o.Handle)
		code := mh.model.outcome(x, o)
		if code == timer.OK {
			then(x.State)
		}
		return code, nil
	}
}

// again draws the due time of a next occurrence, or 0.
func (mh *modelHarness) again() int64 { return []int64{0, mh.now + 5_000, mh.now - 5_000}[mh.pick(3)] }

// followUp draws the outcome of the timer that the next item may end. The result is the model's
// version of it.
func (mh *modelHarness) followUp(b *Batch) func(end timer.State) {
	if !mh.outcomes || mh.pick(2) == 0 {
		return func(timer.State) {}
	}
	c := &timer.Command{Kind: timer.Add, Topic: timer.TopicID(1 + mh.pick(2)), ID: fmt.Sprint("outcome-", mh.pick(20)), Content: 77, Tag: uint32(mh.pick(1 << 30))}
	c.Spec = &timer.Spec{DueMs: mh.now, OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{}, Labels: []string{timer.OutcomeLabel}}
	mh.belong(c)
	b.FollowUp(c)
	return func(end timer.State) {
		if end != timer.Done && end != timer.Dead {
			return
		}
		if code, x := mh.model.command(c); code == timer.Created {
			mh.model.made = append(mh.model.made, x)
		} else {
			mh.model.lost++
		}
	}
}
