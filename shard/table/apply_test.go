package table

import (
	"fmt"
	"testing"

	"carillon/timer"
)

const applyNow = int64(1_700_000_000_000)

// tableHarness applies one command after another to a table.
type tableHarness struct {
	t     testing.TB
	table *Table
	now   int64
}

func newTableHarness(t *testing.T) *tableHarness {
	return &tableHarness{t: t, table: New(1, applyNow), now: applyNow}
}

func (th *tableHarness) do(fill func(b *Batch)) timer.Result {
	th.t.Helper()
	var b Batch
	b.Reset(th.now, 1, 1)
	fill(&b)
	got, err := th.table.Apply(b.Bytes(), func(int, *timer.Result) bool { return true }, nil)
	if err != nil || len(got) != 1 {
		th.t.Fatalf("apply: %v, %v", got, err)
	}
	if err := th.table.Audit(false); err != nil {
		th.t.Fatal(err)
	}
	return got[0]
}

func (th *tableHarness) command(c timer.Command) timer.Result {
	th.t.Helper()
	if c.Topic == 0 {
		c.Topic = 1
	}
	if c.ID == "" {
		c.ID = "a"
	}
	if c.Spec == nil && (c.Kind == timer.Add || c.Kind == timer.Put) {
		c.Spec = &timer.Spec{DueMs: th.now + 1000}
	}
	return th.do(func(b *Batch) { b.Command(&c) })
}

func (th *tableHarness) lease() timer.Result {
	th.t.Helper()
	h, _ := th.table.Lookup(1, "a")
	due := th.table.Due(h)
	return th.do(func(b *Batch) { b.Lease(15_000, h, due.Seq, due.Rev) })
}

func (th *tableHarness) end(o Outcome) timer.Result {
	th.t.Helper()
	h, _ := th.table.Lookup(1, "a")
	due := th.table.Due(h)
	o.Handle, o.Seq, o.StartedMs, o.EndedMs = h, due.Seq, th.now, th.now
	if o.Fence == 0 {
		o.Fence = due.Fence
	}
	return th.do(func(b *Batch) { b.Outcome(&o) })
}

// states brings a timer "a" of version 2 and content 5 into each state.
var states = map[string]func(d *tableHarness){
	"none": func(*tableHarness) {},
	"scheduled": func(d *tableHarness) {
		d.command(timer.Command{Kind: timer.Add, Content: 5})
		d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Priority: true}})
	},
	"leased": func(d *tableHarness) { stateOf(d, "scheduled"); d.lease() },
	"done":   func(d *tableHarness) { stateOf(d, "leased"); d.end(Outcome{Kind: Ack, Status: 200}) },
	"dead": func(d *tableHarness) {
		stateOf(d, "leased")
		d.end(Outcome{Kind: Kill, Reason: timer.MaxAttempts, RetainUntilMs: d.now + 9e6})
	},
	"cancelled": func(d *tableHarness) { stateOf(d, "scheduled"); d.command(timer.Command{Kind: timer.Cancel}) },
}

func stateOf(d *tableHarness, name string) {
	switch name {
	case "scheduled":
		d.command(timer.Command{Kind: timer.Add, Content: 5})
		d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Priority: true}})
	case "leased":
		stateOf(d, "scheduled")
		d.lease()
	}
}

// TestCommands checks each command in each state under each condition (API.md section 2; precedence
// 404, 409 and 410, 412).
func TestCommands(t *testing.T) {
	add := timer.Command{Kind: timer.Add, Content: 6}
	again := timer.Command{Kind: timer.Add, Content: 5}
	absolute := timer.Command{Kind: timer.Add, Content: 5, Absolute: true}
	put := timer.Command{Kind: timer.Put, Content: 6}
	putAgain := timer.Command{Kind: timer.Put, Content: 5, Absolute: true}
	at := func(c timer.Command, dueMs int64) timer.Command {
		c.Spec = &timer.Spec{DueMs: dueMs}
		return c
	}
	const late = applyNow - timer.LateMs - 1
	notLate := func(c timer.Command, dueMs int64) timer.Command {
		c.NotLate, c.Spec = true, &timer.Spec{DueMs: dueMs}
		return c
	}
	patch := &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 9}}
	for _, c := range []struct {
		name                                           string
		command                                        timer.Command
		none, scheduled, leased, done, dead, cancelled timer.Code
	}{
		{"add other", add, timer.Created, timer.Exists, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"add same, delay", again, timer.Created, timer.Same, timer.Same, timer.Created, timer.Created, timer.Created},
		{"add same, instant", absolute, timer.Created, timer.Same, timer.Same, timer.Same, timer.Same, timer.Created},
		{"add other, once", timer.Command{Kind: timer.Add, Content: 6, Absolute: true, Once: true}, timer.Created, timer.Exists, timer.InFlight, timer.Exists, timer.Exists, timer.Exists},
		{"add same, once", timer.Command{Kind: timer.Add, Content: 5, Absolute: true, Once: true}, timer.Created, timer.Same, timer.Same, timer.Same, timer.Same, timer.Same},
		{"add other, not late", notLate(add, late), timer.TooLate, timer.Exists, timer.InFlight, timer.TooLate, timer.TooLate, timer.TooLate},
		{"add other, hardly late", notLate(add, late+30_000), timer.Created, timer.Exists, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"add same, not late", notLate(absolute, late), timer.TooLate, timer.Same, timer.Same, timer.Same, timer.Same, timer.TooLate},
		{"replace, not late", notLate(timer.Command{Kind: timer.Add, Content: 6, Merge: timer.MergeReplace}, late), timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate},
		{"put, not late", notLate(put, late), timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate, timer.TooLate},
		{"put", put, timer.Created, timer.OK, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"put same, delay", timer.Command{Kind: timer.Put, Content: 5}, timer.Created, timer.OK, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"put same, instant to come", at(putAgain, applyNow+30_000), timer.Created, timer.OK, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"put same, instant past", at(putAgain, applyNow), timer.Created, timer.OK, timer.InFlight, timer.Same, timer.Same, timer.Created},
		{"put same, not late", notLate(putAgain, late), timer.TooLate, timer.Same, timer.Same, timer.Same, timer.Same, timer.TooLate},
		{"put same, version 2", with(at(putAgain, applyNow), 2, false), timer.VersionMismatch, timer.OK, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"put version 2", with(put, 2, false), timer.VersionMismatch, timer.OK, timer.InFlight, timer.Created, timer.Created, timer.Created},
		{"put version 9", with(put, 9, false), timer.VersionMismatch, timer.VersionMismatch, timer.InFlight, timer.VersionMismatch, timer.VersionMismatch, timer.VersionMismatch},
		{"put create only", with(put, 0, true), timer.Created, timer.VersionMismatch, timer.VersionMismatch, timer.Created, timer.Created, timer.Created},
		{"modify", timer.Command{Kind: timer.Modify, Patch: patch}, timer.NotFound, timer.OK, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"modify version 2", timer.Command{Kind: timer.Modify, Patch: patch, IfMatch: 2}, timer.NotFound, timer.OK, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"modify version 9", timer.Command{Kind: timer.Modify, Patch: patch, IfMatch: 9}, timer.NotFound, timer.VersionMismatch, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"fire", timer.Command{Kind: timer.Fire}, timer.NotFound, timer.OK, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"pause", timer.Command{Kind: timer.Pause}, timer.NotFound, timer.OK, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"resume version 9", timer.Command{Kind: timer.Resume, IfMatch: 9}, timer.NotFound, timer.VersionMismatch, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"fire version 9", timer.Command{Kind: timer.Fire, IfMatch: 9}, timer.NotFound, timer.VersionMismatch, timer.InFlight, timer.OverFired, timer.OverDead, timer.OverCancelled},
		{"cancel", timer.Command{Kind: timer.Cancel}, timer.NotFound, timer.Prevented, timer.CancelInFlight, timer.OverFired, timer.OverDead, timer.Prevented},
		{"cancel version 2", timer.Command{Kind: timer.Cancel, IfMatch: 2}, timer.NotFound, timer.Prevented, timer.CancelInFlight, timer.OverFired, timer.OverDead, timer.Prevented},
		{"cancel version 9", timer.Command{Kind: timer.Cancel, IfMatch: 9}, timer.NotFound, timer.VersionMismatch, timer.VersionMismatch, timer.OverFired, timer.OverDead, timer.Prevented},
		{"redrive", timer.Command{Kind: timer.Redrive}, timer.Skipped, timer.Skipped, timer.Skipped, timer.Skipped, timer.OK, timer.Skipped},
		{"purge", timer.Command{Kind: timer.Purge}, timer.Skipped, timer.Skipped, timer.Skipped, timer.Skipped, timer.OK, timer.Skipped},
		{"close", timer.Command{Kind: timer.CloseTopic}, timer.OK, timer.NotEmpty, timer.NotEmpty, timer.OK, timer.NotEmpty, timer.OK},
		{"close by force", timer.Command{Kind: timer.CloseTopic, Force: true}, timer.OK, timer.OK, timer.OK, timer.OK, timer.OK, timer.OK},
		{"open", timer.Command{Kind: timer.OpenTopic}, timer.OK, timer.OK, timer.OK, timer.OK, timer.OK, timer.OK},
	} {
		for state, want := range map[string]timer.Code{
			"none": c.none, "scheduled": c.scheduled, "leased": c.leased, "done": c.done, "dead": c.dead, "cancelled": c.cancelled,
		} {
			t.Run(fmt.Sprint(c.name, "/", state), func(t *testing.T) {
				d := newTableHarness(t)
				states[state](d)
				c.command.Tag++ // of another request
				got := d.command(c.command)
				if got.Code != want {
					t.Fatalf("code %d, want %d", got.Code, want)
				}
				if got.Code == timer.Created && state != "none" && got.Timer.Version != 3 {
					t.Errorf("version %d, want 3", got.Timer.Version)
				}
				if repeated := d.command(c.command); c.command.Kind == timer.Cancel && repeated.Code != want {
					t.Errorf("repeated: code %d, want %d", repeated.Code, want)
				}
			})
		}
	}
}

func with(c timer.Command, version uint32, createOnly bool) timer.Command {
	c.IfMatch, c.CreateOnly = version, createOnly
	return c
}

// TestCancelIsTrue (I5): after "prevented" no lease is given; after "in_flight" the running attempt
// is the last.
func TestCancelIsTrue(t *testing.T) {
	d := newTableHarness(t)
	stateOf(d, "scheduled")
	h, _ := d.table.Lookup(1, "a")
	due := d.table.Due(h)
	d.command(timer.Command{Kind: timer.Cancel})
	if got := d.do(func(b *Batch) { b.Lease(1, h, due.Seq, due.Rev) }); got.Code != timer.Skipped {
		t.Errorf("lease after a cancel: code %d", got.Code)
	}
	for kind, want := range map[OutcomeKind]timer.State{Ack: timer.Done, RetryLater: timer.Cancelled, Kill: timer.Cancelled, Release: timer.Cancelled} {
		d := newTableHarness(t)
		stateOf(d, "leased")
		d.command(timer.Command{Kind: timer.Cancel})
		if got := d.end(Outcome{Kind: kind}); got.Timer.State != want || !got.Timer.CancelRequested {
			t.Errorf("outcome %d: state %d, want %d", kind, got.Timer.State, want)
		}
	}
}

// TestFences checks that an outcome counts only for the lease that it names, and only once.
func TestFences(t *testing.T) {
	d := newTableHarness(t)
	stateOf(d, "leased")
	if got := d.end(Outcome{Kind: Ack, Fence: 99}); got.Code != timer.Skipped {
		t.Errorf("another lease: code %d", got.Code)
	}
	if got := d.end(Outcome{Kind: Release}); got.Timer.Attempts != 0 || got.Timer.State != timer.Scheduled || got.Timer.NextMs != applyNow+1000 {
		t.Errorf("released: %+v", got.Timer)
	}
	if got := d.end(Outcome{Kind: Ack}); got.Code != timer.Skipped {
		t.Errorf("twice: code %d", got.Code)
	}
	if got := d.lease(); got.Fence != 2 || got.Timer.Attempts != 1 {
		t.Errorf("second lease: fence %d, %d attempts", got.Fence, got.Timer.Attempts)
	}
}

// TestDeadLetterAnswersALateAdd: a dead letter is kept for weeks, so a late repetition of an add
// must not create the timer again.
func TestDeadLetterAnswersALateAdd(t *testing.T) {
	d := newTableHarness(t)
	states["dead"](d)
	d.now += finishedKeepMs + 1
	add := timer.Command{Kind: timer.Add, Content: 5, Absolute: true, Spec: &timer.Spec{DueMs: d.now - timer.LateMs - 1}}
	if got := d.command(add); got.Code != timer.Same || got.Timer.State != timer.Dead {
		t.Errorf("code %d", got.Code)
	}
	add.Spec.DueMs++
	if got := d.command(add); got.Code != timer.Created {
		t.Errorf("an instant that is hardly past: code %d", got.Code)
	}
}

// TestFinishedAreKept: finished timers are kept for ten minutes by the table's clock, for reads and
// for repeated adds (I18).
func TestFinishedAreKept(t *testing.T) {
	d := newTableHarness(t)
	states["done"](d)
	d.now += finishedKeepMs
	if got := d.command(timer.Command{Kind: timer.Add, Content: 5, Absolute: true}); got.Code != timer.Same || got.Timer.State != timer.Done {
		t.Errorf("at the end of the time: code %d", got.Code)
	}
	d.now++
	if got := d.command(timer.Command{Kind: timer.Add, Content: 5, Absolute: true}); got.Code != timer.Created || got.Timer.Version != 1 {
		t.Errorf("after it: code %d", got.Code)
	}
}

// TestFinishedAreBounded: a table drops the oldest finished timers early if they exceed the bound
// of bytes.
func TestFinishedAreBounded(t *testing.T) {
	d := newTableHarness(t)
	payload := make([]byte, 1<<20)
	for i := range 100 {
		var b Batch
		b.Reset(d.now, 1, 1)
		c := timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: 1, Payload: payload, PayloadKind: timer.BinaryPayload}}
		b.Command(&c)
		c.Kind, c.Spec = timer.Cancel, nil
		b.Command(&c)
		if _, err := d.table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	d.do(func(b *Batch) { b.Tick() })
	if d.table.finished.bytes > finishedMaxBytes || d.table.Len() < 60 {
		t.Errorf("%d timers of %d bytes are kept", d.table.Len(), d.table.finished.bytes)
	}
	if used := d.table.content.Memory(); used > 120<<20 {
		t.Errorf("the arena has %d bytes", used)
	}
}

func TestClosedTopic(t *testing.T) {
	d := newTableHarness(t)
	stateOf(d, "leased")
	d.command(timer.Command{Kind: timer.Add, ID: "b"})
	d.command(timer.Command{Kind: timer.Add, ID: "c", Topic: 2})
	h, _ := d.table.Lookup(1, "a")
	if got := d.command(timer.Command{Kind: timer.CloseTopic, Force: true}); got.Removed != 2 || d.table.Len() != 1 {
		t.Errorf("removed %d, %d are left", got.Removed, d.table.Len())
	}
	if got := d.do(func(b *Batch) { b.Outcome(&Outcome{Kind: Ack, Handle: h, Seq: 1, Fence: 1}) }); got.Code != timer.Skipped {
		t.Errorf("outcome of a dropped timer: code %d", got.Code)
	}
	for _, kind := range []timer.Kind{timer.Add, timer.Put} {
		if got := d.command(timer.Command{Kind: kind}); got.Code != timer.TopicClosed {
			t.Errorf("command %d: code %d", kind, got.Code)
		}
	}
	d.now += tombstoneKeepMs + 1
	if got := d.command(timer.Command{Kind: timer.Add}); got.Code != timer.Created {
		t.Errorf("after the tombstone: code %d", got.Code)
	}
	if ids := d.table.TopicRows().IDs(); len(ids) != 2 || ids[0] != 1 || ids[1] != 2 {
		t.Errorf("topics %v", ids)
	}
}

// TestRedriveUnderFinished: a dead letter that a later timer of its id superseded can be redriven
// once that timer has ended.
func TestRedriveUnderFinished(t *testing.T) {
	d := newTableHarness(t)
	states["dead"](d)
	first, _ := d.table.Lookup(1, "a")
	d.command(timer.Command{Kind: timer.Add, Content: 6})
	if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != timer.InUse {
		t.Errorf("while the id is in use: code %d", got.Code)
	}
	d.command(timer.Command{Kind: timer.Cancel})
	cb := &timer.Patch{URL: true, Spec: timer.Spec{Callback: timer.Callback{URL: "http://other.example/"}}}
	got := d.command(timer.Command{Kind: timer.Redrive, DueMs: d.now + 5000, Patch: cb})
	if got.Code != timer.OK || got.Handle != first || got.Timer.Attempts != 0 || got.Timer.NextMs != d.now+5000 || got.Timer.Callback.URL == "" || got.Timer.DueMs != applyNow+1000 {
		t.Errorf("redriven: %+v %+v", got, got.Timer)
	}
	if h, _ := d.table.Lookup(1, "a"); h != first || d.table.Len() != 1 {
		t.Errorf("the id names handle %d of %d timers", h, d.table.Len())
	}
}

// TestTargets: an override is stored once, and its Target is never given to another override.
func TestTargets(t *testing.T) {
	d := newTableHarness(t)
	spec := func(url string) *timer.Spec { return &timer.Spec{DueMs: 5, Callback: timer.Callback{URL: url}} }
	target := func(id string) Target {
		h, _ := d.table.Lookup(1, id)
		return d.table.Due(h).Target
	}
	d.command(timer.Command{Kind: timer.Add, Spec: spec("http://one.example/")})
	d.command(timer.Command{Kind: timer.Add, ID: "b", Spec: spec("http://one.example/")})
	one := target("a")
	if one == 0 || target("b") != one || d.table.Callback(one).URL != "http://one.example/" {
		t.Errorf("targets %x and %x", one, target("b"))
	}
	d.command(timer.Command{Kind: timer.CloseTopic, Force: true})
	d.command(timer.Command{Kind: timer.OpenTopic})
	d.command(timer.Command{Kind: timer.Add, Spec: spec("http://two.example/")})
	if two := target("a"); two == one || d.table.Callback(one).URL != "" || d.table.Callback(two).URL != "http://two.example/" {
		t.Errorf("target %x, the former one was %x", two, one)
	}
}
