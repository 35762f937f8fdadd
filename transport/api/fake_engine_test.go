package api

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api/backend"
)

// fakeEngine is a node in memory: one map of timers, decided under one lock, with the answers of
// package timer. It fires nothing by itself: tests put timers into their states with set.
type fakeEngine struct {
	behind error // of FindTopic, for a topic that is not here
	*fakeCluster
	fakeLive
	fakeConsumers

	mu     sync.Mutex
	shards int
	// leaders are the addresses of other nodes that lead shards
	leaders map[timer.ShardID]string
	now     func() time.Time
	topics  map[string]*timer.Topic
	timers  map[timerKey]*fakeTimer
	past    []*timer.HistoryEntry
	pastErr error // of the history

	slotsEach   uint64                    // of a page of many topics, by the numbers of timers; 0: all
	progress    map[string]timer.Progress // by id
	progressErr error
	seq         uint64
	lastID      timer.TopicID

	err       error  // of every call while set
	notReady  error  // of Ready
	noCore    error  // of Core
	beforeDo  func() // runs at the start of Do and DoAll, without the lock
	closedFor int    // so many commands find the topic closed
	calls     map[string]int
	testClock backend.TestClock
	wrote     int           // changes of any kind
	last      timer.Command // the newest that was decided
}

// fakeTopics is the engine's topics.
type fakeTopics struct{ *fakeEngine }

func topicsOf(e *fakeEngine) fakeTopics { return fakeTopics{e} }

// Core implements Engine.
func (e *fakeEngine) Core() (*backend.Core, error) { return e.with(e, fakeTopics{e}) }

// with is its Core with other timers or topics.
func (e *fakeEngine) with(timers backend.Timers, topics backend.Topics) (*backend.Core, error) {
	return &backend.Core{Timers: timers, Topics: topics, Consumers: e, Cluster: e, Live: e, Destinations: e, Backup: e, TestClock: e.testClock}, e.noCore
}

type timerKey struct {
	topic timer.TopicID
	id    string
}

type fakeTimer struct {
	timer.Timer
	content  uint64
	absolute bool
}

func newFakeEngine(now func() time.Time) *fakeEngine {
	return &fakeEngine{fakeCluster: newFakeCluster(), shards: 4, now: now, topics: map[string]*timer.Topic{}, timers: map[timerKey]*fakeTimer{}, calls: map[string]int{},
		fakeConsumers: fakeConsumers{ready: make(chan struct{}), gone: make(chan struct{})}}
}

func (e *fakeEngine) nowMs() int64 { return e.now().UnixMilli() }

func (e *fakeEngine) Shards() int { return e.shards }

func (e *fakeEngine) Leader(id timer.ShardID) string { return e.leaders[id] }

func (e *fakeEngine) Do(_ context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	if e.beforeDo != nil {
		e.beforeDo()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["Do"]++
	if e.err != nil {
		return timer.Result{}, e.err
	}
	return e.decide(id, cmd, brief), nil
}

func (e *fakeEngine) DoAll(_ context.Context, ops []timer.Op) {
	if e.beforeDo != nil {
		e.beforeDo()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["DoAll"]++
	for i := range ops {
		if ops[i].Err = e.err; e.err == nil {
			r := e.decide(ops[i].Shard, ops[i].Command, ops[i].Brief)
			if ops[i].Room != nil && r.Timer != nil && r.Code != timer.Created && !ops[i].Room.Take(r.Timer.Size()) {
				r.Timer = nil
			}
			ops[i].Result = r
		}
	}
}

func (e *fakeEngine) decide(id timer.ShardID, cmd *timer.Command, brief bool) timer.Result {
	e.last = *cmd
	name := e.nameOf(cmd.Topic)
	if e.closedFor > 0 || name == "" {
		e.closedFor = max(0, e.closedFor-1)
		return timer.Result{Code: timer.TopicClosed}
	}
	if want := timer.ShardOf(e.topics[name], cmd.ID, e.shards); want != id {
		panic("command for " + cmd.ID + " went to another shard")
	}
	before := e.timers[timerKey{cmd.Topic, cmd.ID}]
	wrote := e.wrote
	r := timer.Result{Code: e.change(before, cmd)}
	r.Unchanged = r.Code == timer.Prevented && e.wrote == wrote
	if after := e.timers[timerKey{cmd.Topic, cmd.ID}]; after != nil && !brief {
		c := after.Timer
		r.Timer = &c
	}
	return r
}

func (e *fakeEngine) change(t *fakeTimer, cmd *timer.Command) timer.Code {
	switch cmd.Kind {
	case timer.Add:
		return e.add(t, cmd)
	case timer.Put:
		return e.put(t, cmd)
	case timer.Cancel:
		return e.cancel(t, cmd)
	case timer.Modify, timer.Fire, timer.Pause, timer.Resume:
		return e.modify(t, cmd)
	case timer.Redrive, timer.Purge:
		if t == nil || t.State != timer.Dead {
			return timer.Skipped
		}
		e.wrote++
		if cmd.Kind == timer.Purge {
			delete(e.timers, timerKey{cmd.Topic, cmd.ID})
			return timer.OK
		}
		t.State, t.Reason, t.Attempts, t.NextMs = timer.Scheduled, timer.NoReason, 0, max(cmd.DueMs, e.nowMs())
		if cmd.Patch != nil {
			applyPatch(&t.Spec, cmd.Patch)
		}
		return timer.OK
	}
	panic("kind of command")
}

func (e *fakeEngine) add(t *fakeTimer, cmd *timer.Command) timer.Code {
	if cmd.Merge == timer.MergeCollect {
		return e.collect(t, cmd)
	}
	late := cmd.NotLate && e.nowMs()-cmd.Spec.DueMs > timer.LateMs
	if t == nil && late {
		return timer.TooLate
	}
	if t != nil {
		same := t.content == cmd.Content && (cmd.Once || cmd.Tag == t.Tag || t.State != timer.Cancelled && !(t.State == timer.Leased && t.CancelRequested))
		recent := t.State.Over() && cmd.Absolute && e.nowMs()-t.EndedMs <= timer.KeptMs
		switch {
		case !t.State.Over() && cmd.Merge != timer.MergeReject && !late:
			return e.merge(t, cmd)
		case same && (!t.State.Over() || recent):
			return timer.Same
		case recent && cmd.Once:
			return timer.Exists
		case late && (t.State.Over() || cmd.Merge != timer.MergeReject):
			return timer.TooLate
		case t.State == timer.Leased:
			return timer.InFlight
		case !t.State.Over():
			return timer.Exists
		}
	}
	e.create(t, cmd)
	return timer.Created
}

// collect knows no parts, and no arrays that wait.
func (e *fakeEngine) collect(t *fakeTimer, cmd *timer.Command) timer.Code {
	var cur *timer.Timer
	if t != nil {
		cur = &t.Timer
	}
	got := timer.Preview(cmd, cur, e.nowMs())
	if got.Timer != nil {
		e.wrote++
		e.timers[timerKey{cmd.Topic, cmd.ID}] = &fakeTimer{Timer: *got.Timer, content: cmd.Content, absolute: cmd.Absolute}
	}
	return got.Code
}

// merge knows no first moment: a debounced timer is replaced.
func (e *fakeEngine) merge(t *fakeTimer, cmd *timer.Command) timer.Code {
	switch {
	case t.State == timer.Leased:
		t.Successor = true
	case cmd.Merge != timer.MergeKeep:
		e.create(t, cmd)
	}
	return timer.Merged
}

func (e *fakeEngine) put(t *fakeTimer, cmd *timer.Command) timer.Code {
	live := t != nil && !t.State.Over()
	switch {
	case live && t.State == timer.Leased && !cmd.CreateOnly:
		return timer.InFlight
	case cmd.CreateOnly && live, cmd.IfMatch != 0 && (t == nil || t.Version != cmd.IfMatch):
		return timer.VersionMismatch
	}
	e.create(t, cmd)
	if live {
		return timer.OK
	}
	return timer.Created
}

func (e *fakeEngine) create(before *fakeTimer, cmd *timer.Command) {
	e.wrote++
	e.seq++
	now := e.nowMs()
	t := &fakeTimer{content: cmd.Content, absolute: cmd.Absolute}
	t.Timer = timer.Timer{
		Topic: cmd.Topic, ID: strings.Clone(cmd.ID), Spec: cloneSpec(cmd.Spec), Seq: e.seq, Origin: timer.ShardOf(e.topics[e.nameOf(cmd.Topic)], cmd.ID, e.shards), Tag: cmd.Tag, Version: 1,
		State: timer.Scheduled, NextMs: cmd.Spec.DueMs, CreatedMs: now, UpdatedMs: now, LatenessMs: -1, Content: cmd.Content, FirstMs: now,
	}
	if t.Repeat != nil {
		t.Occurrence = 1
	}
	if before != nil {
		t.Version = before.Version + 1
	}
	e.timers[timerKey{cmd.Topic, t.ID}] = t
}

func (e *fakeEngine) cancel(t *fakeTimer, cmd *timer.Command) timer.Code {
	switch {
	case t == nil:
		return timer.NotFound
	case t.State == timer.Done:
		return timer.OverFired
	case t.State == timer.Dead:
		return timer.OverDead
	case t.State == timer.Cancelled:
		return timer.Prevented
	case cmd.IfMatch != 0 && cmd.IfMatch != t.Version:
		return timer.VersionMismatch
	}
	e.wrote++
	if t.State == timer.Leased {
		t.CancelRequested = true
		return timer.CancelInFlight
	}
	t.State, t.EndedMs = timer.Cancelled, e.nowMs()
	return timer.Prevented
}

func (e *fakeEngine) modify(t *fakeTimer, cmd *timer.Command) timer.Code {
	switch {
	case t == nil:
		return timer.NotFound
	case t.State == timer.Done:
		return timer.OverFired
	case t.State == timer.Dead:
		return timer.OverDead
	case t.State == timer.Cancelled:
		return timer.OverCancelled
	case t.State == timer.Leased:
		return timer.InFlight
	case cmd.IfMatch != 0 && cmd.IfMatch != t.Version:
		return timer.VersionMismatch
	}
	e.wrote++
	if cmd.Kind == timer.Fire {
		t.AskedMs, t.NextMs = e.nowMs(), min(t.NextMs, e.nowMs())
		return timer.OK
	}
	if cmd.Kind != timer.Modify {
		t.Paused = cmd.Kind == timer.Pause
		return timer.OK
	}
	t.Version++
	t.UpdatedMs = e.nowMs()
	waits := cmd.Shift && t.NextMs != t.DueMs
	applyPatch(&t.Spec, cmd.Patch)
	if cmd.Patch.Due && !(waits && t.NextMs > t.DueMs) {
		t.NextMs = t.DueMs
	}
	return timer.OK
}

func applyPatch(s *timer.Spec, p *timer.Patch) {
	n := cloneSpec(&p.Spec)
	set := func(on bool, f func()) {
		if on {
			f()
		}
	}
	set(p.Due, func() { s.DueMs = n.DueMs })
	set(p.Payload, func() { s.Payload, s.PayloadKind = n.Payload, n.PayloadKind })
	set(p.ContentType, func() { s.ContentType = n.ContentType })
	set(p.Priority, func() { s.Priority = n.Priority })
	set(p.Weight, func() { s.Weight = n.Weight })
	set(p.Labels, func() { s.Labels = n.Labels })
	set(p.Expiry, func() { s.ExpiresAfterMs, s.HasExpiry = n.ExpiresAfterMs, n.HasExpiry })
	set(p.Repeat, func() { s.Repeat = n.Repeat })
	set(p.OnDone, func() { s.OnDone = n.OnDone })
	set(p.OnDead, func() { s.OnDead = n.OnDead })
	own := *p
	own.Spec = n
	own.ApplyToCallback(&s.Callback)
	set(p.MaxAttempts, func() { s.Retry.MaxAttempts = n.Retry.MaxAttempts })
	set(p.MinBackoff, func() { s.Retry.MinBackoffMs = n.Retry.MinBackoffMs })
	set(p.MaxBackoff, func() { s.Retry.MaxBackoffMs = n.Retry.MaxBackoffMs })
	set(p.Multiplier, func() { s.Retry.Multiplier = n.Retry.Multiplier })
	set(p.Jitter, func() { s.Retry.Jitter, s.Retry.HasJitter = n.Retry.Jitter, n.Retry.HasJitter })
}

// cloneSpec copies everything: a test that finds a request's bytes in the table later has found a
// bug of the server, not of the fake.
func cloneSpec(s *timer.Spec) timer.Spec {
	c := *s
	c.Payload = slices.Clone(s.Payload)
	c.ContentType = strings.Clone(s.ContentType)
	c.Callback.URL = strings.Clone(s.Callback.URL)
	c.Callback.Headers = nil
	for _, h := range s.Callback.Headers {
		c.Callback.Headers = append(c.Callback.Headers, timer.Header{Name: strings.Clone(h.Name), Value: strings.Clone(h.Value)})
	}
	c.Labels = nil
	for _, l := range s.Labels {
		c.Labels = append(c.Labels, strings.Clone(l))
	}
	return c
}

func (e *fakeEngine) Timer(_ context.Context, _ timer.ShardID, topic timer.TopicID, id string) (*timer.Timer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["Timer"]++
	t := e.timers[timerKey{topic, id}]
	if e.err != nil || t == nil {
		return nil, e.err
	}
	c := t.Timer
	return &c, nil
}

func (e *fakeEngine) List(_ context.Context, q *timer.Query) (page timer.Page, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["List"]++
	if e.err != nil {
		return page, e.err
	}
	var out []*timer.Timer
	to, ends := uint64(q.Slots.From)+e.slotsEach, false
	for k, t := range e.timers {
		of := k.topic == q.Topic
		if q.ManyTopics() {
			of = q.AllTopics || slices.Contains(q.Topics, k.topic)
		}
		if e.slotsEach > 0 && t.Seq > to {
			ends = true
		}
		if of && selects(q, &t.Timer) && (e.slotsEach == 0 || t.Seq > uint64(q.Slots.From) && t.Seq <= to) {
			c := t.Timer
			if q.WithoutPayload {
				c.Payload = nil
			}
			out = append(out, &c)
		}
	}
	sort.Slice(out, func(i, j int) bool { return q.SortKey(out[i]).Compare(q.SortKey(out[j])) < 0 })
	page.Timers = out
	if len(out) > q.Limit {
		page.Cut(q, q.Limit)
	}
	own := timer.NewAllowance(q.Bytes)
	for i, t := range page.Timers {
		if i > 0 && !own.Take(t.Size()) || q.Room != nil && !q.Room.Take(t.Size()) {
			page.Cut(q, i)
			break
		}
	}
	for _, t := range page.Timers {
		if q.Waits {
			page.Waits = append(page.Waits, e.waitOf(t))
		}
	}
	if page.Slots = (timer.SlotRange{From: q.Slots.From, To: timer.Handle(to)}); ends && !page.More {
		page.More, page.Next, page.Slots = true, timer.RangeEnd, timer.SlotRange{From: timer.Handle(to)}
	}
	return page, nil
}

// waitOf is why a timer waits, as the shard's leader has it.
func (e *fakeEngine) waitOf(t *timer.Timer) (w timer.Wait) {
	switch {
	case t.Paused:
		w.For = timer.WaitHeld
	case t.State != timer.Scheduled || t.NextMs > e.nowMs() && t.Attempts == 0:
	case e.progressErr != nil && t.NextMs <= e.nowMs():
		w.For = timer.WaitLeader
	default:
		w = e.progress[t.ID].Wait
	}
	return w
}

// Bulk does one timer after the other, each as often as it takes: shards that do not answer are not
// its concern.
func (e *fakeEngine) Bulk(ctx context.Context, b *bulk.Update) error {
	e.mu.Lock()
	e.calls["Bulk"]++
	err := e.err
	var marks []timer.Ref
	for k, t := range e.timers {
		if k.topic == b.Query.Topic && selects(&b.Query, &t.Timer) && b.Walks(timer.ShardOf(e.topics[e.nameOf(k.topic)], t.ID, e.shards)) {
			marks = append(marks, timer.Ref{ID: t.ID, Seq: t.Seq, Origin: t.Origin, Tag: t.Tag, Version: t.Version, Leased: t.State == timer.Leased, DueMs: t.DueMs, NextMs: t.NextMs, Paused: t.Paused,
				NoURL: t.State == timer.Dead && t.Callback.URL == ""})
		}
	}
	topic := e.topics[e.nameOf(b.Query.Topic)]
	e.mu.Unlock()
	if err != nil {
		return err
	}
	for _, m := range marks {
		for task := b.Begin(m); task != nil; {
			id := timer.ShardOf(topic, m.ID, e.shards)
			r, err := e.Do(ctx, id, task.Command, task.Brief())
			if !b.Take(task, &r, err) {
				break
			}
		}
	}
	return nil
}

func selects(q *timer.Query, t *timer.Timer) bool {
	k := q.SortKey(t)
	for _, l := range q.Labels {
		if !slices.Contains(t.Labels, l) {
			return false
		}
	}
	return q.States&(1<<t.State) != 0 && k.SortMs >= q.FromMs && (q.ToMs == 0 || k.SortMs < q.ToMs) &&
		strings.HasPrefix(t.ID, q.IDPrefix) && (!q.WholeID || t.ID == q.IDPrefix) && (q.Reason == timer.NoReason || q.Reason == t.Reason) &&
		(q.After == nil || k.Compare(*q.After) > 0)
}

// History gives the timers that set has put into past, by end.
func (e *fakeEngine) History(_ context.Context, q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["History"]++
	for _, h := range e.past {
		t := h.Timer
		if q.Content != 0 && h.Content != q.Content {
			continue
		}
		if t.Topic != q.Topic || q.States&(1<<t.State) == 0 || q.ID != "" && t.ID != q.ID || h.Key.EndMs < q.FromMs ||
			q.ToMs != 0 && h.Key.EndMs >= q.ToMs || q.After != nil && h.Key.Compare(*q.After) <= 0 {
			continue
		}
		page = append(page, h)
	}
	sort.Slice(page, func(i, j int) bool { return page[i].Key.Compare(page[j].Key) < 0 })
	if q.Newest {
		page = page[max(0, len(page)-1):]
	}
	n := min(len(page), q.Limit)
	return page[:n], n < len(page), cmp.Or(e.pastErr, e.err)
}

func (e *fakeEngine) Progress(_ context.Context, _ timer.ShardID, q *timer.ProgressQuery) ([]timer.Progress, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["Progress"]++
	list := make([]timer.Progress, len(q.IDs))
	for i, id := range q.IDs {
		list[i] = e.progress[id]
	}
	return list, cmp.Or(e.progressErr, e.err)
}

func (e *fakeEngine) Descendants(id timer.ShardID) []timer.ShardID { return []timer.ShardID{id} }

func (e *fakeEngine) Counts(_ context.Context, topics []timer.TopicID) ([]timer.Counts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls["Counts"]++
	list := make([]timer.Counts, len(topics))
	for k, t := range e.timers {
		i := slices.Index(topics, k.topic)
		if i < 0 {
			continue
		}
		switch c := &list[i]; t.State {
		case timer.Scheduled:
			c.Scheduled++
		case timer.Leased:
			c.Leased++
		case timer.Done:
			c.Done++
		case timer.Dead:
			c.Dead++
		}
	}
	return list, e.err
}

func (ft fakeTopics) Count(prefix string, most int, f func(*timer.Topic) bool) (n int) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	for name, t := range ft.topics {
		if strings.HasPrefix(name, prefix) && f(t) {
			n++
		}
	}
	return min(n, most)
}

func (e *fakeEngine) nameOf(id timer.TopicID) string {
	for name, t := range e.topics {
		if t.ID == id {
			return name
		}
	}
	return ""
}

func (ft fakeTopics) Named(_ context.Context, name string) (*timer.Topic, error) {
	ft.mu.Lock()
	ft.calls["FindTopic"]++
	ft.mu.Unlock()
	t, ok := ft.Here(name)
	switch {
	case ok:
		return t, nil
	case ft.behind != nil:
		return nil, ft.behind
	}
	return nil, timer.ErrNoTopic
}

func (ft fakeTopics) ByID(ctx context.Context, id timer.TopicID) (*timer.Topic, error) {
	ft.mu.Lock()
	name := ft.nameOf(id)
	ft.mu.Unlock()
	return ft.Named(ctx, name)
}

func (ft fakeTopics) Latest(ctx context.Context, name string) (*timer.Topic, error) {
	if ft.err != nil {
		return nil, ft.err
	}
	return ft.Named(ctx, name)
}

func (ft fakeTopics) Here(name string) (*timer.Topic, bool) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	t, ok := ft.topics[name]
	return t, ok
}

func (ft fakeTopics) List(after string, limit int) []*timer.Topic {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	var out []*timer.Topic
	for name, t := range ft.topics {
		if name > after {
			out = append(out, t)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out[:min(len(out), limit)]
}

func (e *fakeEngine) newTopic(name string, p timer.Policy, auto bool) *timer.Topic {
	e.wrote++
	e.lastID++
	t := &timer.Topic{ID: e.lastID, Name: strings.Clone(name), Policy: p, AutoCreated: auto, CreatedMs: e.nowMs(), Version: 1}
	e.topics[t.Name] = t
	return t
}

func (ft fakeTopics) Ensure(_ context.Context, name string) (*timer.Topic, error) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	ft.calls["EnsureTopic"]++
	if ft.err != nil {
		return nil, ft.err
	}
	if t, ok := ft.topics[name]; ok {
		return t, nil
	}
	return ft.newTopic(name, timer.DefaultPolicy(), true), nil
}

func (ft fakeTopics) Put(_ context.Context, name string, p *timer.Policy, change timer.TopicChange) (*timer.Topic, bool, error) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	if ft.err != nil {
		return nil, false, ft.err
	}
	t, ok := ft.topics[name]
	switch {
	case change.New && ok, change.Version != 0 && (!ok || t.ID != change.ID || t.Version != change.Version):
		return nil, false, timer.ErrTopicVersion
	case !ok && change.DryRun:
		return &timer.Topic{Name: name, Policy: *p}, true, nil
	case !ok:
		return ft.newTopic(name, *p, false), true, nil
	case !change.Force && len(t.Policy.Secrets) > 0 && len(p.Secrets) == 0:
		return nil, false, timer.InUseError{Secrets: len(t.Policy.Secrets)}
	}
	if p.Pull != t.Policy.Pull {
		leased := int64(0)
		for k, v := range ft.timers {
			if k.topic == t.ID && v.State == timer.Leased {
				leased++
			}
		}
		if leased > 0 {
			return nil, false, timer.LeasedError{Leased: leased}
		}
	}
	c := *t
	c.Policy, c.AutoCreated = *p, false
	if change.DryRun {
		return &c, false, nil
	}
	ft.wrote++
	c.Version++
	ft.topics[name] = &c
	return &c, false, nil
}

func (ft fakeTopics) SetPaused(_ context.Context, name string, paused bool) (*timer.Topic, error) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	t, ok := ft.topics[name]
	if !ok {
		return nil, timer.ErrNoTopic
	}
	ft.wrote++
	c := *t
	c.Paused = paused
	ft.topics[name] = &c
	return &c, ft.err
}

func (ft fakeTopics) Delete(_ context.Context, name string, change timer.TopicChange) (int, error) {
	ft.mu.Lock()
	defer ft.mu.Unlock()
	t, ok := ft.topics[name]
	if !ok {
		return 0, timer.ErrNoTopic
	}
	if change.Version != 0 && (t.ID != change.ID || t.Version != change.Version) {
		return 0, timer.ErrTopicVersion
	}
	n := 0
	for k, x := range ft.timers {
		if k.topic == t.ID && (!x.State.Over() || x.State == timer.Dead) {
			n++
		}
	}
	if n > 0 && !change.Force {
		return 0, timer.ErrNotEmpty
	}
	ft.wrote++
	delete(ft.topics, name)
	return n, nil
}

func (e *fakeEngine) Ready() error { return e.notReady }

// set changes a timer behind the server's back.
func (e *fakeEngine) set(topic, id string, f func(*timer.Timer)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.timers[timerKey{e.topics[topic].ID, id}].Timer)
}

func (e *fakeEngine) changes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrote
}

// called is how often a method was called, of those that count.
func (e *fakeEngine) called(method string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[method]
}

// keepingEngine keeps every command that it is given: its strings and payloads, as the engine may.
// The command itself is the caller's again when it is answered.
type keepingEngine struct {
	*fakeEngine
	kept chan *timer.Command
}

func (e *keepingEngine) Core() (*backend.Core, error) { return e.with(e, fakeTopics{e.fakeEngine}) }

func (e *keepingEngine) Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	e.keep(cmd)
	return e.fakeEngine.Do(ctx, id, cmd, brief)
}

func (e *keepingEngine) DoAll(ctx context.Context, ops []timer.Op) {
	for i := range ops {
		e.keep(ops[i].Command)
	}
	e.fakeEngine.DoAll(ctx, ops)
}

func (e *keepingEngine) keep(cmd *timer.Command) {
	kept := *cmd
	if cmd.Spec != nil {
		spec := *cmd.Spec
		kept.Spec = &spec
	}
	if cmd.Patch != nil {
		patch := *cmd.Patch
		kept.Patch = &patch
	}
	e.kept <- &kept
}
