package table

import (
	"slices"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// EndSlackMs is how far an attempt's reported end may be before the time of the entry that reports
// it. An end outside of this range is replaced by the entry's time. The list of finished timers is
// therefore ordered by end time up to this slack.
const EndSlackMs = 60_000

func (o *Outcome) endMs(nowMs int64) int64 {
	if o.EndedMs > nowMs || o.EndedMs < nowMs-EndSlackMs {
		return nowMs
	}
	return max(o.EndedMs, 0)
}

// outcome ends or extends a lease, if the timer still has it.
func (t *Table) outcome(o *Outcome) timer.Result {
	s := t.live(o.Handle, o.Seq)
	if s == nil || s.State() != timer.Leased || t.attempts.At(s.Attempt).Fence != o.Fence ||
		o.CallOnly && t.attempts.At(s.Attempt).Holder != ByCall {
		return timer.Result{Code: timer.Skipped, Handle: o.Handle}
	}
	if t.restamped < o.Handle { // first: afterwards its times do not show which clock they are by
		t.restamping.timer(t, o.Handle)
	}
	if o.Kind == Accepted || o.Kind == Extended {
		return t.prolong(o)
	}
	s = t.beginUpdate(o.Handle)
	r := t.attempts.At(s.Attempt)
	successor := r.Successor // its blob is this function's from here on
	r.Successor = 0
	t.record(o, s, o.endMs(t.clockMs))
	t.byAttempt = o.Kind != Release
	t.conclude(o, s)
	t.byAttempt = false
	t.events.addAttempt(&t.timers, o, s, o.endMs(t.clockMs))
	t.endUpdate(o.Handle, s)
	if successor != 0 {
		t.promote(o.Handle, successor)
	} else {
		t.continueSeries(o.Handle, o.AgainMs, false)
	}
	t.rankEnded(o.Handle)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// prolong extends a lease: of a receiver that accepted the timer, or of a consumer that already
// holds it. Clients that wait for the attempt's end keep waiting, and a requested cancel stays
// pending.
func (t *Table) prolong(o *Outcome) timer.Result {
	s := t.beginUpdate(o.Handle)
	r := t.attempts.At(s.Attempt)
	if o.Kind == Accepted {
		t.record(o, s, 0)
		if r.Holder == slab.ByReport && o.LeaseMs <= int64(r.DurMs) {
			// A former leader reports a 202 late, and the receiver has acted on it since. Keep the
			// lease that the receiver has.
			t.endUpdate(o.Handle, s)
			return timer.Result{Code: timer.OK, Handle: o.Handle}
		}
		if t.Delivers(t.topics.rows[s.Topic].id, false) {
			r.Holder = slab.ByReport
		}
	}
	r.DurMs = uint32(min(o.LeaseMs, 1<<32-1))
	t.transition(o.Handle, s, timer.Leased, t.clockMs+timer.ClampMs(o.LeaseMs))
	t.endUpdate(o.Handle, s)
	return timer.Result{Code: timer.OK, Handle: o.Handle}
}

// conclude moves the timer to its next state. If its cancel was requested while it was leased, it
// gets no further attempt (I5).
func (t *Table) conclude(o *Outcome, s *slab.Slot) {
	h := o.Handle
	switch {
	case o.Kind == Ack:
		t.end(h, s, timer.Done, o.endMs(t.clockMs))
	case s.Cancelled():
		t.end(h, s, timer.Cancelled, o.endMs(t.clockMs))
	case o.Kind == RetryLater:
		t.attempts.At(s.Attempt).SetEndedMs(t.clockMs)
		t.transition(h, s, timer.Scheduled, o.NextMs)
	case o.Kind == Release:
		r := t.attempts.At(s.Attempt)
		t.transition(h, s, timer.Scheduled, r.AttemptDueMs())
		r.SetEndedMs(t.clockMs)
	default:
		t.kill(h, s, o.Reason, o.endMs(t.clockMs), o.RetainUntilMs)
	}
}

// A timer that ends as done or dead may make an outcome: another timer, in the topic that its
// on_done or on_dead names. The leader knows the topics, so it puts the outcome's add in front of
// the item that ends the timer. The add is carried out if the timer ends by the item, and not
// otherwise. So there is one outcome for one end.

// names are the topics that a pending timer names itself in on_done and on_dead; 0: none.
type names [2]timer.TopicID

// outcomeTopics counts the pending timers that name a topic for their outcomes. It follows from the
// timers, and is not replicated. A change is O(1). A timer that names none takes no memory here.
type outcomeTopics struct {
	of    map[timer.Handle]names
	count map[timer.TopicID]int64
	room  room
}

func newOutcomeTopics() outcomeTopics {
	return outcomeTopics{of: map[timer.Handle]names{}, count: map[timer.TopicID]int64{}}
}

// read takes over a timer's content. The timer's update is open.
func (o *outcomeTopics) read(h timer.Handle, rest []byte) {
	var n names
	onDone, onDead := encoding.RestOutcomes(rest)
	if onDone != nil {
		n[0] = onDone.ID
	}
	if onDead != nil {
		n[1] = onDead.ID
	}
	switch {
	case n != names{}:
		o.of[h] = n
	case len(o.of) > 0:
		o.of = without(o.of, &o.room, h)
	}
}

// add adds by to the counts of the topics that a pending timer names.
func (o *outcomeTopics) add(h timer.Handle, by int64) {
	if len(o.of) == 0 {
		return
	}
	n := o.of[h]
	for i, topic := range n {
		if topic == 0 || i == 1 && topic == n[0] {
			continue
		}
		if o.count[topic] += by; o.count[topic] == 0 {
			delete(o.count, topic)
		}
	}
}

// namesClosed reports whether a spec names a topic that refuses adds.
func (c *closedTopics) namesClosed(topics ...timer.TopicID) bool {
	return slices.ContainsFunc(topics, func(topic timer.TopicID) bool { return topic != 0 && c.Closed(topic) })
}

// Outcomes is what the last entry did about outcomes: the timers that it made, until the next entry
// is applied, and how many it could not make because their topics are closed.
type Outcomes struct {
	Made []timer.Handle
	Lost int
}

// Outcomes returns what the last entry did about outcomes.
func (t *Table) Outcomes() Outcomes { return t.outcomes }

// followUp makes the outcome of a timer that an item has ended.
func (t *Table) followUp(it *items) {
	if t.endedAs != timer.Done && t.endedAs != timer.Dead {
		return
	}
	f, err := encoding.Summarize(it.follow.Spec.Rest)
	if err == nil {
		err = encoding.CheckCallback(it.follow.Spec.Callback)
	}
	if err != nil {
		it.Fail(err.Error())
		return
	}
	if r := t.add(&it.follow, &f); r.Code == timer.Created {
		t.outcomes.Made = append(t.outcomes.Made, r.Handle)
	} else {
		t.outcomes.Lost++
	}
}

func isOutcome(v *content.Blob) bool {
	if v.Content != 0 {
		return false
	}
	onDone, onDead := encoding.RestOutcomes(v.Rest)
	return timer.IsOutcome(v.Content, onDone, onDead)
}

// OutcomeOf returns the timer's own setting for its outcome if it ends so; nil: nothing.
func (t *timers) OutcomeOf(h timer.Handle, end timer.State) *timer.OutcomeTopic {
	onDone, onDead := encoding.RestOutcomes(t.viewOf(h).Rest)
	if end == timer.Done {
		return onDone
	}
	return onDead
}

// Ended returns a copy of a timer as an Ack or a Kill leaves it in an entry of nowMs, and its
// attempts. It returns nil if the timer does not end by the outcome, or if it is cancelled.
func (t *Table) Ended(o *Outcome, nowMs int64) (*timer.Timer, []timer.HistoryAttempt) {
	s := t.live(o.Handle, o.Seq)
	if s == nil || s.State() != timer.Leased || t.attempts.At(s.Attempt).Fence != o.Fence || o.Kind == Kill && s.Cancelled() {
		return nil, nil
	}
	m := t.endedCopy(o.Handle, timer.Done)
	if o.Kind == Kill {
		m.State, m.Reason = timer.Dead, o.Reason
	}
	m.EndedMs = o.endMs(max(nowMs, t.clockMs))
	m.LastStatus, m.LastError, m.LastAnswer = o.Status, encoding.Cut(o.Err, encoding.MaxErr), o.Answer
	m.FiredMs = timer.ClampMs(o.StartedMs)
	if m.LatenessMs < 0 {
		v := t.content.View(s.Ref)
		m.LatenessMs = max(m.FiredMs-v.LateFrom(m.DueMs), 0)
	}
	return m, attemptsOf(t.content.Attempts(t.attempts.At(s.Attempt).ErrRef), m, m.EndedMs)
}

// Expired is Ended for a scheduled timer of revision rev that expires.
func (t *Table) Expired(h timer.Handle, seq uint64, rev uint32, nowMs int64) (*timer.Timer, []timer.HistoryAttempt) {
	if !t.ScheduledAt(h, seq, rev) {
		return nil, nil
	}
	s := t.slots.At(h)
	m := t.endedCopy(h, timer.Dead)
	m.Reason, m.EndedMs = timer.Expired, max(nowMs, t.clockMs)
	if m.Attempts == 0 {
		return m, nil
	}
	r := t.attempts.At(s.Attempt)
	return m, attemptsOf(t.content.Attempts(r.ErrRef), m, r.EndedMs())
}

func (t *timers) endedCopy(h timer.Handle, end timer.State) *timer.Timer {
	m := t.Copy(h)
	m.State, m.Successor, m.NextMs = end, false, 0
	return m
}

// attemptsOf returns the attempts that a timer's log has, and the last one.
func attemptsOf(log []byte, m *timer.Timer, endedMs int64) (list []timer.HistoryAttempt) {
	for r := (encoding.Reader{Rest: log}); len(r.Rest) > 0; {
		if a := readAttempt(&r); a.Attempt < m.Attempts {
			list = append(list, a)
		}
	}
	return append(list, timer.HistoryAttempt{
		Attempt: m.Attempts, StartedMs: m.FiredMs, EndedMs: endedMs, Status: m.LastStatus, Err: m.LastError, Answer: m.LastAnswer,
	})
}
