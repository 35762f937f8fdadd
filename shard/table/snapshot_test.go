package table

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

// smallTable makes a table with all features: every state, dead letters of one id, free slots and a
// closed topic.
func smallTable(tb testing.TB) *Table {
	tb.Helper()
	g := newModelHarness(tb, rand.New(rand.NewPCG(11, 5)).IntN)
	successor := func(x *modelTimer) bool { return x.successor != nil }
	for !slices.ContainsFunc(g.model.all, successor) || len(g.table.chains) == 0 || g.table.slots.Unused < 2 || g.table.Totals().Leased == 0 || g.table.Totals().Done == 0 {
		g.turn()
	}
	return g.table
}

func TestSnapshotGolden(t *testing.T) {
	table := smallTable(t)
	b := image(table)
	testkit.Golden(t, "table-snapshot", b)
	loaded, err := Load(7, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if dump(loaded) != dump(table) || loaded.Hash() != table.Hash() {
		t.Error("the loaded table differs")
	}
	if err := loaded.Audit(false); err != nil {
		t.Error(err)
	}
}

// TestLoadInPieces: a snapshot can be read in pieces of any size, down to one byte, even if a body
// is larger than the read buffer. An error of the reader is returned unchanged.
func TestLoadInPieces(t *testing.T) {
	table := New(7, benchNow)
	var b Batch
	b.Reset(benchNow, 1, 1)
	for i, size := range []int{0, 100, 64<<10 - 40, 64 << 10, 200_000, 1, 64} {
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: benchID(i), Spec: &timer.Spec{DueMs: benchNow + 1, Payload: bytes.Repeat([]byte("x"), size), PayloadKind: timer.BinaryPayload}})
	}
	if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	whole := image(table)
	for _, r := range []io.Reader{iotest.OneByteReader(bytes.NewReader(whole)), iotest.HalfReader(bytes.NewReader(whole)), iotest.DataErrReader(bytes.NewReader(whole))} {
		loaded, err := Load(7, r)
		if err != nil {
			t.Fatal(err)
		}
		if dump(loaded) != dump(table) || loaded.Hash() != table.Hash() {
			t.Error("the loaded table differs")
		}
	}
	broken := errors.New("the disk is gone")
	for n := 0; n < len(whole); n += 1 + len(whole)/200 {
		if _, err := Load(7, io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
			t.Fatalf("error after %d bytes: %v", n, err)
		}
	}
}

func TestSnapshotDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	b := image(smallTable(t))
	for n := 0; n < len(b); n += 1 + len(b)/3000 {
		if _, err := Load(7, bytes.NewReader(b[:n])); !errors.Is(err, encoding.ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(b), err)
		}
		bad := bytes.Clone(b)
		bad[n] ^= 1 << (n % 8)
		if _, err := Load(7, bytes.NewReader(bad)); err == nil {
			t.Fatalf("bit %d of byte %d of %d flipped: loaded", n%8, n, len(b))
		}
	}
	if _, err := Load(8, bytes.NewReader(b)); err == nil {
		t.Error("loaded the snapshot of another shard")
	}
}

// TestSnapshotAborted: an aborted snapshot leaves the table unchanged, and another one can begin.
func TestSnapshotAborted(t *testing.T) {
	table := smallTable(t)
	want := dump(table)
	s := table.BeginSnapshot()
	s.Next(nil, 1)
	s.Abort()
	s.Abort()
	if _, done := s.Next(nil, 1); !done {
		t.Error("an aborted snapshot goes on")
	}
	loaded, err := Load(7, bytes.NewReader(image(table)))
	if err != nil || dump(loaded) != want {
		t.Errorf("after an abort: %v", err)
	}
}

func FuzzLoadTable(f *testing.F) {
	f.Add(image(New(7, 5)))
	for _, state := range []string{"scheduled", "leased", "done", "dead", "cancelled"} {
		table := New(7, applyNow)
		d := &tableHarness{t: f, table: table, now: applyNow}
		states[state](d)
		d.command(timer.Command{Kind: timer.Add, Content: 9, Spec: testkit.FullSpec()})
		d.command(timer.Command{Kind: timer.CloseTopic, Topic: 8})
		f.Add(image(table))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Load(7, bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := table.Audit(false); err != nil {
			t.Fatal(err)
		}
		again, err := Load(7, bytes.NewReader(image(table)))
		if err != nil || again.Hash() != table.Hash() {
			t.Fatalf("again: %v", err)
		}
	})
}

// TestSlowPartOutlivesASnapshot: who reads the snapshot knows which leases start slowly, and goes on
// as all others do.
func TestSlowPartOutlivesASnapshot(t *testing.T) {
	table := New(7, 0)
	apply := func(table *Table, fill func(*Batch)) []timer.Result {
		t.Helper()
		var b Batch
		b.Reset(1000, 1, 1)
		fill(&b)
		got, err := table.Apply(b.Bytes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	lease := func(table *Table, id string, owner ...uint64) uint64 {
		h := apply(table, func(b *Batch) {
			b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: 1000}})
		})[0].Handle
		d := table.Due(h)
		got := apply(table, func(b *Batch) {
			for _, o := range owner {
				b.Takeover(o)
			}
			b.Lease(1000, h, d.Seq, d.Rev)
		})
		return got[len(got)-1].Fence
	}
	fast, slow := lease(table, "a", 5), lease(table, "b", 0)
	loaded, err := Load(7, bytes.NewReader(image(table)))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []*Table{table, loaded} {
		if table.SlowStart(fast) || !table.SlowStart(slow) || !table.StartsSlowly() || table.LeaseOwner(slow) != 5 {
			t.Errorf("lease %d is slow %t, lease %d of %d %t", fast, table.SlowStart(fast), slow, table.LeaseOwner(slow), table.SlowStart(slow))
		}
		if next := lease(table, "c", 5); table.SlowStart(next) || table.LeaseOwner(next) != 5 {
			t.Error("its owner was named again, and it is slow")
		}
	}
	if table.Hash() != loaded.Hash() {
		t.Error("the states differ")
	}
}

// TestSnapshotOfAnotherVersion: snapshots of another format, or with another hash, are refused.
func TestSnapshotOfAnotherVersion(t *testing.T) {
	table := smallTable(t)
	whole, hashVersion := image(table), len(table.appendHeader(nil, table.Hash()))-9
	for at, versions := range map[int][2]byte{4: {noDeliveries - 1, snapshotVersion + 1}, hashVersion: {HashVersion - 1, HashVersion + 1}} {
		for _, v := range versions {
			b := bytes.Clone(whole)
			b[at] = v
			if _, err := Load(7, bytes.NewReader(b)); !errors.Is(err, encoding.ErrFormat) || !strings.Contains(err.Error(), "version") {
				t.Errorf("version %d at %d: %v", v, at, err)
			}
		}
	}
}

// image returns a table's snapshot.
func image(t *Table) []byte {
	b, _ := t.BeginSnapshot().Next(nil, 1<<30)
	return b
}
