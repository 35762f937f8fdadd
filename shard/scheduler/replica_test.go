package scheduler

import (
	"errors"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// startMs is a Friday, 2023-11-14T22:13:20Z.
const startMs = int64(1_700_000_000_000)

const (
	ownNode   = uint64(1)
	otherNode = uint64(2)
)

// replica is a replica of one shard without a log: what its scheduler proposes is applied at once.
// It implements Env, Topics, Dispatcher and Observer.
type replica struct {
	*Scheduler
	t        *testing.T
	table    *table.Table
	now      *clocks.Moment
	topics   map[timer.TopicID]*timer.Topic
	notGiven bool // no topic was ever given, as far as it knows
	stale    bool // it has not learned yet what was decided before its process began

	items    []func(*timer.Result, bool) // of the entry being built; dropped: the result is missing
	posted   []func(stopped bool)
	wakes    bool
	dropping bool // the log takes no entry

	verdicts map[string]delivery.Verdict // by URL; a receiver without one gives permits
	receiver *oneAtATime                 // instead of verdicts
	waiters  []delivery.Ask
	calls    []*call
	batches  []*batch
	permits  int // in use
	ready    map[timer.TopicID]int

	confirms []func(error)
	fences   []func(error)
	ended    map[table.Incarnation]bool
	full     bool
	leaving  bool
	gone     bool
	reports  []*Report
	resumed  []ClientChange
	refused  []ClientChange
	zones    []string
	fired    []table.Outcome
	expired  int
	lateness []int64
	canaries int
	budget   int // steps of the turn
	spent    int
}

// call is a call that runs.
type call struct {
	*Delivery
	done func(delivery.Outcome)
}

// batch is a call of many timers that runs.
type batch struct {
	*BatchCall
	done func([]delivery.Outcome)
}

type permit struct {
	r   *replica
	url string
}

func (p permit) Cancel() { p.r.permits-- }

// credit is a slot of the node.
type credit struct{ cancelled *int }

func (c credit) Cancel() { *c.cancelled++ }

// change is a client's change that waits.
type change struct {
	until time.Duration
	err   error
}

func (c *change) WaitsUntil() time.Duration               { return c.until }
func (c *change) Answer(_ timer.Result, err error)        { c.err = err }
func (r *replica) Wake()                                  { r.wakes = true }
func (r *replica) WakeNext()                              { r.wakes = true }
func (r *replica) Spent(steps int) bool                   { r.spent += steps; return r.budget > 0 && r.spent >= r.budget }
func (r *replica) Least() bool                            { return true }
func (r *replica) Post(event func(bool))                  { r.posted = append(r.posted, event) }
func (r *replica) Confirm(then func(error))               { r.confirms = append(r.confirms, then) }
func (r *replica) HandingOver() bool                      { return r.leaving }
func (r *replica) Full() bool                             { return r.full }
func (r *replica) Present() bool                          { return !r.gone }
func (r *replica) Ended(owner table.Incarnation) bool     { return r.ended[owner] }
func (r *replica) Resume(list []ClientChange)             { r.resumed = append(r.resumed, list...) }
func (r *replica) Refuse(list []ClientChange)             { r.refused = append(r.refused, list...) }
func (r *replica) SendReport(p *Report)                   { r.reports = append(r.reports, p) }
func (r *replica) ZoneUnknown(name string)                { r.zones = append(r.zones, name) }
func (r *replica) CanaryPassed()                          { r.canaries++ }
func (r *replica) Expired()                               { r.expired++ }
func (r *replica) Lateness(ms int64, _ bool, _ *[16]byte) { r.lateness = append(r.lateness, ms) }
func (r *replica) Tenant(t *timer.Topic) string           { return t.Name }
func (r *replica) Fence(_ table.Incarnation, then func(error)) {
	r.fences = append(r.fences, then)
}
func (r *replica) Fired(_ timer.TopicID, o *table.Outcome) { r.fired = append(r.fired, *o) }

func (r *replica) Proposed(i Item) {
	r.items = append(r.items, func(result *timer.Result, applied bool) {
		if applied {
			r.ItemApplied(i, result)
		} else {
			r.ItemDropped(i)
		}
	})
}

func (r *replica) Topic(id timer.TopicID) (*timer.Topic, bool) {
	t, ok := r.topics[id]
	return t, ok
}

func (r *replica) Named(string) (*timer.Topic, bool) { return nil, false }
func (r *replica) Given(timer.TopicID) bool          { return !r.notGiven }
func (r *replica) Current() bool                     { return !r.stale }
func (r *replica) Outcomes(int, int)                 {}

func (r *replica) Route(t *timer.Topic, own *timer.Callback) (Destination, error) {
	switch {
	case own.URL != "":
		return own.URL, nil
	case t.Policy.Callback.URL != "":
		return t.Policy.Callback.URL, nil
	}
	return nil, errors.New("no URL")
}

func (r *replica) Acquire(d Destination, _ *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict) {
	if r.receiver != nil {
		return r.receiver.acquire(a.Receiver)
	}
	v := r.verdicts[d.(string)]
	if v.Kind == delivery.Granted || v.Kind == delivery.NodeFull && a.Credit != nil {
		r.permits++
		return permit{r, d.(string)}, delivery.Verdict{}
	}
	if v.Kind == delivery.ReceiverFull || v.Kind == delivery.NodeFull {
		r.waiters = append(r.waiters, a)
	}
	return nil, v
}

func (r *replica) Start(p delivery.Permit, d *Delivery, done func(delivery.Outcome)) {
	own := *d
	to, _ := r.Route(d.Topic, &d.Own)
	if p, is := p.(permit); is && p.url != to {
		r.t.Errorf("%s is called at %s with a permit for %s", d.Job.ID, to, p.url)
	}
	r.calls = append(r.calls, &call{&own, done})
}

func (r *replica) StartBatch(_ delivery.Permit, c *BatchCall, done func([]delivery.Outcome)) {
	r.batches = append(r.batches, &batch{c, done})
}

func (r *replica) State(d Destination, _ *timer.Topic) delivery.State {
	s := delivery.State{Name: d.(string)}
	if v := r.verdicts[d.(string)]; v.Kind == delivery.Shut {
		s.Breaker, s.ProbeIn = delivery.BreakerOpen, v.RetryIn
	}
	return s
}

// newReplica returns a replica whose node leads, with one topic that calls http://a.
func newReplica(t *testing.T) *replica {
	r := &replica{
		t: t, table: table.New(1, startMs), ended: map[table.Incarnation]bool{},
		now:      &clocks.Moment{WallMs: startMs, Mono: time.Hour, Lease: time.Hour, Trust: clocks.Sure},
		topics:   map[timer.TopicID]*timer.Topic{},
		verdicts: map[string]delivery.Verdict{}, ready: map[timer.TopicID]int{},
	}
	r.start(recurrence.Release)
	r.topic(1, func(*timer.Policy) {})
	r.Begin()
	return r
}

// start makes the scheduler of a process, and takes over.
func (r *replica) start(zones *recurrence.Zones) {
	owner := table.NewIncarnation(ownNode, 1)
	r.Scheduler = New(Config{
		Shard: 1, Owner: owner, Seed: 1, Dispatcher: r, Topics: r, Observer: r, Zones: zones,
		Ready:    func(id timer.TopicID, n int) { r.ready[id] = n },
		Limiters: NewLimits(nil),
	}, r, r.now)
	r.SetTable(r.table)
	r.takeover(owner)
}

func (r *replica) takeover(owner table.Incarnation) {
	r.apply(func(b *table.Batch) { b.Takeover(uint64(owner)) })
}

// topic sets the policy of a topic.
func (r *replica) topic(id timer.TopicID, set func(*timer.Policy)) {
	p := timer.DefaultPolicy()
	p.Callback.URL, p.Jitter = "http://a", 0
	set(&p)
	r.topics[id] = &timer.Topic{ID: id, Name: "topic", Policy: p}
	r.Refresh(id)
}

// apply applies an entry of its own.
func (r *replica) apply(fill func(*table.Batch)) []timer.Result {
	r.t.Helper()
	var b table.Batch
	b.Reset(r.now.WallMs, 1, 1)
	fill(&b)
	got, err := r.table.Apply(b.Bytes(), nil, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// command applies a client's change.
func (r *replica) command(c timer.Command) timer.Result {
	r.t.Helper()
	if c.Topic == 0 {
		c.Topic = 1
	}
	got := r.apply(func(b *table.Batch) { b.Command(&c) })[0]
	r.Keys.Review(got.Handle)
	return got
}

// add adds a timer that is due in so many ms.
func (r *replica) add(id string, inMs int64, set ...func(*timer.Command)) timer.Handle {
	r.t.Helper()
	c := timer.Command{Kind: timer.Add, ID: id, Spec: &timer.Spec{DueMs: r.now.WallMs + inMs}}
	for _, f := range set {
		f(&c)
	}
	got := r.command(c)
	if got.Code != timer.Created {
		r.t.Fatalf("add %s: %v", id, got.Code)
	}
	return got.Handle
}

// turn runs turns until nothing is left to do, 100 at most.
func (r *replica) turn() {
	r.t.Helper()
	for range 100 {
		if applied := r.step(); !applied && !r.wakes && len(r.posted) == 0 {
			return
		}
	}
}

// step runs one turn, and reports whether there was anything to propose.
func (r *replica) step() (applied bool) {
	r.t.Helper()
	r.wakes, r.spent = false, 0
	for len(r.posted) > 0 {
		event := r.posted[0]
		r.posted = r.posted[1:]
		event(false)
	}
	r.Run()
	return r.entry()
}

// entry proposes an entry and applies or drops it. It reports false if there was nothing to
// propose.
func (r *replica) entry(more ...func(*table.Batch)) bool {
	r.t.Helper()
	if !r.Leads() {
		return false
	}
	var b table.Batch
	b.Reset(r.now.WallMs, 1, 1)
	r.items = nil
	r.FollowClock(&b)
	if r.KnowsTime() {
		r.Scheduler.Outcomes.Propose(&b)
		for _, f := range more {
			f(&b)
		}
		r.Lease(&b)
	}
	if len(r.items) == 0 {
		return false
	}
	var results []timer.Result
	if !r.dropping {
		var err error
		if results, err = r.table.Apply(b.Bytes(), nil, nil); err != nil || len(results) != len(r.items) {
			r.t.Fatalf("%d results of %d items: %v", len(results), len(r.items), err)
		}
	}
	for i, item := range r.items {
		if r.dropping {
			item(nil, false)
			continue
		}
		item(&results[i], true)
		r.Keys.Review(results[i].Handle)
	}
	if err := r.table.Audit(true); err != nil {
		r.t.Fatal(err)
	}
	return true
}

// pull pulls timers of a topic, and returns the results.
func (r *replica) pull(topic timer.TopicID, most int) (got []timer.Handle) {
	r.entry(func(b *table.Batch) {
		r.propose(b, topic, most, func(h timer.Handle) { got = append(got, h) })
	})
	return got
}

// propose adds a pull to an entry, and returns what it asks for.
func (r *replica) propose(b *table.Batch, topic timer.TopicID, most int, pulled func(timer.Handle)) []timer.Handle {
	asked, known := r.Pulls.Pull(b, topic, most, 30_000)
	if !known {
		r.t.Error("the order is not known")
	}
	for _, h := range asked {
		r.items = append(r.items, func(result *timer.Result, applied bool) {
			if !applied {
				r.Pulls.Dropped(h)
				return
			}
			r.Pulls.Pulled(h, result)
			if result.Code == timer.OK {
				pulled(h)
			}
		})
	}
	return asked
}

// pass lets time pass, on all clocks, and runs turns.
func (r *replica) pass(d time.Duration) {
	r.t.Helper()
	for d > 0 {
		step := min(d, 100*time.Millisecond)
		d -= step
		r.now.WallMs += step.Milliseconds()
		r.now.Mono += step
		r.now.Lease += step
		r.Tick()
		r.turn()
	}
}

// end ends the call that began first.
func (r *replica) end(o delivery.Outcome) *call {
	r.t.Helper()
	if len(r.calls) == 0 {
		r.t.Fatal("no call runs")
	}
	c := r.calls[0]
	r.calls = r.calls[1:]
	o.StartedMs, o.EndedMs = r.now.WallMs, r.now.WallMs
	r.permits--
	c.done(o)
	r.turn()
	return c
}

// endAll ends all calls that run, with success.
func (r *replica) endAll() {
	r.t.Helper()
	for _, c := range r.calls {
		r.permits--
		c.done(delivery.Outcome{Status: 200, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
	}
	r.calls = nil
	r.turn()
}

// called are the ids of the calls that run.
func (r *replica) called() (ids string) {
	for _, c := range r.calls {
		ids += c.Job.ID
	}
	return ids
}

// want checks the ids of the calls that run.
func (r *replica) want(ids string) {
	r.t.Helper()
	if got := r.called(); got != ids {
		r.t.Fatalf("calls of %q run, want %q", got, ids)
	}
}

// state checks a timer's state.
func (r *replica) state(h timer.Handle, want timer.State) table.Due {
	r.t.Helper()
	d := r.table.Due(h)
	if d.State != want {
		r.t.Fatalf("timer %d is %v, want %v", h, d.State, want)
	}
	return d
}

// waits checks why a timer waits, and that its topic's counts agree.
func (r *replica) waits(h timer.Handle, want timer.WaitCause) {
	r.t.Helper()
	if got := r.View.Standing(h); got.For != want {
		r.t.Fatalf("timer %d waits for %v (%s), want %v", h, got.For, got.On, want)
	}
}
