package shard

import (
	"fmt"
	"reflect"
	"slices"
)

// modelTimer is a timer of the reference: a plain Timer and what the table keeps beside.
type modelTimer struct {
	Timer
	handle   Handle
	content  uint64
	rev      uint32
	noExpiry bool
	until    int64 // end of the lease or of the retention
	leasedAt int64 // the attempt's time while leased
	lasts    int64 // how long the last lease was given for
	holder   Holder

	first      int64 // the moment of the first add, if not the creation
	occurrence int   // from 1; 0: no series, or it goes on without this one
	successor  *modelTimer
}

// model is the reference: what the table should do, with maps and lists and no thought of speed.
type model struct {
	clock      int64
	seq, fence uint64
	byID       map[string][]*modelTimer // oldest first; all but the last are shadowed dead letters
	all        []*modelTimer
	finished   []*modelTimer
	closed     map[TopicID]int64
	deliveries map[TopicID]delivery
	told       []modelEvent // what the history is told of the entry
	ending     bool         // an attempt's outcome is being applied
}

func newModel() *model {
	return &model{byID: map[string][]*modelTimer{}, closed: map[TopicID]int64{}, deliveries: map[TopicID]delivery{}}
}

func modelKey(topic TopicID, id string) string { return fmt.Sprint(topic, "/", id) }

func (m *model) last(topic TopicID, id string) *modelTimer {
	if l := m.byID[modelKey(topic, id)]; len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

func (m *model) begin(now int64, size int) {
	m.clock = max(m.clock, now)
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
	is := func(y *modelTimer) bool { return x == y }
	key := modelKey(x.Topic, x.ID)
	m.byID[key] = slices.DeleteFunc(m.byID[key], is)
	m.all = slices.DeleteFunc(m.all, is)
	m.finished = slices.DeleteFunc(m.finished, is)
}

func (m *model) end(x *modelTimer, to State, at int64) {
	x.State, x.EndedMs, x.NextMs = to, at, 0
	x.rev++
	m.finished = append(m.finished, x)
	m.tell(x)
}

func (m *model) schedule(x *modelTimer, next int64) {
	x.State, x.NextMs = Scheduled, next
	x.rev++
}

func (m *model) kill(x *modelTimer, why Reason, at, until int64) {
	x.State, x.Reason, x.EndedMs, x.NextMs, x.until = Dead, why, at, 0, until
	x.rev++
	m.tell(x)
}

// create makes a timer over whatever has ended under its id.
func (m *model) create(c *Command) (Code, *modelTimer) {
	version := uint32(1)
	if old := m.last(c.Topic, c.ID); old != nil {
		version = old.Version + 1
		if old.State != Dead {
			m.drop(old)
		}
	}
	m.seq++
	x := &modelTimer{content: c.Content, Timer: Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Seq: m.seq, Tag: c.Tag, Version: version,
		CreatedMs: m.clock, UpdatedMs: m.clock, LatenessMs: -1,
	}}
	x.begin()
	x.DueMs = debounced(c.Merge, x.DueMs, m.clock, c.MaxWaitMs)
	m.schedule(x, x.DueMs)
	m.enter(x)
	return Created, x
}

// expiry is the last moment at which an attempt may start; 0: any.
func (x *modelTimer) expiry() int64 {
	if !x.HasExpiry || x.noExpiry || x.State.Over() {
		return 0
	}
	return x.DueMs + x.ExpiresAfterMs
}

func (m *model) enter(x *modelTimer) {
	key := modelKey(x.Topic, x.ID)
	m.byID[key] = append(m.byID[key], x)
	m.all = append(m.all, x)
}

func (x *modelTimer) begin() {
	x.noExpiry, x.occurrence = false, 0
	if x.Repeat != nil {
		x.occurrence = 1
	}
}

func (m *model) command(c *Command) (Code, *modelTimer) {
	x := m.last(c.Topic, c.ID)
	_, closed := m.closed[c.Topic]
	over := map[State]Code{Leased: InFlight, Done: OverFired, Dead: OverDead, Cancelled: OverCancelled}
	past := c.Spec != nil && m.clock-c.Spec.DueMs > LateMs
	late := c.NotLate && past
	switch c.Kind {
	case Add:
		switch {
		case closed:
			return TopicClosed, nil
		case x == nil && late:
			return TooLate, nil
		case x == nil:
			return m.create(c)
		case x.State == Scheduled && c.Merge != MergeReject && !late:
			return m.merge(c, x)
		case late && c.Merge != MergeReject && !x.State.Over() && x.content != c.Content,
			late && c.Merge != MergeReject && x.State == Leased && !c.Absolute:
			return TooLate, x
		case x.State == Leased && c.Merge != MergeReject && !(c.Absolute && x.content == c.Content):
			return m.succeed(c, x)
		case !x.State.Over() && x.content == c.Content:
			return Same, x
		case x.State == Leased:
			return InFlight, x
		case x.State == Scheduled:
			return Exists, x
		case c.Absolute && x.content == c.Content && (past || m.clock-x.EndedMs <= finishedKeepMs):
			return Same, x
		case late:
			return TooLate, x
		}
		return m.create(c)
	case Put:
		switch {
		case closed:
			return TopicClosed, nil
		case late:
			return TooLate, nil
		case x == nil && c.IfMatch != 0:
			return VersionMismatch, nil
		case x == nil:
			return m.create(c)
		case c.CreateOnly && !x.State.Over():
			return VersionMismatch, x
		case x.State == Leased:
			return InFlight, x
		case c.IfMatch != 0 && c.IfMatch != x.Version:
			return VersionMismatch, x
		case x.State.Over():
			return m.create(c)
		}
		m.replace(x, c, c.Spec.DueMs)
		return OK, x
	case Modify, Fire:
		switch {
		case x == nil:
			return NotFound, nil
		case x.State != Scheduled:
			return over[x.State], x
		case c.IfMatch != 0 && c.IfMatch != x.Version:
			return VersionMismatch, x
		}
		x.Version++
		x.UpdatedMs = m.clock
		if c.Kind == Fire {
			x.DueMs = m.clock
			m.schedule(x, m.clock)
			return OK, x
		}
		c.Patch.applyTo(&x.Spec)
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
			next = x.DueMs
		}
		m.schedule(x, next)
		return OK, x
	case Cancel:
		switch {
		case x == nil:
			return NotFound, nil
		case !slices.ContainsFunc(m.byID[modelKey(c.Topic, c.ID)], (*modelTimer).live):
			if x.State == Cancelled {
				return Prevented, x
			}
			return over[x.State], x
		case c.IfMatch != 0 && c.IfMatch != x.Version:
			return VersionMismatch, x
		}
		code := Prevented
		list := slices.Clone(m.byID[modelKey(c.Topic, c.ID)])
		slices.Reverse(list)
		for _, y := range list {
			if y.State == Leased {
				y.CancelRequested, y.Successor, y.successor = true, false, nil
				code = CancelInFlight
			} else if y.live() {
				m.end(y, Cancelled, m.clock)
				if y != x {
					m.drop(y)
				}
			}
		}
		m.yield(x)
		return code, m.last(c.Topic, c.ID)
	case Redrive, Purge:
		return m.deadLetter(c)
	case CloseTopic:
		return m.closeTopic(c), nil
	case Deliver:
		return m.deliver(c), nil
	}
	delete(m.closed, c.Topic)
	return OK, nil
}

func (m *model) deadLetter(c *Command) (Code, *modelTimer) {
	var x, lastDead *modelTimer
	for _, y := range m.byID[modelKey(c.Topic, c.ID)] {
		if y.live() {
			lastDead = y // as good as a later one: the id is in use
		}
		if y.State == Dead {
			lastDead = y
			if c.IfMatch == 0 || c.IfMatch == y.Version {
				x = y
			}
		}
	}
	last := m.last(c.Topic, c.ID)
	if x == nil || c.Kind == Redrive && (!last.State.Over() || x != lastDead) {
		return Skipped, nil
	}
	if c.Kind == Purge {
		m.drop(x)
		return OK, nil
	}
	if last != x {
		m.drop(last)
	}
	if c.Patch != nil {
		c.Patch.ApplyToCallback(&x.Callback)
	}
	x.DueMs = m.clock
	if c.DueMs != 0 {
		x.DueMs = c.DueMs
	}
	x.noExpiry, x.Attempts, x.LatenessMs, x.Reason, x.EndedMs = true, 0, -1, NoReason, 0
	m.schedule(x, x.DueMs)
	return OK, x
}

func (m *model) closeTopic(c *Command) Code {
	for _, x := range slices.Clone(m.all) {
		if x.Topic != c.Topic {
			continue
		}
		if c.Force {
			m.drop(x)
		} else if x.State != Done && x.State != Cancelled {
			return NotEmpty
		}
	}
	if !c.Force {
		m.fence = max(m.fence, uint64(max(c.DueMs, 0)))
	}
	m.closed[c.Topic] = m.clock
	return OK
}

func (m *model) deliver(c *Command) Code {
	d, known := m.deliveries[c.Topic]
	if _, closed := m.closed[c.Topic]; closed {
		return TopicClosed
	}
	if known && (c.IfMatch < d.turn || c.IfMatch == d.turn && c.Pull != d.pull) {
		return VersionMismatch
	}
	for _, x := range m.all {
		if x.Topic == c.Topic && x.State == Leased && (x.holder == byPuller) != c.Pull {
			return InFlight
		}
	}
	m.deliveries[c.Topic] = delivery{c.IfMatch, c.Pull}
	return OK
}

func (m *model) lease(x *modelTimer, seq uint64, rev uint32, dur int64, holder Holder, now int64) Code {
	if x == nil || x.Seq != seq || x.State != Scheduled || x.rev != rev {
		return Skipped
	}
	if d, known := m.deliveries[x.Topic]; known && d.pull != (holder == byPuller) {
		return Skipped
	}
	m.fence++
	x.Fence, x.leasedAt, x.until = m.fence, x.NextMs, m.clock+dur
	x.lasts, x.holder = dur, holder
	if holder == byPuller {
		x.LastStatus, x.FiredMs = 0, now
		if x.LatenessMs < 0 {
			x.LatenessMs = max(0, now-max(x.DueMs, x.CreatedMs))
		}
	}
	x.Attempts++
	x.State, x.NextMs = Leased, 0
	x.rev++
	return OK
}

func (m *model) outcome(x *modelTimer, o *Outcome) Code {
	if x == nil || x.Seq != o.Seq || x.State != Leased || x.Fence != o.Fence {
		return Skipped
	}
	at := o.EndedMs
	if at > m.clock || at < m.clock-endSlackMs {
		at = m.clock
	}
	if o.Kind == Release {
		x.Attempts--
	} else if o.Kind != Extended {
		x.FiredMs, x.LastStatus, x.LastError = o.StartedMs, o.Status, o.Err
		if x.LatenessMs < 0 {
			x.LatenessMs = max(0, o.StartedMs-max(x.DueMs, x.CreatedMs))
		}
	}
	if o.Kind == Accepted && x.holder == byReport && o.LeaseMs <= x.lasts {
		return OK
	}
	if o.Kind == Accepted || o.Kind == Extended {
		x.until, x.lasts = m.clock+o.LeaseMs, o.LeaseMs
		x.rev++
		if o.Kind == Accepted {
			if d, known := m.deliveries[x.Topic]; !known || !d.pull {
				x.holder = byReport
			}
		}
		return OK
	}
	m.ending = o.Kind != Release
	defer func() { m.ending = false }()
	switch {
	case o.Kind == Ack:
		m.end(x, Done, at)
	case x.CancelRequested:
		m.end(x, Cancelled, at)
	case o.Kind == RetryLater:
		m.schedule(x, o.NextMs)
		m.tellAttempt(x, o, at)
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
	return OK
}

func (m *model) replace(x *modelTimer, c *Command, due int64) {
	x.Spec, x.content = *c.Spec, c.Content
	x.begin()
	x.Version++
	x.Attempts, x.Fence, x.FiredMs, x.LatenessMs, x.LastStatus, x.LastError = 0, 0, 0, -1, 0, ""
	x.DueMs, x.UpdatedMs = due, m.clock
	m.schedule(x, due)
}

func (m *model) merge(c *Command, x *modelTimer) (Code, *modelTimer) {
	if c.Merge == MergeKeep {
		return Merged, x
	}
	if x.first == 0 {
		x.first = x.CreatedMs
		if x.noExpiry || x.Repeat != nil && x.occurrence != 1 {
			x.first = m.clock
		}
	}
	before := *x
	m.replace(x, c, debounced(c.Merge, c.Spec.DueMs, x.first, c.MaxWaitMs))
	if before.NextMs == x.NextMs && before.Attempts == 0 && before.Priority == x.Priority && before.expiry() == x.expiry() &&
		reflect.DeepEqual(before.Callback, x.Callback) {
		x.rev = before.rev
	}
	if x.first == x.CreatedMs {
		x.first = 0
	}
	return Merged, x
}

func (m *model) succeed(c *Command, x *modelTimer) (Code, *modelTimer) {
	first := m.clock
	if x.successor != nil {
		if c.Merge == MergeKeep {
			return Merged, x
		}
		first = x.successor.CreatedMs
	}
	next := &modelTimer{content: c.Content, Timer: Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Tag: c.Tag, CreatedMs: first, UpdatedMs: m.clock, LatenessMs: -1,
	}}
	next.DueMs = debounced(c.Merge, c.Spec.DueMs, first, c.MaxWaitMs)
	x.successor, x.Successor = next, true
	return Merged, x
}

// promote puts a successor in the place of a timer whose attempt has ended.
func (m *model) promote(x, next *modelTimer) {
	next.Version = x.Version + 1
	next.begin()
	if x.State == Scheduled {
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
	if x.State != Dead {
		m.drop(x)
	}
}

func (x *modelTimer) live() bool { return !x.State.Over() }

func (m *model) yield(x *modelTimer) {
	others := slices.ContainsFunc(m.byID[modelKey(x.Topic, x.ID)], (*modelTimer).live)
	if (m.last(x.Topic, x.ID) != x || others) && (x.State == Done || x.State == Cancelled) {
		m.drop(x)
	}
}

// overlap schedules the next occurrence beside one that runs.
func (m *model) overlap(x *modelTimer, seq, fence uint64, at int64) Code {
	if x == nil || x.Seq != seq || x.State != Leased || x.CancelRequested || x.Fence != fence || x.successor != nil || !m.goesOn(x, at) {
		return Skipped
	}
	next := x.next(at)
	x.occurrence = 0
	m.seq++
	next.Seq = m.seq
	m.schedule(next, at)
	m.enter(next)
	return OK
}

func (m *model) goesOn(x *modelTimer, at int64) bool {
	return x.occurrence != 0 && at != 0 && (x.Repeat.UntilMs == 0 || at <= x.Repeat.UntilMs) && (x.Repeat.Count == 0 || int64(x.occurrence) < x.Repeat.Count)
}

// next is the occurrence after this one.
func (x *modelTimer) next(at int64) *modelTimer {
	next := &modelTimer{content: x.content, occurrence: x.occurrence + 1, Timer: Timer{
		Topic: x.Topic, ID: x.ID, Spec: x.Spec, Tag: x.Tag, Version: x.Version, CreatedMs: x.CreatedMs, UpdatedMs: x.UpdatedMs, LatenessMs: -1,
	}}
	next.DueMs = at
	return next
}

// again schedules the next occurrence of a series.
func (m *model) again(x *modelTimer, at int64) {
	if x.State != Done && x.State != Dead {
		return
	}
	goes, next := m.goesOn(x, at) && !x.CancelRequested, x.next(at)
	x.occurrence = 0
	if goes {
		m.follow(x, next)
	}
}

// skip moves an occurrence on.
func (m *model) skip(x *modelTimer, seq uint64, rev uint32, at int64) Code {
	if x == nil || x.Seq != seq || x.State != Scheduled || x.rev != rev || x.Attempts != 0 || x.occurrence == 0 {
		return Skipped
	}
	if at == 0 || x.Repeat.UntilMs != 0 && at > x.Repeat.UntilMs {
		m.end(x, Cancelled, m.clock)
		m.yield(x)
		return OK
	}
	x.DueMs = at
	m.schedule(x, at)
	return OK
}
