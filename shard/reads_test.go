package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

func (h *hostHarness) list(q timer.Query) []*timer.Timer {
	h.t.Helper()
	q.Topic = 1
	var got []*timer.Timer
	h.blocking(func() { got = listOf(h.t, h.host, 1, q) })
	return got
}

// listOf is what a query selects in a shard, up to its limit.
func listOf(t testing.TB, h *Host, id timer.ShardID, q timer.Query) (list []*timer.Timer) {
	for q.Limit > 0 {
		page, led, err := h.List([]timer.ShardID{id}, &q)
		if err != nil || len(led) != 1 {
			t.Errorf("shards %v, %v", led, err)
		}
		list = append(list, page.Timers...)
		if !page.More || len(page.Timers) == 0 {
			break
		}
		last := q.SortKey(list[len(list)-1])
		q.After, q.Limit = &last, q.Limit-len(page.Timers)
	}
	return list
}

// TestListFindsLeasedAmongScheduled: filtered-out timers must not crowd out matching ones.
func TestListFindsLeasedAmongScheduled(t *testing.T) {
	r := newHostHarness(t, nil)
	for i := range 50 {
		r.add(fmt.Sprint("early", i), time.Hour)
	}
	r.add("leased", 0, func(s *timer.Spec) { s.DueMs = r.clock.wallMs })
	r.do(timer.Command{Kind: timer.Modify, ID: "early7", Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: r.clock.wallMs + 2*3600_000}}})
	r.do(timer.Command{Kind: timer.Fire, ID: "early7"})
	if n := len(r.calls.running); n != 2 {
		t.Fatalf("%d calls", n)
	}
	// Leased timers come first here by due time. So list from the back, too.
	if got := r.list(timer.Query{States: 1 << timer.Leased, Limit: 3}); len(got) != 2 {
		t.Errorf("%d leased timers, want 2", len(got))
	}
	r.pass(time.Second)
	for i := range 20 {
		r.add(fmt.Sprint("past", i), -time.Hour, url("http://shut/"))
		r.calls.dest("http://shut/").retryIn = time.Hour
	}
	if got := r.list(timer.Query{States: 1 << timer.Leased, Limit: 3}); len(got) != 3 && len(got) != 2 || got[0].State != timer.Leased {
		t.Errorf("%d leased timers behind scheduled ones, want 2 or 3", len(got))
	}
}

// TestListScheduledBehindOrphans: inherited leases, which are no active leases here, must not crowd
// out matching timers either.
func TestListScheduledBehindOrphans(t *testing.T) {
	r := newHostHarness(t, nil)
	for i := range 20 {
		r.add(fmt.Sprint("orphan", i), 0)
	}
	for i := range 5 {
		r.add(fmt.Sprint("later", i), time.Hour)
	}
	r.change = func(c *Config) { c.Incarnation = table.NewIncarnation(8, 1) }
	r.restart()
	if got := r.list(timer.Query{States: 1 << timer.Scheduled, Limit: 5}); len(got) != 5 {
		t.Errorf("%d scheduled timers, want 5", len(got))
	}
	if got := r.list(timer.Query{States: 1 << timer.Leased, Limit: 100}); len(got) != 20 {
		t.Errorf("%d leased timers, want 20", len(got))
	}
}

// TestListIsNeverShort: a page is full as long as there is more, even if timers change while it is
// gathered.
func TestListIsNeverShort(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const timers = 2*scanSlots + 100
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = timers })
	for i := range timers {
		r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("t%06d", i), Spec: &timer.Spec{DueMs: 1 << 41}})
	}
	r.runIdle()
	<-r.host.workers[0].box.wake // from earlier events
	done := make(chan []*timer.Timer)
	go func() {
		done <- listOf(t, r.host, 1, timer.Query{Topic: 1, States: 1 << timer.Scheduled, Limit: 20})
	}()
	<-r.host.workers[0].box.wake
	r.turn() // the first slice
	for i := range 15 {
		r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: fmt.Sprintf("t%06d", i)})
	}
	var list []*timer.Timer
	r.blocking(func() { list = <-done }) // the rest of the page takes another read
	if len(list) != 20 || list[0].ID != "t000015" || list[19].ID != "t000034" {
		t.Errorf("%d timers", len(list))
	}
}

// TestLinearizableRead: a read that follows an answer sees its effect, also within the same turn.
func TestLinearizableRead(t *testing.T) {
	r := newHostHarness(t, nil)
	for i := range 20 {
		id := fmt.Sprint("t", i)
		p := r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: 1 << 41}})
		for !p.answered() {
			r.turn()
		}
		var found *timer.Timer
		rd := &read{group: r.host.group(1), deadline: r.clock.mono + readLimit, wait: fakeWaiter(), serve: func(int) bool {
			found = r.host.shard(1).table.Read(1, id)
			return true
		}}
		r.ask(rd)
		if found == nil {
			t.Fatalf("%s was acknowledged and is not read", id)
		}
	}
}

// TestListInSlices: a long list delays no other operation.
func TestListInSlices(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const timers = 100_000
	r := newHostHarness(t, func(c *Config) { c.MaxQueued = timers })
	for i := range timers {
		r.mustSubmit(timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("t%06d", i), Spec: &timer.Spec{DueMs: 1 << 41}})
	}
	r.runIdle()
	var got []*timer.Timer
	var top table.TopK
	var from timer.Handle
	slices := 0
	part := &table.Part{Table: r.host.shard(1).table, Query: &timer.Query{Topic: 1, States: 1 << timer.Scheduled, Limit: 10}}
	rd := &read{group: r.host.group(1), deadline: r.clock.mono + readLimit, wait: fakeWaiter(), long: true, serve: func(budget int) (done bool) {
		slices++
		if from, done = top.Scan(part, from, budget); done {
			found, _ := top.Take(nil)
			for _, f := range found {
				got = append(got, f.Timer)
			}
		}
		return done
	}}
	r.host.workers[0].box.post(rd)
	p := r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "t000007"})
	for turns := 0; !p.answered(); turns++ {
		if turns > 3 {
			t.Fatal("a cancel waits for a list")
		}
		r.turn()
	}
	if rd.err != nil || got != nil {
		t.Error("the list was done at once")
	}
	r.runIdle()
	if want := timers/scanSlots + 1; slices != want || len(got) != 9 || got[0].ID != "t000000" {
		t.Errorf("%d slices, want %d; %d timers", slices, want, len(got))
	}
}

// TestTurnScansWithinABudget: any number of concurrent lists and scans, in any number of a worker's
// shards, examine no more slots per turn than one of them. All of them make progress, and reads by
// ID do not wait for them.
func TestTurnScansWithinABudget(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const each, long, groups = 40_000, 20, 3
	r := newHostHarness(t, func(c *Config) { c.MaxQueued, c.Shards, c.Workers = each*groups, groups, 1 })
	for id := timer.ShardID(1); id <= groups; id++ {
		for i := range each {
			if _, err := r.submit(id, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprintf("t%06d", i), Spec: &timer.Spec{DueMs: 1 << 41}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.runIdle()
	seen, found := 0, 0
	var asked []*read
	ask := func(id timer.ShardID, long bool, serve func(budget int) bool) {
		rd := &read{group: r.host.group(id), deadline: r.clock.mono + readLimit, wait: fakeWaiter(), long: long, serve: serve}
		asked = append(asked, rd)
		r.host.workers[0].box.post(rd)
	}
	q := &timer.Query{Topic: 1, States: 1 << timer.Scheduled, Limit: 10}
	for id := timer.ShardID(1); id <= groups; id++ {
		for n := range long {
			if n%2 == 0 {
				var from timer.Handle
				var top table.TopK
				part := &table.Part{Table: r.host.shard(id).table, Query: q}
				ask(id, true, func(budget int) (done bool) {
					before := from
					from, done = top.Scan(part, from, budget)
					seen += int(from - before)
					return done
				})
				continue
			}
			var at timer.ScanCursor
			ask(id, true, func(budget int) bool {
				before := at.From
				marks := r.host.shard(id).table.Walk(q, nil, &at, budget, each, nil)
				seen, found = seen+int(at.From-before), found+len(marks)
				return at.Done()
			})
		}
	}
	turnsLeft, most := 3*long*groups*each/scanSlots, 0
	for ; r.busy() && turnsLeft > 0; turnsLeft-- {
		before := seen
		read := false
		ask(1, false, func(int) bool { read = true; return true })
		for range 3 {
			r.turn()
			most = max(most, seen-before)
			before = seen
		}
		if !read {
			t.Fatal("a read of one timer waits for long ones")
		}
	}
	for _, rd := range asked {
		if len(rd.wait.ch) != 1 || rd.err != nil {
			t.Fatalf("a read has not ended: %v", rd.err)
		}
	}
	if want := long * groups * each; seen != want || found != want/2 {
		t.Errorf("%d slots were looked at and %d timers met, not %d and %d", seen, found, want, want/2)
	}
	if most > scanSlots {
		t.Errorf("%d slots in one turn, more than %d", most, scanSlots)
	}
}

// TestLongReadIsNoWorkOfItsGroup: while a long read goes on, the worker continues it and does not
// work on its group: of 1,024 shards of which a page is asked most wait in each turn.
func TestLongReadIsNoWorkOfItsGroup(t *testing.T) {
	r := newHostHarness(t, nil)
	r.runIdle()
	w, left := r.host.workers[0], 1000
	rd := &read{long: true, group: r.host.group(1), deadline: r.clock.mono + readLimit, wait: fakeWaiter(), serve: func(int) bool {
		left--
		return left == 0
	}}
	w.box.post(rd)
	r.turn()
	for n := 0; left > 0; n++ {
		if !w.goesOn() || len(w.again) > 0 || n > 10 {
			t.Fatalf("%d slices are left; another turn follows: %t, and works on %d groups", left, w.goesOn(), len(w.again))
		}
		r.turn()
	}
	if w.goesOn() || len(rd.wait.ch) != 1 || rd.err != nil {
		t.Errorf("the read has not ended: %v", rd.err)
	}
}

// TestReadLimits: a read that cannot be answered ends with an error that gives the reason.
func TestReadLimits(t *testing.T) {
	r := newHostHarness(t, nil)
	r.deposed()
	noLeader := &read{group: r.host.group(1), deadline: r.clock.mono + time.Second, wait: fakeWaiter(), serve: func(int) bool { return true }}
	r.host.workers[0].box.post(noLeader)
	r.turn()
	r.freeze = true
	r.pass(1100 * time.Millisecond)
	if !errors.Is(noLeader.err, timer.ErrNoLeader) {
		t.Errorf("without a leader: %v", noLeader.err)
	}
	r.freeze = false
	r.pass(5 * time.Second)
	endless := &read{long: true, group: r.host.group(1), deadline: r.clock.mono + time.Second, wait: fakeWaiter(), serve: func(int) bool { return false }}
	r.host.workers[0].box.post(endless)
	for range 10 {
		r.turn()
	}
	r.step(readLimit)
	r.turn()
	if !errors.Is(endless.err, timer.ErrOverloaded) {
		t.Errorf("a list that does not end: %v", endless.err)
	}
	r.runIdle()
}

// TestHostClient runs the blocking methods with two workers.
func TestHostClient(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Shards, c.Workers = 3, 2 })
	ops := make([]timer.Op, 30)
	for i := range ops {
		ops[i] = timer.Op{Shard: timer.ShardID(1 + i%3), Command: &timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", i), Spec: &timer.Spec{DueMs: 1 << 41}}}
	}
	ops[5].Shard, ops[5].Command.ID = ops[2].Shard, ops[2].Command.ID
	ops[5].Command.Content = 9
	r.blocking(func() {
		ctx := t.Context()
		r.host.DoAll(ops)
		if got, err := r.host.Do(1, &timer.Command{Kind: timer.Cancel, Topic: 1, ID: "t0"}, false); err != nil || got.Code != timer.Prevented {
			t.Errorf("%+v, %v", got, err)
		}
		if v, err := r.host.Timer(1, 1, "t0"); err != nil || v.State != timer.Cancelled {
			t.Errorf("%+v, %v", v, err)
		}
		if v, err := r.host.Timer(1, 1, "nobody"); err != nil || v != nil {
			t.Errorf("%+v, %v", v, err)
		}
		if c, err := r.host.Counts([]timer.TopicID{9, 1}); err != nil || c[0] != (timer.Counts{}) || c[1].Scheduled != 28 {
			t.Errorf("%+v, %v", c, err)
		}
		if v, err := r.host.Propose([]byte("x")); err != nil || v != any(1) {
			t.Errorf("%v, %v", v, err)
		}
		if s := r.host.Stats(); s.Scheduled != 28 || s.Leads != 4 {
			t.Errorf("%+v", s)
		}
		r.host.Drain(ctx)
	})
	for i, o := range ops {
		want := timer.Created
		if i == 5 {
			want = timer.Exists
		}
		if o.Err != nil || o.Result.Code != want || o.Result.Timer == nil {
			t.Errorf("op %d: %+v", i, o)
		}
	}
}

// TestTurnFitsAFrame: however much work waits, a turn never writes a frame that the log refuses.
func TestTurnFitsAFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const shards, each = 20, 8
	r := newHostHarness(t, func(c *Config) { c.Shards = shards })
	payload := []byte(strings.Repeat("x", 512<<10))
	var list []*pending
	for s := range shards {
		for i := range each {
			p, err := r.submit(timer.ShardID(s+1), timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", i), Spec: &timer.Spec{DueMs: 1 << 41, Payload: payload}})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
	}
	r.runIdle()
	if err := r.failure(); err != nil {
		t.Fatal(err)
	}
	for i, p := range list {
		if !p.answered() || p.op.err != nil {
			t.Fatalf("%d: %v", i, p.op.err)
		}
	}
}

// TestI15StaleEntriesGo: stale queue entries do not accumulate behind a gate that stays shut.
func TestI15StaleEntriesGo(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.add("a", 0)
	later := func(d time.Duration) *timer.Patch {
		return &timer.Patch{Due: true, Spec: timer.Spec{DueMs: r.clock.wallMs + d.Milliseconds()}}
	}
	for range 5000 {
		r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: later(0)})
	}
	r.pass(sweepEvery + time.Second)
	if n := r.queued(1); n > 1000 {
		t.Errorf("%d entries are queued for one timer", n)
	}
	// The clock jumps ahead: all later due times are in the wheel's past.
	r.clock.wallMs += 10 * time.Hour.Milliseconds()
	r.pass(time.Second)
	r.clock.wallMs -= 10 * time.Hour.Milliseconds()
	for range 5000 {
		r.do(timer.Command{Kind: timer.Modify, ID: "a", Patch: later(time.Hour)})
	}
	r.pass(sweepEvery + time.Second)
	if n := r.scheduler().View.Inspect().Later; n > 1000 {
		t.Errorf("%d entries wait for later for one timer", n)
	}
	r.topic(1, nil)
	r.topicsChanged()
	r.pass(time.Hour)
	r.wantCalls("a")
	r.audit()
}

// TestTopicChangesDoNotMultiply: a timer with an expiry is queued once, however often its topic
// changes.
func TestTopicChangesDoNotMultiply(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	for i := range 20 {
		r.add(fmt.Sprint("t", i), -50*time.Minute, expires(time.Hour))
	}
	for range 30 {
		r.topic(1, func(p *timer.Topic) { p.Paused = true })
		r.topicsChanged()
	}
	if n := r.queued(1); n != 20 {
		t.Errorf("%d entries are queued for 20 timers", n)
	}
}
