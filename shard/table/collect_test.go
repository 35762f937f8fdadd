package table

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

func (th *tableHarness) collect(payload string, change ...func(*timer.Command)) timer.Result {
	th.t.Helper()
	c := timer.Command{Kind: timer.Add, Merge: timer.MergeCollect, Spec: &timer.Spec{DueMs: th.now + 60_000, PayloadKind: timer.JSONPayload, Payload: []byte(payload), Collect: &timer.Collect{}}}
	for _, f := range change {
		f(&c)
	}
	return th.command(c)
}

func collectMax(n int) func(*timer.Command) { return func(c *timer.Command) { c.Spec.Collect.Max = n } }
func part(name string) func(*timer.Command) {
	return func(c *timer.Command) { c.Spec.Collect.Part = name }
}

// shows compares a timer's array with what is expected.
func (th *tableHarness) shows(got *timer.Timer, payload string, state timer.State, collected int) {
	th.t.Helper()
	if got == nil || string(got.Payload) != payload || got.State != state || int(got.Collected) != collected {
		th.t.Fatalf("%+v, want %s in state %d", got, payload, state)
	}
}

// TestCollectWindow: without a longest wait the first time stays, and a pending timer's payload
// becomes the first.
func TestCollectWindow(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now + 5000, PayloadKind: timer.JSONPayload, Payload: []byte(`{"n": 0}`)}})
	due := d.table.Read(1, "a").DueMs
	for n := 1; n < 4; n++ {
		d.now += 100
		got := d.collect(fmt.Sprintf(`{"n": %d}`, n))
		if got.Code != timer.Merged || got.Timer.DueMs != due || got.Timer.Version != uint32(1+n) {
			t.Fatalf("%+v", got)
		}
	}
	d.shows(d.table.Read(1, "a"), `[{"n": 0},{"n": 1},{"n": 2},{"n": 3}]`, timer.Scheduled, 4)
	h, _ := d.table.Lookup(1, "a")
	if job := d.table.Job(h); string(job.Payload) != `[{"n": 0},{"n": 1},{"n": 2},{"n": 3}]` || job.PayloadKind != timer.JSONPayload {
		t.Errorf("sent: %s", job.Payload)
	}
}

// TestCollectMovesTheTime: with a longest wait each add moves the time, but not beyond that.
func TestCollectMovesTheTime(t *testing.T) {
	d := newTableHarness(t)
	start := d.now
	wait := func(c *timer.Command) { c.MaxWaitMs = 70_000 }
	for n, want := range []int64{60_000, 64_000, 68_000, 70_000, 70_000} {
		if got := d.collect("1", wait); got.Timer.DueMs != start+want {
			t.Errorf("add %d: due after %d ms, want %d", n, got.Timer.DueMs-start, want)
		}
		d.now += 4000
	}
}

// TestCollectChain: full arrays go one after the other, a failed one is retried first, and the one
// that fills has its own add's time.
func TestCollectChain(t *testing.T) {
	d := newTableHarness(t)
	for n := range 7 {
		d.now += 10
		got := d.collect(fmt.Sprint(n), collectMax(2))
		if want := n%2 + 1; int(got.Timer.Collected) != want || (got.Code == timer.Created) != (n == 0) {
			t.Fatalf("add %d: %+v", n, got)
		}
	}
	for _, want := range []string{"[0,1]", "[2,3]", "[4,5]"} {
		d.shows(d.table.Read(1, "a"), want, timer.Scheduled, 2)
		if due := d.table.Read(1, "a").DueMs; due > d.now {
			t.Fatalf("%s is due %d ms from now", want, due-d.now)
		}
		for h := timer.Handle(1); h <= d.table.slots.High; h++ { // no other may be leased
			if s := d.table.get(h); s != nil && d.table.isBehind(h, s) {
				due := d.table.Due(h)
				if got := d.do(func(b *Batch) { b.Lease(15_000, h, due.Seq, due.Rev) }); got.Code != timer.Skipped {
					t.Fatalf("an array is leased before its turn")
				}
			}
		}
		d.lease()
		if got := d.table.Read(1, "a"); got.State != timer.Leased || !got.Successor {
			t.Fatalf("%+v", got)
		}
		d.end(Outcome{Kind: RetryLater, NextMs: d.now + 10})
		d.shows(d.table.Read(1, "a"), want, timer.Scheduled, 2)
		d.lease()
		if want == "[2,3]" {
			d.end(Outcome{Kind: Kill, Reason: timer.MaxAttempts, RetainUntilMs: d.now + 1e6})
		} else {
			d.end(Outcome{Kind: Ack, Status: 200})
		}
	}
	d.shows(d.table.Read(1, "a"), "[6]", timer.Scheduled, 1)
	if due := d.table.Read(1, "a").DueMs; due != d.now+60_000 {
		t.Errorf("the one that fills is due in %d ms", due-d.now)
	}
	// The dead letter is redriven and runs in parallel.
	if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != timer.OK || string(got.Timer.Payload) != "[2,3]" {
		t.Errorf("redrive: %+v", got)
	}
	if got := d.command(timer.Command{Kind: timer.Cancel}); got.Code != timer.Prevented || d.table.Totals().Scheduled != 0 {
		t.Errorf("cancel: %+v, %+v", got, d.table.Totals())
	}
}

// TestCollectPart: a part is appended once while an array of the id has it, wherever that is.
func TestCollectPart(t *testing.T) {
	d := newTableHarness(t)
	d.collect("1", part("x"))
	if got := d.collect("1", part("x")); got.Code != timer.Merged || got.Timer.Collected != 1 || got.Timer.Version != 1 {
		t.Fatalf("%+v", got)
	}
	d.collect("2", part("y"), collectMax(2))
	d.lease()
	if got := d.collect("1", part("x")); got.Code != timer.Merged || string(got.Timer.Payload) != "[1,2]" {
		t.Fatalf("while it runs: %+v", got)
	}
	d.collect("3", part("z"))
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[3]", timer.Scheduled, 1)
	d.collect("4", part("x"))
	d.shows(d.table.Read(1, "a"), "[3,4]", timer.Scheduled, 2)
	d.command(timer.Command{Kind: timer.Cancel})
	if got := d.collect("5", part("x")); got.Code != timer.Created {
		t.Errorf("after a cancel: %+v", got)
	}
}

// TestCollectPartAfterItsArray: an array that has ended, or whose retries will not come, knows no
// part: an add of one is not swallowed by it.
func TestCollectPartAfterItsArray(t *testing.T) {
	d := newTableHarness(t)
	again := func(code timer.Code, payload string) {
		t.Helper()
		if got := d.collect("1", part("x")); got.Code != code {
			t.Fatalf("%+v", got)
		}
		d.shows(d.table.Read(1, "a"), payload, timer.Scheduled, 1)
	}
	d.collect("1", part("x"))
	d.lease()
	d.end(Outcome{Kind: RetryLater, NextMs: d.now})
	if got := d.collect("1", part("x")); got.Code != timer.Merged || got.Timer.Successor {
		t.Fatalf("before a retry: %+v", got)
	}
	d.lease()
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[1]", timer.Done, 1)
	again(timer.Created, "[1]") // done
	d.lease()
	d.end(Outcome{Kind: Kill, Reason: timer.MaxAttempts, RetainUntilMs: d.now + 1e6})
	again(timer.Created, "[1]") // dead
	d.lease()
	d.command(timer.Command{Kind: timer.Cancel})
	if got := d.collect("1", part("x")); got.Code != timer.Merged || got.Timer.State != timer.Scheduled {
		t.Fatalf("after a cancel of a running one: %+v", got)
	}
	d.end(Outcome{Kind: RetryLater, NextMs: d.now})
	d.shows(d.table.Read(1, "a"), "[1]", timer.Scheduled, 1)
	d.lease()
	d.command(timer.Command{Kind: timer.Add, Merge: timer.MergeReplace, Spec: &timer.Spec{DueMs: d.now, PayloadKind: timer.JSONPayload, Payload: []byte("2")}})
	d.collect("1", part("x"))
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[2,1]", timer.Scheduled, 2)
}

// TestSeriesWaitsBehindAnArray: an add may make a series of the array that waits last. If an
// occurrence of it expires there, the next one waits in its place.
func TestSeriesWaitsBehindAnArray(t *testing.T) {
	d := newTableHarness(t)
	d.collect("1", collectMax(1))
	d.collect("2")
	d.lease()
	series := &timer.Spec{DueMs: d.now, HasExpiry: true, ExpiresAfterMs: 1000, Repeat: &timer.Repeat{EveryMs: 5000}}
	waits := d.command(timer.Command{Kind: timer.Add, Merge: timer.MergeReplace, Spec: series})
	due := d.table.Due(waits.Handle)
	if waits.Code != timer.Merged || !due.Behind || !due.Series {
		t.Fatalf("%+v, due %+v", waits, due)
	}
	d.now += 2000
	d.do(func(b *Batch) { b.Expire(waits.Handle, due.Seq, due.Rev, d.now+1e6, d.now+3000) })
	next := d.table.Find(1, []byte("a"))
	if due = d.table.Due(next); due.FirstMs != d.now+3000 || !due.Behind {
		t.Errorf("the next occurrence: %+v", due)
	}
	if err := d.table.Audit(false); err != nil {
		t.Error(err)
	}
	d.end(Outcome{Kind: Ack})
	if due = d.table.Due(next); due.Behind {
		t.Errorf("after the array: %+v", due)
	}
	if err := d.table.Audit(false); err != nil {
		t.Error(err)
	}
}

// TestCollectContentType: an array is JSON, whatever its first payload was sent as.
func TestCollectContentType(t *testing.T) {
	d := newTableHarness(t)
	check := func() {
		t.Helper()
		h, _ := d.table.Lookup(1, "a")
		if got, job := d.table.Read(1, "a"), d.table.Job(h); got.Collected == 0 || got.ContentType != "" || job.ContentType != "" {
			t.Errorf("%d in an array, sent as %q", got.Collected, job.ContentType)
		}
	}
	text := func(c *timer.Command) { c.Spec.ContentType = "text/plain" }
	d.collect("1", text)
	check()
	d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{ContentType: true, Spec: timer.Spec{ContentType: "text/plain"}}})
	check()
	d.command(timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now + 1000, PayloadKind: timer.JSONPayload, Payload: []byte("2"), ContentType: "text/plain"}})
	if got := d.table.Read(1, "a"); got.ContentType != "text/plain" {
		t.Errorf("%+v", got)
	}
	d.collect("3")
	check()
}

// TestCollectDepth: an array does not nest deeper than what may be sent.
func TestCollectDepth(t *testing.T) {
	for depth, want := range map[int]timer.Code{timer.MaxDepth - 1: timer.Merged, timer.MaxDepth: timer.Exists} {
		d := newTableHarness(t)
		payload := []byte(strings.Repeat("[", depth) + `"]\"["` + strings.Repeat("]", depth))
		d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now + 5000, PayloadKind: timer.JSONPayload, Payload: payload}})
		if got := d.collect("1"); got.Code != want {
			t.Errorf("onto %d levels: %+v", depth, got)
		}
	}
}

// TestCollectCancelRunning: a cancel ends the array that runs and those that wait; what is added
// afterwards waits for the running call.
func TestCollectCancelRunning(t *testing.T) {
	d := newTableHarness(t)
	for n := range 5 {
		d.collect(fmt.Sprint(n), collectMax(2))
	}
	d.lease()
	if got := d.command(timer.Command{Kind: timer.Cancel}); got.Code != timer.CancelInFlight || got.Timer.Successor || d.table.Totals().Scheduled != 0 {
		t.Fatalf("%+v", got)
	}
	d.collect("9")
	d.shows(d.table.Read(1, "a"), "[0,1]", timer.Leased, 2)
	d.end(Outcome{Kind: RetryLater, NextMs: d.now})
	d.shows(d.table.Read(1, "a"), "[9]", timer.Scheduled, 1)
}

// TestCollectCancelByNumber: a cancel of one array that waits, by its number, lets none of those
// behind it go while the one before it runs.
func TestCollectCancelByNumber(t *testing.T) {
	d := newTableHarness(t)
	d.collect("0", collectMax(1))
	second := d.collect("1", collectMax(1)).Timer.Seq
	third := d.collect("2", collectMax(1))
	d.lease()
	if got := d.command(timer.Command{Kind: timer.Cancel, Seq: second}); got.Code != timer.Prevented || string(got.Timer.Payload) != "[0]" || !got.Timer.Successor {
		t.Fatalf("%+v", got)
	}
	due := d.table.Due(third.Handle)
	lease := func(b *Batch) { b.Lease(15_000, third.Handle, due.Seq, due.Rev) }
	if got := d.do(lease); got.Code != timer.Skipped {
		t.Errorf("the third is leased while the first runs: %+v", got)
	}
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[2]", timer.Scheduled, 1)
	due = d.table.Due(third.Handle)
	if got := d.do(lease); got.Code != timer.OK {
		t.Errorf("the third is not leased after the first: %+v", got)
	}
}

// TestCollectCancelOfTheLastArray: a cancel that names the last array that waits, as that of a
// filter does, leaves those before it.
func TestCollectCancelOfTheLastArray(t *testing.T) {
	d := newTableHarness(t)
	d.collect("0", collectMax(1))
	last := d.collect("1", collectMax(1)).Timer.Seq
	if got := d.command(timer.Command{Kind: timer.Cancel, Seq: last}); got.Code != timer.Prevented {
		t.Fatalf("%+v", got)
	}
	d.shows(d.table.Read(1, "a"), "[0]", timer.Scheduled, 1)
}

// TestCollectOtherRules: what a put, a patch and adds by other rules make of an array.
func TestCollectOtherRules(t *testing.T) {
	json := func(text string) *timer.Spec {
		return &timer.Spec{DueMs: applyNow + 1000, PayloadKind: timer.JSONPayload, Payload: []byte(text)}
	}
	d := newTableHarness(t)
	d.collect("1")
	if got := d.command(timer.Command{Kind: timer.Add, Content: 7, Spec: json("2")}); got.Code != timer.Exists {
		t.Errorf("reject: %+v", got)
	}
	d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Payload: true, Spec: *json(`"patched"`)}})
	d.shows(d.table.Read(1, "a"), `"patched"`, timer.Scheduled, 0)
	d.collect("3")
	d.shows(d.table.Read(1, "a"), `["patched",3]`, timer.Scheduled, 2)
	d.command(timer.Command{Kind: timer.Put, Spec: json("4")})
	d.shows(d.table.Read(1, "a"), "4", timer.Scheduled, 0)
	d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 9}}})
	d.collect("5")
	d.command(timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Labels: true}})
	d.shows(d.table.Read(1, "a"), "[4,5]", timer.Scheduled, 2)
	d.lease()
	d.command(timer.Command{Kind: timer.Add, Merge: timer.MergeReplace, Spec: json("6")}) // a successor
	d.collect("7")
	d.end(Outcome{Kind: RetryLater, NextMs: d.now})
	d.shows(d.table.Read(1, "a"), "[4,5]", timer.Scheduled, 2)
	d.lease()
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[6,7]", timer.Scheduled, 2)
	d.command(timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now + 1000, PayloadKind: timer.BinaryPayload, Payload: []byte{1}}})
	if got := d.collect("8"); got.Code != timer.Exists {
		t.Errorf("onto binary: %+v", got)
	}
	d.command(timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now + 1000}})
	d.collect("9")
	d.shows(d.table.Read(1, "a"), "[9]", timer.Scheduled, 1)
}

// TestCollectBytes: an array that would pass 256 KiB is due now, with all that fits.
func TestCollectBytes(t *testing.T) {
	d := newTableHarness(t)
	third := `"` + strings.Repeat("x", timer.MaxCollected/3-4) + `"`
	for range 3 {
		d.collect(third)
	}
	if got := d.table.Read(1, "a"); got.Collected != 3 || len(got.Payload) > timer.MaxCollected || got.Full || !json.Valid(got.Payload) {
		t.Fatalf("%d payloads, %d bytes, full %t", got.Collected, len(got.Payload), got.Full)
	}
	got := d.collect(third)
	if first := d.table.Read(1, "a"); got.Timer.Collected != 1 || !first.Full || first.DueMs != d.now || got.Timer.Payload != nil {
		t.Errorf("%d in the next; the first is full %t, due in %d ms", got.Timer.Collected, first.Full, first.DueMs-d.now)
	}
	most := `"` + strings.Repeat("y", timer.MaxCollected-2) + `"`
	d.command(timer.Command{Kind: timer.Add, ID: "b", Spec: &timer.Spec{DueMs: d.now + 9e5, PayloadKind: timer.JSONPayload, Payload: []byte(most)}})
	d.collect("1", func(c *timer.Command) { c.ID = "b" })
	if got := d.table.Read(1, "b"); string(got.Payload) != most || got.DueMs != d.now || !got.Successor {
		t.Errorf("a payload that fits into no array: %d bytes, due in %d ms", len(got.Payload), got.DueMs-d.now)
	}
}

// TestCollectSnapshot: arrays, names and the order of those that wait are in the snapshot.
func TestCollectSnapshot(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(12, 5)).IntN)
	g.collects = true
	behind := func() (n int) {
		for _, l := range g.table.chains {
			if l.behind {
				n++
			}
		}
		return n
	}
	for len(g.table.parts) < 3 || behind() < 3 {
		g.turn()
	}
	b := image(g.table)
	testkit.Golden(t, "table-snapshot-collect", b)
	loaded, err := Load(7, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if dump(loaded) != dump(g.table) || loaded.Hash() != g.table.Hash() || loaded.Audit(false) != nil {
		t.Errorf("the loaded table differs: %v", loaded.Audit(false))
	}
}

// TestCollectIsLinear: appending to a long array costs what appending to a short one does.
func TestCollectIsLinear(t *testing.T) {
	const adds = 10_000
	run := func(most int, named bool) (time.Duration, *Table) {
		table := New(1, benchNow)
		var b Batch
		begin := testkit.CPUTime(t)
		for n := range adds {
			b.Reset(benchNow, 1, uint64(n))
			c := timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Merge: timer.MergeCollect,
				Spec: &timer.Spec{DueMs: benchNow + 60_000, PayloadKind: timer.JSONPayload, Payload: fmt.Appendf(nil, `{"number":%8d}`, n), Collect: &timer.Collect{Max: most}}}
			if named {
				c.Spec.Collect.Part = fmt.Sprint("part-", n)
			}
			b.Command(&c)
			if _, err := table.Apply(b.Bytes(), func(int, *timer.Result) bool { return true }, nil); err != nil {
				t.Fatal(err)
			}
		}
		return testkit.CPUTime(t) - begin, table
	}
	short, _ := run(10, false)
	long, table := run(timer.MaxCollectMax, false)
	named, _ := run(timer.MaxCollectMax, true)
	t.Logf("%d adds of one key: %v in arrays of 10, %v in one of %d bytes, %v with named parts", adds, short, long, table.Read(1, "a").Size(), named)
	if got := table.Read(1, "a"); got.Collected != adds || !json.Valid(got.Payload) || !got.Full {
		t.Errorf("%d collected, full %t", got.Collected, got.Full)
	}
	if long > 4*short+200*time.Millisecond {
		t.Errorf("%v in arrays of 10, %v in one", short, long)
	}
}

// TestCollectBesideARedrivenArray: reads and changes of an id without a number name the array that
// goes first, not one that was redriven and runs in parallel.
func TestCollectBesideARedrivenArray(t *testing.T) {
	d := newTableHarness(t)
	d.collect("0", collectMax(1))
	d.die(0)
	front := d.collect("1", collectMax(1)).Timer.Seq
	d.collect("2", collectMax(1))
	redriven := d.command(timer.Command{Kind: timer.Redrive}).Timer.Seq
	d.shows(d.table.Read(1, "a"), "[1]", timer.Scheduled, 1)
	for _, c := range []timer.Command{
		{Kind: timer.Fire, DueMs: d.now},
		{Kind: timer.Pause},
		{Kind: timer.Resume},
		{Kind: timer.Modify, Patch: &timer.Patch{Priority: true, Spec: timer.Spec{Priority: 7}}},
		{Kind: timer.Put, Spec: &timer.Spec{DueMs: d.now + 1000, PayloadKind: timer.JSONPayload, Payload: []byte("3")}},
	} {
		if got := d.command(c); got.Code != timer.OK || got.Timer.Seq != front {
			t.Errorf("%v: code %d, timer %d, want %d; %d was redriven", c.Kind, got.Code, got.Timer.Seq, front, redriven)
		}
	}
	loaded, err := Load(1, bytes.NewReader(image(d.table)))
	if err != nil || loaded.Read(1, "a").Seq != front {
		t.Errorf("after a restart: %v", err)
	}
	d.lease()
	d.end(Outcome{Kind: Ack})
	d.shows(d.table.Read(1, "a"), "[2]", timer.Scheduled, 1)
}

// TestCollectManyArrays: each array that waits is found by its number, also after a restart, and
// while they become fewer.
func TestCollectManyArrays(t *testing.T) {
	d := newTableHarness(t)
	var live []uint64
	check := func(table *Table) {
		t.Helper()
		if err := table.Audit(false); err != nil {
			t.Fatal(err)
		}
		for _, seq := range live {
			if h := table.Named(1, []byte("a"), seq); h == 0 || table.slots.At(h).Seq() != seq {
				t.Fatalf("of %d arrays, %d leads to handle %d", len(live), seq, h)
			}
		}
		if h := table.Named(1, []byte("a"), 1<<40); h != 0 {
			t.Fatalf("no array has the number, it leads to handle %d", h)
		}
	}
	add := func() { live = append(live, d.collect("1", collectMax(1)).Timer.Seq) }
	for range 10 {
		add()
	}
	check(d.table)
	dead := d.die(0)
	live = live[1:]
	check(d.table)
	d.command(timer.Command{Kind: timer.Redrive, Seq: dead})
	live = append(live, dead)
	for len(live) > 3 {
		loaded, err := Load(1, bytes.NewReader(image(d.table)))
		if err != nil || dump(loaded) != dump(d.table) {
			t.Fatalf("after a restart with %d arrays: %v", len(live), err)
		}
		check(loaded)
		d.command(timer.Command{Kind: timer.Cancel, Seq: live[len(live)/2]})
		live = slices.Delete(live, len(live)/2, len(live)/2+1)
		check(d.table)
	}
	for range 5 {
		add()
		check(d.table)
	}
	if got := d.command(timer.Command{Kind: timer.Cancel}); got.Code != timer.Prevented || d.table.Totals().Scheduled != 0 {
		t.Errorf("cancelled: code %d, %+v", got.Code, d.table.Totals())
	}
}

// apply applies the commands as one entry.
func (th *tableHarness) apply(commands ...timer.Command) []timer.Result {
	th.t.Helper()
	var b Batch
	b.Reset(th.now, 1, 1)
	for i := range commands {
		commands[i].Topic, commands[i].ID = 1, cmp.Or(commands[i].ID, "a")
		b.Command(&commands[i])
	}
	got, err := th.table.Apply(b.Bytes(), nil, nil)
	if err == nil {
		err = th.table.Audit(false)
	}
	if err != nil {
		th.t.Fatal(err)
	}
	return got
}

// TestCollectCancelledInParts: an entry ends a bounded number of arrays, the newest first, whichever
// of its cancels ends them. The one that goes first stays as it is until the last entry.
func TestCollectCancelledInParts(t *testing.T) {
	d := newTableHarness(t)
	add := timer.Command{Kind: timer.Add, Merge: timer.MergeCollect, Spec: &timer.Spec{DueMs: d.now + 60_000, PayloadKind: timer.JSONPayload, Payload: []byte("1"), Collect: &timer.Collect{Max: 1}}}
	d.apply(slices.Repeat([]timer.Command{add}, 5000)...)
	cancel := timer.Command{Kind: timer.Cancel, IfMatch: 1}
	for last, left := int64(5000), int64(0); ; last = left {
		got := d.apply(cancel, cancel)
		left = d.table.Totals().Scheduled
		if ended := last - left; ended < 1 || ended > cancelWork/16+1 {
			t.Fatalf("an entry has ended %d timers", ended)
		}
		if left == 0 {
			if got[0].Code != timer.Prevented || got[1].Code != timer.Prevented || last == 5000 {
				t.Errorf("%d, %+v", last, got)
			}
			break
		}
		if got[0].Code != timer.Partly || got[1].Code != timer.Partly {
			t.Fatalf("%+v, and %d are left", got, left)
		}
		d.load()
		if first := d.table.Read(1, "a"); first.State != timer.Scheduled || first.Seq != 1 || first.Version != 1 {
			t.Fatalf("the first is %+v", first)
		}
	}
	d.now += finishedKeepMs + 1
	d.apply()

	var many []timer.Command
	for i := range 3 * timer.MaxCollectMax {
		c, spec := add, *add.Spec
		spec.Collect = &timer.Collect{Max: timer.MaxCollectMax, Part: fmt.Sprint("part ", i)}
		c.ID, c.Spec = fmt.Sprint(i%3), &spec
		many = append(many, c)
	}
	d.apply(many...)
	second := d.table.Read(1, "1").Seq
	got := d.apply(timer.Command{Kind: timer.Cancel, ID: "0"}, timer.Command{Kind: timer.Cancel, ID: "1", Seq: second}, timer.Command{Kind: timer.Cancel, ID: "2"})
	if got[0].Code != timer.Prevented || got[1].Code != timer.Partly || got[2].Code != timer.Partly || d.table.Totals().Scheduled != 2 {
		t.Errorf("of three arrays with many names %d are left, %+v", d.table.Totals().Scheduled, got)
	}
}

// TestCollectRedrivenAreFew: no more arrays run beside those that wait than other timers of an id
// may overlap.
func TestCollectRedrivenAreFew(t *testing.T) {
	d := newTableHarness(t)
	for range timer.MaxDeadOfID {
		d.collect("0", collectMax(1))
		d.die(0)
	}
	d.collect("1", collectMax(1))
	d.collect("2", collectMax(1))
	for n := 1; n <= timer.MaxLiveOfID; n++ {
		want := timer.OK
		if n == timer.MaxLiveOfID {
			want = timer.TooMany
		}
		if got := d.command(timer.Command{Kind: timer.Redrive}); got.Code != want {
			t.Fatalf("redrive %d: code %d, want %d", n, got.Code, want)
		}
	}
}
