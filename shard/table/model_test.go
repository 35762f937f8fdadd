package table

import (
	"fmt"
	"reflect"
	"slices"

	"carillon/shard/table/slab"
	"carillon/timer"
)

// modelTimer is a timer of the model: a plain Timer and the table's additional state.
type modelTimer struct {
	timer.Timer
	handle   timer.Handle
	content  uint64
	rev      uint32
	noExpiry bool
	until    int64 // end of the lease or of the retention
	leasedAt int64 // the attempt's time while leased
	lasts    int64 // duration of the last lease
	holder   Holder

	first      int64 // time of the first add if it is not the creation, else 0
	missed     bool  // held past its due time, and its series skips it
	series     bool
	occurrence int // from 1; 0: no series, or it continues without this timer
	successor  *modelTimer
	parts      []string // names of what it has collected
	logged     []timer.HistoryAttempt
	behind     bool // it waits until the next older one of its id has ended
}

// model is the reference implementation with maps and lists, without regard to speed.
type model struct {
	clock      int64
	seq, fence uint64
	// oldest first; all but the last are superseded dead letters
	byID       map[string][]*modelTimer
	all        []*modelTimer
	finished   []*modelTimer
	closed     map[timer.TopicID]int64
	deliveries map[timer.TopicID]delivery
	told       []modelEvent  // expected history events of the entry
	ending     bool          // an attempt's outcome is being applied
	made       []*modelTimer // outcomes of the entry
	lost       int           // outcomes of the entry that were not made
}

func newModel() *model {
	return &model{byID: map[string][]*modelTimer{}, closed: map[timer.TopicID]int64{}, deliveries: map[timer.TopicID]delivery{}}
}

func modelKey(topic timer.TopicID, id string) string { return fmt.Sprint(topic, "/", id) }

func (m *model) last(topic timer.TopicID, id string) *modelTimer {
	if l := m.byID[modelKey(topic, id)]; len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

// shown returns the timer that the id names.
func (m *model) shown(topic timer.TopicID, id string) *modelTimer {
	x := m.last(topic, id)
	if x == nil || !x.behind {
		return x
	}
	l := m.byID[modelKey(topic, id)]
	return l[slices.IndexFunc(l, func(y *modelTimer) bool { return y.behind })-1]
}

func (m *model) begin(now int64, size int) {
	m.clock = max(m.clock, now)
	m.made, m.lost = nil, 0
	for budget := dropsPerEntry + size/bytesPerDrop; budget > 0 && len(m.finished) > 0; budget-- {
		if m.finished[0].EndedMs >= m.clock-finishedKeepMs {
			break
		}
		m.drop(m.finished[0])
	}
	for topic, at := range m.closed {
		if at < m.clock-tombstoneKeepMs {
			delete(m.closed, topic)
			delete(m.deliveries, topic)
		}
	}
}

func (m *model) drop(x *modelTimer) {
	m.letGo(x)
	is := func(y *modelTimer) bool { return x == y }
	key := modelKey(x.Topic, x.ID)
	m.byID[key] = slices.DeleteFunc(m.byID[key], is)
	m.all = slices.DeleteFunc(m.all, is)
	m.finished = slices.DeleteFunc(m.finished, is)
}

func (m *model) end(x *modelTimer, to timer.State, at int64) {
	x.State, x.EndedMs, x.NextMs = to, at, 0
	x.Paused, x.missed = false, false
	x.rev++
	x.parts = nil
	m.finished = append(m.finished, x)
	m.addEvent(x)
}

func (m *model) schedule(x *modelTimer, next int64) {
	x.State, x.NextMs = timer.Scheduled, next
	x.rev++
}

func (m *model) kill(x *modelTimer, why timer.Reason, at, until int64) {
	x.State, x.Reason, x.EndedMs, x.NextMs, x.until = timer.Dead, why, at, 0, until
	x.Paused, x.missed = false, false
	x.rev++
	x.parts = nil
	m.addEvent(x)
	x.logged = nil // a redrive begins without attempts
}

// create makes a timer, superseding ended timers of its id.
func (m *model) create(c *timer.Command) (timer.Code, *modelTimer) {
	version := uint32(1)
	if old := m.last(c.Topic, c.ID); old != nil {
		version = old.Version + 1
		if old.State.Over() && old.State != timer.Dead {
			m.drop(old)
		}
	}
	m.seq++
	x := &modelTimer{content: c.Content, Timer: timer.Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Seq: m.seq, Tag: c.Tag, Version: version,
		CreatedMs: m.clock, UpdatedMs: m.clock, LatenessMs: -1,
	}}
	x.begin()
	x.DueMs = timer.Debounced(c.Merge, x.DueMs, m.clock, c.MaxWaitMs)
	m.schedule(x, x.DueMs)
	m.enter(x)
	return timer.Created, x
}

// expiry returns the last time at which an attempt may start; 0: unlimited.
func (t *modelTimer) expiry() int64 {
	if !t.HasExpiry || t.noExpiry || t.State.Over() {
		return 0
	}
	return t.DueMs + t.ExpiresAfterMs
}

func (m *model) enter(x *modelTimer) {
	key := modelKey(x.Topic, x.ID)
	m.byID[key] = append(m.byID[key], x)
	m.all = append(m.all, x)
}

func (t *modelTimer) begin() {
	t.noExpiry, t.series, t.occurrence = false, t.Repeat != nil, 0
	if t.series {
		t.occurrence = 1
	}
}

func (m *model) command(c *timer.Command) (timer.Code, *modelTimer) {
	x := m.last(c.Topic, c.ID)
	if c.Kind != timer.Add && c.Kind != timer.Redrive {
		x = m.shown(c.Topic, c.ID)
	}
	_, closed := m.closed[c.Topic]
	if c.Spec != nil && (m.closedOutcome(c.Spec.OnDone) || m.closedOutcome(c.Spec.OnDead)) {
		closed = true
	}
	over := map[timer.State]timer.Code{timer.Leased: timer.InFlight, timer.Done: timer.OverFired, timer.Dead: timer.OverDead, timer.Cancelled: timer.OverCancelled}
	past := c.Spec != nil && m.clock-c.Spec.DueMs > timer.LateMs
	late := c.NotLate && past
	same := x != nil && x.content == c.Content && (x.Tag == c.Tag || x.State != timer.Cancelled && !(x.State == timer.Leased && x.CancelRequested))
	repeatedPut := x != nil && x.content == c.Content && c.Absolute && c.IfMatch == 0 && x.State != timer.Cancelled && !(x.State == timer.Leased && x.CancelRequested)
	switch c.Kind {
	case timer.Add:
		switch {
		case closed:
			return timer.TopicClosed, nil
		case c.Merge == timer.MergeCollect:
			return m.collect(c, x, late)
		case x == nil && late:
			return timer.TooLate, nil
		case x == nil:
			return m.create(c)
		case x.State == timer.Scheduled && c.Merge != timer.MergeReject && !late:
			return m.merge(c, x)
		case late && c.Merge != timer.MergeReject && !x.State.Over() && !same,
			late && c.Merge != timer.MergeReject && x.State == timer.Leased && !c.Absolute:
			return timer.TooLate, x
		case x.State == timer.Leased && c.Merge != timer.MergeReject && !(c.Absolute && same):
			return m.succeed(c, x)
		case !x.State.Over() && same:
			return timer.Same, x
		case x.State == timer.Leased:
			return timer.InFlight, x
		case x.State == timer.Scheduled:
			return timer.Exists, x
		case c.Absolute && same && (past || m.clock-x.EndedMs <= finishedKeepMs):
			return timer.Same, x
		case late:
			return timer.TooLate, x
		}
		return m.create(c)
	case timer.Put:
		switch {
		case closed:
			return timer.TopicClosed, nil
		case x == nil && late:
			return timer.TooLate, nil
		case repeatedPut && (late || x.State.Over() && c.Spec.DueMs <= m.clock):
			return timer.Same, x
		case late:
			return timer.TooLate, x
		case x == nil && c.IfMatch != 0:
			return timer.VersionMismatch, nil
		case x == nil:
			return m.create(c)
		case c.CreateOnly && !x.State.Over():
			return timer.VersionMismatch, x
		case x.State == timer.Leased:
			return timer.InFlight, x
		case c.IfMatch != 0 && c.IfMatch != x.Version:
			return timer.VersionMismatch, x
		case x.State.Over():
			return m.create(c)
		case c.Spec.Repeat != nil && m.blocks(x):
			return timer.InUse, x
		}
		due := c.Spec.DueMs
		if c.Absolute && x.occurrence != 0 {
			due = timer.Continued(x.Repeat, c.Spec.Repeat, x.DueMs, due, m.clock)
		}
		m.replace(x, c, due)
		return timer.OK, x
	case timer.Modify, timer.Fire, timer.Pause, timer.Resume:
		switch {
		case x == nil:
			return timer.NotFound, nil
		case x.State != timer.Scheduled:
			return over[x.State], x
		case c.IfMatch != 0 && c.IfMatch != x.Version:
			return timer.VersionMismatch, x
		}
		if c.Kind == timer.Fire {
			asked := m.clock
			if c.DueMs != 0 {
				asked = c.DueMs
			}
			if x.AskedMs == 0 || x.NextMs > asked {
				x.AskedMs, x.missed = asked, false
				m.schedule(x, min(x.NextMs, asked))
			}
			return timer.OK, x
		}
		if c.Kind != timer.Modify {
			m.pause(x, c)
			return timer.OK, x
		}
		if p := c.Patch; p.OnDone && m.closedOutcome(p.Spec.OnDone) || p.OnDead && m.closedOutcome(p.Spec.OnDead) {
			return timer.TopicClosed, x
		}
		if c.Patch.Repeat && c.Patch.Spec.Repeat != nil && m.blocks(x) {
			return timer.InUse, x
		}
		x.Version++
		x.UpdatedMs = m.clock
		x.missed = x.missed && !c.Patch.Due && !c.Patch.Repeat
		if c.Patch.Payload || c.Patch.Repeat && c.Patch.Spec.Repeat != nil {
			x.Collected, x.Full, x.parts = 0, false, nil
		}
		waits := c.Shift && x.NextMs != x.DueMs
		c.Patch.Apply(&x.Spec)
		if x.Collected > 0 {
			x.ContentType = ""
		}
		if c.Patch.Expiry {
			x.noExpiry = false
		}
		if c.Patch.Repeat {
			kept := x.noExpiry
			x.begin()
			x.noExpiry = kept
		}
		next := x.NextMs
		if c.Patch.Due {
			if next, x.AskedMs = x.DueMs, 0; waits {
				next = max(next, x.NextMs)
			}
		}
		m.schedule(x, next)
		return timer.OK, x
	case timer.Cancel:
		switch {
		case x == nil:
			return timer.NotFound, nil
		case !slices.ContainsFunc(m.byID[modelKey(c.Topic, c.ID)], (*modelTimer).live):
			if x.State == timer.Cancelled {
				return timer.Prevented, x
			}
			return over[x.State], x
		}
		code := timer.Prevented
		list := slices.Clone(m.byID[modelKey(c.Topic, c.ID)])
		named := slices.IndexFunc(list, func(y *modelTimer) bool { return c.Seq != 0 && y.Seq == c.Seq && y.live() })
		alone := named >= 0 && (list[named] != m.last(c.Topic, c.ID) || list[named].behind)
		if named >= 0 {
			x = list[named]
		}
		if alone {
			list = list[named : named+1]
		}
		if c.IfMatch != 0 && c.IfMatch != x.Version || c.Seq != 0 && named < 0 {
			return timer.VersionMismatch, x
		}
		slices.Reverse(list)
		for _, y := range list {
			if y.State == timer.Leased {
				y.CancelRequested, y.Successor, y.successor, y.parts = true, false, nil, nil
				if named < 0 || y == x {
					code = timer.CancelInFlight
				}
			} else if y.live() {
				m.end(y, timer.Cancelled, m.clock)
				if y != list[0] {
					m.drop(y)
				}
			}
		}
		if alone {
			m.yield(x)
		} else if y := m.last(c.Topic, c.ID); y.State.Over() {
			m.yield(y)
		}
		return code, m.shown(c.Topic, c.ID)
	case timer.Redrive, timer.Purge:
		return m.deadLetter(c)
	case timer.CloseTopic:
		return m.closeTopic(c), nil
	case timer.Deliver:
		return m.deliver(c), nil
	}
	delete(m.closed, c.Topic)
	return timer.OK, nil
}

func (m *model) deadLetter(c *timer.Command) (timer.Code, *modelTimer) {
	var x *modelTimer
	for _, y := range m.byID[modelKey(c.Topic, c.ID)] {
		if y.State == timer.Dead && (c.IfMatch == 0 || c.IfMatch == y.Version) && (c.Seq == 0 || c.Seq == y.Seq) {
			x = y
		}
	}
	if x == nil {
		return timer.Skipped, nil
	}
	last := m.last(c.Topic, c.ID)
	if c.Kind == timer.Purge {
		m.drop(x)
		return timer.OK, nil
	}
	switch {
	case !last.State.Over() && x.Collected > 0 && last.Collected > 0:
	case !last.State.Over() && (!x.series || !last.series || x.Tag != last.Tag):
		return timer.InUse, x
	case last.State.Over() && last.State != timer.Dead:
		m.drop(last)
	}
	if c.Patch != nil {
		c.Patch.ApplyToCallback(&x.Callback)
	}
	next, earliest := m.clock, x.DueMs
	if c.DueMs != 0 {
		next = c.DueMs
	}
	if x.AskedMs != 0 {
		earliest = min(earliest, x.AskedMs)
	}
	next = max(next, earliest)
	if x.AskedMs != 0 {
		x.AskedMs = 0
		if next < x.DueMs {
			x.AskedMs = next
		}
	}
	x.noExpiry, x.Attempts, x.Reason, x.EndedMs = true, 0, timer.NoReason, 0
	m.schedule(x, next)
	m.rank(x)
	return timer.OK, x
}

func (m *model) closedOutcome(o *timer.OutcomeTopic) bool {
	if o == nil || o.ID == 0 {
		return false
	}
	_, closed := m.closed[o.ID]
	return closed
}

// named reports whether a pending timer names the topic for its outcome.
func (m *model) named(topic timer.TopicID) bool {
	return slices.ContainsFunc(m.all, func(x *modelTimer) bool {
		is := func(o *timer.OutcomeTopic) bool { return o != nil && o.ID == topic }
		return x.live() && (is(x.OnDone) || is(x.OnDead))
	})
}

func (m *model) closeTopic(c *timer.Command) timer.Code {
	for _, x := range slices.Clone(m.all) {
		if x.Topic != c.Topic {
			continue
		}
		if c.Force {
			m.drop(x)
		} else if x.State != timer.Done && x.State != timer.Cancelled {
			return timer.NotEmpty
		}
	}
	if !c.Force && m.named(c.Topic) {
		return timer.InUse
	}
	m.closed[c.Topic] = m.clock
	return timer.OK
}

func (m *model) deliver(c *timer.Command) timer.Code {
	d, known := m.deliveries[c.Topic]
	if _, closed := m.closed[c.Topic]; closed {
		return timer.TopicClosed
	}
	if known && (c.Turn < d.turn || c.Turn == d.turn && c.Pull != d.pull) {
		return timer.VersionMismatch
	}
	for _, x := range m.all {
		if x.Topic == c.Topic && x.State == timer.Leased && (x.holder == ByPuller) != c.Pull {
			return timer.InFlight
		}
	}
	m.deliveries[c.Topic] = delivery{c.Turn, c.Pull}
	return timer.OK
}

func (m *model) lease(x *modelTimer, seq uint64, rev uint32, dur int64, holder Holder, now int64) timer.Code {
	if x == nil || x.Seq != seq || x.State != timer.Scheduled || x.rev != rev || x.Paused || x.behind {
		return timer.Skipped
	}
	if d, known := m.deliveries[x.Topic]; known && d.pull != (holder == ByPuller) {
		return timer.Skipped
	}
	m.fence++
	x.Fence, x.leasedAt, x.until = m.fence, x.NextMs, m.clock+dur
	x.lasts, x.holder = dur, holder
	if holder == ByPuller {
		x.LastStatus, x.FiredMs = 0, now
		if x.LatenessMs < 0 {
			x.LatenessMs = max(0, now-x.lateFrom())
		}
	}
	x.Attempts++
	x.State, x.NextMs, x.missed = timer.Leased, 0, false
	x.rev++
	return timer.OK
}

func (m *model) outcome(x *modelTimer, o *Outcome) timer.Code {
	if x == nil || x.Seq != o.Seq || x.State != timer.Leased || x.Fence != o.Fence {
		return timer.Skipped
	}
	at := o.EndedMs
	if at > m.clock || at < m.clock-EndSlackMs {
		at = m.clock
	}
	if o.Kind == Release {
		x.Attempts--
	} else if o.Kind != Extended {
		x.FiredMs, x.LastStatus, x.LastError, x.LastAnswer = o.StartedMs, o.Status, o.Err, o.Answer
		switch {
		case o.Logged:
			a := timer.HistoryAttempt{Attempt: x.Attempts, StartedMs: x.FiredMs, EndedMs: at, Status: o.Status, Err: o.Err}
			if o.Answer != nil {
				a.Answer = &timer.Answer{Body: o.Answer.Body[:min(len(o.Answer.Body), 120)]}
			}
			x.logged = append(slices.Clone(x.logged), a)
		case o.Kind != Accepted:
			x.logged = nil
		}
		if x.LatenessMs < 0 {
			x.LatenessMs = max(0, o.StartedMs-x.lateFrom())
		}
	}
	if o.Kind == Accepted && x.holder == slab.ByReport && o.LeaseMs <= x.lasts {
		return timer.OK
	}
	if o.Kind == Accepted || o.Kind == Extended {
		x.until, x.lasts = m.clock+o.LeaseMs, o.LeaseMs
		x.rev++
		if o.Kind == Accepted {
			if d, known := m.deliveries[x.Topic]; !known || !d.pull {
				x.holder = slab.ByReport
			}
		}
		return timer.OK
	}
	m.ending = o.Kind != Release
	defer func() { m.ending = false }()
	switch {
	case o.Kind == Ack:
		m.end(x, timer.Done, at)
	case x.CancelRequested:
		m.end(x, timer.Cancelled, at)
	case o.Kind == RetryLater:
		m.schedule(x, o.NextMs)
		m.addAttemptEvent(x, o, at)
	case o.Kind == Release:
		m.schedule(x, x.leasedAt)
	default:
		m.kill(x, o.Reason, at, o.RetainUntilMs)
	}
	if next := x.successor; next != nil {
		x.successor, x.Successor = nil, false
		m.promote(x, next)
	} else {
		m.again(x, o.AgainMs)
	}
	m.yield(x)
	return timer.OK
}

// pause holds a scheduled timer, or lets it go.
func (m *model) pause(x *modelTimer, c *timer.Command) {
	on := c.Kind == timer.Pause
	if x.Paused == on {
		return
	}
	x.Paused = on
	x.missed = !on && x.occurrence != 0 && x.Repeat.CatchUp == timer.CatchUpSkip && x.Attempts == 0 && x.AskedMs == 0 && x.NextMs <= max(m.clock, c.DueMs)
	m.schedule(x, x.NextMs)
}

func (m *model) replace(x *modelTimer, c *timer.Command, due int64) {
	x.Spec, x.content = *c.Spec, c.Content
	x.Collected, x.Full, x.parts = 0, false, nil
	x.begin()
	x.Version++
	x.missed, x.logged = false, nil
	x.AskedMs, x.Attempts, x.Fence, x.FiredMs, x.LatenessMs, x.LastStatus, x.LastError, x.LastAnswer = 0, 0, 0, 0, -1, 0, "", nil
	x.DueMs, x.UpdatedMs = due, m.clock
	m.schedule(x, due)
}

func (m *model) merge(c *timer.Command, x *modelTimer) (timer.Code, *modelTimer) {
	if c.Merge == timer.MergeKeep {
		return timer.Merged, x
	}
	if x.first == 0 {
		x.first = x.CreatedMs
		if x.noExpiry || x.Repeat != nil && x.occurrence != 1 {
			x.first = m.clock
		}
	}
	before := *x
	m.replace(x, c, timer.Debounced(c.Merge, c.Spec.DueMs, x.first, c.MaxWaitMs))
	if before.NextMs == x.NextMs && before.Attempts == 0 && !before.missed && before.Priority == x.Priority && before.expiry() == x.expiry() &&
		reflect.DeepEqual(before.Callback, x.Callback) {
		x.rev = before.rev
	}
	if x.first == x.CreatedMs {
		x.first = 0
	}
	return timer.Merged, x
}

func (m *model) succeed(c *timer.Command, x *modelTimer) (timer.Code, *modelTimer) {
	first := m.clock
	x.parts = nil
	if x.successor != nil {
		if c.Merge == timer.MergeKeep {
			return timer.Merged, x
		}
		first = x.successor.CreatedMs
	}
	next := &modelTimer{content: c.Content, Timer: timer.Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Tag: c.Tag, CreatedMs: first, UpdatedMs: m.clock, LatenessMs: -1,
	}}
	next.DueMs = timer.Debounced(c.Merge, c.Spec.DueMs, first, c.MaxWaitMs)
	x.successor, x.Successor = next, true
	return timer.Merged, x
}

// promote puts a successor in the place of a timer after its attempt has ended.
func (m *model) promote(x, next *modelTimer) {
	next.Version = x.Version + 1
	next.begin()
	if x.State == timer.Scheduled {
		next.Seq, next.handle, next.rev = x.Seq, x.handle, x.rev
		*x = *next
		m.schedule(x, x.DueMs)
		return
	}
	m.follow(x, next)
}

func (m *model) follow(x, next *modelTimer) {
	m.seq++
	next.Seq = m.seq
	m.schedule(next, next.DueMs)
	m.enter(next)
	if x.State != timer.Dead {
		m.drop(x)
	}
}

func (t *modelTimer) live() bool { return !t.State.Over() }

// yield puts a timer that may have ended behind those of its id that have not.
func (m *model) yield(x *modelTimer) {
	list := m.byID[modelKey(x.Topic, x.ID)]
	others := slices.ContainsFunc(list, (*modelTimer).live)
	switch {
	case x.live() || !slices.Contains(list, x):
	case x.State != timer.Dead && others:
		m.drop(x) // it calls letGo, which must run once: it clears behind
	default:
		m.letGo(x)
		m.rank(x)
	}
}

// rank sorts the timers of an id: first those that have ended, the last one to end last, then the
// others. Of dead letters the newest stay.
func (m *model) rank(x *modelTimer) {
	key := modelKey(x.Topic, x.ID)
	list := slices.DeleteFunc(m.byID[key], func(y *modelTimer) bool { return x == y })
	at := slices.IndexFunc(list, (*modelTimer).live)
	if at < 0 {
		at = len(list)
	}
	m.byID[key] = slices.Insert(list, at, x)
	if x.State == timer.Dead && at >= timer.MaxDeadOfID {
		m.drop(m.byID[key][0])
	}
}

// lateFrom returns the time from which the lateness of the first attempt counts.
func (t *modelTimer) lateFrom() int64 {
	from := max(t.DueMs, t.CreatedMs)
	if t.AskedMs != 0 {
		from = min(from, t.AskedMs)
	}
	return from
}

// overlap schedules the next occurrence while this one is leased.
func (m *model) overlap(x *modelTimer, seq, fence uint64, at int64) timer.Code {
	if x == nil || x.Seq != seq || x.State != timer.Leased || x.CancelRequested || x.Fence != fence || x.successor != nil || !m.goesOn(x, at) {
		return timer.Skipped
	}
	next := x.next(at)
	x.occurrence = 0
	m.seq++
	next.Seq = m.seq
	m.schedule(next, at)
	m.enter(next)
	return timer.OK
}

func (m *model) goesOn(x *modelTimer, at int64) bool {
	return x.occurrence != 0 && at != 0 && (x.Repeat.UntilMs == 0 || at <= x.Repeat.UntilMs) && (x.Repeat.Count == 0 || int64(x.occurrence) < x.Repeat.Count)
}

// next returns the next occurrence.
func (t *modelTimer) next(at int64) *modelTimer {
	next := &modelTimer{content: t.content, series: true, occurrence: t.occurrence + 1, Timer: timer.Timer{
		Topic: t.Topic, ID: t.ID, Spec: t.Spec, Tag: t.Tag, Version: t.Version, CreatedMs: t.CreatedMs, UpdatedMs: t.UpdatedMs, LatenessMs: -1,
	}}
	next.DueMs = at
	return next
}

// again schedules the next occurrence of a series.
func (m *model) again(x *modelTimer, at int64) { m.continues(x, at, false) }

// continues is again for a series that may be held.
func (m *model) continues(x *modelTimer, at int64, paused bool) {
	if x.State != timer.Done && x.State != timer.Dead {
		return
	}
	goes, next := m.goesOn(x, at) && !x.CancelRequested, x.next(at)
	next.Paused = paused
	x.occurrence = 0
	if goes {
		m.follow(x, next)
	}
	if goes && x.behind { // it has expired while it waited
		m.hold(next)
	}
}

// skip moves an occurrence to another time.
func (m *model) skip(x *modelTimer, seq uint64, rev uint32, at int64) timer.Code {
	if x == nil || x.Seq != seq || x.State != timer.Scheduled || x.rev != rev || x.occurrence == 0 ||
		// A timer that was already attempted is only moved to an earlier time.
		x.Attempts != 0 && (at == 0 || at >= x.DueMs) {
		return timer.Skipped
	}
	if at == 0 || x.Repeat.UntilMs != 0 && at > x.Repeat.UntilMs {
		m.end(x, timer.Cancelled, m.clock)
		m.yield(x)
		return timer.OK
	}
	x.DueMs, x.AskedMs, x.missed = at, 0, false
	m.schedule(x, at)
	return timer.OK
}
