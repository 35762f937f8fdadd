package table

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

// itemCases builds every kind of item and of command.
func itemCases() map[string]func(b *Batch) {
	command := func(c timer.Command) func(*Batch) { return func(b *Batch) { b.Command(&c) } }
	leased := Outcome{Handle: 7, Seq: 9, Fence: 11, StartedMs: 1_700_000_000_100, EndedMs: 1_700_000_000_200, Status: 503, Err: "no answer"}
	kind := func(o Outcome, k OutcomeKind) func(*Batch) {
		o.Kind = k
		o.NextMs, o.Reason, o.RetainUntilMs, o.LeaseMs = 1_700_000_005_000, timer.Stopped, 1_700_000_900_000, 60_000
		return func(b *Batch) { b.Outcome(&o) }
	}
	id := "{order-77}close"
	return map[string]func(b *Batch){
		"add":       command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Absolute: true, Tag: 5, Content: 6, Spec: testkit.FullSpec()}),
		"add-plain": command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Spec: &timer.Spec{DueMs: 4}}),
		"add-merge": command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Content: 6, Merge: timer.MergeDebounce, MaxWaitMs: 300_000, Spec: &timer.Spec{DueMs: 4}}),
		"add-collect": command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Content: 6, Merge: timer.MergeCollect, MaxWaitMs: 300_000,
			Spec: &timer.Spec{DueMs: 4, Payload: []byte("7"), PayloadKind: timer.JSONPayload, Collect: &timer.Collect{Max: 500, Part: "line-7"}}}),
		"add-repeat": command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Spec: &timer.Spec{DueMs: 4, Payload: []byte("7"), PayloadKind: timer.JSONPayload, Repeat: &timer.Repeat{
			Cron: "0 8 * * 1-5", Zone: "Asia/Shanghai", UntilMs: 1_800_000_000_000, Count: 100, CatchUp: timer.CatchUpAll, Overlap: true,
		}}}),
		"add-trace":     command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Spec: &timer.Spec{DueMs: 4, Trace: testkit.SomeTrace(), Repeat: &timer.Repeat{EveryMs: 60_000}}}),
		"add-once":      command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Content: 6, Absolute: true, Once: true, Spec: &timer.Spec{DueMs: 4}}),
		"modify-repeat": command(timer.Command{Kind: timer.Modify, Topic: 3, ID: id, Patch: &timer.Patch{Repeat: true, Spec: timer.Spec{Repeat: &timer.Repeat{EveryMs: 60_000}}}}),
		"put":           command(timer.Command{Kind: timer.Put, Topic: 3, ID: id, IfMatch: 2, CreateOnly: true, Content: 6, Spec: testkit.FullSpec()}),
		"modify":        command(timer.Command{Kind: timer.Modify, Topic: 3, ID: id, IfMatch: 2, Patch: &timer.Patch{Spec: *testkit.FullSpec(), Due: true, Payload: true, Jitter: true, URL: true}}),
		"cancel":        command(timer.Command{Kind: timer.Cancel, Topic: 3, ID: id, IfMatch: 4}),
		"fire":          command(timer.Command{Kind: timer.Fire, Topic: 3, ID: id}),
		"pause":         command(timer.Command{Kind: timer.Pause, Topic: 3, ID: id, IfMatch: 4, Seq: 9}),
		"resume":        command(timer.Command{Kind: timer.Resume, Topic: 3, ID: id, DueMs: 77}),
		"redrive":       command(timer.Command{Kind: timer.Redrive, Topic: 3, ID: id, DueMs: 77, Patch: &timer.Patch{Spec: *testkit.FullSpec(), URL: true, Headers: true}}),
		"purge":         command(timer.Command{Kind: timer.Purge, Topic: 3, ID: id}),
		"closetopic":    command(timer.Command{Kind: timer.CloseTopic, Topic: 3, Force: true}),
		"closepart":     command(timer.Command{Kind: timer.CloseTopic, Topic: 3, Force: true, Work: 1 << 17, From: 70_000}),
		"opentopic":     command(timer.Command{Kind: timer.OpenTopic, Topic: 3}),
		"deliver":       command(timer.Command{Kind: timer.Deliver, Topic: 3, Turn: 5, Pull: true}),
		"add-outcomes": command(timer.Command{Kind: timer.Add, Topic: 3, ID: id, Spec: &timer.Spec{
			DueMs: 4, OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{ID: 9, Name: "failed"}, Repeat: &timer.Repeat{EveryMs: 60_000},
		}}),
		"modify-outcomes": command(timer.Command{Kind: timer.Modify, Topic: 3, ID: id, Patch: &timer.Patch{
			OnDone: true, OnDead: true, Spec: timer.Spec{OnDone: &timer.OutcomeTopic{ID: 9, Name: "done"}, OnDead: &timer.OutcomeTopic{}},
		}}),
		"follow-up": func(b *Batch) {
			ack := Outcome{Kind: Ack, Handle: 7, Seq: 9, Fence: 11, Status: 200, StartedMs: 1_700_000_000_100, EndedMs: 1_700_000_000_103}
			b.Outcome(&ack)
			b.FollowUp(&timer.Command{Kind: timer.Add, Topic: 9, ID: timer.NewID(1, 1, 2), Tag: 5, Spec: &timer.Spec{
				DueMs: 1_700_000_000_000, PayloadKind: timer.JSONPayload, Payload: []byte(`{"outcome":"done"}`), Labels: []string{timer.OutcomeLabel},
				OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{},
			}})
			b.Outcome(&ack)
			b.Outcome(&ack)
		},
		"leases": func(b *Batch) {
			b.Lease(15_000, 7, 9, 1)
			b.Lease(15_000, 9, 8, 3)
			b.Lease(20_000, 2, 1<<40, 1)
		},
		"acks": func(b *Batch) {
			for i := range 3 {
				b.Outcome(&Outcome{Kind: Ack, Handle: timer.Handle(7 - i), Seq: 9, Fence: uint64(11 + i), Status: 200, StartedMs: 1_700_000_000_100, EndedMs: 1_700_000_000_103})
			}
		},
		"ack-error": kind(leased, Ack),
		"retry":     kind(leased, RetryLater),
		"kill":      kind(leased, Kill),
		"retry-answer": func(b *Batch) {
			o := leased
			o.Answer = &timer.Answer{Body: "card declined\xff", Type: "text/plain", Location: "/later"}
			kind(o, RetryLater)(b)
		},
		"retry-logged": func(b *Batch) { o := leased; o.Logged = true; kind(o, RetryLater)(b) },
		"release":      kind(leased, Release),
		"takeover":     func(b *Batch) { b.Takeover(1 << 50) },
		"tick":         func(b *Batch) { b.Tick() },
		"set-clock":    func(b *Batch) { b.SetClock() },
		"series-seen":  func(b *Batch) { b.SeriesSeen() },
		"expire":       func(b *Batch) { b.Expire(7, 9, 2, 1_700_000_900_000, 0) },
		"expire-again": func(b *Batch) { b.Expire(7, 9, 2, 1_700_000_900_000, 1_700_000_060_000) },
		"skip":         func(b *Batch) { b.Skip(7, 9, 2, 1_700_000_060_000) },
		"overlap":      func(b *Batch) { b.Overlap(7, 9, 11, 1_700_000_060_000) },
		"ack-again": func(b *Batch) {
			b.Outcome(&Outcome{Kind: Ack, Handle: 7, Seq: 9, Fence: 11, Status: 200, StartedMs: 1_700_000_000_100, EndedMs: 1_700_000_000_103, AgainMs: 1_700_000_060_000})
		},
		"kill-again": func(b *Batch) { o := leased; o.AgainMs = 1_700_000_060_000; kind(o, Kill)(b) },
		"forget":     func(b *Batch) { b.Forget(7, 9) },
		"accepted":   kind(leased, Accepted),
		"extended":   kind(leased, Extended),
		"pulls": func(b *Batch) {
			b.Pull(30_000, 7, 9, 1)
			b.Pull(30_000, 9, 8, 3)
		},
	}
}

func TestBatchGolden(t *testing.T) {
	for name, fill := range itemCases() {
		var b Batch
		b.Reset(1_700_000_000_000, 42, 43)
		fill(&b)
		testkit.Golden(t, "batch-"+name, b.Bytes())
		nowMs, origin, number, err := BatchHead(b.Bytes())
		if nowMs != 1_700_000_000_000 || origin != 42 || number != 43 || err != nil {
			t.Errorf("%s: head is %d %d %d, %v", name, nowMs, origin, number, err)
		}
		var it items
		n := 0
		for err = it.open(b.Bytes()); err == nil && it.next(); n++ {
		}
		if n != b.Len() || it.Err() != nil {
			t.Errorf("%s: %d of %d items, %v", name, n, b.Len(), it.Err())
		}
	}
}

// TestBatchCut: a table refuses a truncated batch or applies a part of its items, and does not
// panic.
func TestBatchCut(t *testing.T) {
	for name, fill := range itemCases() {
		var b Batch
		b.Reset(1_700_000_000_000, 42, 43)
		b.Takeover(1)
		whole := b.Size()
		fill(&b)
		for n := range b.Size() {
			got, err := New(1, 0).Apply(b.Bytes()[:n], nil, nil)
			if payload := name == "add" || name == "put" || name == "modify" || name == "redrive" || name == "follow-up"; err == nil && n != whole && !payload && len(got) > 1 && len(got) == b.Len() {
				t.Errorf("%s: cut to %d bytes it has all of its items", name, n)
			}
		}
	}
	for _, data := range [][]byte{nil, {}, {2}, {1, 0, 0, 0, 99}, {1, 0, 0, 0, itemLeases, 0, 0, 0}} {
		if _, err := New(1, 0).Apply(data, nil, nil); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("apply(%x): %v", data, err)
		}
	}
}

func TestRunSizes(t *testing.T) {
	var b Batch
	b.Reset(1_700_000_000_000, 1, 1)
	head := b.Size()
	for i := range 1000 {
		b.Lease(15_000, timer.Handle(i*3+1), uint64(1e6+i*3), 1)
	}
	lease := float64(b.Size()-head) / 1000
	head = b.Size()
	for i := range 1000 {
		b.Outcome(&Outcome{Kind: Ack, Handle: timer.Handle(i*3 + 1), Seq: uint64(1e6 + i*3), Fence: uint64(1e9 + i), Status: 200, StartedMs: 1_700_000_000_000 + int64(i%50), EndedMs: 1_700_000_000_060 + int64(i%50)})
	}
	ack := float64(b.Size()-head) / 1000
	t.Logf("%.1f B per lease, %.1f B per ack", lease, ack)
	if lease > 8 || ack > 8 {
		t.Errorf("%.1f B per lease, %.1f B per ack, at most 8", lease, ack)
	}
}

// TestSpecRoundTrip: decoding inverts encoding, for specs and patches drawn like the model's.
func TestSpecRoundTrip(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(3, 3)).IntN)
	for range 2000 {
		want := *g.spec()
		if g.pick(2) == 0 {
			want.Trace = testkit.SomeTrace()
		}
		if len(want.Payload) > 0 && g.pick(4) == 0 {
			want.Payload = append(bytes.Clone(want.Payload), "\n \x00\x00"[g.pick(4):]...) // whatever it ends in
		}
		r := encoding.Reader{Rest: encoding.AppendSpec(nil, &want)}
		raw := r.Spec()
		var got timer.Spec
		if err := raw.DecodeTo(&got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("spec is %+v, want %+v: %v", got, want, err)
		}
		patch := g.patch()
		decoded, err := encoding.DecodePatch(encoding.AppendPatch(nil, patch))
		if err != nil {
			t.Fatal(err)
		}
		a, b := *testkit.FullSpec(), *testkit.FullSpec()
		patch.Apply(&a)
		decoded.Apply(&b)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("patched spec is %+v, want %+v", b, a)
		}
	}
}

func FuzzBatch(f *testing.F) {
	for _, fill := range itemCases() {
		var b Batch
		b.Reset(1_700_000_000_000, 42, 43)
		b.Command(&timer.Command{Kind: timer.Add, Topic: 3, ID: "{order-77}close", Content: 6, Spec: testkit.FullSpec()})
		b.Lease(1000, 1, 1, 1)
		fill(&b)
		f.Add(bytes.Clone(b.Bytes()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := New(1, 0), New(1, 0)
		got, err := a.Apply(data, func(int, *timer.Result) bool { return true }, nil)
		if _, err2 := b.Apply(data, nil, nil); (err == nil) != (err2 == nil) || a.Hash() != b.Hash() {
			t.Fatalf("two tables differ: %v, %v", err, err2)
		}
		if err != nil {
			return
		}
		if err := a.Audit(false); err != nil {
			t.Fatalf("after %d items: %v", len(got), err)
		}
		image, _ := a.BeginSnapshot().Next(nil, 1<<20)
		if c, err := Load(1, bytes.NewReader(image)); err != nil || dump(c) != dump(a) {
			t.Fatalf("loaded: %v", err)
		}
	})
}

func (b *Batch) Len() int { return b.items }
