package table

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

// die leases the timer that the id names and ends its attempt as dead.
func (th *tableHarness) die(again int64) (seq uint64) {
	th.t.Helper()
	h, _ := th.table.Lookup(1, "a")
	seq = th.table.Due(h).Seq
	th.lease()
	th.end(Outcome{Kind: Kill, Reason: timer.MaxAttempts, RetainUntilMs: th.now + 9e6, AgainMs: again})
	return seq
}

// TestFireIsAnAttemptNow: only the time of the next attempt changes, and the time of the request is
// kept.
func TestFireIsAnAttemptNow(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Tag: 7, Spec: &timer.Spec{DueMs: applyNow + 60_000, Priority: 3}})
	h, _ := d.table.Lookup(1, "a")
	before := d.table.Job(h)
	d.now += 1000
	got := d.command(timer.Command{Kind: timer.Fire, DueMs: d.now - 2})
	if v := got.Timer; got.Code != timer.OK || v.DueMs != applyNow+60_000 || v.NextMs != d.now-2 || v.AskedMs != d.now-2 || v.Version != 1 || v.UpdatedMs != applyNow || v.Priority != 3 {
		t.Fatalf("fired: %+v", v)
	}
	d.lease()
	if job := d.table.Job(h); job.Seq != before.Seq || job.Tag != before.Tag || job.Version != before.Version || job.DueMs != before.DueMs || job.AskedMs != d.now-2 || job.LateFromMs != d.now-2 {
		t.Errorf("called as %+v, before it was %+v", job, before)
	}
	d.end(Outcome{Kind: RetryLater, StartedMs: d.now, NextMs: d.now + 30_000})
	if v := d.table.Copy(h); v.Attempts != 1 || v.NextMs != d.now+30_000 || v.DueMs != applyNow+60_000 || v.LatenessMs != 2 {
		t.Fatalf("in backoff: %+v", v)
	}
	if due := d.table.Due(h); !due.InBackoff(d.now) {
		t.Error("a timer in backoff before its due time is not seen as one")
	}
	d.now += 1000
	if v := d.command(timer.Command{Kind: timer.Fire, DueMs: d.now}).Timer; v.NextMs != d.now || v.Attempts != 1 || v.Version != 1 || v.AskedMs != d.now || v.DueMs != applyNow+60_000 {
		t.Errorf("fired in backoff: %+v", v)
	}
	loaded, err := Load(1, bytes.NewReader(image(d.table)))
	if err != nil || dump(loaded) != dump(d.table) || loaded.Hash() != d.table.Hash() {
		t.Errorf("after a restart: %v", err)
	}
	if v := d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: applyNow + 90_000}}}).Timer; v.AskedMs != 0 || v.NextMs != applyNow+90_000 {
		t.Errorf("moved by a client: %+v", v)
	}
}

// TestShift: the due time moves. A pending retry stays where it is, unless the new due time is
// later.
func TestShift(t *testing.T) {
	const hour = 3_600_000
	d := newTableHarness(t)
	shift := func(dueMs int64) *timer.Timer {
		return d.command(timer.Command{Kind: timer.Modify, Shift: true, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: dueMs}}}).Timer
	}
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow + 5*hour}})
	if v := shift(applyNow + 4*hour); v.DueMs != applyNow+4*hour || v.NextMs != v.DueMs {
		t.Errorf("earlier: %+v", v)
	}
	d.command(timer.Command{Kind: timer.Fire})
	if v := shift(applyNow + 6*hour); v.DueMs != applyNow+6*hour || v.NextMs != v.DueMs || v.AskedMs != 0 {
		t.Errorf("a fired one, later: %+v", v)
	}
	d.command(timer.Command{Kind: timer.Fire})
	d.lease()
	d.end(Outcome{Kind: RetryLater, StartedMs: d.now, NextMs: d.now + hour})
	if v := shift(applyNow + hour/2); v.DueMs != applyNow+hour/2 || v.NextMs != d.now+hour {
		t.Errorf("in backoff, to a time before its end: %+v", v)
	}
	if v := shift(applyNow + 24*hour); v.DueMs != applyNow+24*hour || v.NextMs != v.DueMs {
		t.Errorf("in backoff, to a time after its end: %+v", v)
	}
}

// TestFireTwice: while the attempt that was asked for is still to come, asking again changes
// nothing; a request by a clock that was ahead gives way to a later one.
func TestFireTwice(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow + 60_000}})
	for _, c := range [][2]int64{{5000, 5000}, {1000, 1000}, {2000, 1000}} {
		if v := d.command(timer.Command{Kind: timer.Fire, DueMs: applyNow + c[0]}).Timer; v.AskedMs != applyNow+c[1] || v.NextMs != applyNow+c[1] {
			t.Errorf("fired at %d: asked at %d, next at %d", c[0], v.AskedMs-applyNow, v.NextMs-applyNow)
		}
	}
	h, _ := d.table.Lookup(1, "a")
	if job := d.table.Job(h); job.EarliestMs() != applyNow+1000 {
		t.Errorf("it may start at %d", job.EarliestMs()-applyNow)
	}
}

// TestFireByAClockSetBack: what was asked for by a clock that was an hour ahead is made once the
// clock is right: of a timer that waits, of one whose lease is given back, and of one in backoff,
// whose wait stays as long as it was.
func TestFireByAClockSetBack(t *testing.T) {
	const hour = 3_600_000
	for _, state := range []string{"scheduled", "leased", "backoff"} {
		d := newTableHarness(t)
		d.now += hour
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow + 9*hour}})
		d.command(timer.Command{Kind: timer.Fire, DueMs: d.now})
		if state != "scheduled" {
			d.lease()
		}
		if state == "backoff" {
			d.end(Outcome{Kind: RetryLater, StartedMs: d.now, NextMs: d.now + 5000})
		}
		d.now = applyNow + 1000
		d.do(func(b *Batch) { b.SetClock() })
		d.do(func(b *Batch) { b.Tick() })
		want := d.now
		switch state {
		case "leased":
			d.end(Outcome{Kind: Release})
		case "backoff":
			want += 5000
		}
		if v := d.table.Read(1, "a"); v.State != timer.Scheduled || v.AskedMs != d.now || v.NextMs != want || v.DueMs != applyNow+9*hour {
			t.Errorf("%s: asked at %d, next at %d ms from now", state, v.AskedMs-d.now, v.NextMs-d.now)
		}
	}
}

// TestFireOfAnOverdueTimer: it keeps its place and its lateness.
func TestFireOfAnOverdueTimer(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow}})
	d.now += 5000
	if v := d.command(timer.Command{Kind: timer.Fire, DueMs: d.now}).Timer; v.NextMs != applyNow || v.AskedMs != d.now {
		t.Errorf("fired: %+v", v)
	}
	h, _ := d.table.Lookup(1, "a")
	if from := d.table.Job(h).LateFromMs; from != applyNow {
		t.Errorf("lateness counts from %d", from-applyNow)
	}
}

// TestFireCostsTheFiredAlone: a timer that nobody has fired takes no byte more.
func TestFireCostsTheFiredAlone(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add})
	h, _ := d.table.Lookup(1, "a")
	v := d.table.content.View(d.table.slots.At(h).Ref)
	if d.table.slots.At(h).Attempt != 0 || v.Flags != 0 || len(v.Body) != 4+8+6+1+len("a")+len(v.Rest) {
		t.Errorf("flags %x, a body of %d bytes", v.Flags, len(v.Body))
	}
}

// TestFireOfASeries: the coming occurrence is made early, and the next one at its own time.
func TestFireOfASeries(t *testing.T) {
	d := newTableHarness(t)
	const first, every = applyNow + 60_000, 60_000
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: first, Repeat: &timer.Repeat{EveryMs: every}}})
	d.command(timer.Command{Kind: timer.Fire})
	h, _ := d.table.Lookup(1, "a")
	if s, ok := d.table.Series(h); !ok || !s.Asked || s.DueMs != first {
		t.Errorf("the occurrence is %+v", s)
	}
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: first + every})
	v := d.table.Read(1, "a")
	if v.DueMs != first+every || v.NextMs != first+every || v.AskedMs != 0 || v.Attempts != 0 {
		t.Errorf("the next occurrence: %+v", v)
	}
}

// TestCancelledIsAddedAgain: the same add makes it again, also when the cancel still waits for the
// end of an attempt. An Idempotency-Key keeps its answer.
func TestCancelledIsAddedAgain(t *testing.T) {
	add := timer.Command{Kind: timer.Add, Content: 5, Absolute: true}
	d := newTableHarness(t)
	first := d.command(add)
	d.command(timer.Command{Kind: timer.Cancel})
	if got := d.command(add); got.Code != timer.Same || got.Timer.State != timer.Cancelled {
		t.Fatalf("the request that made it, once more: %+v", got)
	}
	add.Tag = 7
	if got := d.command(add); got.Code != timer.Created || got.Seq == first.Seq || got.Timer.State != timer.Scheduled {
		t.Fatalf("added again: %+v", got)
	}
	d.lease()
	d.command(timer.Command{Kind: timer.Cancel})
	add.Tag = 8
	if got := d.command(add); got.Code != timer.InFlight {
		t.Errorf("added while its cancel waits: code %d", got.Code)
	}
	merged := add
	merged.Merge = timer.MergeReplace
	if got := d.command(merged); got.Code != timer.Merged || !got.Timer.Successor {
		t.Errorf("merged while its cancel waits: %+v", got)
	}
	d.end(Outcome{Kind: RetryLater, NextMs: d.now + 1})
	if v := d.table.Read(1, "a"); v.State != timer.Scheduled || v.CancelRequested {
		t.Errorf("after the attempt: %+v", v)
	}
}

// TestCancelledInFlightThatSucceeded: what was called in spite of its cancel has ended done, and is
// not made again.
func TestCancelledInFlightThatSucceeded(t *testing.T) {
	d := newTableHarness(t)
	add := timer.Command{Kind: timer.Add, Content: 5, Absolute: true}
	d.command(add)
	d.lease()
	d.command(timer.Command{Kind: timer.Cancel})
	d.end(Outcome{Kind: Ack})
	add.Tag = 7
	if got := d.command(add); got.Code != timer.Same || got.Timer.State != timer.Done {
		t.Fatalf("added again: %+v", got)
	}
}

// TestRedriveOfOccurrences: dead occurrences run in parallel with the series, each named by its
// number, and never move it.
func TestRedriveOfOccurrences(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Tag: 9, Spec: &timer.Spec{DueMs: applyNow, HasExpiry: true, ExpiresAfterMs: 50, Repeat: &timer.Repeat{EveryMs: 1000}}})
	one := d.die(applyNow + 1000)
	two := d.die(applyNow + 2000)
	series, _ := d.table.Lookup(1, "a")
	before := *d.table.Copy(series)
	d.now += 100
	got := d.command(timer.Command{Kind: timer.Redrive, Seq: one})
	if v := got.Timer; got.Code != timer.OK || v.Seq != one || v.DueMs != applyNow || v.NextMs != d.now || v.Tag != 9 || v.Attempts != 0 {
		t.Fatalf("redriven: %+v %+v", got, got.Timer)
	}
	if h, _ := d.table.Lookup(1, "a"); h != series || *d.table.Copy(h).Repeat != *before.Repeat || d.table.Copy(h).NextMs != before.NextMs {
		t.Errorf("the series is %+v, it was %+v", d.table.Copy(h), before)
	}
	if got := d.command(timer.Command{Kind: timer.Redrive, Seq: one}); got.Code != timer.Skipped {
		t.Errorf("redriven twice: code %d", got.Code)
	}
	if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != timer.OK || got.Timer.Seq != two {
		t.Errorf("the last one redriven: %+v", got)
	}
	due := d.table.Due(got.Handle)
	d.do(func(b *Batch) { b.Lease(1000, got.Handle, due.Seq, due.Rev) })
	due = d.table.Due(got.Handle)
	d.do(func(b *Batch) {
		b.Outcome(&Outcome{Handle: got.Handle, Seq: due.Seq, Fence: due.Fence, Kind: Ack, AgainMs: d.now + 1000})
	})
	if n := d.table.Totals(); n.Scheduled != 2 || n.Done != 0 || n.Dead != 0 {
		t.Errorf("after a redriven occurrence: %+v", n)
	}
	if got := d.command(timer.Command{Kind: timer.Cancel}); got.Code != timer.Prevented {
		t.Errorf("cancelled: code %d", got.Code)
	}
	if n := d.table.Totals(); n.Scheduled != 0 {
		t.Errorf("after the cancel: %+v", n)
	}
}

// TestRedriveEndsTheFire: a redriven timer is not one that was fired. Only one that is not due yet
// has the time of the redrive in its place.
func TestRedriveEndsTheFire(t *testing.T) {
	for _, c := range []struct{ due, delay, asked, next int64 }{
		{0, 0, 0, 100}, {0, 500, 0, 600}, {1000, 0, 100, 100}, {1000, 500, 600, 600}, {1000, 5000, 0, 5100},
	} {
		d := newTableHarness(t)
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow + c.due}})
		d.command(timer.Command{Kind: timer.Fire})
		seq := d.die(0)
		d.now += 100
		cmd := timer.Command{Kind: timer.Redrive, Seq: seq}
		if c.delay != 0 {
			cmd.DueMs = d.now + c.delay
		}
		asked := int64(0)
		if c.asked != 0 {
			asked = applyNow + c.asked
		}
		if v := d.command(cmd).Timer; v.AskedMs != asked || v.NextMs != applyNow+c.next || v.DueMs != applyNow+c.due {
			t.Errorf("%+v: asked %d, next %d, due %d", c, v.AskedMs-applyNow, v.NextMs-applyNow, v.DueMs-applyNow)
		}
	}
}

// TestCancelByNumber: a cancel that names an older occurrence ends that one alone; one that names
// the newest ends all, and one that names an occurrence that is gone ends none. Its answer is about
// the one that it names.
func TestCancelByNumber(t *testing.T) {
	for _, c := range []struct {
		name  string
		seq   func(old, series uint64) uint64
		code  timer.Code
		state timer.State // of the series; 0: it is gone
	}{
		{"the older one", func(old, _ uint64) uint64 { return old }, timer.CancelInFlight, timer.Scheduled},
		{"the newest", func(_, series uint64) uint64 { return series }, timer.Prevented, 0},
		{"one that is gone", func(uint64, uint64) uint64 { return 99 }, timer.VersionMismatch, timer.Scheduled},
		{"none", func(uint64, uint64) uint64 { return 0 }, timer.CancelInFlight, 0},
	} {
		d := newTableHarness(t)
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow, Repeat: &timer.Repeat{EveryMs: 60_000}}})
		dead := d.die(applyNow + 60_000)
		got := d.command(timer.Command{Kind: timer.Redrive, Seq: dead})
		due := d.table.Due(got.Handle)
		d.do(func(b *Batch) { b.Lease(1000, got.Handle, due.Seq, due.Rev) })
		series, _ := d.table.Lookup(1, "a")
		seq := c.seq(dead, d.table.Due(series).Seq)
		if got := d.command(timer.Command{Kind: timer.Cancel, Seq: seq}); got.Code != c.code {
			t.Errorf("%s: code %d", c.name, got.Code)
		}
		if d.table.Due(series).State != c.state || d.table.Copy(got.Handle).CancelRequested != (c.code != timer.VersionMismatch) {
			t.Errorf("%s: the series is %d, the other one %+v", c.name, d.table.Due(series).State, d.table.Copy(got.Handle))
		}
	}
}

// TestModifyByNumber: a change names a redriven occurrence or its series, and moves that one alone.
func TestModifyByNumber(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Tag: 9, Spec: &timer.Spec{DueMs: applyNow, Repeat: &timer.Repeat{EveryMs: 60_000}}})
	dead := d.die(applyNow + 60_000)
	d.command(timer.Command{Kind: timer.Redrive, Seq: dead, DueMs: d.now + 1000})
	series, _ := d.table.Lookup(1, "a")
	move := &timer.Patch{Due: true, Spec: timer.Spec{DueMs: d.now + 5000}}
	if got := d.command(timer.Command{Kind: timer.Modify, Seq: dead, Patch: move}); got.Code != timer.OK || got.Timer.Seq != dead || got.Timer.NextMs != d.now+5000 {
		t.Errorf("moved: %+v", got)
	}
	if v := d.table.Copy(series); v.NextMs != applyNow+60_000 || v.Version != 1 {
		t.Errorf("the series: %+v", v)
	}
	if got := d.command(timer.Command{Kind: timer.Modify, Seq: 77, Patch: move}); got.Code != timer.NotFound {
		t.Errorf("no such number: code %d", got.Code)
	}
	put := timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now + 9000}}
	h := d.table.Named(1, []byte("a"), dead)
	due := d.table.Due(h)
	d.do(func(b *Batch) { b.Lease(1000, h, due.Seq, due.Rev) })
	due = d.table.Due(h)
	d.do(func(b *Batch) {
		b.Outcome(&Outcome{Handle: h, Seq: due.Seq, Fence: due.Fence, Kind: Kill, Reason: timer.Stopped, RetainUntilMs: d.now + 9e6})
	})
	d.command(put)
	if got := d.command(timer.Command{Kind: timer.Redrive, Seq: dead}); got.Code != timer.InUse {
		t.Errorf("redriven though the id is no series any more: code %d", got.Code)
	}
}

// TestRedriveByNumber: of unrelated dead letters of one id any can be redriven while none is live.
func TestRedriveByNumber(t *testing.T) {
	d := newTableHarness(t)
	var seqs []uint64
	for i := range 3 {
		d.command(timer.Command{Kind: timer.Add, Content: uint64(i), Tag: uint32(i + 1)})
		seqs = append(seqs, d.die(0))
	}
	got := d.command(timer.Command{Kind: timer.Redrive, Seq: seqs[0]})
	if h, _ := d.table.Lookup(1, "a"); got.Code != timer.OK || got.Timer.Seq != seqs[0] || h != got.Handle {
		t.Fatalf("redriven: %+v, the id names %d", got, h)
	}
	if got := d.command(timer.Command{Kind: timer.Redrive, Seq: seqs[1]}); got.Code != timer.InUse {
		t.Errorf("another one: code %d", got.Code)
	}
	if got := d.command(timer.Command{Kind: timer.Purge, Seq: seqs[1]}); got.Code != timer.OK || d.table.Totals().Dead != 1 {
		t.Errorf("purged: code %d, %d are left", got.Code, d.table.Totals().Dead)
	}
}

// TestDeadLettersOfOneIDAreBounded: the oldest goes, and is counted.
func TestDeadLettersOfOneIDAreBounded(t *testing.T) {
	d := newTableHarness(t)
	var first uint64
	for i := range timer.MaxDeadOfID + 5 {
		d.command(timer.Command{Kind: timer.Add, Content: uint64(i)})
		if seq := d.die(0); i == 0 {
			first = seq
		}
	}
	if n, replaced := d.table.Totals().Dead, d.table.TakeDeadReplaced(); n != timer.MaxDeadOfID || replaced != 5 {
		t.Errorf("%d dead letters, %d were replaced", n, replaced)
	}
	if got := d.command(timer.Command{Kind: timer.Purge, Seq: first}); got.Code != timer.Skipped {
		t.Errorf("the first is still there: code %d", got.Code)
	}
	loaded, err := Load(1, bytes.NewReader(image(d.table)))
	if err != nil || dump(loaded) != dump(d.table) {
		t.Errorf("after a restart: %v", err)
	}
}

// TestOverlappingOccurrencesAreBounded: beyond the bound the next occurrence waits for an end.
func TestOverlappingOccurrencesAreBounded(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: applyNow, Repeat: &timer.Repeat{EveryMs: 1000, Overlap: true}}})
	overlap := func() timer.Code {
		d.lease()
		h, _ := d.table.Lookup(1, "a")
		due := d.table.Due(h)
		return d.do(func(b *Batch) { b.Overlap(h, due.Seq, due.Fence, d.now+1000) }).Code
	}
	for i := range timer.MaxLiveOfID - 1 {
		if code := overlap(); code != timer.OK {
			t.Fatalf("occurrence %d: code %d", i, code)
		}
	}
	if code := overlap(); code != timer.Skipped || d.table.Totals().Leased != timer.MaxLiveOfID {
		t.Errorf("one more: code %d, %d are leased", code, d.table.Totals().Leased)
	}
	d.end(Outcome{Kind: Ack, AgainMs: d.now + 1000})
	if n := d.table.Totals(); n.Scheduled != 1 || n.Leased != timer.MaxLiveOfID-1 {
		t.Errorf("after an end: %+v", n)
	}
}

// TestCancelPassesDeadLetters: a cancel costs the same, however many timers of its id are dead.
func TestCancelPassesDeadLetters(t *testing.T) {
	least := map[int]time.Duration{}
	for _, dead := range []int{1, timer.MaxDeadOfID} {
		d := newTableHarness(t)
		for i := range dead {
			d.command(timer.Command{Kind: timer.Add, Content: uint64(i)})
			d.die(0)
		}
		for range 10 {
			var b Batch
			b.Reset(d.now, 1, 1)
			for i := range 1000 {
				b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Content: uint64(1000 + i), Spec: &timer.Spec{DueMs: d.now}})
				b.Command(&timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"})
			}
			begun := testkit.CPUTime(t)
			if _, err := d.table.Apply(b.Bytes(), nil, nil); err != nil {
				t.Fatal(err)
			}
			took := testkit.CPUTime(t) - begun
			if best, ok := least[dead]; !ok || took < best {
				least[dead] = took
			}
		}
	}
	if least[timer.MaxDeadOfID] > 2*least[1]+time.Millisecond {
		t.Errorf("1,000 adds and cancels take %v with %d dead letters, %v with one", least[timer.MaxDeadOfID], timer.MaxDeadOfID, least[1])
	}
}

// TestDeathsOfOneIDCostTheSame: a death costs the same with as many dead letters of the id as there
// may be.
func TestDeathsOfOneIDCostTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	took := func(ids, each int) time.Duration {
		d := newTableHarness(t)
		best := time.Hour
		for n := range each + 3 {
			var b Batch
			b.Reset(d.now, 1, 1)
			for i := range ids {
				b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Content: uint64(n), Spec: &timer.Spec{DueMs: d.now}})
			}
			results, err := d.table.Apply(b.Bytes(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Reset(d.now, 1, 2)
			for _, r := range results {
				b.Expire(r.Handle, r.Seq, 1, d.now+9e6, 0)
			}
			begun := testkit.CPUTime(t)
			if _, err = d.table.Apply(b.Bytes(), nil, nil); err != nil {
				t.Fatal(err)
			}
			spent := testkit.CPUTime(t) - begun
			if n >= each {
				best = min(best, spent)
			}
		}
		return best
	}
	few, many := took(500, 2), took(500, timer.MaxDeadOfID)
	if many > 3*few+time.Millisecond {
		t.Errorf("500 deaths take %v with %d dead letters each, %v with two", many, timer.MaxDeadOfID, few)
	}
}
