package shard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
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
	told       []modelEvent // what the history is told of the entry
	ending     bool         // an attempt's outcome is being applied
}

func newModel() *model {
	return &model{byID: map[string][]*modelTimer{}, closed: map[TopicID]int64{}}
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
	switch c.Kind {
	case Add:
		switch {
		case closed:
			return TopicClosed, nil
		case x == nil:
			return m.create(c)
		case x.State == Scheduled && c.Merge != MergeReject:
			return m.merge(c, x)
		case x.State == Leased && c.Merge != MergeReject && !(c.Absolute && x.content == c.Content):
			return m.succeed(c, x)
		case !x.State.Over() && x.content == c.Content:
			return Same, x
		case x.State == Leased:
			return InFlight, x
		case x.State == Scheduled:
			return Exists, x
		case c.Absolute && x.content == c.Content && m.clock-x.EndedMs <= finishedKeepMs:
			return Same, x
		}
		return m.create(c)
	case Put:
		switch {
		case closed:
			return TopicClosed, nil
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
		c.Patch.applyToCallback(&x.Callback)
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

func (m *model) lease(x *modelTimer, seq uint64, rev uint32, dur int64, holder Holder, now int64) Code {
	if x == nil || x.Seq != seq || x.State != Scheduled || x.rev != rev {
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
	if o.Kind == Accepted || o.Kind == Extended {
		x.until, x.lasts = m.clock+o.LeaseMs, o.LeaseMs
		x.rev++
		if o.Kind == Accepted {
			x.holder = byReport
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

// step is one item that was put into a batch, and how the model does it.
type step func() (Code, *modelTimer)

// rig drives a table and the model with the same random items.
type rig struct {
	t     testing.TB
	pick  func(n int) int
	table *Table
	model *model
	now   int64
	// deadByVersion lets redrives and purges name a version. The golden snapshot was drawn without.
	deadByVersion bool
	since         [][]byte // the entries since the snapshot began, while one is under way
	fences        bool     // closed topics raise the fence; the golden snapshot was drawn without
}

const rigStart = 1_700_000_000_000

func newRig(t testing.TB, pick func(n int) int) *rig {
	return &rig{t: t, pick: pick, table: NewTable(7, rigStart), model: newModel(), now: rigStart}
}

func (g *rig) spec() *Spec {
	s := &Spec{DueMs: g.now + int64(g.pick(200_000)) - 20_000, Priority: uint8(g.pick(3))}
	if n := g.pick(4); n > 0 {
		s.PayloadKind = PayloadKind(1 + n&1)
		s.Payload = bytes.Repeat([]byte{byte('a' + n)}, []int{1, 40, 300, 1_500}[g.pick(4)])
	}
	if g.pick(3) == 0 {
		s.HasExpiry, s.ExpiresAfterMs = true, int64(g.pick(60_000))
	}
	if n := g.pick(6); n < 3 {
		s.Callback.URL = fmt.Sprint("http://receiver.example/", n)
		s.Callback.HasHeaders = n > 0
		for i := range n {
			s.Callback.Headers = append(s.Callback.Headers, Header{fmt.Sprint("X-", i), "v"})
		}
	}
	for i := range g.pick(3) {
		s.Labels = append(s.Labels, fmt.Sprint("label", i))
	}
	if g.pick(5) == 0 {
		s.Retry = Retry{MaxAttempts: 3, Multiplier: 1.5, HasJitter: true, MinBackoffMs: 10, MaxBackoffMs: 99}
		s.ContentType = "text/plain"
	}
	if g.pick(4) == 0 {
		s.Repeat = &Repeat{EveryMs: 5000, Count: int64(g.pick(4)), CatchUp: CatchUp(g.pick(3)), Overlap: g.pick(2) == 0}
		if g.pick(3) == 0 {
			s.Repeat.UntilMs = g.now + int64(g.pick(100_000))
		}
	}
	return s
}

func (g *rig) patch() *Patch {
	p := &Patch{Spec: *g.spec()}
	bits := g.pick(1 << 16)
	for _, f := range p.flags() {
		*f.set = uint64(bits)&f.bit != 0
	}
	if p.Payload && p.Spec.PayloadKind == NoPayload {
		p.Spec.Payload = nil
	}
	return p
}

func (g *rig) randomCommand() *Command {
	kinds := []Kind{Add, Add, Add, Add, Put, Put, Modify, Modify, Cancel, Fire, Redrive, Purge}
	c := &Command{Kind: kinds[g.pick(len(kinds))], Topic: TopicID(1 + g.pick(2)), ID: fmt.Sprint("timer-", g.pick(12))}
	if g.pick(150) == 0 {
		c.Kind = CloseTopic
		c.Force = g.pick(2) == 0
	} else if g.pick(30) == 0 {
		c.Kind = OpenTopic
	}
	switch c.Kind {
	case CloseTopic, OpenTopic:
		c.ID = ""
		if g.fences && c.Kind == CloseTopic && !c.Force {
			c.DueMs = int64(g.model.fence) + int64(g.pick(5)) - 2
		}
	case Add, Put:
		c.Spec, c.Content, c.Tag = g.spec(), uint64(1+g.pick(3)), uint32(g.pick(1<<30))
		c.Absolute = g.pick(2) == 0
		if c.Kind == Add && g.pick(2) == 0 {
			c.Merge, c.MaxWaitMs = Merge(g.pick(4)), int64(g.pick(2)*g.pick(60_000))
		}
		c.CreateOnly = c.Kind == Put && g.pick(4) == 0
	case Modify:
		c.Patch = g.patch()
	case Redrive:
		if g.pick(2) == 0 {
			c.Patch = g.patch()
		}
		c.DueMs = []int64{0, g.now + 5_000}[g.pick(2)]
	}
	versioned := Fire
	if g.deadByVersion {
		versioned = Purge
	}
	if c.Kind >= Put && c.Kind <= versioned && g.pick(4) == 0 {
		c.IfMatch = uint32(1 + g.pick(3))
	}
	return c
}

func (g *rig) any() *modelTimer {
	if len(g.model.all) == 0 {
		return nil
	}
	return g.model.all[g.pick(len(g.model.all))]
}

func (g *rig) of(state State) *modelTimer {
	for range 8 {
		if x := g.any(); x != nil && x.State == state {
			return x
		}
	}
	return g.any()
}

// item puts a random item into the batch. What it names is as the state was before the batch, so it may be stale.
func (g *rig) item(b *Batch) step {
	switch g.pick(8) {
	default:
		c := g.randomCommand()
		b.Command(c)
		return func() (Code, *modelTimer) { return g.model.command(c) }
	case 0, 1:
		x := g.of(Scheduled)
		if x == nil {
			b.Takeover(9)
			return func() (Code, *modelTimer) { return OK, nil }
		}
		h, seq, rev, dur := x.handle, x.Seq, x.rev, int64(1000*(1+g.pick(2)))
		if g.pick(10) == 0 {
			rev++
		}
		holder, now := byCall, g.now
		if g.pick(3) == 0 {
			holder = byPuller
			b.Pull(dur, h, seq, rev)
		} else {
			b.Lease(dur, h, seq, rev)
		}
		return func() (Code, *modelTimer) { return g.model.lease(g.at(h), seq, rev, dur, holder, now), nil }
	case 2, 3:
		return g.outcomeItem(b)
	case 4:
		x := g.of(Dead)
		if x == nil || g.pick(3) > 0 {
			b.Tick()
			return func() (Code, *modelTimer) { return OK, nil }
		}
		h, seq, rev := x.handle, x.Seq, x.rev
		if x.State == Dead {
			b.Forget(h, seq)
			return func() (Code, *modelTimer) {
				if y := g.at(h); y != nil && y.Seq == seq && y.State == Dead {
					g.model.drop(y)
					return OK, nil
				}
				return Skipped, nil
			}
		}
		until, again := g.now+90_000, g.again()
		if x.State == Scheduled && g.pick(2) == 0 {
			b.Skip(h, seq, rev, again)
			return func() (Code, *modelTimer) { return g.model.skip(g.at(h), seq, rev, again), nil }
		}
		b.Expire(h, seq, rev, until, again)
		return func() (Code, *modelTimer) {
			if y := g.at(h); y != nil && y.Seq == seq && y.State == Scheduled && y.rev == rev {
				g.model.kill(y, Expired, g.model.clock, until)
				g.model.again(y, again)
				return OK, nil
			}
			return Skipped, nil
		}
	}
}

func (g *rig) outcomeItem(b *Batch) step {
	x := g.of(Leased)
	if x == nil {
		b.Tick()
		return func() (Code, *modelTimer) { return OK, nil }
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
	case Kill:
		o.Reason, o.RetainUntilMs, o.Err = MaxAttempts, g.now+100_000, "connection refused"
	case Accepted, Extended:
		o.LeaseMs = int64(1000 * (1 + g.pick(50)))
	}
	if at := g.again(); at != 0 && x.Repeat != nil && g.pick(2) == 0 {
		b.Overlap(o.Handle, o.Seq, o.Fence, at)
		return func() (Code, *modelTimer) { return g.model.overlap(g.at(o.Handle), o.Seq, o.Fence, at), nil }
	}
	if o.Kind == Ack || o.Kind == Kill {
		o.AgainMs = g.again()
	}
	b.Outcome(o)
	return func() (Code, *modelTimer) { return g.model.outcome(g.at(o.Handle), o), nil }
}

// again is when an occurrence is due that may follow.
func (g *rig) again() int64 { return []int64{0, g.now + 5_000, g.now - 5_000}[g.pick(3)] }

func (g *rig) at(h Handle) *modelTimer {
	for _, x := range g.model.all {
		if x.handle == h {
			return x
		}
	}
	return nil
}

// turn applies one batch to both and compares the answers.
func (g *rig) turn() {
	g.t.Helper()
	g.now += int64(g.pick(3)) * int64(g.pick(40_000))
	var b Batch
	b.Reset(g.now, 1, 2)
	steps := make([]step, 1+g.pick(6))
	for i := range steps {
		steps[i] = g.item(&b)
	}
	data := bytes.Clone(b.Bytes())
	g.table.tell()
	got, err := g.table.Apply(data, func(int, *Result) bool { return true }, nil)
	if err != nil || len(got) != len(steps) {
		g.t.Fatalf("apply: %d results, %v", len(got), err)
	}
	g.model.begin(g.now, len(data))
	for i, do := range steps {
		code, x := do()
		if got[i].Code != code {
			g.t.Fatalf("item %d: code %d, the model says %d (%+v)", i, got[i].Code, code, x)
		}
		if x != nil {
			if x.handle == 0 {
				x.handle = got[i].Handle
			}
			if got[i].Handle != x.handle || got[i].Timer == nil {
				g.t.Fatalf("item %d: handle %d, the model says %d", i, got[i].Handle, x.handle)
			}
			g.same(got[i].Timer, x)
		}
	}
	for _, x := range g.model.all {
		if x.handle == 0 { // it followed another; the id is its own
			x.handle, _ = g.table.Lookup(x.Topic, x.ID)
		}
	}
	g.checkTold()
	if g.since != nil {
		g.since = append(g.since, data)
	}
}

func (g *rig) same(got *Timer, x *modelTimer) {
	g.t.Helper()
	if !reflect.DeepEqual(*got, x.Timer) {
		g.t.Fatalf("timer is\n%+v\nthe model says\n%+v", *got, x.Timer)
	}
}

// check compares everything.
func (g *rig) check() {
	g.t.Helper()
	if err := g.table.Audit(false); err != nil {
		g.t.Fatal(err)
	}
	var sum [3]Counts
	for _, x := range g.model.all {
		got := g.table.Copy(x.handle)
		if got == nil {
			g.t.Fatalf("handle %d of %q is free", x.handle, x.ID)
		}
		g.same(got, x)
		d := g.table.Due(x.handle)
		if d.Rev != x.rev || d.State == Leased && d.NextMs != x.until || d.State == Dead && d.RetainMs != x.until {
			g.t.Fatalf("due is %+v, the model says revision %d, until %d", d, x.rev, x.until)
		}
		if d.State == Leased && (d.Holder != x.holder || d.LeaseMs != x.lasts || d.FiredMs != x.FiredMs || d.Status != x.LastStatus) {
			g.t.Fatalf("due is %+v, the model says a lease of %d ms with holder %d", d, x.lasts, x.holder)
		}
		if d.ExpiresMs != x.expiry() {
			g.t.Fatalf("expires at %d, want %d", d.ExpiresMs, x.expiry())
		}
		n := &sum[x.Topic]
		switch x.State {
		case Scheduled:
			n.Scheduled++
		case Leased:
			n.Leased++
		case Done:
			n.Done++
		case Dead:
			n.Dead++
		}
	}
	if g.table.Len() != len(g.model.all) || g.table.Counts(1) != sum[1] || g.table.Counts(2) != sum[2] {
		g.t.Fatalf("%d timers, the model has %d", g.table.Len(), len(g.model.all))
	}
	for key, l := range g.model.byID {
		if len(l) > 0 {
			x := l[len(l)-1]
			if h, _ := g.table.Lookup(x.Topic, x.ID); h != x.handle {
				g.t.Fatalf("%s names handle %d, the model says %d", key, h, x.handle)
			}
		}
	}
}

// restart takes a snapshot while entries are applied, loads it, applies these to it too, and goes on with it (I12).
func (g *rig) restart() {
	g.t.Helper()
	want, hash := dump(g.table), g.table.Hash()
	snap := g.table.BeginSnapshot()
	g.since = [][]byte{}
	var image []byte
	for done := false; !done; {
		for range g.pick(3) {
			g.turn()
		}
		image, done = snap.Next(image, 1+g.pick(3000))
	}
	loaded, err := LoadTable(7, bytes.NewReader(image))
	if err != nil {
		g.t.Fatalf("%v in %d bytes of\n%s", err, len(image), want)
	}
	if got := dump(loaded); got != want || loaded.Hash() != hash {
		g.t.Fatalf("loaded %x\n%s\nwant %x\n%s", loaded.Hash(), got, hash, want)
	}
	for _, data := range g.since {
		if _, err := loaded.Apply(data, nil, nil); err != nil {
			g.t.Fatal(err)
		}
	}
	if got, want := dump(loaded), dump(g.table); got != want || loaded.Hash() != g.table.Hash() {
		g.t.Fatalf("after the log %x\n%s\nwant %x\n%s", loaded.Hash(), got, g.table.Hash(), want)
	}
	g.since = nil
	g.table = loaded
}

// dump shows all replicated state as text.
func dump(t *Table) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, t.clockMs, t.seq, t.fence, t.reigns, t.slab.high, t.slab.free, t.slab.unused, t.finished, t.tombs)
	for h := Handle(1); h <= t.slab.high; h++ {
		s := t.slab.at(h)
		if s.state() == 0 {
			fmt.Fprintln(&b, h, "free", s.ref)
			continue
		}
		v := t.view(s.ref)
		m := *t.Copy(h)
		repeat := m.Repeat
		m.Repeat = nil // its address would show
		fmt.Fprintf(&b, "%d %+v %+v %d %d %d %x %d %v", h, m, repeat, s.when(), s.rev, v.content, v.flags, s.whenMarks&lowMask, t.chains[h])
		fmt.Fprint(&b, " ", v.firstMs, v.occurrence)
		if s.run != 0 {
			r := *t.runs.at(s.run)
			if r.successor != 0 {
				n := t.view(r.successor)
				fmt.Fprintf(&b, " successor %d %x %x due %d", n.createdMs, n.flags, n.rest, n.dueMs)
			}
			r.errRef, r.successor = 0, 0
			fmt.Fprintf(&b, " %+v", r)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func (g *rig) drive(turns int) {
	for i := range turns {
		g.turn()
		if i%16 == 15 {
			g.check()
		}
		if g.pick(40) == 0 {
			g.restart()
		}
	}
	g.check()
}

func TestTableAgainstModel(t *testing.T) {
	seeds := 12
	if os.Getenv("CARILLON_SOAK") != "" {
		seeds = 5000
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			g := newRig(t, rand.New(rand.NewPCG(seed, 1)).IntN)
			g.deadByVersion = seed%2 == 0
			g.fences = true
			g.drive(250)
		})
	}
}

func TestTableProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := newRig(rigTB{TB: t, r: r}, func(n int) int { return rapid.IntRange(0, n-1).Draw(r, "pick") })
		g.deadByVersion = true
		g.fences = true
		g.drive(12)
	})
}

// rigTB reports to rapid, so that a failure is shrunk.
type rigTB struct {
	testing.TB
	r *rapid.T
}

func (t rigTB) Fatal(args ...any)                 { t.r.Fatal(args...) }
func (t rigTB) Fatalf(format string, args ...any) { t.r.Fatalf(format, args...) }
func (t rigTB) Helper()                           {}
