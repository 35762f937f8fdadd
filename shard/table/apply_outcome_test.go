package table

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

const outcomesIn timer.TopicID = 9

// followed applies an item with an outcome of topic 9 in front of it.
func (th *tableHarness) followed(fill func(b *Batch)) timer.Result {
	th.t.Helper()
	return th.do(func(b *Batch) {
		b.FollowUp(&timer.Command{Kind: timer.Add, Topic: outcomesIn, ID: "outcome", Spec: &timer.Spec{
			DueMs: th.now, Payload: []byte("{}"), PayloadKind: timer.JSONPayload, OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{},
		}})
		fill(b)
	})
}

// TestOutcomeIsMadeByTheEnd: the item that ends a timer as done or dead makes its outcome, which is
// due at once. No other does, nor one that comes too late.
func TestOutcomeIsMadeByTheEnd(t *testing.T) {
	outcome := func(kind OutcomeKind) func(d *tableHarness, b *Batch) {
		return func(d *tableHarness, b *Batch) {
			h, _ := d.table.Lookup(1, "a")
			due := d.table.Due(h)
			b.Outcome(&Outcome{Kind: kind, Handle: h, Seq: due.Seq, Fence: due.Fence, NextMs: d.now + 5, LeaseMs: 5_000, RetainUntilMs: d.now + 90_000})
		}
	}
	expire := func(d *tableHarness, b *Batch) {
		h, _ := d.table.Lookup(1, "a")
		due := d.table.Due(h)
		b.Expire(h, due.Seq, due.Rev, d.now+90_000, 0)
	}
	cases := []struct {
		name, state string
		item        func(d *tableHarness, b *Batch)
		made        int
	}{
		{"ack", "leased", outcome(Ack), 1},
		{"kill", "leased", outcome(Kill), 1},
		{"retry", "leased", outcome(RetryLater), 0},
		{"release", "leased", outcome(Release), 0},
		{"expire", "scheduled", expire, 1},
		{"expire, leased meanwhile", "leased", expire, 0},
		{"kill, cancelled meanwhile", "leased, cancel requested", outcome(Kill), 0},
		{"ack, cancelled meanwhile", "leased, cancel requested", outcome(Ack), 1},
		{"ack, done", "done", outcome(Ack), 0},
	}
	for _, c := range cases {
		d := newTableHarness(t)
		prepare := states[c.state]
		if c.state == "leased, cancel requested" {
			states["leased"](d)
			d.command(timer.Command{Kind: timer.Cancel})
		} else {
			prepare(d)
		}
		d.followed(func(b *Batch) { c.item(d, b) })
		if n := d.table.Outcomes(); len(n.Made) != c.made || n.Lost != 0 {
			t.Errorf("%s: %+v", c.name, n)
		}
		x := d.table.Read(outcomesIn, "outcome")
		if (x != nil) != (c.made == 1) {
			t.Fatalf("%s: the outcome is %+v", c.name, x)
		}
		if at, due := d.table.NextDue(); x != nil && (!due || at > d.now) {
			t.Errorf("%s: the outcome is not due: %d", c.name, at)
		}
		d.do(func(b *Batch) { b.Tick() })
		if n := d.table.Outcomes(); len(n.Made)+n.Lost != 0 {
			t.Errorf("%s: after the next entry %+v", c.name, n)
		}
	}
}

// TestOutcomeHasNone: an outcome is not given an outcome by a patch, nor by one that is only tried.
// A put makes it a timer of the client's own.
func TestOutcomeHasNone(t *testing.T) {
	d := newTableHarness(t)
	states["leased"](d)
	h, _ := d.table.Lookup(1, "a")
	due := d.table.Due(h)
	d.followed(func(b *Batch) { b.Outcome(&Outcome{Kind: Ack, Handle: h, Seq: due.Seq, Fence: due.Fence}) })
	of := &timer.OutcomeTopic{ID: 1, Name: "one"}
	patch := timer.Command{
		Kind: timer.Modify, Topic: outcomesIn, ID: "outcome",
		Patch: &timer.Patch{OnDone: true, OnDead: true, Priority: true, Spec: timer.Spec{OnDone: of, OnDead: of, Priority: 3}},
	}
	none := func(name string, x *timer.Timer) {
		t.Helper()
		if x.OnDone == nil || x.OnDead == nil || x.OnDone.ID != 0 || x.OnDead.ID != 0 || x.Priority != 3 {
			t.Errorf("%s: %+v", name, x)
		}
	}
	none("tried", timer.Preview(&patch, d.table.Read(outcomesIn, "outcome"), d.now).Timer)
	if r := d.command(patch); r.Code != timer.OK {
		t.Fatalf("%+v", r)
	}
	none("patched", d.table.Read(outcomesIn, "outcome"))
	d.command(timer.Command{Kind: timer.Put, Topic: outcomesIn, ID: "outcome", Content: 6, Spec: &timer.Spec{DueMs: d.now, OnDone: of}})
	if x := d.table.Read(outcomesIn, "outcome"); x.OnDone == nil || x.OnDone.ID != 1 {
		t.Errorf("replaced: %+v", x)
	}
}

// TestOutcomeOfClosedTopicIsLost: what cannot be made is counted, and the timer ends nevertheless.
func TestOutcomeOfClosedTopicIsLost(t *testing.T) {
	d := newTableHarness(t)
	states["leased"](d)
	d.command(timer.Command{Kind: timer.CloseTopic, Topic: outcomesIn, Force: true})
	h, _ := d.table.Lookup(1, "a")
	due := d.table.Due(h)
	d.followed(func(b *Batch) { b.Outcome(&Outcome{Kind: Ack, Handle: h, Seq: due.Seq, Fence: due.Fence, Status: 200}) })
	if n := d.table.Outcomes(); len(n.Made) != 0 || n.Lost != 1 {
		t.Errorf("%+v", n)
	}
	if x := d.table.Read(1, "a"); x.State != timer.Done {
		t.Errorf("the timer is %+v", x)
	}
}

// TestNamedTopicIsInUse: a topic that pending timers name closes by force alone, and once it is
// closed nothing names it any more.
func TestNamedTopicIsInUse(t *testing.T) {
	d := newTableHarness(t)
	of := &timer.OutcomeTopic{ID: outcomesIn, Name: "nine"}
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now, OnDead: of, OnDone: of}})
	d.command(timer.Command{Kind: timer.Add, ID: "b", Spec: &timer.Spec{DueMs: d.now, OnDead: of}})
	closed := timer.Command{Kind: timer.CloseTopic, Topic: outcomesIn}
	if r := d.command(closed); r.Code != timer.InUse || r.Removed != 2 {
		t.Errorf("close of a topic that two timers name: %+v", r)
	}
	d.command(timer.Command{Kind: timer.Modify, ID: "b", Patch: &timer.Patch{OnDead: true, Spec: timer.Spec{OnDead: &timer.OutcomeTopic{}}}})
	d.command(timer.Command{Kind: timer.Cancel})
	if r := d.command(closed); r.Code != timer.OK {
		t.Errorf("close of a topic that none names: %+v", r)
	}
	if r := d.command(timer.Command{Kind: timer.Add, ID: "c", Spec: &timer.Spec{DueMs: d.now, OnDone: of}}); r.Code != timer.TopicClosed {
		t.Errorf("an add that names a closed topic: %+v", r)
	}
	if r := d.command(timer.Command{Kind: timer.Modify, ID: "b", Patch: &timer.Patch{OnDone: true, Spec: timer.Spec{OnDone: of}}}); r.Code != timer.TopicClosed {
		t.Errorf("a patch that names a closed topic: %+v", r)
	}
}

// TestEndedIsWhatTheEntryMakes: the timer that a leader describes in an outcome is the one that its
// entry leaves, with what was answered to its last attempt: not to the one before.
func TestEndedIsWhatTheEntryMakes(t *testing.T) {
	for i, answer := range []*timer.Answer{nil, {Body: "declined 2", Type: "text/plain"}, nil, {Body: "declined 2"}} {
		kind := []OutcomeKind{Ack, Kill}[i%2]
		d := newTableHarness(t)
		states["leased"](d)
		if i > 1 {
			d.end(Outcome{Kind: RetryLater, Status: 500, Answer: &timer.Answer{Body: "declined 1"}, NextMs: d.now})
			d.lease()
		}
		h, _ := d.table.Lookup(1, "a")
		due := d.table.Due(h)
		d.now += 700
		o := &Outcome{
			Kind: kind, Handle: h, Seq: due.Seq, Fence: due.Fence, StartedMs: d.now - 20, EndedMs: d.now - 3, Status: 503,
			Err: "card declined", Answer: answer, Reason: timer.Stopped, RetainUntilMs: d.now + 90_000,
		}
		want, attempts := d.table.Ended(o, d.now)
		d.do(func(b *Batch) { b.Outcome(o) })
		if got := d.table.Copy(h); !sameTimer(got, want) {
			t.Errorf("ended as\n%+v\ndescribed as\n%+v", got, want)
		}
		if len(attempts) != 1 {
			t.Fatalf("attempts %+v, although none was logged", attempts)
		}
		if attempt := attempts[0]; attempt.Attempt != want.Attempts || attempt.StartedMs != o.StartedMs || attempt.EndedMs != o.EndedMs || attempt.Status != 503 || attempt.Err != "card declined" ||
			!reflect.DeepEqual(attempt.Answer, answer) {
			t.Errorf("attempt %+v", attempts)
		}
	}
	d := newTableHarness(t)
	states["scheduled"](d)
	h, _ := d.table.Lookup(1, "a")
	due := d.table.Due(h)
	want, _ := d.table.Expired(h, due.Seq, due.Rev, d.now)
	d.do(func(b *Batch) { b.Expire(h, due.Seq, due.Rev, d.now+90_000, 0) })
	if got := d.table.Copy(h); !sameTimer(got, want) {
		t.Errorf("expired as\n%+v\ndescribed as\n%+v", got, want)
	}
}

// TestLoggedAttempts: a timer that ends has the attempts that were logged, through a release, a
// 202, a snapshot, and a cancel that is not heeded; the newest ones, within maxLog bytes. Ended, it
// keeps none.
func TestLoggedAttempts(t *testing.T) {
	d := newTableHarness(t)
	states["leased"](d)
	fail := func(status int, text string, answer *timer.Answer) {
		d.now += 50
		d.end(Outcome{Kind: RetryLater, Logged: true, Status: status, Err: text, Answer: answer, NextMs: d.now})
		d.lease()
	}
	described := func() []timer.HistoryAttempt {
		h, _ := d.table.Lookup(1, "a")
		due := d.table.Due(h)
		_, list := d.table.Ended(&Outcome{Kind: Kill, Handle: h, Seq: due.Seq, Fence: due.Fence, Status: 410, StartedMs: d.now, EndedMs: d.now}, d.now)
		return list
	}
	fail(500, "card declined", &timer.Answer{Body: strings.Repeat("x", 119) + "éy", Type: "text/plain"})
	first := d.now
	d.end(Outcome{Kind: Release})
	d.lease()
	fail(503, "busy", &timer.Answer{Body: "\xff"})
	d.end(Outcome{Kind: Accepted, Status: 202, LeaseMs: 9_000})
	want := []timer.HistoryAttempt{
		{Attempt: 1, StartedMs: first, EndedMs: first, Status: 500, Err: "card declined", Answer: &timer.Answer{Body: strings.Repeat("x", 119)}},
		{Attempt: 2, StartedMs: d.now, EndedMs: d.now, Status: 503, Err: "busy"},
		{Attempt: 3, StartedMs: d.now, EndedMs: d.now, Status: 410},
	}
	d.load()
	if got := described(); !reflect.DeepEqual(got, want) {
		t.Errorf("attempts\n%+v\nwant\n%+v", got, want)
	}
	testkit.Golden(t, "table-snapshot-attempts", image(d.table))

	for range 20 {
		fail(500, strings.Repeat("no ", 300), nil)
	}
	got := described()
	if n := len(got); n != 5 || got[0].Attempt != 19 || got[n-1].Attempt != 23 {
		t.Errorf("%d attempts of 900 bytes, from %d on", n, got[0].Attempt)
	}
	h, _ := d.table.Lookup(1, "a")
	fail(500, "again", nil)
	due := d.table.Due(h)
	d.end(Outcome{Kind: RetryLater, Logged: true, NextMs: d.now + 50})
	if _, list := d.table.Expired(h, due.Seq, d.table.Due(h).Rev, d.now); len(list) < 3 || list[len(list)-1].Attempt != 24 || list[len(list)-2].Attempt != 23 {
		t.Errorf("expired after %d attempts", len(list))
	}
	d.do(func(b *Batch) { b.Expire(h, due.Seq, d.table.Due(h).Rev, d.now+90_000, 0) })
	if r := d.table.attempts.At(d.table.slots.At(h).Attempt); d.table.Copy(h).State != timer.Dead || len(d.table.content.Attempts(r.ErrRef)) > 0 {
		t.Errorf("a dead letter keeps its log: %+v", d.table.Copy(h))
	}
	if err := d.table.Audit(true); err != nil {
		t.Error(err)
	}
}

func sameTimer(a, b *timer.Timer) bool {
	return slices.Equal(appendTimer(nil, a), appendTimer(nil, b))
}

// TestForgedFollowUp: an entry that no build has written stops the shard.
func TestForgedFollowUp(t *testing.T) {
	add := func(c timer.Command) func(b *Batch) {
		c.Topic, c.ID = outcomesIn, "x"
		if c.Kind != timer.Cancel {
			c.Spec = &timer.Spec{}
		}
		return func(b *Batch) { b.FollowUp(&c) }
	}
	plain := add(timer.Command{Kind: timer.Add})
	for name, fill := range map[string]func(b *Batch){
		"before nothing":     plain,
		"before a tick":      func(b *Batch) { plain(b); b.Tick() },
		"before a command":   func(b *Batch) { plain(b); b.Command(&timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"}) },
		"before another one": func(b *Batch) { plain(b); plain(b); b.Expire(1, 1, 1, 1, 0) },
		"a cancel":           func(b *Batch) { add(timer.Command{Kind: timer.Cancel})(b); b.Expire(1, 1, 1, 1, 0) },
		"a put":              func(b *Batch) { add(timer.Command{Kind: timer.Put})(b); b.Expire(1, 1, 1, 1, 0) },
		"a merge": func(b *Batch) {
			add(timer.Command{Kind: timer.Add, Merge: timer.MergeKeep})(b)
			b.Expire(1, 1, 1, 1, 0)
		},
	} {
		var b Batch
		b.Reset(applyNow, 1, 1)
		fill(&b)
		if _, err := New(1, applyNow).Apply(b.Bytes(), nil, nil); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]timer.OutcomeTopic{"id without name": {ID: 3}, "name without id": {Name: "x"}} {
		var b Batch
		b.Reset(applyNow, 1, 1)
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: 4, OnDone: &o}})
		if _, err := New(1, applyNow).Apply(b.Bytes(), nil, nil); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
