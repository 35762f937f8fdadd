package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/shard/raftlog"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/wal"
)

// fakeEpochMs is the wall-clock time at which a harness starts, in Unix milliseconds.
const fakeEpochMs = int64(1_800_000_000_000)

// fakeClock has a wall clock and a monotonic clock that a test can move apart. trust is how far
// the wall clock is trusted.
type fakeClock struct {
	wallMs int64
	mono   time.Duration
	trust  clocks.Trust
	jumped time.Duration // offset of the lease clock from the monotonic clock
}

func (c *fakeClock) Look() clocks.Moment {
	return clocks.Moment{WallMs: c.wallMs, Mono: c.mono, Lease: c.mono + c.jumped, Trust: c.trust}
}
func (c *fakeClock) Mono() time.Duration { return c.mono }
func (c *fakeClock) UntilWall(ms int64) time.Duration {
	return time.Duration(min(max(ms-c.wallMs, -3_600_000), 3_600_000)) * time.Millisecond
}

// fakeTopics is the topic registry of a host.
type fakeTopics map[timer.TopicID]*timer.Topic

func (t fakeTopics) Topic(id timer.TopicID) (*timer.Topic, bool) {
	topic, ok := t[id]
	return topic, ok
}

func (t fakeTopics) Named(name string) (*timer.Topic, bool) {
	for _, topic := range t {
		if topic.Name == name {
			return topic, true
		}
	}
	return nil, false
}

func (t fakeTopics) Given(id timer.TopicID) bool { return id < 100 }
func (t fakeTopics) Current() bool               { return true }

var ReplicaID = placement.ReplicaID

// fakeMachine is a meta state machine that keeps every command it applied.
type fakeMachine struct{ lines []string }

func (m *fakeMachine) Check(cmd []byte) error {
	if string(cmd) == "bad" {
		return encoding.ErrFormat
	}
	return nil
}

func (m *fakeMachine) Apply(nowMs int64, cmd []byte) (any, error) {
	if string(cmd) == "of a later release" {
		return nil, feature.ErrNewer
	}
	m.lines = append(m.lines, fmt.Sprintf("%d %s", nowMs, cmd))
	return len(m.lines), nil
}

func (m *fakeMachine) whole() string           { return strings.Join(m.lines, "\n") }
func (m *fakeMachine) Hash() uint64            { return max(1, xxhash.Sum64String(m.whole())) }
func (m *fakeMachine) BeginSave() timer.Saving { return &fakeSaving{text: m.whole(), hash: m.Hash()} }
func (m *fakeMachine) Replace(state any)       { m.lines = state.(*fakeMachine).lines }
func (m *fakeMachine) Read(r io.Reader) (any, uint64, error) {
	b, err := io.ReadAll(r)
	read := &fakeMachine{}
	if len(b) > 0 {
		read.lines = strings.Split(string(b), "\n")
	}
	return read, read.Hash(), err
}

// fakeSaving streams a state a few bytes at a time.
type fakeSaving struct {
	text string
	hash uint64
}

func (s *fakeSaving) Hash() uint64 { return s.hash }
func (s *fakeSaving) Sound() bool  { return true }
func (s *fakeSaving) Held() int64  { return 0 }
func (s *fakeSaving) Abort()       {}
func (s *fakeSaving) Next(dst []byte, budget int) ([]byte, bool) {
	n := min(len(s.text), budget)
	dst, s.text = append(dst, s.text[:n]...), s.text[n:]
	return dst, s.text == ""
}

// fakeObserver counts events.
type fakeObserver struct {
	elected, expired, frames, snapshots int
	outcomes, sent, received, replaced  int
	made, lost                          int // outcomes of timers
	latenessMs                          []int64
	held                                []bool // parallel to latenessMs
}

func (o *fakeObserver) Command(timer.Kind, timer.Code)        {}
func (o *fakeObserver) Outcome(timer.TopicID, *table.Outcome) { o.outcomes++ }
func (o *fakeObserver) Expired()                              { o.expired++ }
func (o *fakeObserver) Outcomes(made, lost int)               { o.made, o.lost = o.made+made, o.lost+lost }
func (o *fakeObserver) Frame(int)                             { o.frames++ }
func (o *fakeObserver) Lateness(ms int64, held bool, _ *[16]byte) {
	o.latenessMs, o.held = append(o.latenessMs, ms), append(o.held, held)
}
func (o *fakeObserver) Elected()               { o.elected++ }
func (o *fakeObserver) Snapshot(time.Duration) { o.snapshots++ }
func (o *fakeObserver) SnapshotSent(int64)     { o.sent++ }
func (o *fakeObserver) DeadReplaced(n int)     { o.replaced += n }
func (o *fakeObserver) SnapshotReceived(int64) { o.received++ }

// hostHarness drives one host by hand in one goroutine: it steps the workers and the log, with a
// fake clock and an in-memory file system. Only the snapshot writer has a goroutine of its own. A
// harness with bubble set waits for it.
type hostHarness struct {
	t        testing.TB
	fs       *memfs.FS
	clock    *fakeClock
	topics   fakeTopics
	calls    *fakeDispatcher
	machine  *fakeMachine
	observer *fakeObserver
	log      bytes.Buffer
	change   func(*Config)
	host     *Host
	starts   uint32
	bubble   bool
	gate     memfs.Gate   // blocks the snapshot writer while a worker takes its turn
	failed   error        // error of the log
	freeze   bool         // the log does not advance, as on a hung disk
	rows     []Assignment // nil: a node that is alone
}

// newHostHarness makes a host on an empty disk and runs it until it serves. change may alter its
// configuration; it is called at each open.
func newHostHarness(t testing.TB, change func(*Config)) *hostHarness {
	t.Helper()
	r := makeHarness(t, memfs.New(), change)
	r.mustOpen()
	return r
}

func makeHarness(t testing.TB, fs *memfs.FS, change func(*Config)) *hostHarness {
	r := &hostHarness{t: t, fs: fs, change: change, clock: &fakeClock{wallMs: fakeEpochMs, mono: time.Hour}, topics: fakeTopics{}}
	r.calls = &fakeDispatcher{r: r, dests: map[string]*fakeDest{}, seen: map[string]bool{}}
	r.topic(1, nil)
	return r
}

// bubbleHarness is newHostHarness in a synctest bubble, for a host that writes snapshots. run must
// not call the Host's blocking methods.
func bubbleHarness(t *testing.T, change func(*Config), run func(r *hostHarness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := makeHarness(t, memfs.New(), change)
		r.bubble = true
		r.mustOpen()
		defer func() { r.abort() }()
		run(r)
	})
}

// topic sets a topic's policy. The host learns of it by topicsChanged.
func (h *hostHarness) topic(id timer.TopicID, change func(*timer.Topic)) {
	p := timer.DefaultPolicy()
	p.Callback.URL = fmt.Sprintf("http://receiver-%d/", id)
	p.Jitter = 0
	topic := &timer.Topic{ID: id, Name: fmt.Sprintf("topic-%d", id), Policy: p}
	if change != nil {
		change(topic)
	}
	h.topics[id] = topic
}

func (h *hostHarness) topicsChanged() {
	h.host.TopicsChanged()
	h.runIdle()
}

// open starts a new process on the disk.
func (h *hostHarness) open() error {
	h.starts++
	h.machine, h.observer, h.failed = &fakeMachine{}, &fakeObserver{}, nil
	cfg := Config{
		Shards: 1, Workers: 1, Node: 7, Incarnation: table.NewIncarnation(7, h.starts), Seed: 1,
		FS: h.fs, Dir: "data", Clock: h.clock, Topics: h.topics, Dispatcher: h.calls, Machine: h.machine, Observer: h.observer,
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
		Log:    wal.Options{Salt: func() uint64 { return 0x5A17_5A17 }, NowMs: func() int64 { return h.clock.wallMs }, Monotonic: func() time.Duration { return h.clock.mono }},
	}
	rows := h.rows
	if rows == nil {
		rows = soleRows(2, 7)
	}
	if h.starts == 1 {
		cfg.Meta = &rows[0]
	}
	if h.change != nil {
		h.change(&cfg)
	}
	host, err := New(cfg)
	if err != nil {
		return err
	}
	if err := host.Open(); err != nil {
		return err
	}
	h.host = host
	if h.rows == nil {
		rows = soleRows(cfg.Shards+1, cfg.Node)
	}
	host.Place(rows)
	h.runIdle()
	return nil
}

// soleRows assigns the given number of groups to one node.
func soleRows(groups int, node uint64) (rows []Assignment) {
	for i := range groups {
		rows = append(rows, Assignment{Group: timer.ShardID(i), Epoch: 1, Members: []Member{{Node: node, Replica: ReplicaID(node, 1)}}, Settled: true})
	}
	return rows
}

func (h *hostHarness) mustOpen() {
	h.t.Helper()
	if err := h.open(); err != nil {
		h.t.Fatalf("open: %v\n%s", err, h.log.String())
	}
	for _, g := range h.host.all() {
		if !g.serving && !g.w.host.draining.Load() && h.failed == nil {
			h.t.Fatalf("shard %d does not serve", g.shard)
		}
	}
}

// abort ends the process as a crash does: no peer or client is notified.
func (h *hostHarness) abort() {
	for _, w := range h.host.workers {
		if w.snapshot != nil {
			w.snapshot.feed.Abort()
		}
	}
	if h.bubble {
		synctest.Wait()
	}
	h.calls.died()
}

// kill is kill -9: all written data survives, synced or not.
func (h *hostHarness) kill() {
	h.abort()
	h.fs.Kill()
}

// restart kills the process and starts a new one.
func (h *hostHarness) restart() {
	h.t.Helper()
	h.kill()
	h.mustOpen()
}

// turn runs one turn of each worker and one step of the log.
func (h *hostHarness) turn() {
	for _, w := range h.host.workers {
		if h.bubble && h.host.cfg.Block != nil {
			synctest.Wait() // a client's call has registered to be woken
		}
		if h.bubble {
			h.gate.Shut()
		}
		w.turn()
		h.gate.Open()
		if h.bubble && w.snapshot != nil {
			synctest.Wait() // the writer has consumed its input
		}
	}
	if h.failed == nil && !h.freeze {
		_, h.failed = h.host.stream.Step()
	}
}

func (h *hostHarness) busy() bool {
	for _, w := range h.host.workers {
		if w.box.waiting() > 0 || w.goesOn() || len(w.out.inflight) > 0 && h.failed == nil && !h.freeze {
			return true
		}
		if w.untilWake() <= 0 {
			return true
		}
	}
	return false
}

// runIdle runs turns until no work is left at the current time.
func (h *hostHarness) runIdle() {
	h.t.Helper()
	for n := 0; h.busy(); n++ {
		if n > 100_000 {
			h.t.Fatal("the host does not come to rest")
		}
		h.turn()
	}
}

// pass advances the clock by d, waking the host whenever it asks to be woken.
func (h *hostHarness) pass(d time.Duration) {
	h.t.Helper()
	for end := h.clock.mono + d; ; {
		h.runIdle()
		left := end - h.clock.mono
		if left <= 0 {
			return
		}
		step := left
		for _, w := range h.host.workers {
			step = min(step, w.untilWake())
		}
		h.step(max(step, time.Millisecond))
	}
}

// step advances both clocks and runs nothing.
func (h *hostHarness) step(d time.Duration) {
	ms := d.Milliseconds()
	h.clock.wallMs += ms
	h.clock.mono += time.Duration(ms) * time.Millisecond
}

// pending is a submitted command.
type pending struct {
	op   *op
	cmd  *timer.Command
	wait *waiter
	got  bool
}

// calm is a random source for crashes that must be deterministic: it returns 0.
type calm struct{}

func (calm) IntN(int) int { return 0 }

func fakeWaiter() *waiter {
	w := &waiter{ch: make(chan struct{}, 1)}
	w.left.Store(1)
	return w
}

// submit submits a command and does not wait.
func (h *hostHarness) submit(id timer.ShardID, cmd timer.Command) (*pending, error) {
	return h.submitOf(id, 0, cmd)
}

// submitOf submits a command with a place; see timer.Op.
func (h *hostHarness) submitOf(id timer.ShardID, place uint64, cmd timer.Command) (*pending, error) {
	p := &pending{cmd: &cmd, wait: fakeWaiter()}
	o, err := h.host.newOp(id, p.cmd, false, nil, p.wait)
	if err != nil {
		return nil, err
	}
	p.op, o.place = o, place
	if err := o.shard.g.w.box.offer(o); err != nil {
		return nil, err
	}
	return p, nil
}

// answered reports whether the command has its answer.
func (p *pending) answered() bool {
	if !p.got {
		select {
		case <-p.wait.ch:
			p.got = true
		default:
		}
	}
	return p.got
}

// do submits a command to shard 1 and returns its result.
func (h *hostHarness) do(cmd timer.Command) timer.Result {
	h.t.Helper()
	res, err := h.try(cmd)
	if err != nil {
		h.t.Fatalf("%v %q: %v", cmd.Kind, cmd.ID, err)
	}
	return res
}

func (h *hostHarness) try(cmd timer.Command) (timer.Result, error) {
	h.t.Helper()
	if cmd.Topic == 0 {
		cmd.Topic = 1
	}
	p, err := h.submit(1, cmd)
	if err != nil {
		return timer.Result{}, err
	}
	h.runIdle()
	if !p.answered() {
		return timer.Result{}, errors.New("no answer yet")
	}
	return p.op.result, p.op.err
}

// add schedules a timer with the given delay. change may alter its spec.
func (h *hostHarness) add(id string, delay time.Duration, change ...func(*timer.Spec)) timer.Result {
	h.t.Helper()
	s := &timer.Spec{DueMs: h.clock.wallMs + delay.Milliseconds(), Payload: []byte(`"` + id + `"`), PayloadKind: timer.JSONPayload}
	for _, f := range change {
		f(s)
	}
	got := h.do(timer.Command{Kind: timer.Add, ID: id, Spec: s, Content: uint64(s.DueMs)})
	if got.Code != timer.Created {
		h.t.Fatalf("add %q: code %d", id, got.Code)
	}
	return got
}

// timer reads a timer of topic 1 as a client does.
func (h *hostHarness) timer(id string) *timer.Timer {
	h.t.Helper()
	var found *timer.Timer
	rd := &read{group: h.host.group(1), deadline: h.clock.mono + readLimit, wait: fakeWaiter(), serve: func(int) bool {
		if found = h.host.shard(1).table.Read(1, id); found != nil {
			h.host.shard(1).scheduler.View.Overlay(found)
		}
		return true
	}}
	h.ask(rd)
	return found
}

// ask submits a read and checks that it is answered.
func (h *hostHarness) ask(rd *read) {
	h.t.Helper()
	if err := rd.group.w.box.offer(rd); err != nil {
		h.t.Fatal(err)
	}
	h.runIdle()
	select {
	case <-rd.wait.ch:
	default:
		h.t.Fatal("a read has no answer")
	}
	if rd.err != nil {
		h.t.Fatal(rd.err)
	}
}

// state returns a timer's state and its attempts, as clients see them.
func (h *hostHarness) state(id string) string {
	h.t.Helper()
	v := h.timer(id)
	if v == nil {
		return "none"
	}
	name := map[timer.State]string{timer.Scheduled: "scheduled", timer.Leased: "leased", timer.Done: "done", timer.Dead: "dead", timer.Cancelled: "cancelled"}[v.State]
	if v.State == timer.Dead {
		name += map[timer.Reason]string{timer.MaxAttempts: " max_attempts", timer.Expired: " expired", timer.Stopped: " stopped", timer.Refused: " refused"}[v.Reason]
	}
	return fmt.Sprintf("%s %d", name, v.Attempts)
}

func (h *hostHarness) wantState(id, want string) {
	h.t.Helper()
	if got := h.state(id); got != want {
		h.t.Errorf("timer %q is %s, want %s", id, got, want)
	}
}

// blocking runs fn, which calls blocking methods of the host, on another goroutine. It runs turns
// whenever fn has submitted work.
func (h *hostHarness) blocking(fn func()) {
	h.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	second := h.host.workers[len(h.host.workers)-1].box.wake
	for {
		select {
		case <-done:
			return
		case <-h.host.workers[0].box.wake:
		case <-second:
		}
		h.runIdle()
	}
}

// table returns the table of shard 1.
func (h *hostHarness) table() *table.Table { return shardOf(h.host.group(1)).table }

// scheduler returns the scheduler of shard 1.
func (h *hostHarness) scheduler() *scheduler.Scheduler { return shardOf(h.host.group(1)).scheduler }

// failure returns the error that stopped the host, or nil.
func (h *hostHarness) failure() error {
	select {
	case err := <-h.host.failure:
		return err
	default:
		return nil
	}
}

// audit checks the tables for consistency, and the dispatcher's permits against the active leases.
func (h *hostHarness) audit() {
	h.t.Helper()
	flights, spare := 0, 0
	for _, g := range h.host.all()[1:] {
		if err := shardOf(g).table.Audit(true); err != nil {
			h.t.Fatal(err)
		}
		has := shardOf(g).scheduler.View.Inspect()
		pending := 0
		for _, f := range has.Leases {
			if f.Pending {
				pending++
			}
		}
		if pending != has.Proposed {
			h.t.Fatalf("%d leases are in the pipeline, %d are counted", pending, has.Proposed)
		}
		flights += has.Unstarted
		spare += has.Spare
	}
	if got := h.calls.held(); got != flights+spare {
		h.t.Fatalf("%d permits are neither used nor cancelled, %d flights and %d lanes hold one", got, flights, spare)
	}
}

// fakeDispatcher is a scripted receiver. It records every start; the test decides when and how each
// call ends.
type fakeDispatcher struct {
	batched int // timers, in calls of many
	r       *hostHarness
	dests   map[string]*fakeDest
	started []*fakeCall
	running []*fakeCall
	seen    map[string]bool
	auto    int // status that ends every call at once; 0: the test ends it
	asked   int
	onStart func(*fakeCall)
	permits []*fakePermit
	epoch   int
}

// fakeDest is one destination with its concurrency limit and its breaker.
type fakeDest struct {
	slots   int           // 0: no limit
	used    int           // permits and calls
	retryIn time.Duration // > 0: the breaker is open
	queue   []delivery.Waiter
}

func (d *fakeDispatcher) dest(url string) *fakeDest {
	if d.dests[url] == nil {
		d.dests[url] = &fakeDest{}
	}
	return d.dests[url]
}

func (d *fakeDispatcher) Route(t *timer.Topic, own *timer.Callback) (scheduler.Destination, error) {
	url := t.Policy.Callback.URL
	if own.URL != "" {
		url = own.URL
	}
	if url == "" {
		return nil, errors.New("no URL")
	}
	return url, nil
}

func (d *fakeDispatcher) Tenant(*timer.Topic) string { return "" }

func (d *fakeDispatcher) Acquire(to scheduler.Destination, _ *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict) {
	d.asked++
	dest := d.dest(to.(string))
	switch {
	case dest.retryIn > 0:
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: dest.retryIn}
	case dest.slots > 0 && dest.used >= dest.slots:
		dest.queue = append(dest.queue, a.Receiver)
		return nil, delivery.Verdict{Kind: delivery.ReceiverFull}
	}
	return d.permit(dest, to.(string)), delivery.Verdict{}
}

func (d *fakeDispatcher) State(to scheduler.Destination, _ *timer.Topic) delivery.State {
	s := delivery.State{Name: to.(string), ProbeIn: d.dest(to.(string)).retryIn}
	if s.ProbeIn > 0 {
		s.Breaker = delivery.BreakerOpen
	}
	return s
}

func (d *fakeDispatcher) permit(dest *fakeDest, url string) *fakePermit {
	dest.used++
	p := &fakePermit{d: d, dest: dest, url: url, epoch: d.epoch}
	d.permits = append(d.permits, p)
	return p
}

// held returns the number of unused permits.
func (d *fakeDispatcher) held() int {
	keep := d.permits[:0]
	for _, p := range d.permits {
		if !p.used {
			keep = append(keep, p)
		}
	}
	d.permits = keep
	return len(keep)
}

// free releases a slot and grants it to the next waiter.
func (d *fakeDispatcher) free(dest *fakeDest, url string) {
	dest.used--
	if len(dest.queue) > 0 && (dest.slots == 0 || dest.used < dest.slots) {
		w := dest.queue[0]
		dest.queue = dest.queue[1:]
		w.Granted(d.permit(dest, url))
	}
}

// died drops the state of the process that ended.
func (d *fakeDispatcher) died() {
	d.epoch++
	d.running, d.permits = nil, nil
	for _, dest := range d.dests {
		dest.used, dest.queue = 0, nil
	}
}

type fakePermit struct {
	d     *fakeDispatcher
	dest  *fakeDest
	url   string
	used  bool
	epoch int
}

// fakeCall is one started call.
type fakeCall struct {
	scheduler.Delivery
	url    string
	wallMs int64
	mono   time.Duration
	done   func(delivery.Outcome)
	permit *fakePermit
	ended  bool
	unsent bool
}

func (p *fakePermit) use() {
	if p.used {
		p.d.r.t.Fatalf("a permit for %s is used twice", p.url)
	}
	p.used = true
}

func (p *fakePermit) Cancel() {
	p.use()
	if p.epoch == p.d.epoch {
		p.d.free(p.dest, p.url)
	}
}

// Start checks the invariants that hold for every start in every test.
func (d *fakeDispatcher) Start(permit delivery.Permit, j *scheduler.Delivery, done func(delivery.Outcome)) {
	p, r := permit.(*fakePermit), d.r
	p.use()
	c := &fakeCall{Delivery: *j, url: p.url, wallMs: r.clock.wallMs, mono: r.clock.mono, done: done, permit: p}
	g := r.host.group(j.Shard)
	due := shardOf(g).table.Due(j.Job.Handle)
	if due.State != timer.Leased || due.Fence != j.Job.Fence || due.Attempts != j.Job.Attempts || !g.serving {
		r.t.Fatalf("I3: %s attempt %d fence %d starts, but the table has it in state %d with attempt %d, fence %d",
			j.Job.ID, j.Job.Attempts, j.Job.Fence, due.State, due.Attempts, due.Fence)
	}
	if at := shardOf(g).table.AttemptDueMs(j.Job.Handle); at > r.clock.wallMs {
		r.t.Fatalf("I4: %s starts %d ms early", j.Job.ID, at-r.clock.wallMs)
	}
	if early := j.Job.EarliestMs() - r.clock.wallMs; early > 0 {
		r.t.Fatalf("I4: %s starts %d ms early, asked for at %d", j.Job.ID, early, j.Job.AskedMs)
	}
	if j.Deadline < r.clock.mono+r.clock.jumped {
		c.unsent = true // as the real dispatcher does
	}
	key := fmt.Sprint(j.Shard, " ", j.Job.Seq, " ", j.Job.Attempts, " ", j.Job.Fence)
	if d.seen[key] {
		r.t.Fatalf("I3: shard, number, attempt and fence %s start twice", key)
	}
	d.seen[key] = true
	if d.onStart != nil {
		d.onStart(c)
	}
	d.started = append(d.started, c)
	d.running = append(d.running, c)
	switch {
	case c.unsent:
		c.end(delivery.Outcome{NotSent: true})
	case d.auto != 0:
		c.answer(d.auto)
	}
}

// StartBatch answers at once, in a test that asks for that. The tests of package scheduler have the
// rest of what such calls do.
func (d *fakeDispatcher) StartBatch(permit delivery.Permit, c *scheduler.BatchCall, done func([]delivery.Outcome)) {
	p := permit.(*fakePermit)
	p.use()
	if d.auto == 0 {
		d.r.t.Fatal("a call of many timers starts, but no topic asks for any")
	}
	d.batched += len(c.Jobs)
	d.free(p.dest, p.url)
	answers := make([]delivery.Outcome, len(c.Jobs))
	for i := range answers {
		answers[i] = delivery.Outcome{Status: d.auto, StartedMs: d.r.clock.wallMs, EndedMs: d.r.clock.wallMs}
	}
	done(answers)
}

// end ends a call.
func (c *fakeCall) end(a delivery.Outcome) {
	d := c.permit.d
	if c.ended {
		d.r.t.Fatal("a test ends a call twice")
	}
	c.ended, c.unsent = true, a.NotSent
	for i, o := range d.running {
		if o == c {
			d.running = append(d.running[:i:i], d.running[i+1:]...)
			break
		}
	}
	a.StartedMs, a.EndedMs = c.wallMs, max(c.wallMs, d.r.clock.wallMs)
	if c.permit.epoch == d.epoch {
		d.free(c.permit.dest, c.url)
		c.done(a)
	}
}

func (c *fakeCall) answer(status int) {
	a := delivery.Outcome{Status: status}
	if status == 0 {
		a.Err = "connection refused"
	}
	c.end(a)
}

// take returns the calls started since the last take.
func (d *fakeDispatcher) take() []*fakeCall {
	list := d.started
	d.started = nil
	return list
}

// ids returns the timer IDs of the calls started since the last take.
func (d *fakeDispatcher) ids() string {
	var ids []string
	for _, c := range d.take() {
		ids = append(ids, c.Job.ID)
	}
	return strings.Join(ids, " ")
}

func (h *hostHarness) wantCalls(want string) {
	h.t.Helper()
	if got := h.calls.ids(); got != want {
		h.t.Errorf("calls started: %q, want %q", got, want)
	}
}

// one returns the only call started since the last take.
func (h *hostHarness) one() *fakeCall {
	h.t.Helper()
	list := h.calls.take()
	if len(list) != 1 {
		h.t.Fatalf("%d calls were started, want 1", len(list))
	}
	return list[0]
}

// zeroLoss is a power cut that loses all unsynced data.
var zeroLoss = memfs.CrashOptions{}

// recoverOnly opens the host's files and starts no calls: the log stays frozen.
func (h *hostHarness) recoverOnly() error {
	h.freeze = true
	return h.open()
}

// files returns the content of the whole disk.
func (h *hostHarness) files() string {
	var b strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		list, err := h.fs.ReadDir(dir)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, e := range list {
			path := dir + "/" + e.Name
			if e.Dir {
				walk(path)
				continue
			}
			f, err := h.fs.Open(path)
			if err != nil {
				h.t.Fatal(err)
			}
			data, err := io.ReadAll(f)
			if err != nil {
				h.t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %d\n%s\n", path, len(data), data)
		}
	}
	walk("data")
	return b.String()
}

// queued returns the number of entries in the destination queues of a topic in shard 1.
func (h *hostHarness) queued(id timer.TopicID) int {
	return h.scheduler().View.Inspect().Topics[id].Queued
}

// shardOf returns the shard of timers of a group.
func shardOf(g *replica) *timerShard { return g.machine.(*timerShard) }

// storedIn returns all entries of a storage.
func storedIn(t testing.TB, s *raftlog.Storage) []*pb.Entry {
	t.Helper()
	if s.Last() == s.Offset {
		return nil
	}
	list, err := s.Entries(s.Offset+1, s.Last()+1, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
