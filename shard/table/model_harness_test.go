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
func (g *modelHarness) originOf(seq uint64) timer.ShardID {
	if seq <= g.last {
		return 7
	}
	return 0
}

// belong makes a command one for the table's half.
func (g *modelHarness) belong(c *timer.Command) {
	for c.ID != "" && g.belongs != nil && !g.belongs(c.Topic, c.ID) {
		c.ID += "+"
	}
}

const fakeStart = 1_700_000_000_000

func newModelHarness(t testing.TB, pick func(n int) int) *modelHarness {
	return &modelHarness{t: t, pick: pick, table: New(7, fakeStart), model: newModel(), now: fakeStart, id: 7}
}

func (g *modelHarness) at(h timer.Handle) *modelTimer {
	for _, x := range g.model.all {
		if x.handle == h {
			return x
		}
	}
	return nil
}

// turn applies one batch to the table and the model and compares the answers.
func (g *modelHarness) turn() {
	g.t.Helper()
	g.now += int64(g.pick(3)) * int64(g.pick(40_000))
	var b Batch
	b.Reset(g.now, 1, 2)
	steps := make([]step, 1+g.pick(6))
	g.drawn = nil
	for i := range steps {
		steps[i] = g.item(&b)
	}
	preview := g.preview(len(steps))
	data := bytes.Clone(b.Bytes())
	g.table.KeepHistory()
	got, err := g.table.Apply(data, func(int, *timer.Result) bool { return true }, nil)
	if err != nil || len(got) != len(steps) {
		g.t.Fatalf("apply: %d results, %v", len(got), err)
	}
	preview(got)
	g.model.begin(g.now, len(data))
	for i, do := range steps {
		code, x := do()
		if got[i].Code != code {
			g.t.Fatalf("item %d: code %d, the model says %d (%+v)", i, got[i].Code, code, x)
		}
		if x != nil {
			if x.handle == 0 {
				x.handle = got[i].Handle
			}
			if got[i].Handle != x.handle || got[i].Timer == nil {
				g.t.Fatalf("item %d: handle %d, the model says %d (drawn %+v)", i, got[i].Handle, x.handle, g.drawn)
			}
			g.same(got[i].Timer, x)
		}
	}
	if n := g.table.Outcomes(); len(n.Made) != len(g.model.made) || n.Lost != g.model.lost {
		g.t.Fatalf("outcomes %+v, the model made %d and lost %d", n, len(g.model.made), g.model.lost)
	}
	for i, x := range g.model.made {
		x.handle = g.table.Outcomes().Made[i]
	}
	for _, x := range g.model.all {
		for h := timer.Handle(1); x.handle == 0; h++ { // it continued another timer
			if g.table.Live(h, x.Seq) {
				x.handle = h
			}
		}
	}
	g.checkTold()
	if g.since != nil {
		g.since = append(g.since, data)
	}
}

func (g *modelHarness) same(got *timer.Timer, x *modelTimer) {
	g.t.Helper()
	want := x.Timer
	want.Content, want.Occurrence, want.FirstMs = x.content, uint32(x.occurrence), x.first
	if x.first == 0 && !x.noExpiry && (x.Repeat == nil || x.occurrence == 1) {
		want.FirstMs = x.CreatedMs
	}
	want.Origin = g.originOf(x.Seq)
	want.Successor = want.Successor || !x.behind && g.model.blocks(x)
	if x.Collected > 0 && got.Payload == nil && len(want.Payload) > shownPayload {
		want.Payload = nil
	}
	if x.State.Over() { // the series goes on without it
		want.Occurrence, want.FirstMs = got.Occurrence, got.FirstMs
	}
	if !reflect.DeepEqual(*got, want) {
		g.t.Fatalf("timer is\n%+v\nthe model says\n%+v", *got, want)
	}
}

// check compares the whole state.
func (g *modelHarness) check() {
	g.t.Helper()
	if err := g.table.Audit(false); err != nil {
		g.t.Fatal(err)
	}
	var sum [3]timer.Counts
	for _, x := range g.model.all {
		got := g.table.Copy(x.handle)
		if got == nil {
			g.t.Fatalf("handle %d of %q is free", x.handle, x.ID)
		}
		g.same(got, x)
		d := g.table.Due(x.handle)
		if d.Missed != x.missed || d.Rev != x.rev || d.State == timer.Leased && d.NextMs != x.until || d.State == timer.Dead && d.RetainMs != x.until {
			g.t.Fatalf("due is %+v, the model says revision %d, until %d", d, x.rev, x.until)
		}
		if d.State == timer.Leased && (d.Holder != x.holder || d.LeaseMs != x.lasts || d.FiredMs != x.FiredMs || d.Status != x.LastStatus) {
			g.t.Fatalf("due is %+v, the model says a lease of %d ms with holder %d", d, x.lasts, x.holder)
		}
		if d.ExpiresMs != x.expiry() {
			g.t.Fatalf("expires at %d, want %d", d.ExpiresMs, x.expiry())
		}
		if !x.State.Over() {
			g.sameLog(x)
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
	if g.table.Len()-foreignIn(g.table) != len(g.model.all) || g.table.Counts(1) != sum[1] || g.table.Counts(2) != sum[2] {
		g.t.Fatalf("%d timers, the model has %d", g.table.Len(), len(g.model.all))
	}
	for key, l := range g.model.byID {
		if len(l) > 0 {
			x := g.model.shown(l[0].Topic, l[0].ID)
			if h, _ := g.table.Lookup(x.Topic, x.ID); h != x.handle {
				g.t.Fatalf("%s names handle %d, the model says %d", key, h, x.handle)
			}
		}
	}
}

// sameLog compares the logged attempts of a timer with the model's.
func (g *modelHarness) sameLog(x *modelTimer) {
	g.t.Helper()
	var logged []timer.HistoryAttempt
	if s := g.table.slots.At(x.handle); s.Attempt != 0 {
		for log := (encoding.Reader{Rest: g.table.content.Attempts(g.table.attempts.At(s.Attempt).ErrRef)}); len(log.Rest) > 0; {
			logged = append(logged, readAttempt(&log))
		}
	}
	if !reflect.DeepEqual(logged, x.logged) {
		g.t.Fatalf("handle %d has logged %+v, the model says %+v", x.handle, logged, x.logged)
	}
}

// restart takes a snapshot while entries are applied, loads it, applies the same entries to the new
// table and continues with that one (I12).
func (g *modelHarness) restart() {
	g.t.Helper()
	want, hash := dump(g.table), g.table.Hash()
	snap := g.table.BeginSnapshot()
	g.since = [][]byte{}
	var image []byte
	for done := false; !done; {
		for range g.pick(3) {
			g.turn()
		}
		image, done = snap.Next(image, 1+g.pick(3000))
	}
	loaded, err := Load(g.id, bytes.NewReader(image))
	if err != nil {
		g.t.Fatalf("%v in %d bytes of\n%s", err, len(image), want)
	}
	if got := dump(loaded); got != want || loaded.Hash() != hash {
		g.t.Fatalf("loaded %x\n%s\nwant %x\n%s", loaded.Hash(), got, hash, want)
	}
	for _, data := range g.since {
		if _, err := loaded.Apply(data, nil, nil); err != nil {
			g.t.Fatal(err)
		}
	}
	if got, want := dump(loaded), dump(g.table); got != want || loaded.Hash() != g.table.Hash() {
		g.t.Fatalf("after the log %x\n%s\nwant %x\n%s", loaded.Hash(), got, g.table.Hash(), want)
	}
	g.since = nil
	g.table = loaded
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
			fmt.Fprintln(&b, h, "free", s.Ref)
			continue
		}
		v := t.content.View(s.Ref)
		m := *t.Copy(h)
		repeat, trace, done, dead, answer := m.Repeat, m.Trace, m.OnDone, m.OnDead, m.LastAnswer
		m.Repeat, m.Trace, m.OnDone, m.OnDead, m.LastAnswer = nil, nil, nil, nil, nil // otherwise their addresses would be printed
		fmt.Fprintf(&b, "%d %+v %+v %+v %+v %+v %d %d %d %x %d %v", h, m, repeat, trace, done, dead, s.When(), s.Rev, v.Content, v.Flags, s.Marks(), placeOf(t, h))
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

func (g *modelHarness) drive(turns int) {
	for i := range turns {
		g.turn()
		if i%16 == 15 {
			g.check()
		}
		if g.pick(40) == 0 {
			g.restart()
		}
	}
	g.check()
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
