package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/vfs"
	"carillon/test/memfs"
	"carillon/test/sim/forged"
	"carillon/test/testkit"
)

const hour = int64(3_600_000)

// storeHarness is a store in memory with its model: a list of all that was recorded.
type storeHarness struct {
	testing.TB
	fs    *memfs.FS
	now   int64
	keep  int64
	cfg   Config
	store *Store
	rand  *rand.Rand

	index map[uint32]uint64
	all   []Event // in the order of recording
	tally map[uint64]int
}

func newStoreHarness(t testing.TB, seed uint64, change func(*Config)) *storeHarness {
	r := &storeHarness{TB: t, fs: memfs.New(), now: 1000 * hour, keep: 72 * hour, rand: rand.New(rand.NewPCG(seed, 9)), index: map[uint32]uint64{}, tally: map[uint64]int{}}
	r.cfg = Config{FS: r.fs, Dir: "history", NowMs: func() int64 { return r.now }, KeepMs: func() int64 { return r.keep }, SegmentSize: 40_000, Salt: func() uint64 { return uint64(testSalt) }}
	if change != nil {
		change(&r.cfg)
	}
	r.open()
	return r
}

func (h *storeHarness) open() {
	h.Helper()
	h.cfg.FS = h.fs
	s, err := Open(h.cfg)
	testkit.Must(h, err)
	h.store = s
}

// entry records the events of one log entry: some ends and attempts of a shard.
func (h *storeHarness) entry() {
	shard := 1 + h.rand.Uint32N(5)
	h.index[shard] += 1 + h.rand.Uint64N(3)
	events := make([]Event, 1+h.rand.IntN(4))
	for i := range events {
		seq := 1 + h.rand.Uint64N(60)
		e := Event{Shard: shard, Index: h.index[shard], Item: uint32(i), Topic: 1 + h.rand.Uint32N(3), Seq: seq,
			State: uint8(3 + h.rand.IntN(3)), EndMs: h.now - h.rand.Int64N(2000)}
		if h.rand.IntN(3) == 0 {
			e.State = 0
		}
		e.ID = fmt.Appendf(nil, "timer-%d", h.rand.IntN(200))
		e.Body = bytes.Repeat([]byte{byte(h.rand.Uint32())}, h.rand.IntN(300))
		if h.rand.IntN(8) == 0 { // in the place of the rest, so that records are as long as they were
			e.Body = e.Body[:len(e.Body)/8]
			e.Body = append(append(e.Body, forged.HistoryRecord(shard, 1<<40, "forged")...), forged.HistoryTail(fileHead)...)
		}
		events[i] = e
	}
	h.store.Record(events)
	h.all = append(h.all, events...)
}

// want is the right answer to a query.
func (h *storeHarness) want(q *Query) []Event {
	var out []Event
	for _, e := range h.all {
		if e.State == 0 || e.Topic != q.Topic || q.States>>e.State&1 == 0 || e.EndMs < q.FromMs || q.ToMs != 0 && e.EndMs >= q.ToMs ||
			q.ID != nil && string(q.ID) != string(e.ID) || q.Shards != nil && !q.Shards(e.Shard) || q.After != nil && e.Key().Compare(*q.After) <= 0 {
			continue
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Event) int { return a.Key().Compare(b.Key()) })
	return out
}

func same(a, b []Event) bool {
	return slices.EqualFunc(a, b, func(a, b Event) bool {
		same := a.Key() == b.Key() && a.Topic == b.Topic && a.Seq == b.Seq && a.State == b.State
		return same && bytes.Equal(a.ID, b.ID) && bytes.Equal(a.Body, b.Body)
	})
}

// query draws a question.
func (h *storeHarness) query() *Query {
	q := &Query{Topic: 1 + h.rand.Uint32N(4), States: 1<<3 | 1<<4 | 1<<5, Limit: 1 + h.rand.IntN(40)}
	if h.rand.IntN(3) == 0 {
		q.States = 1 << (3 + h.rand.IntN(3))
	}
	if h.rand.IntN(3) == 0 {
		q.ID = fmt.Appendf(nil, "timer-%d", h.rand.IntN(210))
	}
	if h.rand.IntN(3) == 0 {
		odd := h.rand.Uint32N(2)
		q.Shards = func(s uint32) bool { return s%2 == odd }
	}
	if h.rand.IntN(2) == 0 {
		q.FromMs = h.now - h.rand.Int64N(3*hour)
		q.ToMs = q.FromMs + h.rand.Int64N(2*hour)
	}
	return q
}

// check asks many questions, page by page, and compares with the model.
func (h *storeHarness) check() {
	h.Helper()
	for range 12 {
		q := h.query()
		var got []Event
		for {
			page, more, err := h.store.List(q)
			testkit.Must(h, err)
			if len(page) > q.Limit || more && len(page) == 0 {
				h.Fatalf("a page of %d of %d, more: %v", len(page), q.Limit, more)
			}
			got = append(got, page...)
			if !more {
				break
			}
			last := page[len(page)-1].Key()
			q.After = &last
		}
		q.After = nil
		if want := h.want(q); !same(got, want) {
			h.Fatalf("%+v gave %d ends, the model has %d", q, len(got), len(want))
		}
		if q.ID != nil {
			want := h.want(q)
			newest := *q
			newest.Newest = true
			page, more, err := h.store.List(&newest)
			slices.Reverse(want)
			if n := min(q.Limit, len(want)); err != nil || !same(page, want[:n]) || more != (n < len(want)) {
				h.Fatalf("the newest of %s: %d of %d, more: %v, %v", q.ID, len(page), len(want), more, err)
			}
		}
	}
	shard, seq := 1+h.rand.Uint32N(5), 1+h.rand.Uint64N(60)
	index, item := h.rand.Uint64N(h.index[shard]+2), h.rand.Uint32N(4)
	var want []Event
	for _, e := range h.all {
		if e.State == 0 && e.Shard == shard && e.Seq == seq && (e.Index < index || e.Index == index && e.Item <= item) {
			want = append(want, e)
		}
	}
	got, err := h.store.Attempts(shard, seq, index, item)
	if err != nil || !same(got, want) {
		h.Fatalf("attempts of %d/%d before %d/%d: %d, the model has %d, %v", shard, seq, index, item, len(got), len(want), err)
	}
}

// TestStoreAgainstModel: the history has the recorded events, over files, hours and restarts,
// whether they were clean or not.
func TestStoreAgainstModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	seeds := uint64(6)
	if os.Getenv("CARILLON_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newStoreHarness(t, seed, nil)
			for range 600 {
				r.entry()
				switch r.rand.IntN(60) {
				case 0:
					r.now += r.rand.Int64N(2 * hour)
				case 1:
					r.check()
				case 2:
					r.store.Maintain()
				case 3:
					r.store.Close()
					r.open()
					r.store.Record(r.all[max(0, len(r.all)-30):]) // the log is read again
				case 4:
					r.store.Flush() // the process dies; its writes are there
					r.fs.Kill()
					r.open()
				}
				r.now += r.rand.Int64N(1000)
			}
			r.check()
			if s := r.store.Stats(); s.Dropped+s.Damaged != 0 || s.Files < 5 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestPowerCut: a crash leaves a part of the recorded events, all of those that were once synced,
// and none that was not recorded; events of the log are recorded again, once.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(20) {
		r := newStoreHarness(t, seed, nil)
		synced := 0
		for range 150 + r.rand.IntN(150) {
			r.entry()
			switch r.rand.IntN(30) {
			case 0:
				r.now += hour
			case 1:
				r.now += 4000
				r.store.Maintain()
				synced = len(r.all)
			case 2:
				r.store.Flush()
			}
		}
		r.fs = r.fs.CrashClone(r.rand, memfs.CrashOptions{KeepData: r.rand.IntN(101), KeepSize: r.rand.IntN(101), KeepNames: r.rand.IntN(101), Garbage: seed%2 == 0})
		r.open()
		left := map[Key]Event{}
		for topic := uint32(1); topic <= 3; topic++ {
			page, more, err := r.store.List(&Query{Topic: topic, States: 0xff, Limit: 10_000})
			if err != nil || more {
				t.Fatal(more, err)
			}
			for _, e := range page {
				left[e.Key()] = e
			}
		}
		for i, e := range r.all {
			got, ok := left[e.Key()]
			if delete(left, e.Key()); ok && !same([]Event{got}, []Event{e}) {
				t.Fatalf("seed %d: %+v came back as %+v", seed, e, got)
			}
			if !ok && e.State != 0 && i < synced {
				t.Fatalf("seed %d: event %d of %d that were synced is lost", seed, i, synced)
			}
		}
		if len(left) > 0 {
			t.Fatalf("seed %d: %d ends that nobody recorded", seed, len(left))
		}
		r.store.Record(r.all[synced:])
		r.store.Record(r.all[synced:])
		r.entry()
		seen := map[Key]bool{}
		for topic := uint32(1); topic <= 3; topic++ {
			page, _, err := r.store.List(&Query{Topic: topic, States: 0xff, Limit: 10_000})
			testkit.Must(t, err)
			for _, e := range page {
				if seen[e.Key()] {
					t.Fatalf("seed %d: %+v is there twice", seed, e.Key())
				}
				seen[e.Key()] = true
			}
		}
	}
}

// TestDamageIsNeverServed: flipped bits hide some records; the records that are given are as they
// were recorded, and the damage is counted.
func TestDamageIsNeverServed(t *testing.T) {
	for seed := range uint64(20) {
		r := newStoreHarness(t, seed, nil)
		for range 400 {
			r.entry()
			r.now += r.rand.Int64N(20_000)
			r.store.Flush()
		}
		clean := r.rand.IntN(2) == 0
		if clean {
			r.store.Close()
		}
		names, _ := r.fs.ReadDir("history")
		name := names[r.rand.IntN(len(names))]
		whole := r.want(&Query{Topic: 1, States: 0xff})
		for range 1 + r.rand.IntN(3) {
			testkit.Must(t, r.fs.FlipBit(filepath.Join("history", name.Name), r.rand.Int64N(8*name.Bytes)))
		}
		if clean {
			r.open()
		}
		got, _, err := r.store.List(&Query{Topic: 1, States: 0xff, Limit: 100_000})
		testkit.Must(t, err)
		at := 0
		for _, e := range got {
			for at < len(whole) && whole[at].Key() != e.Key() {
				at++
			}
			if at == len(whole) || !same([]Event{e}, whole[at:at+1]) {
				t.Fatalf("seed %d: %+v was served, and never recorded", seed, e)
			}
		}
		if missing := len(whole) - len(got); missing > 3 || missing > 0 && r.store.Stats().Damaged == 0 {
			t.Errorf("seed %d: %d of %d are missing, %d damaged", seed, missing, len(whole), r.store.Stats().Damaged)
		}
		for _, e := range whole {
			q := &Query{Topic: 1, ID: e.ID, States: 0xff, Limit: 1000}
			page, _, err := r.store.List(q)
			if want := r.want(q); err != nil || len(page) > len(want) {
				t.Fatalf("seed %d: %s: %d of %d, %v", seed, e.ID, len(page), len(want), err)
			}
		}
	}
}

// TestBounds: the files stay within their size and age, and they have the newest events.
func TestBounds(t *testing.T) {
	r := newStoreHarness(t, 1, func(c *Config) { c.Bytes, c.SegmentSize = 400_000, 0 })
	for range 8_000 {
		r.entry()
		r.now += 50
		if r.rand.IntN(50) == 0 {
			r.store.Maintain()
			if s := r.store.Stats(); s.Bytes > 400_000 {
				t.Fatalf("%+v", s)
			}
		}
	}
	page, _, err := r.store.List(&Query{Topic: 1, States: 0xff, Limit: 100_000})
	want := r.want(&Query{Topic: 1, States: 0xff})
	if err != nil || len(page) < 300 || !same(page[len(page)-200:], want[len(want)-200:]) {
		t.Fatalf("%d are left, %v", len(page), err)
	}
	r.now += r.keep + hour
	r.store.Maintain()
	r.store.Maintain()
	if s := r.store.Stats(); s.Files != 0 || s.Bytes != 0 || s.Dropped != 0 {
		t.Errorf("after its time: %+v", s)
	}
	r.store.Record(r.all[len(r.all)-1:]) // the log of an idle shard may be older than that
	r.store.Flush()
	if s := r.store.Stats(); s.Files != 0 {
		t.Errorf("what is too old was written: %+v", s)
	}
}

// TestRemovalIsTriedAgain: a file that was given up, and could not be removed, is removed later,
// not only at the next start: until then it takes room that is not counted.
func TestRemovalIsTriedAgain(t *testing.T) {
	r := newStoreHarness(t, 1, func(c *Config) { c.Bytes, c.SegmentSize = 400_000, 0 })
	left := func() (n int) {
		list, err := r.fs.ReadDir(r.cfg.Dir)
		testkit.Must(t, err)
		for _, e := range list {
			if _, ok := fileNumber(e.Name); ok {
				n++
			}
		}
		return n
	}
	r.fs.SetHook(func(_ int, op memfs.Op, _ string) error {
		if op == memfs.OpRemove {
			return syscall.EIO
		}
		return nil
	})
	for range 8_000 {
		r.entry()
		if r.rand.IntN(50) == 0 {
			r.store.Maintain()
		}
	}
	if files := r.store.Stats().Files; left() <= files {
		t.Fatalf("%d files, %d on the disk: nothing was given up", files, left())
	}
	r.fs.SetHook(nil)
	r.store.Maintain()
	if files := r.store.Stats().Files; left() != files {
		t.Errorf("%d files, %d on the disk", files, left())
	}
}

// TestPressure: too much at once, a failing and a full disk cost records, which are counted, and
// nothing else.
func TestPressure(t *testing.T) {
	r := newStoreHarness(t, 1, func(c *Config) { c.QueueBytes = 10_000 })
	for range 200 {
		r.entry()
	}
	n := uint64(len(r.all))
	r.store.Flush()
	if s := r.store.Stats(); s.Dropped == 0 || s.Recorded+s.Dropped != n {
		t.Fatalf("a queue of 10 kB: %+v of %d", s, n)
	}
	dropped := r.store.Stats().Dropped
	r.fs.FailNth(memfs.OpWrite, 1, os.ErrInvalid)
	r.entry()
	r.store.Flush()
	if s := r.store.Stats(); s.Dropped <= dropped {
		t.Errorf("a write failed: %+v", s)
	}
	dropped = r.store.Stats().Dropped
	r.entry()
	r.store.Flush()
	if s := r.store.Stats(); s.Dropped != dropped {
		t.Errorf("the disk is well again: %+v", s)
	}
	r.fs.SetCapacity(100 << 20) // below lowDiskBytes
	for range 3 {
		r.store.Maintain()
	}
	r.entry()
	r.store.Flush()
	if s := r.store.Stats(); !r.store.low.Load() || s.Files != 0 || s.Dropped <= dropped {
		t.Errorf("the disk is almost full: %+v", s)
	}
	r.fs.SetCapacity(10 << 30)
	r.store.Maintain()
	r.entry()
	r.store.Flush()
	if s := r.store.Stats(); r.store.low.Load() || s.Files != 1 {
		t.Errorf("there is room again: %+v", s)
	}
}

// TestEventsAreWrittenSoon: each event is written within writeInterval, also the first after a
// quiet time and the first after a query has written those before.
func TestEventsAreWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStoreHarness(t, 1, nil)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = h.store.Run(ctx) })
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pass(5*time.Second + maintainInterval/3)
		for range 3 {
			h.entry()
			h.store.Flush()
			h.entry()
			pass(writeInterval)
			if s := h.store.Stats(); s.Recorded != uint64(len(h.all)) {
				t.Errorf("%d of %d events are written", s.Recorded, len(h.all))
			}
			pass(maintainInterval - writeInterval)
		}
		stop()
		running.Wait()
	})
}

// TestDeletedUnderARunningNode: a file that is deleted while it is written, or its directory, is
// said once in the log and counts as a gap. What follows is written as soon as it can be.
func TestDeletedUnderARunningNode(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"the file": func(dir string) error { return os.Remove(filepath.Join(dir, fileName(1))) },
		"a copy in its place": func(dir string) error {
			file := filepath.Join(dir, fileName(1))
			return errors.Join(os.Rename(file, dir+"-moved"), os.WriteFile(file, nil, 0o600))
		},
		"the directory": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			dir, now := filepath.Join(t.TempDir(), "history"), int64(1000*hour)
			s, err := Open(Config{FS: vfs.OS{}, Dir: dir, NowMs: func() int64 { return now }, KeepMs: func() int64 { return 72 * hour }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			testkit.Must(t, err)
			defer s.Close()
			record := func(index uint64) {
				s.Record([]Event{{Shard: 1, Index: index, Topic: 1, Seq: index, State: 3, EndMs: now, ID: []byte("a")}})
				s.Maintain()
				now += 1000
			}
			record(1)
			record(2)
			if log.Len() > 0 {
				t.Fatal(log.String())
			}
			testkit.Must(t, spoil(dir))
			for i := range uint64(20) {
				record(3 + i)
			}
			if n := strings.Count(log.String(), "was deleted, moved or replaced"); n != 1 || strings.Count(log.String(), "\n") > 2 || s.Stats().Damaged != 1 {
				t.Errorf("said %d times, %+v:\n%s", n, s.Stats(), log.String())
			}
			testkit.Must(t, os.MkdirAll(dir, 0o700))
			before := s.Stats().Recorded
			record(23)
			if after := s.Stats().Recorded; after != before+1 {
				t.Errorf("%d records, then %d", before, after)
			}
			list, err := filepath.Glob(filepath.Join(dir, "*.hist"))
			if err != nil || len(list) == 0 {
				t.Error("there is no file", err)
			}
			now += 100 * hour // the file that has gone is dropped without a word
			record(24)
			if strings.Count(log.String(), "\n") > 2 {
				t.Error(log.String())
			}
		})
	}
}
