package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"

	"pgregory.net/rapid"
)

// arbitrary fills every exported field that it reaches, so that a field that is added later is
// drawn too, and a codec that forgets it is found.
type arbitrary struct {
	t    *rapid.T
	full bool // no field is zero, empty or nil
}

func (a arbitrary) fill(v reflect.Value, name string) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(a.full || rapid.Bool().Draw(a.t, name))
	case reflect.Int, reflect.Int64:
		v.SetInt(a.number(name, v.Kind() == reflect.Int))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		low := uint64(0)
		if a.full {
			low = 1
		}
		v.SetUint(rapid.Uint64Range(low, math.MaxUint64>>(64-v.Type().Bits())).Draw(a.t, name))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(0.5, 100).Draw(a.t, name))
	case reflect.String:
		v.SetString(rapid.StringN(a.least(), 20, 80).Draw(a.t, name))
	case reflect.Slice:
		n := rapid.IntRange(a.least(), 3).Draw(a.t, name)
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			a.fill(v.Index(i), name)
		}
	case reflect.Array:
		for i := range v.Len() {
			a.fill(v.Index(i), name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				a.fill(v.Field(i), name+"."+f.Name)
			}
		}
	case reflect.Pointer:
		if a.full || rapid.Bool().Draw(a.t, name) {
			v.Set(reflect.New(v.Type().Elem()))
			a.fill(v.Elem(), name)
		}
	case reflect.Interface, reflect.Func: // a Room is not sent, nor Query.Only
	default:
		a.t.Fatalf("%s is of a kind that nobody thought of: %s", name, v.Type())
	}
	a.narrow(v)
}

func (a arbitrary) least() int {
	if a.full {
		return 1
	}
	return 0
}

// number draws any int64, as for times of either sign; count: none below 0.
func (a arbitrary) number(name string, count bool) int64 {
	low := int64(math.MinInt64)
	if count {
		low = 0
	}
	n := rapid.Int64Range(low, math.MaxInt64>>1).Draw(a.t, name)
	if n == 0 && a.full {
		return 1
	}
	return n
}

// narrow brings a drawn value into the range of its type.
func (a arbitrary) narrow(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *timer.Kind:
		if *p%4 == 0 {
			*p = timer.AckLease + *p/4%3
		} else {
			*p = 1 + *p%timer.Resume
		}
	case *timer.OutcomeTopic:
		if p.ID == 0 || p.Name == "" {
			*p = timer.OutcomeTopic{}
		}
	case *timer.State:
		*p = 1 + *p%timer.Cancelled
	case *timer.Reason:
		*p = 1 + *p%timer.Refused
	case *timer.Code:
		*p = 1 + *p%timer.TooMany
	case *timer.Merge:
		*p = 1 + *p%timer.MergeCollect
	case *timer.CatchUp:
		*p = 1 + *p%timer.CatchUpAll
	case *timer.PayloadKind:
		*p = 1 + *p%timer.BinaryPayload
	case *timer.Callback:
		if !p.HasHeaders {
			p.Headers = nil
		}
	case *timer.Retry:
		if !p.HasJitter {
			p.Jitter = 0
		}
	case *timer.Spec:
		if !p.HasExpiry {
			p.ExpiresAfterMs = 0
		}
		if c := p.Collect; c != nil {
			c.Max, c.Part = int(uint(c.Max)%timer.MaxCollectMax), c.Part[:min(len(c.Part), timer.MaxPart)]
			if *c == (timer.Collect{}) {
				p.Collect = nil
			}
		}
	case *timer.Result:
		p.AtMs &= math.MaxInt64 // by the leader's clock, so not negative
	case *timer.Query:
		p.Limit %= maxWireLimit + 1
		p.Bytes %= answerBytes + 1
		p.Slots = timer.SlotRange{} // goes ahead of the query: see AppendSlots
		if p.AllTopics {
			p.Topics = nil
		}
		if p.After != nil && !p.ManyTopics() {
			p.After.Topic = 0
		}
	case *timer.HistoryQuery:
		p.Limit %= maxWireLimit + 1
		slices.Sort(p.Shards)
		p.Shards = slices.Compact(p.Shards)
	case *timer.HistoryAttempt:
		p.Attempt, p.Status = p.Attempt%encoding.MaxAttempt, p.Status%(1<<16)
		if p.Answer.Empty() {
			p.Answer = nil
		}
	case *timer.Timer:
		p.Collected %= timer.MaxCollectMax + 1
		p.Full = p.Full && p.Collected > 0
		if p.LastAnswer.Empty() {
			p.LastAnswer = nil
		}
	case *timer.LeaseUpdate:
		p.LeaseMs &= timer.MaxMs
		p.DelayMs &= timer.MaxMs
	case *timer.Command:
		p.MaxWaitMs &= math.MaxInt64
		of := timer.Command{IfMatch: p.IfMatch, DueMs: p.DueMs} // fields that share their bytes: only those of this kind
		switch {
		case p.Kind == timer.Deliver:
			of = timer.Command{Turn: p.Turn}
		case p.Kind == timer.CloseTopic && p.Force:
			of = timer.Command{Work: p.Work, From: p.From & encoding.MaxHandle}
		case p.Kind == timer.CloseTopic:
			of = timer.Command{}
		}
		p.IfMatch, p.DueMs, p.Turn, p.Work, p.From = of.IfMatch, of.DueMs, of.Turn, of.Work, of.From
		if p.Kind.UpdatesLease() {
			p.Spec, p.Patch = nil, nil
			if p.Claim == nil {
				p.Claim = new(timer.LeaseUpdate)
			}
			break
		}
		p.Claim = nil
		if p.Kind == timer.Add || p.Kind == timer.Put {
			p.Patch = nil
			if p.Spec == nil {
				p.Spec = new(timer.Spec)
			}
		} else if p.Spec = nil; p.Kind == timer.Modify && p.Patch == nil {
			p.Patch = new(timer.Patch)
		}
		if p.Patch != nil {
			var only timer.Spec
			p.Patch.Apply(&only)
			p.Patch.Spec = only // fields without a flag do not count
		}
	}
}

func draw[T any](t *rapid.T, full bool, name string) *T {
	v := new(T)
	arbitrary{t, full}.fill(reflect.ValueOf(v).Elem(), name)
	return v
}

// eachWay runs a property with every field set, and with any fields set.
func eachWay(t *testing.T, property func(t *rapid.T, full bool)) {
	for _, full := range []bool{true, false} {
		t.Run(fmt.Sprintf("full=%v", full), rapid.MakeCheck(func(t *rapid.T) { property(t, full) }))
	}
}

func drawOps(t *rapid.T, full bool) []timer.Op {
	ops := make([]timer.Op, rapid.IntRange(1, 4).Draw(t, "ops"))
	for i := range ops {
		ops[i] = timer.Op{
			Shard: timer.ShardID(rapid.Uint32().Draw(t, "shard")), Brief: rapid.Bool().Draw(t, "brief"), Place: rapid.Uint64Max(1<<20).Draw(t, "place"), Command: draw[timer.Command](t, full, "command"),
		}
		ops[i].Command.Into = nil // is not sent
	}
	return ops
}

func TestWireOps(t *testing.T) {
	eachWay(t, func(t *rapid.T, full bool) {
		want := drawOps(t, full)
		b := AppendOps([]byte("before"), want)[len("before"):]
		got, err := DecodeOps(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant %+v: %v", got[0].Command, want[0].Command, err)
		}
		clear(b)
		if !reflect.DeepEqual(got, want) {
			t.Fatal("what was decoded points into the input")
		}
	})
}

// TestWireOpsFields: every field of an Op is sent, is part of the answer, or is known to be local.
func TestWireOpsFields(t *testing.T) {
	typ := reflect.TypeFor[timer.Op]()
	for i := range typ.NumField() {
		switch name := typ.Field(i).Name; name {
		case "Shard", "Command", "Brief", "Place": // AppendOps
		case "Result", "Err": // AppendAnswers
		case "Room": // local: each node makes its own
		default:
			t.Errorf("nobody carries %s", name)
		}
	}
}

func TestWireAnswers(t *testing.T) {
	faults := append([]error{timer.NotLeaderError{}, timer.NotLeaderError{Leader: 1 << 39}}, faults[:]...)
	eachWay(t, func(t *rapid.T, full bool) {
		want := drawOps(t, full)
		for i := range want {
			o := &want[i]
			if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
				o.Err = rapid.SampledFrom(faults).Draw(t, "fault")
				continue
			}
			o.Result = *draw[timer.Result](t, full, "result")
			if o.Result.Code == timer.Created && o.Command.Spec == nil {
				o.Result.Code = timer.OK
			}
			if o.Result.Code != timer.Created {
				continue
			}
			if o.Result.Timer = nil; !o.Brief {
				o.Result.Timer = timer.NewTimer(o.Command, &o.Result)
			}
		}
		b := AppendAnswers([]byte("before"), want)[len("before"):]
		got := bare(want)
		if err := DecodeAnswers(b, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\nwant %+v: %v", got, want, err)
		}
	})
}

// bare returns the operations without answers.
func bare(ops []timer.Op) []timer.Op {
	out := make([]timer.Op, len(ops))
	for i, o := range ops {
		out[i] = timer.Op{Shard: o.Shard, Command: o.Command, Brief: o.Brief, Place: o.Place}
	}
	return out
}

// TestWireCreated: the timer that an add created is not sent back.
func TestWireCreated(t *testing.T) {
	cmd := &timer.Command{Kind: timer.Add, Topic: 3, ID: "a", Tag: 9, Spec: testkit.FullSpec()}
	r := timer.Result{Code: timer.Created, Handle: 5, Seq: 77, Version: 1, AtMs: 1_700_000_000_000}
	r.Timer = timer.NewTimer(cmd, &r)
	ops := []timer.Op{{Shard: 1, Command: cmd, Result: r}}
	b := AppendAnswers(nil, ops)
	if len(b) > 24 {
		t.Errorf("the answer takes %d bytes", len(b))
	}
	got := bare(ops)
	if err := DecodeAnswers(b, got); err != nil || !reflect.DeepEqual(got, ops) {
		t.Errorf("%+v, %v", got[0].Result.Timer, err)
	}
	ops = []timer.Op{{Shard: 1, Command: cmd, Result: timer.Result{Code: timer.Prevented, Handle: 5, Unchanged: true}}}
	if got := bare(ops); DecodeAnswers(AppendAnswers(nil, ops), got) != nil || !reflect.DeepEqual(got, ops) {
		t.Errorf("a repetition: %+v", got[0].Result)
	}
	hostile := []timer.Op{{Command: &timer.Command{Kind: timer.Cancel, ID: "a"}}}
	if err := DecodeAnswers(b, hostile); !errors.Is(err, encoding.ErrFormat) || hostile[0].Err != timer.ErrUnknown {
		t.Errorf("a cancel that made a timer: %v, %v", err, hostile[0].Err)
	}
}

func TestWireReads(t *testing.T) {
	eachWay(t, func(t *rapid.T, full bool) {
		taken := []timer.PulledTimer{{Timer: draw[timer.Timer](t, full, "timer")}, *draw[timer.PulledTimer](t, full, "taken")}
		if taken[1].Timer == nil {
			taken[1].Timer = taken[0].Timer
		}
		if got, err := DecodePulled(AppendPulled(nil, taken)); err != nil || !reflect.DeepEqual(got, taken) {
			t.Fatalf("taken %+v\nwant %+v: %v", got, taken, err)
		}
		offers := []timer.Candidate{*draw[timer.Candidate](t, full, "offer")}
		offers[0].Bytes &= math.MaxInt32
		if got, err := DecodeCandidates(AppendCandidates(nil, offers)); err != nil || !reflect.DeepEqual(got, offers) {
			t.Fatalf("offers %+v\nwant %+v: %v", got, offers, err)
		}
		share := []timer.Share{{Shard: draw[timer.Share](t, full, "share").Shard, Timers: 1000}}
		if topic, ms, got, err := DecodePullRequest(AppendPullRequest(nil, 7, 30_000, share)); err != nil || topic != 7 || ms != 30_000 || !reflect.DeepEqual(got, share) {
			t.Fatalf("take %d %d %+v, want %+v: %v", topic, ms, got, share, err)
		}
		list := []*timer.Timer{draw[timer.Timer](t, full, "timer"), draw[timer.Timer](t, full, "timer")}
		if got, err := DecodeTimer(AppendTimer(nil, list[0])); err != nil || !reflect.DeepEqual(got, list[0]) {
			t.Fatalf("timer %+v\nwant %+v: %v", got, list[0], err)
		}
		some := []timer.ShardID{1, 2, 7, 16384}[rapid.IntRange(0, 3).Draw(t, "from"):]
		q := draw[timer.Query](t, full, "query")
		page := timer.Page{Timers: list}
		if full {
			page.More, page.Next = true, *draw[timer.SortKey](t, full, "next")
			page.Waits = []timer.Wait{{For: timer.WaitKey, On: "{k}a"}, {}}
		}
		if ids, got, err := DecodePage(AppendPage(nil, some, page, q)); err != nil || !slices.Equal(ids, some) || !reflect.DeepEqual(got, page) {
			t.Fatalf("page %+v of %v\nwant %+v of %v: %v", got, ids, page, some, err)
		}
		steps := make([]timer.Step, len(some))
		for i, id := range some {
			steps[i] = timer.Step{Shard: id, At: *draw[timer.ScanCursor](t, full, "waypoint")}
		}
		if got, as, err := DecodeWalk(AppendWalk(nil, steps, q)); err != nil || !reflect.DeepEqual(got, steps) || !reflect.DeepEqual(as, q) {
			t.Fatalf("walk %+v by %+v\nwant %+v by %+v: %v", got, as, steps, q, err)
		}
		done := slices.Clone(steps)
		for i := range done {
			done[i] = timer.Step{Shard: steps[i].Shard, At: *draw[timer.ScanCursor](t, full, "waypoint"), Refs: []timer.Ref{*draw[timer.Ref](t, full, "mark")}, Refused: i%2 == 1}
		}
		if err := DecodeSteps(AppendSteps(nil, done), steps); err != nil || !reflect.DeepEqual(steps, done) {
			t.Fatalf("steps %+v\nwant %+v: %v", steps, done, err)
		}
		if ids, got, err := DecodeQuery(AppendQuery(nil, some, q)); err != nil || !slices.Equal(ids, some) || !reflect.DeepEqual(got, q) {
			t.Fatalf("query %+v of %v\nwant %+v of %v: %v", got, ids, q, some, err)
		}
		pq := draw[timer.HistoryQuery](t, full, "history query")
		pq.Sure = false // not sent
		if got, err := DecodeHistoryQuery(AppendHistoryQuery(nil, pq)); err != nil || !reflect.DeepEqual(got, pq) {
			t.Fatalf("history query %+v\nwant %+v: %v", got, pq, err)
		}
		past := []*timer.HistoryEntry{draw[timer.HistoryEntry](t, full, "history"), draw[timer.HistoryEntry](t, full, "history")}
		for _, e := range past {
			if e.Timer == nil {
				e.Timer = list[0]
			}
			e.Content = 0 // used by the node that stores the history, not sent
		}
		if ids, got, more, err := DecodeHistory(AppendHistory(nil, pq.Shards, past, full)); err != nil || more != full || !slices.Equal(ids, pq.Shards) || !reflect.DeepEqual(got, past) {
			t.Fatalf("history %+v\nwant %+v: %v", got, past, err)
		}
		c := []timer.Counts{*draw[timer.Counts](t, full, "counts"), *draw[timer.Counts](t, full, "counts")}[rapid.IntRange(0, 2).Draw(t, "topics"):]
		ids := []timer.ShardID{1, 2, 7, 16384}[rapid.IntRange(0, 4).Draw(t, "from"):]
		if gotIDs, got, err := DecodeCounts(AppendCounts(nil, ids, c)); err != nil || !slices.Equal(got, c) || len(gotIDs)+len(ids) > 0 && !reflect.DeepEqual(gotIDs, ids) {
			t.Fatalf("counts %+v of %v\nwant %+v of %v: %v", got, gotIDs, c, ids, err)
		}
	})
	if got, err := DecodeTimer(AppendTimer(nil, nil)); got != nil || err != nil {
		t.Errorf("no timer: %+v, %v", got, err)
	}
	if id, topic, timer, err := DecodeTimerRequest(AppendTimerRequest(nil, 7, 8, "{a}b")); id != 7 || topic != 8 || timer != "{a}b" || err != nil {
		t.Errorf("timer request: %d %d %q %v", id, topic, timer, err)
	}
	if topics, err := DecodeCountsRequest(AppendCountsRequest(nil, []timer.TopicID{8, 300})); !slices.Equal(topics, []timer.TopicID{8, 300}) || err != nil {
		t.Errorf("counts request: %d %v", topics, err)
	}
}

func TestWireFailure(t *testing.T) {
	for _, c := range []struct{ in, want error }{
		{timer.NotLeaderError{Leader: 7}, timer.NotLeaderError{Leader: 7}},
		{fmt.Errorf("on the way: %w", timer.NotLeaderError{Leader: 7}), timer.NotLeaderError{Leader: 7}},
		{timer.ErrNoLeader, timer.ErrNoLeader}, {timer.ErrOverloaded, timer.ErrOverloaded}, {timer.ErrMemory, timer.ErrMemory}, {timer.ErrLowDisk, timer.ErrLowDisk},
		{timer.ErrUnknown, timer.ErrUnknown}, {timer.ErrStopped, timer.ErrStopped}, {timer.ErrRecovering, timer.ErrRecovering}, {timer.ErrNoTopic, timer.ErrNoTopic},
		{timer.ErrNotEmpty, timer.ErrNotEmpty}, {fmt.Errorf("%w: a thing", encoding.ErrFormat), encoding.ErrFormat},
		{errors.New("what nobody knows"), timer.ErrUnknown}, {nil, timer.ErrUnknown},
	} {
		b := AppendFailure(nil, c.in)
		ops := make([]timer.Op, 2)
		if err := DecodeAnswers(b, ops); err != c.want || ops[0].Err != c.want || ops[1].Err != c.want {
			t.Errorf("answers of %v: %v, %v", c.in, err, ops)
		}
		if _, err := DecodeTimer(b); err != c.want {
			t.Errorf("timer of %v: %v", c.in, err)
		}
		if _, _, err := DecodePage(b); err != c.want {
			t.Errorf("timers of %v: %v", c.in, err)
		}
		if err := DecodeSteps(b, make([]timer.Step, 2)); err != c.want {
			t.Errorf("marks of %v: %v", c.in, err)
		}
		if _, err := DecodeCandidates(b); err != c.want {
			t.Errorf("offers of %v: %v", c.in, err)
		}
		if _, err := DecodePulled(b); err != c.want {
			t.Errorf("taken of %v: %v", c.in, err)
		}
		if _, err := DecodeAwaited(b); err != c.want {
			t.Errorf("awaited of %v: %v", c.in, err)
		}
		if _, _, err := DecodeCounts(b); err != c.want {
			t.Errorf("counts of %v: %v", c.in, err)
		}
	}
	if err := DecodeAnswers([]byte{version, 200}, nil); err != timer.ErrUnknown {
		t.Errorf("an error of a later version is %v", err)
	}
	if !errors.Is(timer.NotLeaderError{}, timer.ErrNoLeader) {
		t.Error("NotLeaderError is no ErrNoLeader")
	}
}

// TestWireFaultNumbers: other versions know errors by these numbers.
func TestWireFaultNumbers(t *testing.T) {
	for n, err := range map[byte]error{
		1: timer.NotLeaderError{}, 2: timer.ErrUnknown, 3: timer.ErrNoLeader, 4: timer.ErrOverloaded, 5: timer.ErrMemory, 6: timer.ErrLowDisk, 7: timer.ErrStopped,
		8: timer.ErrRecovering, 9: timer.ErrNoTopic, 10: timer.ErrNotEmpty, 11: encoding.ErrFormat,
	} {
		if b := AppendFailure(nil, err); b[1] != n {
			t.Errorf("%v has number %d, want %d", err, b[1], n)
		}
	}
}

// TestWireFull: a page of timers ends before its frame grows too long, and so do the timers in
// answers.
func TestWireFull(t *testing.T) {
	big := &timer.Timer{ID: "a", State: timer.Scheduled, Spec: timer.Spec{PayloadKind: timer.BinaryPayload, Payload: bytes.Repeat([]byte{7}, 1<<20)}}
	list := make([]*timer.Timer, 40)
	ops := make([]timer.Op, len(list))
	for i := range list {
		list[i] = big
		ops[i] = timer.Op{Command: &timer.Command{Kind: timer.Fire, ID: "a"}, Result: timer.Result{Code: timer.OK, Timer: big}}
	}
	b := AppendPage(nil, nil, timer.Page{Timers: list}, &timer.Query{})
	_, got, err := DecodePage(b)
	if err != nil || !got.More || got.Next.ID != "a" || len(got.Timers) != 16 || len(b) > answerBytes+2<<20 {
		t.Errorf("%d timers in %d bytes, more %v, %v", len(got.Timers), len(b), got.More, err)
	}
	b = AppendAnswers(nil, ops)
	answers := bare(ops)
	if err := DecodeAnswers(b, answers); err != nil || len(b) > answerBytes+2<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for i, o := range answers {
		if o.Result.Code != timer.OK || (o.Result.Timer != nil) != (i < 16) {
			t.Fatalf("answer %d: %d, timer %v", i, o.Result.Code, o.Result.Timer != nil)
		}
	}
}

// samples returns one message of each type, with its decoder.
func samples() map[string]struct {
	message []byte
	read    func([]byte) error
} {
	ops := []timer.Op{
		{Shard: 3, Command: &timer.Command{Kind: timer.Add, Topic: 3, ID: "{order-77}close", Tag: 5, Content: 6, Spec: testkit.FullSpec()}},
		{Shard: 5, Command: &timer.Command{Kind: timer.NackLease, Topic: 3, Claim: &timer.LeaseUpdate{Handle: 7, Seq: 300, Fence: 1 << 40, DelayMs: 5000, HasDelay: true, Reason: "busy"}}},
		{Shard: 4, Command: &timer.Command{Kind: timer.Modify, Topic: 3, ID: "b", IfMatch: 2, Patch: &timer.Patch{Spec: *testkit.FullSpec(), Due: true, Labels: true}}},
	}
	answered := bare(ops)
	found := &timer.Timer{Topic: 3, ID: "b", Spec: *testkit.FullSpec(), Seq: 9, Tag: 4, Version: 2, State: timer.Dead, Reason: timer.Stopped, LastError: "no answer"}
	answered[0].Err = timer.NotLeaderError{Leader: 77}
	answered[1].Result = timer.Result{Code: timer.OK, Handle: 7, Seq: 9, Timer: found}
	past := &timer.HistoryEntry{Key: timer.HistoryKey{EndMs: 9, Index: 8, Shard: 7, Item: 6}, Timer: found, ByAttempt: true, Attempts: []timer.HistoryAttempt{{Attempt: 1, StartedMs: 2, EndedMs: 3, Status: 4, Err: "e"}}}
	pq := &timer.HistoryQuery{Topic: 3, Shards: []timer.ShardID{1, 9}, ID: "b", States: 8, After: &past.Key, Limit: 9}
	q := &timer.Query{Topic: 3, States: 2, ToMs: 9, Labels: []string{"a", "b"}, After: &timer.SortKey{SortMs: 7, ID: "b", Seq: 8}, Limit: 100}
	page := func(b []byte) error { _, _, err := DecodePage(b); return err }
	query := func(b []byte) error { _, _, err := DecodeQuery(b); return err }
	walk := func(b []byte) error { _, _, err := DecodeWalk(b); return err }
	steps := []timer.Step{{Shard: 3, At: timer.ScanCursor{From: 200, High: 300, Seq: 1 << 40, Begun: true}}, {Shard: 300}}
	marks := []timer.Step{{At: timer.ScanCursor{From: 9}, Refs: []timer.Ref{{ID: "a", Version: 300, Leased: true, DueMs: 1 << 40}, {ID: "b"}}}, {Refused: true}}
	type sample = struct {
		message []byte
		read    func([]byte) error
	}
	return map[string]sample{
		"ops":              {AppendOps(nil, ops), func(b []byte) error { _, err := DecodeOps(b); return err }},
		"answers":          {AppendAnswers(nil, answered), func(b []byte) error { return DecodeAnswers(b, bare(ops)) }},
		"timer request":    {AppendTimerRequest(nil, 3, 4, "b"), func(b []byte) error { _, _, _, err := DecodeTimerRequest(b); return err }},
		"timer":            {AppendTimer(nil, found), func(b []byte) error { _, err := DecodeTimer(b); return err }},
		"timers":           {AppendPage(nil, nil, timer.Page{Timers: []*timer.Timer{found, found}}, q), page},
		"page":             {AppendPage(nil, []timer.ShardID{3, 300}, timer.Page{Timers: []*timer.Timer{found, found}, Waits: []timer.Wait{{}, {For: timer.WaitBreaker, On: "http://h:80 (open)"}}, More: true, Next: *q.After}, q), page},
		"query":            {AppendQuery(nil, []timer.ShardID{3}, q), query},
		"query of several": {AppendQuery(nil, []timer.ShardID{3, 4, 300}, &timer.Query{Topic: 3, States: 2, Waits: true, Bytes: 1 << 20, Limit: 100}), query},
		"progress request": {AppendProgressRequest(nil, 3, &timer.ProgressQuery{Topic: 300, IDs: []string{"a", "{k}b"}, Attempts: true}), func(b []byte) error {
			_, _, err := DecodeProgressRequest(b)
			return err
		}},
		"progress": {AppendProgress(nil, []timer.Progress{{}, {Wait: timer.Wait{For: timer.WaitBreaker, On: "http://h:80 (open)"}, Attempts: past.Attempts}}), func(b []byte) error {
			_, err := DecodeProgress(b)
			return err
		}},
		"walk":           {AppendWalk(nil, steps[:1], q), walk},
		"walks":          {AppendWalk(nil, steps, q), walk},
		"marks":          {AppendSteps(nil, marks[:1]), func(b []byte) error { return DecodeSteps(b, make([]timer.Step, 1)) }},
		"steps":          {AppendSteps(nil, marks), func(b []byte) error { return DecodeSteps(b, make([]timer.Step, 2)) }},
		"history query":  {AppendHistoryQuery(nil, pq), func(b []byte) error { _, err := DecodeHistoryQuery(b); return err }},
		"history":        {AppendHistory(nil, []timer.ShardID{1, 9}, []*timer.HistoryEntry{past}, true), func(b []byte) error { _, _, _, err := DecodeHistory(b); return err }},
		"counts request": {AppendCountsRequest(nil, []timer.TopicID{300}), func(b []byte) error { _, err := DecodeCountsRequest(b); return err }},
		"offers request": {AppendCandidatesRequest(nil, 3, 32), func(b []byte) error { _, _, err := DecodeCandidatesRequest(b); return err }},
		"offers":         {AppendCandidates(nil, []timer.Candidate{{Shard: 1, Priority: 9, DueMs: 7, Bytes: 600}, {Shard: 5, Priority: 0, DueMs: 1_700_000_000_000, Bytes: 1 << 18}}), func(b []byte) error { _, err := DecodeCandidates(b); return err }},
		"take request": {AppendPullRequest(nil, 3, 30_000, []timer.Share{{Shard: 1, Timers: 7}, {Shard: 300, Timers: 1000}}), func(b []byte) error {
			_, _, _, err := DecodePullRequest(b)
			return err
		}},
		"taken":   {AppendPulled(nil, []timer.PulledTimer{{Shard: 3, Handle: 9, UntilMs: 1_700_000_000_000, Timer: found}}), func(b []byte) error { _, err := DecodePulled(b); return err }},
		"awaited": {AppendAwaited(nil, 7), func(b []byte) error { _, err := DecodeAwaited(b); return err }},
		"counts":  {AppendCounts(nil, []timer.ShardID{1, 5}, []timer.Counts{{Dead: 300}}), func(b []byte) error { _, _, err := DecodeCounts(b); return err }},
	}
}

// TestWireCut: a message that is truncated, is too long, or has another version is refused.
func TestWireCut(t *testing.T) {
	for name, s := range samples() {
		if err := s.read(s.message); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for n := range s.message {
			if err := s.read(s.message[:n]); !errors.Is(err, encoding.ErrFormat) {
				t.Errorf("%s cut to %d of %d: %v", name, n, len(s.message), err)
			}
		}
		if err := s.read(append(bytes.Clone(s.message), 0)); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("%s and more: %v", name, err)
		}
		other := bytes.Clone(s.message)
		other[0]++
		if err := s.read(other); !errors.Is(err, encoding.ErrFormat) {
			t.Errorf("%s of another version: %v", name, err)
		}
	}
}

// BenchmarkWireAdd encodes and decodes one brief add and its answer.
func BenchmarkWireAdd(b *testing.B) {
	spec := &timer.Spec{DueMs: 1_700_000_123_456, PayloadKind: timer.JSONPayload, Payload: bytes.Repeat([]byte{'7'}, 128), Callback: timer.Callback{URL: "https://shop.example/hooks"}}
	asked := []timer.Op{{Shard: 3, Brief: true, Command: &timer.Command{Kind: timer.Add, Topic: 3, ID: "s0003-0123456789abcdefghij", Tag: 5, Content: 6, Spec: spec}}}
	b.Run("request", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendOps(buf[:0], asked)
			if _, err := DecodeOps(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("answer", func(b *testing.B) {
		done := bare(asked)
		done[0].Result = timer.Result{Code: timer.Created, Handle: 5, Seq: 77, Version: 1, AtMs: 1_700_000_000_000}
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = AppendAnswers(buf[:0], done)
			if err := DecodeAnswers(buf, asked); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestWireProgress: a request for progress and its answer survive a round trip; a cause that this
// release does not know is dropped.
func TestWireProgress(t *testing.T) {
	asked := &timer.ProgressQuery{Topic: 300, IDs: []string{"a", "{k}b"}, Attempts: true}
	id, q, err := DecodeProgressRequest(AppendProgressRequest(nil, 7, asked))
	if err != nil || id != 7 || !reflect.DeepEqual(q, asked) {
		t.Errorf("%d %+v %v", id, q, err)
	}
	told := []timer.Progress{
		{}, {Wait: timer.Wait{For: timer.WaitKey, On: "{k}a"}, Attempts: []timer.HistoryAttempt{{Attempt: 1, StartedMs: 5, EndedMs: 6, Status: 500, Err: "no"}, {Attempt: 2}}},
	}
	if got, err := DecodeProgress(AppendProgress(nil, told)); err != nil || !reflect.DeepEqual(got, told) {
		t.Errorf("%+v %v", got, err)
	}
	later := []timer.Progress{{Wait: timer.Wait{For: timer.WaitCause(255), On: "something new"}}}
	if got, err := DecodeProgress(AppendProgress(nil, later)); err != nil || got[0].For != timer.NoWait || got[0].On != "" {
		t.Errorf("of a later release: %+v %v", got, err)
	}
}

func TestLowDiskBetweenNodes(t *testing.T) {
	for _, e := range []timer.LowDiskError{{}, {Node: 1<<40 - 1, Name: "n2", Path: "/var/lib/carillon", Free: 1 << 50, Limit: 256 << 20}, {Node: 3, Free: 1 << 50, Lack: "the disk has no inodes left"}} {
		if _, err := DecodeTimer(AppendFailure(nil, e)); err != error(e) {
			t.Errorf("%+v came as %v", e, err)
		}
	}
	long := timer.LowDiskError{Path: strings.Repeat("ü", 400)}
	if _, err := DecodeTimer(AppendFailure(nil, long)); !errors.Is(err, timer.ErrLowDisk) || len(err.Error()) > 400 {
		t.Errorf("a long path came as %v", err)
	}
}

func TestSnapshotErrorBetweenNodes(t *testing.T) {
	failed := timer.SnapshotError{Name: "n2", Path: "/var/lib/carillon", Why: "write x: input/output error"}
	if _, err := DecodeStateAnswer(AppendFailure(nil, fmt.Errorf("on the way: %w", failed))); err != error(failed) {
		t.Errorf("it came as %v", err)
	}
}

// TestSlots: a range of slots comes back with what is behind it, and half of one is refused.
func TestSlots(t *testing.T) {
	want := timer.SlotRange{From: 1 << 20, To: math.MaxUint32}
	b := AppendSlots(nil, want)
	if got, rest, err := DecodeSlots(append(b, "query"...)); err != nil || got != want || string(rest) != "query" {
		t.Errorf("%+v, %q, %v", got, rest, err)
	}
	if _, _, err := DecodeSlots(b[:len(b)-1]); err == nil {
		t.Error("half of a range is read")
	}
}
