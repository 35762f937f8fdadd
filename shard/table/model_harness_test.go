package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"carillon/timer"
	"carillon/timer/encoding"

	"pgregory.net/rapid"
)

// step is the model's version of an item that was put into a batch.
type step func() (timer.Code, *modelTimer)

// modelHarness drives a table and the model with the same random items.
type modelHarness struct {
	t     testing.TB
	pick  func(n int) int
	table *Table
	model *model
	now   int64
	// deadByVersion lets redrives and purges name a version or a number. The golden snapshot was
	// drawn without it.
	deadByVersion bool
	// notLate makes adds and puts refuse to be late. The golden snapshot was drawn without it.
	notLate  bool
	outcomes bool           // draw outcomes; the golden snapshot was drawn without them
	collects bool           // draw adds that collect; the golden snapshot was drawn without them
	since    [][]byte       // entries since BeginSnapshot, while a snapshot is in progress
	pauses   bool           // draw pauses and resumes; the golden snapshot was drawn without them
	answers  bool           // draw answers; the golden snapshot was drawn without them
	delivers bool           // draw changes of delivery; the golden snapshot was drawn without them
	drawn    *timer.Command // of the turn's last item; nil: it is none
	last     uint64         // number up to which shard 7 gave them; 0: the table is no child
	id       timer.ShardID
	// belongs limits the ids to those of the table's half; nil: all are.
	belongs func(topic timer.TopicID, id string) bool
}

// originOf returns the shard that gave a number, if it is not the table's.
func (mh *modelHarness) originOf(seq uint64) timer.ShardID {
	if seq <= mh.last {
		return 7
	}
	return 0
}

// belong makes a command one for the table's half.
func (mh *modelHarness) belong(c *timer.Command) {
	for c.ID != "" && mh.belongs != nil && !mh.belongs(c.Topic, c.ID) {
		c.ID += "+"
	}
}

const fakeStart = 1_700_000_000_000

func newModelHarness(t testing.TB, pick func(n int) int) *modelHarness {
	return &modelHarness{t: t, pick: pick, table: New(7, fakeStart), model: newModel(), now: fakeStart, id: 7}
}

func (mh *modelHarness) at(h timer.Handle) *modelTimer {
	for _, x := range mh.model.all {
		if x.handle == h {
			return x
		}
	}
	return nil
}

// turn applies one batch to the table and the model and compares the answers.
func (mh *modelHarness) turn() {
	mh.t.Helper()
	mh.now += int64(mh.pick(3)) * int64(mh.pick(40_000))
	var b Batch
	b.Reset(mh.now, 1, 2)
	steps := make([]step, 1+mh.pick(6))
	mh.drawn = nil
	for i := range steps {
		steps[i] = mh.item(&b)
	}
	preview := mh.preview(len(steps))
	data := bytes.Clone(b.Bytes())
	mh.table.KeepHistory()
	got, err := mh.table.Apply(data, func(int, *timer.Result) bool { return true }, nil)
	if err != nil || len(got) != len(steps) {
		mh.t.Fatalf("apply: %d results, %v", len(got), err)
	}
	preview(got)
	mh.model.begin(mh.now, len(data))
	for i, do := range steps {
		code, x := do()
		if got[i].Code != code {
			mh.t.Fatalf("item %d: code %d, the model says %d (%+v)", i, got[i].Code, code, x)
		}
		if x != nil {
			if x.handle == 0 {
				x.handle = got[i].Handle
			}
			if got[i].Handle != x.handle || got[i].Timer == nil {
				mh.t.Fatalf("item %d: handle %d, the model says %d (drawn %+v)", i, got[i].Handle, x.handle, mh.drawn)
			}
			mh.same(got[i].Timer, x)
		}
	}
	if n := mh.table.Outcomes(); len(n.Made) != len(mh.model.made) || n.Lost != mh.model.lost {
		mh.t.Fatalf("outcomes %+v, the model made %d and lost %d", n, len(mh.model.made), mh.model.lost)
	}
	for i, x := range mh.model.made {
		x.handle = mh.table.Outcomes().Made[i]
	}
	for _, x := range mh.model.all {
		for h := timer.Handle(1); x.handle == 0; h++ { // it continued another timer
			if mh.table.Live(h, x.Seq) {
				x.handle = h
			}
		}
	}
	mh.checkTold()
	if mh.since != nil {
		mh.since = append(mh.since, data)
	}
}

func (mh *modelHarness) same(got *timer.Timer, x *modelTimer) {
	mh.t.Helper()
	want := x.Timer
	want.Content, want.Occurrence, want.FirstMs = x.content, uint32(x.occurrence), x.first
	if x.first == 0 && !x.noExpiry && (x.Repeat == nil || x.occurrence == 1) {
		want.FirstMs = x.CreatedMs
	}
	want.Origin = mh.originOf(x.Seq)
	want.Successor = want.Successor || !x.behind && mh.model.blocks(x)
	if x.Collected > 0 && got.Payload == nil && len(want.Payload) > shownPayload {
		want.Payload = nil
	}
	if x.State.Over() { // the series continues without it
		want.Occurrence, want.FirstMs = got.Occurrence, got.FirstMs
	}
	if !reflect.DeepEqual(*got, want) {
		mh.t.Fatalf("timer is\n%+v\nthe model says\n%+v", *got, want)
	}
}

// check compares the whole state.
func (mh *modelHarness) check() {
	mh.t.Helper()
	if err := mh.table.Audit(false); err != nil {
		mh.t.Fatal(err)
	}
	var sum [3]timer.Counts
	for _, x := range mh.model.all {
		got := mh.table.Copy(x.handle)
		if got == nil {
			mh.t.Fatalf("handle %d of %q is free", x.handle, x.ID)
		}
		mh.same(got, x)
		d := mh.table.Due(x.handle)
		if d.Missed != x.missed || d.Rev != x.rev || d.State == timer.Leased && d.NextMs != x.until || d.State == timer.Dead && d.RetainMs != x.until {
			mh.t.Fatalf("due is %+v, the model says revision %d, until %d", d, x.rev, x.until)
		}
		if d.State == timer.Leased && (d.Holder != x.holder || d.LeaseMs != x.lasts || d.FiredMs != x.FiredMs || d.Status != x.LastStatus) {
			mh.t.Fatalf("due is %+v, the model says a lease of %d ms with holder %d", d, x.lasts, x.holder)
		}
		if d.ExpiresMs != x.expiry() {
			mh.t.Fatalf("expires at %d, want %d", d.ExpiresMs, x.expiry())
		}
		if !x.State.Over() {
			mh.sameLog(x)
		}
		n := &sum[x.Topic]
		if !x.State.Over() && x.Callback.URL == "" {
			n.NoURL++
		}
		switch x.State {
		case timer.Scheduled:
			n.Scheduled++
		case timer.Leased:
			n.Leased++
		case timer.Done:
			n.Done++
		case timer.Dead:
			n.Dead++
		}
	}
	if mh.table.Len()-foreignIn(mh.table) != len(mh.model.all) || mh.table.Counts(1) != sum[1] || mh.table.Counts(2) != sum[2] {
		mh.t.Fatalf("%d timers, the model has %d", mh.table.Len(), len(mh.model.all))
	}
	for key, l := range mh.model.byID {
		if len(l) > 0 {
			x := mh.model.shown(l[0].Topic, l[0].ID)
			if h, _ := mh.table.Lookup(x.Topic, x.ID); h != x.handle {
				mh.t.Fatalf("%s names handle %d, the model says %d", key, h, x.handle)
			}
		}
	}
}

// sameLog compares the logged attempts of a timer with the model's.
func (mh *modelHarness) sameLog(x *modelTimer) {
	mh.t.Helper()
	var logged []timer.HistoryAttempt
	if s := mh.table.slots.At(x.handle); s.Attempt != 0 {
		for log := (encoding.Reader{Rest: mh.table.content.Attempts(mh.table.attempts.At(s.Attempt).ErrRef)}); len(log.Rest) > 0; {
			logged = append(logged, readAttempt(&log))
		}
	}
	if !reflect.DeepEqual(logged, x.logged) {
		mh.t.Fatalf("handle %d has logged %+v, the model says %+v", x.handle, logged, x.logged)
	}
}

// restart takes a snapshot while entries are applied, loads it, applies the same entries to the new
// table and continues with that one (I12).
func (mh *modelHarness) restart() {
	mh.t.Helper()
	want, hash := dump(mh.table), mh.table.Hash()
	snap := mh.table.BeginSnapshot()
	mh.since = [][]byte{}
	var image []byte
	for done := false; !done; {
		for range mh.pick(3) {
			mh.turn()
		}
		image, done = snap.Next(image, 1+mh.pick(3000))
	}
	loaded, err := Load(mh.id, bytes.NewReader(image))
	if err != nil {
		mh.t.Fatalf("%v in %d bytes of\n%s", err, len(image), want)
	}
	if got := dump(loaded); got != want || loaded.Hash() != hash {
		mh.t.Fatalf("loaded %x\n%s\nwant %x\n%s", loaded.Hash(), got, hash, want)
	}
	for _, data := range mh.since {
		if _, err := loaded.Apply(data, nil, nil); err != nil {
			mh.t.Fatal(err)
		}
	}
	if got, want := dump(loaded), dump(mh.table); got != want || loaded.Hash() != mh.table.Hash() {
		mh.t.Fatalf("after the log %x\n%s\nwant %x\n%s", loaded.Hash(), got, mh.table.Hash(), want)
	}
	mh.since = nil
	mh.table = loaded
}

// placeOf prints a timer's place among those of its id.
func placeOf(t *Table, h timer.Handle) string {
	l := t.chains[h]
	if l.of == nil {
		return "alone"
	}
	return fmt.Sprint(l.newer, l.older, l.live, l.behind, *l.of)
}

// dump prints all replicated state.
func dump(t *Table) string {
	var b bytes.Buffer
	if l := t.leaving; l != nil {
		fmt.Fprintln(&b, *l)
		t.leaving = nil // to be seen
		defer func() { t.leaving = l }()
	}
	fmt.Fprintln(&b, t.shards, t.lineage)
	fmt.Fprintln(&b, t.clockMs, t.seq, t.fence, t.leaderships, t.slots.High, t.slots.Free, t.slots.Unused, t.finished, t.closedTopics, t.deliveries)
	for h := timer.Handle(1); h <= t.slots.High; h++ {
		s := t.slots.At(h)
		if s.State() == 0 {
			fmt.Fprintln(&b, h, "free", t.slots.NextFree(h))
			continue
		}
		v := t.content.View(s.Ref)
		m := *t.Copy(h)
		repeat, trace, done, dead, collect, answer := m.Repeat, m.Trace, m.OnDone, m.OnDead, m.Collect, m.LastAnswer
		m.Repeat, m.Trace, m.OnDone, m.OnDead, m.Collect, m.LastAnswer = nil, nil, nil, nil, nil, nil // otherwise their addresses would be printed
		fmt.Fprintf(&b, "%d %+v %+v %+v %+v %+v %+v %d %d %d %x %d %v", h, m, repeat, trace, done, dead, collect, s.When(), s.Rev, v.Content, v.Flags, s.Marks(), placeOf(t, h))
		fmt.Fprint(&b, " ", v.FirstMs, v.Occurrence)
		if a, ok := t.arrays[h]; ok {
			payloads, names := t.content.Texts(&a)
			fmt.Fprintf(&b, " array %q %q", payloads, names)
		}
		if s.Attempt != 0 {
			fmt.Fprintf(&b, " %+v", answer)
			r := *t.attempts.At(s.Attempt)
			if r.Successor != 0 {
				n := t.content.View(r.Successor)
				fmt.Fprintf(&b, " successor %d %x %x due %d", n.CreatedMs, n.Flags, n.Rest, n.DueMs)
			}
			r.ErrRef, r.Successor = 0, 0
			fmt.Fprintf(&b, " %+v", r)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func (mh *modelHarness) drive(turns int) {
	for i := range turns {
		mh.turn()
		if i%16 == 15 {
			mh.check()
		}
		if mh.pick(40) == 0 {
			mh.restart()
		}
	}
	mh.check()
}

func TestTableAgainstModel(t *testing.T) {
	seeds := 12
	if os.Getenv("CARILLON_SOAK") != "" {
		seeds = 5000
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			g := newModelHarness(t, rand.New(rand.NewPCG(seed, 1)).IntN)
			g.deadByVersion, g.notLate = seed%2 == 0, seed%4 == 0
			g.outcomes = seed%3 > 0
			g.delivers, g.answers, g.pauses, g.collects = seed%2 == 1, seed%3 == 0, seed%3 != 1, seed%4 > 0
			g.drive(250)
		})
	}
}

func TestTableProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := newModelHarness(rapidTB{TB: t, r: r}, func(n int) int { return rapid.IntRange(0, n-1).Draw(r, "pick") })
		g.deadByVersion, g.notLate, g.outcomes, g.answers, g.pauses, g.collects = true, true, true, true, true, true
		g.drive(12)
	})
}

// rapidTB reports failures to rapid, so that rapid shrinks them.
type rapidTB struct {
	testing.TB
	r *rapid.T
}

func (t rapidTB) Fatal(args ...any)                 { t.r.Fatal(args...) }
func (t rapidTB) Fatalf(format string, args ...any) { t.r.Fatalf(format, args...) }
func (t rapidTB) Helper()                           {}
