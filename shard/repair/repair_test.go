package repair

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/timer/testkit"
	"carillon/vfs/memfs"
	"carillon/wal"
)

const mendDir = "data"

// replicaID returns the same id as shard.ReplicaID.
func replicaID(node uint64, epoch uint32) uint64 { return node<<24 | uint64(epoch) }

var mendReplica = replicaID(7, 1)

// logWriter writes a log for a test, one frame per segment.
type logWriter struct {
	t  *testing.T
	fs *memfs.FS
	s  *wal.Stream
	f  *wal.Frame
}

func newDiary(t *testing.T) *logWriter {
	t.Helper()
	d := &logWriter{t: t, fs: memfs.New(), f: wal.NewFrame()}
	d.check(wal.PrepareSnapshotDir(d.fs, filepath.Join(mendDir, "snapshots")))
	var err error
	d.s, err = wal.Open(d.fs, filepath.Join(mendDir, "wal", "0"), wal.Options{SegmentBytes: 1, GenBytes: 1 << 20}, nil)
	d.check(err)
	return d
}

func (d *logWriter) check(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *logWriter) create(replica uint64) *logWriter {
	d.f.Append(wal.RecordReplicaCreate, 1, record.AppendMark(nil, creationOf(replica)))
	return d
}

func creationOf(replica uint64) record.Mark {
	return record.Mark{Replica: replica, Index: 1, Term: 1, Epoch: 1, Conf: &pb.ConfState{Voters: []uint64{replica, 2, 3}}}
}

// entries appends entries first to last of a term; their data name both numbers.
func (d *logWriter) entries(first, last, term uint64) *logWriter {
	var list []*pb.Entry
	for i := first; i <= last; i++ {
		list = append(list, &pb.Entry{Index: &i, Term: &term, Type: pb.EntryNormal.Enum(), Data: fmt.Appendf(nil, "%d/%d", i, term)})
	}
	d.f.Append(wal.RecordEntries, 1, record.AppendEntries(nil, list))
	return d
}

func (d *logWriter) hard(term, vote, commit uint64) *logWriter {
	d.f.Append(wal.RecordHardState, 1, record.AppendHardState(nil, record.HardState{Term: term, Vote: vote, Commit: commit}))
	return d
}

// other appends a record of another group.
func (d *logWriter) other() *logWriter {
	d.f.Append(wal.RecordHardState, 0, record.AppendHardState(nil, record.HardState{Term: 1, Vote: 0, Commit: 0}))
	return d
}

func (d *logWriter) tombstone(replica uint64) *logWriter {
	d.f.Append(wal.RecordReplicaTombstone, 1, record.AppendTombstone(nil, replica))
	return d
}

func (d *logWriter) manifest(list ...record.ReplicaState) *logWriter {
	for i := range list {
		list[i].Group = 1
	}
	d.f.Append(wal.RecordNodeMeta, 0, record.AppendManifest(nil, &record.Manifest{Workers: 1, Replicas: list}))
	return d
}

// frame writes the records so far as one frame.
func (d *logWriter) frame() *logWriter {
	d.t.Helper()
	d.check(d.s.Submit(d.f, true, nil))
	_, err := d.s.Step()
	d.check(err)
	d.f = wal.NewFrame()
	return d
}

// close closes the log and returns its disk.
func (d *logWriter) close() *memfs.FS {
	d.t.Helper()
	d.check(d.s.Close())
	return d.fs
}

// damagedDisk returns a copy of a disk with some frames damaged.
func damagedDisk(t *testing.T, fs *memfs.FS, frames ...int) *memfs.FS {
	t.Helper()
	broken := fs.CrashClone(calm{}, memfs.CrashOptions{})
	for _, n := range frames {
		path := filepath.Join(mendDir, "wal", "0", "00000001", fmt.Sprintf("%020d", n))
		if err := broken.FlipBit(path, 8*45); err != nil {
			t.Fatal(err)
		}
	}
	return broken
}

// wholeLog returns the end of a log, read as a start does, and all of its entries.
func wholeLog(t *testing.T, fs *memfs.FS) (end *DryRun, entries []byte) {
	t.Helper()
	end = NewDryRun(1, nil)
	list, err := wholeSnapshots(fs, filepath.Join(mendDir, "snapshots"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if list[1] != nil {
		end = NewDryRun(1, list[1])
	}
	s, err := wal.Open(fs.CrashClone(calm{}, memfs.CrashOptions{}), filepath.Join(mendDir, "wal", "0"), wal.Options{}, func(_ wal.Position, r wal.Record) error {
		return record.Fold(r, end)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if end.fault != nil {
		t.Fatal(end.fault)
	}
	ask := question{group: 1, first: end.base.Index + 1, last: max(end.Last().Index, end.base.Index+1), above: record.EntryID{Index: 1 << 20}}
	body, err := Answer(fs, mendDir, 1, appendQuestions(nil, []question{ask}))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := decodeAnswers(body)
	if err != nil {
		t.Fatal(err)
	}
	answers[0].commit = 0
	return end, appendAnswers(nil, answers)
}

// sameAs checks that a repaired log reads as the undamaged one.
func sameAs(t *testing.T, was, is *memfs.FS) {
	t.Helper()
	a, all := wholeLog(t, was)
	b, got := wholeLog(t, is)
	a.applied, b.applied = 0, 0
	if a.replica != b.replica || a.tombstone != b.tombstone || a.Last() != b.Last() || a.hard.Term != b.hard.Term || a.hard.Vote != b.hard.Vote {
		t.Errorf("was %+v, is %+v", a, b)
	}
	if !bytes.Equal(all, got) {
		t.Errorf("other entries: were\n%q, are\n%q", all, got)
	}
}

// common starts most logs here: entries 2 to 5 of term 2, with commit index 4.
func common(t *testing.T) *logWriter {
	return newDiary(t).create(mendReplica).hard(1, 0, 1).frame().entries(2, 5, 2).hard(2, 3, 4).frame()
}

func until(term, vote, commit, index, entryTerm uint64) record.ReplicaState {
	return record.ReplicaState{Replica: mendReplica, Hard: record.HardState{Term: term, Vote: vote, Commit: commit}, Last: record.EntryID{Index: index, Term: entryTerm}}
}

// peerLog returns another member's log: entries 2 to last, which have another term from when on.
func peerLog(t *testing.T, last, when, term, commit uint64) *memfs.FS {
	d := newDiary(t).create(replicaID(8, 1)).frame().entries(2, min(last, when-1), 2)
	if when <= last {
		d.entries(when, last, term)
	}
	return d.hard(term, 0, commit).frame().manifest().frame().close()
}

// mendFrom asks the peers until nothing is missing or none has more, and writes.
func mendFrom(t *testing.T, fs *memfs.FS, peers ...*memfs.FS) (missing int, err error) {
	t.Helper()
	m, err := New(fs, mendDir, 1)
	if err != nil {
		return 0, err
	}
	for _, disk := range append([]*memfs.FS{fs}, peers...) {
		answer, err := Answer(disk, mendDir, 1, m.Questions())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Take(answer); err != nil {
			t.Fatal(err)
		}
	}
	if m.Missing() > 0 {
		return m.Missing(), nil
	}
	return 0, m.Write(1)
}

// TestMender: a log that lost frames is repaired from a peer's and then reads as if nothing had
// been lost.
func TestMender(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	longer := func() *memfs.FS { return peerLog(t, 12, 99, 2, 12) }
	for _, c := range []struct {
		name    string
		was     *memfs.FS
		lost    []int
		peers   []*memfs.FS
		missing int
	}{
		{"entries in the middle", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().
			manifest(until(2, 3, 8, 10, 2)).frame().close(), []int{3}, []*memfs.FS{longer()}, 0},
		{"entries at the end", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().manifest(until(2, 3, 6, 8, 2)).frame().close(),
			[]int{3}, []*memfs.FS{longer()}, 0},
		{"a vote", common(t).hard(5, 3, 4).frame().manifest(until(5, 3, 4, 5, 2)).frame().close(), []int{3}, nil, 0},
		{"nothing of this group", common(t).other().frame().entries(6, 7, 2).hard(2, 3, 5).frame().manifest(until(2, 3, 5, 7, 2)).frame().close(),
			[]int{3}, []*memfs.FS{longer()}, 0},
		{"an overwriting that left no gap", common(t).entries(5, 5, 3).hard(3, 2, 4).frame().entries(6, 7, 3).hard(3, 2, 6).frame().
			manifest(until(3, 2, 6, 7, 3)).frame().close(), []int{3}, []*memfs.FS{peerLog(t, 7, 5, 3, 6)}, 0},
		{"the replica's beginning", newDiary(t).create(mendReplica).hard(1, 0, 1).frame().entries(2, 5, 2).hard(2, 3, 4).frame().
			manifest(record.ReplicaState{Replica: mendReplica, Hard: record.HardState{Term: 2, Vote: 3, Commit: 4}, Last: record.EntryID{Index: 5, Term: 2}, Creation: new(creationOf(mendReplica))}).frame().close(), []int{1}, nil, 0},
		{"its end", common(t).tombstone(mendReplica).frame().manifest(record.ReplicaState{Tombstone: mendReplica}).frame().close(), []int{3}, nil, 0},
		{"two places", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 9, 2).hard(2, 3, 8).frame().entries(10, 11, 2).hard(2, 3, 9).frame().
			manifest(until(2, 3, 9, 11, 2)).frame().close(), []int{3, 5}, []*memfs.FS{longer()}, 0},
		{"two places and a manifest between", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().manifest(until(2, 3, 6, 8, 2)).frame().
			entries(9, 10, 4).hard(4, 2, 9).frame().manifest(until(4, 2, 9, 10, 4)).frame().close(), []int{3, 5}, []*memfs.FS{peerLog(t, 10, 9, 4, 10)}, 0},
		{"entries of two peers that are damaged themselves", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 9, 2).hard(2, 3, 9).frame().
			manifest(until(2, 3, 9, 9, 2)).frame().close(), []int{3}, []*memfs.FS{
			damagedDisk(t, common(t).entries(6, 6, 2).hard(2, 3, 6).frame().entries(7, 12, 2).hard(2, 0, 12).frame().manifest(until(2, 0, 12, 12, 2)).frame().close(), 4),
			damagedDisk(t, common(t).entries(6, 6, 2).hard(2, 3, 6).frame().entries(7, 12, 2).hard(2, 0, 12).frame().manifest(until(2, 0, 12, 12, 2)).frame().close(), 3)}, 0},
		{"committed ones of a peer that has no more", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().
			manifest(until(2, 3, 8, 10, 2)).frame().close(), []int{3}, []*memfs.FS{peerLog(t, 8, 99, 2, 8)}, 0},
		{"not all are known to be committed there", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().
			manifest(until(2, 3, 8, 10, 2)).frame().close(), []int{3}, []*memfs.FS{peerLog(t, 8, 99, 2, 6)}, 2},
		{"another term behind the hole", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().
			manifest(until(2, 3, 8, 10, 2)).frame().close(), []int{3}, []*memfs.FS{peerLog(t, 12, 9, 3, 12)}, 4},
		{"nobody has them", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().
			manifest(until(2, 3, 8, 10, 2)).frame().close(), []int{3}, nil, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := damagedDisk(t, c.was, c.lost...)
			missing, err := mendFrom(t, fs, c.peers...)
			if err != nil || missing != c.missing {
				t.Fatalf("%d missing, want %d: %v", missing, c.missing, err)
			}
			if missing == 0 {
				sameAs(t, c.was, fs)
			}
		})
	}
}

// TestMenderRefuses: where a repair would need a guess it is refused, and nothing changes.
func TestMenderRefuses(t *testing.T) {
	other := replicaID(7, 5)
	for _, c := range []struct {
		name string
		was  *memfs.FS
		lost []int
		says string
	}{
		{"a hole at the end", common(t).entries(6, 8, 2).hard(2, 3, 6).frame().other().frame().close(), []int{3}, "too near the end"},
		{"a hidden vote", common(t).hard(5, 3, 4).frame().entries(6, 6, 2).frame().close(), []int{3}, "too near the end"},
		{"a manifest of another worker", common(t).other().frame().manifest().frame().close(), []int{3}, "contradicts"},
		{"a creation that nobody tells of", newDiary(t).create(other).hard(1, 0, 1).frame().
			manifest(record.ReplicaState{Replica: other, Hard: record.HardState{Term: 1, Vote: 0, Commit: 1}, Last: record.EntryID{Index: 1, Term: 1}}).frame().close(), []int{1}, "began is lost"},
		{"another replica without the end of the first", common(t).other().frame().manifest(record.ReplicaState{Replica: other, Last: record.EntryID{Index: 5, Term: 2}}).frame().close(), []int{3}, "began is lost"},
		{"a gap without damage", common(t).entries(7, 8, 2).frame().other().frame().manifest(until(2, 3, 4, 8, 2)).frame().close(), []int{4}, "no damage"},
		{"entries that were overwritten before the manifest", common(t).entries(6, 8, 2).frame().entries(9, 9, 2).hard(2, 3, 4).frame().entries(5, 6, 4).hard(4, 2, 5).frame().
			manifest(until(4, 2, 5, 6, 4)).frame().close(), []int{3}, "between them are missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := damagedDisk(t, c.was, c.lost...)
			if missing, err := mendFrom(t, fs, peerLog(t, 12, 99, 2, 12)); err == nil || missing > 0 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d missing, %v", missing, err)
			}
			var damage *wal.CorruptionError
			if _, err := wal.Open(fs, filepath.Join(mendDir, "wal", "0"), wal.Options{}, nil); !errors.As(err, &damage) {
				t.Errorf("it was changed: %v", err)
			}
		})
	}
}

// TestMenderGoesOnFromASnapshot: entries covered by the newest snapshot need not be found. The log
// is marked to go on from that snapshot, so that no start uses an older one.
func TestMenderGoesOnFromASnapshot(t *testing.T) {
	for _, index := range []uint64{7, 8, 10} {
		was := common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().manifest(until(2, 3, 8, 10, 2)).frame().close()
		m := creationOf(mendReplica)
		m.Index, m.Term = index, 2
		file, err := wal.CreateSnapshot(was, filepath.Join(mendDir, "snapshots"), wal.SnapshotMeta{Shard: 1, Index: index, Term: 2, Conf: record.AppendMark(nil, m)})
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Commit(); err != nil {
			t.Fatal(err)
		}
		fs := damagedDisk(t, was, 3)
		peers := []*memfs.FS{peerLog(t, 12, 99, 2, 12)}
		if index >= 8 {
			peers = nil
		}
		if missing, err := mendFrom(t, fs, peers...); err != nil || missing > 0 {
			t.Fatalf("snapshot %d: %d missing, %v", index, missing, err)
		}
		sameAs(t, was, fs)
		if err := wal.RemoveShardSnapshots(fs, filepath.Join(mendDir, "snapshots"), 1, func([]byte, error) bool { return true }); err != nil {
			t.Fatal(err)
		}
		late := NewDryRun(1, nil)
		_, err = wal.ScanDamaged(fs, filepath.Join(mendDir, "wal", "0"), func(_ wal.Position, r wal.Record) error {
			return record.Fold(r, late)
		}, func(*wal.Damage) error { return nil })
		if err != nil || late.fault == nil || !strings.Contains(late.fault.Error(), "snapshot") {
			t.Errorf("snapshot %d: without it: %v, %v", index, late.fault, err)
		}
	}
}

// TestHostileMendingAnswers: answers that do not fit the missing entries are not used.
func TestHostileMendingAnswers(t *testing.T) {
	was := common(t).entries(6, 8, 2).hard(2, 3, 6).frame().entries(9, 10, 2).hard(2, 3, 8).frame().manifest(until(2, 3, 8, 10, 2)).frame().close()
	m, err := New(damagedDisk(t, was, 3), mendDir, 1)
	if err != nil {
		t.Fatal(err)
	}
	above := record.EntryID{Index: 9, Term: 2}
	for _, a := range []answer{
		{group: 0, above: above, term: 2, entries: []record.Entry{{Index: 6, Term: 2}}},
		{group: 1, above: record.EntryID{Index: 9, Term: 3}, term: 3, entries: []record.Entry{{Index: 6, Term: 2}}},
		{group: 1, above: above, term: 3, commit: 20, entries: []record.Entry{{Index: 6, Term: 2}}},
		{group: 1, above: above, term: 2, entries: []record.Entry{{Index: 4, Term: 2}, {Index: 9, Term: 2}, {Index: 1 << 60, Term: 2}, {Index: 6, Term: 0}}},
		{group: 1, above: above, commit: 5, entries: []record.Entry{{Index: 6, Term: 2}}},
	} {
		if n, err := m.Take(appendAnswers(nil, []answer{a})); n != 0 || err != nil {
			t.Errorf("%+v: %d taken, %v", a, n, err)
		}
	}
	wrong := []record.Entry{{Index: 5, Term: 2}, {Index: 6, Term: 2}, {Index: 7, Term: 1}, {Index: 8, Term: 2}}
	if n, err := m.Take(appendAnswers(nil, []answer{{group: 1, above: above, term: 2, entries: wrong}})); n != 4 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := m.Write(1); err == nil || !strings.Contains(err.Error(), "follows one of term") {
		t.Errorf("terms that fall: %v", err)
	}
}

func mendingSamples() [][]byte {
	return [][]byte{
		appendQuestions(nil, []question{{1, 5, 9, record.EntryID{Index: 10, Term: 3}}, {2, 7, 7, record.EntryID{Index: 7, Term: 0}}}),
		appendAnswers(nil, []answer{{group: 1, above: record.EntryID{Index: 10, Term: 3}, term: 3, commit: 8, entries: []record.Entry{{Index: 5, Term: 2, Data: []byte("a")}, {Index: 6, Term: 3, Type: pb.EntryConfChangeV2}}}, {}}),
		record.AppendManifest(nil, manifestSample()),
	}
}

func manifestSample() *record.Manifest {
	birth := creationOf(mendReplica)
	return &record.Manifest{Worker: 1, Workers: 2, Replicas: []record.ReplicaState{
		{Group: 1, Replica: mendReplica, Hard: record.HardState{Term: 3, Vote: 8, Commit: 100}, Last: record.EntryID{Index: 110, Term: 3}, Creation: &birth}, {Group: 3, Tombstone: mendReplica}}}
}

// FuzzMending: no input from another node or a log makes a decoder of questions, answers or
// manifests panic, and a decoded message survives another round trip.
func FuzzMending(f *testing.F) {
	for _, b := range mendingSamples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(first []byte, second []byte, err error) {
			if err != nil || !bytes.Equal(first, second) {
				t.Fatalf("%x\nagain %x: %v", first, second, err)
			}
		}
		if list, err := decodeQuestions(b); err == nil {
			first := appendQuestions(nil, list)
			list, err = decodeQuestions(first)
			again(first, appendQuestions(nil, list), err)
		}
		if list, err := decodeAnswers(b); err == nil {
			first := appendAnswers(nil, list)
			list, err = decodeAnswers(first)
			again(first, appendAnswers(nil, list), err)
		}
		if c, err := record.DecodeManifest(b); err == nil {
			first := record.AppendManifest(nil, c)
			if c, err = record.DecodeManifest(first); err == nil {
				again(first, record.AppendManifest(nil, c), nil)
			} else {
				t.Fatal(err)
			}
		}
	})
}

func TestManifestGolden(t *testing.T) {
	testkit.Golden(t, "record-manifest", []byte(hex.EncodeToString(record.AppendManifest(nil, manifestSample()))+"\n"))
}

// calm is a random source that always returns 0.
type calm struct{}

func (calm) IntN(int) int { return 0 }
