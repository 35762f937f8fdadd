package scheduler

import (
	"slices"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// outcomes decides how attempts ended, and keeps what the next entries carry of that.
type outcomes struct {
	outcomes []outcomeItem
	expires  []entry // scheduled, past their expiry
	forgets  []entry // dead, past their retention

	*leader
	series *seriesTimes
}

func newOutcomes(s *Scheduler) outcomes {
	return outcomes{leader: &s.leader, series: &s.series}
}

// outcomeItem is an outcome to be proposed, with its active lease. lease is nil if no active lease
// belongs to it, as for inherited and consumers' leases.
type outcomeItem struct {
	table.Outcome
	lease *activeLease
}

// add keeps an outcome for the next entry; f is the active lease that it ends, nil if there is
// none.
func (o *outcomes) add(out table.Outcome, f *activeLease) (kept *table.Outcome) {
	o.outcomes = append(o.outcomes, outcomeItem{out, f})
	return &o.outcomes[len(o.outcomes)-1].Outcome
}

// release keeps the return of a lease whose call has not started.
func (o *outcomes) release(f *activeLease) {
	o.add(table.Outcome{Handle: f.handle, Seq: f.seq, Fence: f.fence, Kind: table.Release}, f)
}

// expire has a timer end that is past its expiry.
func (o *outcomes) expire(e entry) { o.expires = append(o.expires, e) }

// forget has a dead letter dropped that is past its retention.
func (o *outcomes) forget(e entry) { o.forgets = append(o.forgets, e) }

// CanJudge reports whether this node knows the timer's topic as it is, and the zone of its series.
// A node that has just started may lead a shard before it has learned the topics again. The default
// policy would be wrong: it has other attempts and another backoff (I17).
func (o *outcomes) CanJudge(h timer.Handle, d *table.Due) bool {
	return o.cfg.Topics.Current() && o.topic(d.Topic) != nil && o.HasZone(h, d)
}

// judge decides the outcome of a leased timer's attempt, by its topic as this node knows it.
func (o *outcomes) judge(h timer.Handle, d *table.Due, a *delivery.Outcome, random float64) table.Outcome {
	policy := timer.DefaultPolicy()
	if topic := o.topic(d.Topic); topic != nil {
		policy = topic.Policy
	}
	own := o.table.RetryOf(h)
	out := judge(&policy, &own, d.Attempts, a, random)
	if policy.NoAnswers || out.Answer != nil && o.env.Full() {
		out.Answer = nil
	}
	out.Handle, out.Seq, out.Fence = h, d.Seq, d.Fence
	if out.Kind == table.RetryLater { // the clock of a former leader may have been ahead (I4)
		out.NextMs = o.notBeforeDue(h, out.NextMs)
		out.Logged = !o.env.Full() && (o.hasOutcome(&policy, h, timer.Done) || o.hasOutcome(&policy, h, timer.Dead))
	}
	if out.Kind == table.Ack || out.Kind == table.Kill {
		out.AgainMs = o.series.again(h, a.StartedMs)
	}
	return out
}

// notBeforeDue returns the time of a leased timer's next attempt, ms or later; see table.Due.
func (o *outcomes) notBeforeDue(h timer.Handle, ms int64) int64 {
	d := o.table.Due(h)
	if d.AskedMs > o.now.WallMs+table.ClockAheadMs { // the clock was ahead when somebody asked
		d.AskedMs = o.now.WallMs
	}
	if at := d.NotBefore(ms); at <= ms || !o.table.DueByClock(h) {
		return at
	}
	return ms // it is due by a clock that was ahead
}

// mayRepeat reports that a call may be made again although its process may live: nobody relies on
// it to be alone, and it is not the last one.
func (o *outcomes) mayRepeat(h timer.Handle, d *table.Due) bool {
	topic := o.topic(d.Topic)
	if topic == nil || topic.Policy.KeyConcurrency() > 0 || topic.Policy.Concurrency > 0 {
		return false
	}
	own := o.table.RetryOf(h)
	return judge(&topic.Policy, &own, d.Attempts, &delivery.Outcome{Err: Interrupted}, 0).Kind == table.RetryLater
}

// endBudget is how many outcomes an entry takes, and how many of each other kind of end: there is
// room for clients' changes beside them, and every replica applies all in one turn.
const endBudget = 1024

// rest is what a list has after its first n items, which were proposed. It has its turn next.
// Cost: O(n).
func rest[T any](env Env, list []T, n int) []T {
	clear(list[:n])
	if n == len(list) {
		return list[:0]
	}
	env.WakeNext()
	return list[n:]
}

// Propose proposes the outcomes of leases. While the clock is trusted it also proposes
// expiries, the forgetting of dead letters, and skips.
func (o *outcomes) Propose(b *table.Batch) {
	n := 0
	for ; n < min(len(o.outcomes), endBudget) && b.Size() < table.MaxBatchBytes; n++ {
		o.ProposeOutcome(b, &o.outcomes[n].Outcome)
		o.env.Proposed(Item{outcomeProposed, o.outcomes[n].lease})
	}
	o.outcomes = rest(o.env, o.outcomes, n)
	if o.sure() && o.cfg.Topics.Current() {
		o.proposeEnds(b)
	}
	o.series.proposeOverlaps(b)
}

// ProposeOutcome proposes an outcome of a lease, and that of its timer in front of it.
func (o *outcomes) ProposeOutcome(b *table.Batch, out *table.Outcome) {
	if out.Kind == table.Ack || out.Kind == table.Kill {
		end := timer.Done
		if out.Kind == table.Kill {
			end = timer.Dead
		}
		o.followUp(b, out.Handle, end, func() (*timer.Timer, []timer.HistoryAttempt) { return o.table.Ended(out, o.now.WallMs) })
	}
	b.Outcome(out)
}

// proposeEnds proposes expiries and the forgetting of dead letters. What the entry has no room for
// is left for the next one.
func (o *outcomes) proposeEnds(b *table.Batch) {
	n := 0
	for ; n < min(len(o.expires), endBudget) && b.Size() < table.MaxBatchBytes; n++ {
		e := o.expires[n]
		o.followUp(b, e.handle, timer.Dead, func() (*timer.Timer, []timer.HistoryAttempt) {
			return o.table.Expired(e.handle, e.seq, e.rev, o.now.WallMs)
		})
		b.Expire(e.handle, e.seq, e.rev, o.now.WallMs+o.retention(e.handle), o.series.again(e.handle, 0))
		o.env.Proposed(Item{})
		o.cfg.Observer.Expired()
	}
	o.expires = rest(o.env, o.expires, n)
	forgets := o.forgets[:min(len(o.forgets), endBudget)]
	for _, e := range forgets {
		b.Forget(e.handle, e.seq)
		o.env.Proposed(Item{})
	}
	o.forgets = rest(o.env, o.forgets, len(forgets))
	o.series.proposeSkips(b)
}

// rebase corrects outcomes that a wrong clock decided and that are not proposed yet: their times
// count from now. A series may also have been given its next time by that clock, or none, if its
// call ended by the right clock of a former leader.
func (o *outcomes) rebase() {
	now := o.now.WallMs
	for i := range o.outcomes {
		p := &o.outcomes[i]
		if late := p.EndedMs - now; late > table.ClockAheadMs {
			p.RetainUntilMs -= late
			if p.Kind == table.RetryLater {
				p.NextMs = o.notBeforeDue(p.Handle, p.NextMs-late)
			}
			p.StartedMs, p.EndedMs = min(p.StartedMs, now), now
		}
		if p.Kind == table.Ack || p.Kind == table.Kill {
			p.AgainMs = o.series.again(p.Handle, p.StartedMs)
		}
	}
}

// Describe returns the payload of the outcome of a timer of a topic that has just ended, as JSON.
// attempts are its last ones, the oldest first. The result is kept in the log, so what a later
// release writes does not change it.
type Describe func(topic *timer.Topic, ended *timer.Timer, attempts []timer.HistoryAttempt) []byte

// hasOutcome reports whether a timer or its topic's policy names a topic for that end.
func (l *leader) hasOutcome(p *timer.Policy, h timer.Handle, end timer.State) bool {
	if own := l.table.OutcomeOf(h, end); own != nil {
		return own.ID != 0
	}
	return p.OutcomeOf(end) != ""
}

// followUp adds the outcome of a timer that the next item ends, if its on_done or on_dead, or that
// of its topic, names a topic. A timer without costs O(1); ended copies the timer.
func (l *leader) followUp(b *table.Batch, h timer.Handle, end timer.State, ended func() (*timer.Timer, []timer.HistoryAttempt)) {
	from := l.topic(l.table.TopicOf(h))
	if from == nil {
		return
	}
	if !l.hasOutcome(&from.Policy, h, end) {
		return
	}
	t, attempts := ended()
	if t == nil {
		return // its lease is over, or it is cancelled
	}
	if t.Origin == 0 {
		t.Origin = l.cfg.Shard
	}
	to, there := l.outcomeTopic(l.table.OutcomeOf(h, end), from.Policy.OutcomeOf(end))
	if !there {
		l.cfg.Observer.Outcomes(0, 1)
		return
	}
	b.FollowUp(&timer.Command{
		Kind: timer.Add, Topic: to, ID: timer.OutcomeID(l.cfg.Shard, t), Tag: t.Tag,
		Spec: &timer.Spec{
			DueMs: l.now.WallMs, PayloadKind: timer.JSONPayload, Payload: l.cfg.Describe(from, t, attempts),
			Labels: []string{timer.OutcomeLabel}, Trace: t.Trace,
			OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{}, // an outcome has none
		},
	})
}

// outcomeTopic returns the topic that a timer names itself, else that of the name. It reports false
// if the topic is gone. One that this node has not learned of yet is there: the timer named it when
// it was there.
func (l *leader) outcomeTopic(own *timer.OutcomeTopic, name string) (timer.TopicID, bool) {
	if own != nil {
		_, known := l.cfg.Topics.Topic(own.ID)
		return own.ID, known || !l.cfg.Topics.Given(own.ID)
	}
	to, known := l.cfg.Topics.Named(name)
	if !known {
		return 0, false
	}
	return to.ID, true
}

// judge decides the outcome of an attempt by the topic's policy and the timer's own retry settings.
// attempts includes this one; random in [0,1) spreads the backoff. judge reads no clock: its
// decision is logged as it is.
func judge(p *timer.Policy, own *timer.Retry, attempts int, a *delivery.Outcome, random float64) table.Outcome {
	out := table.Outcome{StartedMs: a.StartedMs, EndedMs: a.EndedMs, Status: a.Status, Err: a.Err, Answer: a.Answer}
	switch {
	case a.NotSent:
		out.Kind = table.Release
		return out
	case p.Report && !a.NoReceipt && a.Err == "" && a.Status == 202:
		out.Kind, out.LeaseMs = table.Accepted, p.LeaseFor()
		return out
	case a.Err == "" && a.Status >= 200 && a.Status <= 299:
		out.Kind = table.Ack
		return out
	case slices.Contains(p.StopOn, a.Status):
		out.Kind, out.Reason = table.Kill, timer.Stopped
	case attempts >= maxAttempts(p, own):
		out.Kind, out.Reason = table.Kill, timer.MaxAttempts
		if a.Refused {
			out.Reason = timer.Refused
		}
	default:
		out.Kind = table.RetryLater
		out.NextMs = a.EndedMs + retryMs(p, own, attempts, a, random)
		return out
	}
	out.RetainUntilMs = a.EndedMs + p.DeadRetentionMs
	return out
}

func maxAttempts(p *timer.Policy, own *timer.Retry) int {
	if own.MaxAttempts > 0 {
		return own.MaxAttempts
	}
	return p.MaxAttempts
}

// endBy shifts an attempt that ended in the future to end now: the clock may have been set back
// since it started. justNow: the call has just ended, so an end too far in the past is shifted as
// well.
func endBy(a *delivery.Outcome, nowMs int64, justNow bool) {
	if late := a.EndedMs - nowMs; late > table.ClockAheadMs || justNow && late < -table.EndSlackMs {
		a.StartedMs, a.EndedMs = a.StartedMs-late, nowMs
	}
}
