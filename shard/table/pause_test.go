package table

import (
	"bytes"
	"testing"

	"carillon/timer"
)

// load replaces the table by one that was loaded from its snapshot.
func (th *tableHarness) load() {
	th.t.Helper()
	loaded, err := Load(1, bytes.NewReader(image(th.table)))
	if err != nil || dump(loaded) != dump(th.table) || loaded.Hash() != th.table.Hash() {
		th.t.Fatalf("after a restart: %v", err)
	}
	th.table = loaded
}

// TestPausedTimerIsNotLeased: of a timer that a client holds nothing else changes. It stays held
// through a restart, a patch, a put and a request for an attempt, and is leased once it is resumed.
func TestPausedTimerIsNotLeased(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now}})
	before := *d.command(timer.Command{Kind: timer.Pause, IfMatch: 1}).Timer
	if !before.Paused || before.Version != 1 || before.NextMs != d.now || before.UpdatedMs != before.CreatedMs {
		t.Errorf("held: %+v", before)
	}
	h, _ := d.table.Lookup(1, "a")
	rev := d.table.Due(h).Rev
	held := func(when string) {
		t.Helper()
		if got := d.lease(); got.Code != timer.Skipped {
			t.Errorf("%s it is leased: %d", when, got.Code)
		}
		if v := d.table.Read(1, "a"); !v.Paused || v.State != timer.Scheduled {
			t.Errorf("%s: %+v", when, v)
		}
		if err := d.table.Audit(true); err != nil {
			t.Error(when, err)
		}
	}
	held("at first")
	d.command(timer.Command{Kind: timer.Pause})
	if now := d.table.Due(h).Rev; now != rev {
		t.Errorf("held twice, it has revision %d after %d", now, rev)
	}
	d.load()
	held("after a restart")
	d.command(timer.Command{Kind: timer.Fire})
	held("asked for")
	d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: d.now - 5}}})
	held("patched")
	d.command(timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now, Payload: []byte("1")}})
	held("put")
	d.command(timer.Command{Kind: timer.Add, Merge: timer.MergeReplace, Spec: &timer.Spec{DueMs: d.now, Payload: []byte("2")}})
	held("merged")
	if v := d.command(timer.Command{Kind: timer.Resume}).Timer; v.Paused {
		t.Errorf("let go: %+v", v)
	}
	if got := d.lease(); got.Code != timer.OK {
		t.Errorf("let go, it is not leased: %d", got.Code)
	}
	if got := d.command(timer.Command{Kind: timer.Pause}); got.Code != timer.InFlight {
		t.Errorf("a leased one is held: %d", got.Code)
	}
	d.end(Outcome{Kind: RetryLater, NextMs: d.now + 1000})
	d.command(timer.Command{Kind: timer.Pause})
	if due := d.table.Due(h); due.InBackoff(d.now) || due.Attempts != 1 {
		t.Errorf("held in backoff: %+v", due)
	}
	d.command(timer.Command{Kind: timer.Resume})
	if due := d.table.Due(h); !due.InBackoff(d.now) || due.NextMs != d.now+1000 {
		t.Errorf("let go in backoff: %+v", due)
	}
	d.command(timer.Command{Kind: timer.Pause})
	if got := d.command(timer.Command{Kind: timer.Cancel}); got.Code != timer.Prevented || got.Timer.Paused || got.Timer.State != timer.Cancelled {
		t.Errorf("cancelled: %d, %+v", got.Code, got.Timer)
	}
	d.load()
}

// TestPausedSeriesExpires: the expiry counts on. The occurrences that follow are held, too.
func TestPausedSeriesExpires(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now, ExpiresAfterMs: 10, HasExpiry: true, Repeat: &timer.Repeat{EveryMs: 1000}}})
	d.command(timer.Command{Kind: timer.Pause})
	h, _ := d.table.Lookup(1, "a")
	due := d.table.Due(h)
	d.do(func(b *Batch) { b.Expire(h, due.Seq, due.Rev, d.now+9e6, d.now+1000) })
	if v := d.table.Copy(h); v.State != timer.Dead || v.Reason != timer.Expired || v.Paused {
		t.Errorf("expired: %+v", v)
	}
	if v := d.table.Read(1, "a"); v.State != timer.Scheduled || !v.Paused || v.DueMs != d.now+1000 {
		t.Errorf("the next: %+v", v)
	}
	if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != timer.OK || got.Timer.Paused {
		t.Errorf("redriven: %d, %+v", got.Code, got.Timer)
	}
	d.load()
}

// TestMissedWhilePaused: an occurrence whose time passed while it was held is marked, if its series
// skips such, until the leader has moved it or a client gives it another time.
func TestMissedWhilePaused(t *testing.T) {
	f := func(name string, want bool, catchUp timer.CatchUp, dueIn int64, before, after *timer.Command) {
		t.Helper()
		d := newTableHarness(t)
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now + dueIn, Repeat: &timer.Repeat{EveryMs: 1000, CatchUp: catchUp}}})
		if before != nil {
			d.command(*before)
		}
		d.command(timer.Command{Kind: timer.Pause})
		d.now += 5
		d.command(timer.Command{Kind: timer.Resume, DueMs: d.now})
		if after != nil {
			d.command(*after)
		}
		d.load()
		h, _ := d.table.Lookup(1, "a")
		due := d.table.Due(h)
		if due.Missed != want || due.Paused {
			t.Errorf("%s: %+v", name, due)
		}
		d.do(func(b *Batch) { b.Skip(h, due.Seq, due.Rev, d.now+1000) })
		if due := d.table.Due(h); due.Missed || due.NextMs != d.now+1000 {
			t.Errorf("%s: moved on: %+v", name, due)
		}
	}
	f("skips", true, timer.CatchUpSkip, 5, nil, nil)
	f("not due yet", false, timer.CatchUpSkip, 6, nil, nil)
	f("one", false, timer.CatchUpOne, 0, nil, nil)
	f("all", false, timer.CatchUpAll, 0, nil, nil)
	f("asked for", false, timer.CatchUpSkip, 5, &timer.Command{Kind: timer.Fire}, nil)
	f("asked for since", false, timer.CatchUpSkip, 5, nil, &timer.Command{Kind: timer.Fire, DueMs: applyNow + 5})
	f("moved since", false, timer.CatchUpSkip, 5, nil, &timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: applyNow + 2}}})
	f("patched since", true, timer.CatchUpSkip, 5, nil, &timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 2}}})
}

// TestRepetitionsChangeNothing: a repeated cancel, pause, resume or fire, and an add that keeps
// what is there, are answered as such.
func TestRepetitionsChangeNothing(t *testing.T) {
	for name, c := range map[string]timer.Command{
		"cancel": {Kind: timer.Cancel}, "pause": {Kind: timer.Pause}, "fire": {Kind: timer.Fire},
		"add": {Kind: timer.Add, Merge: timer.MergeKeep, Content: 9},
	} {
		d := newTableHarness(t)
		if name != "add" {
			d.command(timer.Command{Kind: timer.Add})
		}
		for i, want := range []bool{false, true, true} {
			if got := d.command(c); got.Unchanged != want {
				t.Errorf("%s, %d times before: %+v", name, i, got)
			}
		}
	}
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now}})
	d.lease()
	if one, two := d.command(timer.Command{Kind: timer.Cancel}), d.command(timer.Command{Kind: timer.Cancel}); one.Unchanged || !two.Unchanged || two.Code != timer.CancelInFlight {
		t.Errorf("a cancel of a running call: %+v, then %+v", one, two)
	}
}

// TestPauseOfAnOccurrenceThatHasEnded: it is answered with the next one of its series, so that a
// bulk pause does not miss that.
func TestPauseOfAnOccurrenceThatHasEnded(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now, Repeat: &timer.Repeat{EveryMs: 1000}}})
	first := d.table.Read(1, "a")
	d.lease()
	d.end(Outcome{Kind: Ack, AgainMs: d.now + 1000})
	for _, c := range []timer.Command{
		{Kind: timer.Pause, Seq: first.Seq, IfMatch: first.Version},
		{Kind: timer.Resume, Seq: first.Seq, IfMatch: first.Version},
	} {
		got := d.command(c)
		if got.Code != timer.VersionMismatch || got.Timer == nil || got.Timer.Seq == first.Seq || got.Timer.DueMs != d.now+1000 {
			t.Errorf("%v: code %d, %+v", c.Kind, got.Code, got.Timer)
		}
	}
	d.command(timer.Command{Kind: timer.Cancel})
	if got := d.command(timer.Command{Kind: timer.Pause, Seq: first.Seq}); got.Code != timer.NotFound {
		t.Errorf("with nothing that has not ended: code %d", got.Code)
	}
}
