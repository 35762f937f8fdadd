package shard

import (
	"math"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/wal"
)

// newRecovery is the recovery of a group with three members and a log that begins after entry 1.
func newRecovery(retain int) *recovery {
	w := &worker{host: &Host{cfg: Config{RetainBytes: retain, MemoryLimit: math.MaxInt64}}}
	w.host.groups.Store(&[]*replica{nil})
	g := &replica{shard: 1, w: w, store: &raftlog.Storage{}}
	g.place(record.Mark{Replica: 1, Index: foundingIndex, Term: foundingTerm, Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}}})
	return &recovery{replica: g}
}

// feed replays the entries from first to last, each in its own record, with a commit after each if
// commit is set.
func (r *recovery) feed(t testing.TB, first, last, term uint64, commit bool) {
	t.Helper()
	typ := pb.EntryNormal
	var body []byte
	for i := first; i <= last; i++ {
		body = record.AppendEntries(body[:0], []*pb.Entry{{Index: &i, Term: &term, Type: &typ}})
		if err := r.replay(wal.Position{}, wal.Record{Type: wal.RecordEntries, Shard: 1, Data: body}); err != nil {
			t.Fatal(err)
		}
		if commit {
			r.feedCommit(t, i, term)
		}
	}
}

func (r *recovery) feedCommit(t testing.TB, index, term uint64) {
	t.Helper()
	body := record.AppendHardState(nil, record.HardState{Term: term, Vote: 1, Commit: index})
	if err := r.replay(wal.Position{}, wal.Record{Type: wal.RecordHardState, Shard: 1, Data: body}); err != nil {
		t.Fatal(err)
	}
}

// held returns the first and last index of the log in memory, and the number of its entries that
// are applied.
func (r *recovery) held() (first, last uint64, applied int) {
	list := r.log[r.first:]
	if len(list) == 0 {
		return 0, 0, 0
	}
	return list[0].Index, list[len(list)-1].Index, r.next - r.first
}

// TestReplayTakesTimeByEntry: recovery takes seconds after minutes of small commits. Each commit
// once moved all the entries kept for followers: a log of 400,000 commits took minutes, and a node
// that was killed often recovered more slowly each time.
func TestReplayTakesTimeByEntry(t *testing.T) {
	const entries = 400_000
	r := newRecovery(retainBytes)
	began := time.Now()
	r.feed(t, 2, entries, 1, true)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d commits took %v", entries, took)
	}
	const kept = retainBytes / raftlog.EntryOverhead
	if first, last, applied := r.held(); first != entries-kept+1 || last != entries || applied != kept {
		t.Errorf("entries %d to %d are held, %d of them applied; want the last %d", first, last, applied, kept)
	}
}

// TestReplayKeepsWhatFollowersMayLack: replay keeps all unapplied entries, and the newest applied
// ones up to the bound. Raft's log begins with the first entry kept.
func TestReplayKeepsWhatFollowersMayLack(t *testing.T) {
	r := newRecovery(10 * raftlog.EntryOverhead)
	check := func(wantFirst, wantLast uint64, wantApplied int) {
		t.Helper()
		first, last, applied := r.held()
		if first != wantFirst || last != wantLast || applied != wantApplied {
			t.Errorf("entries %d to %d are held, %d of them applied; want %d to %d, %d", first, last, applied, wantFirst, wantLast, wantApplied)
		}
		if s := r.replica.store; s.Offset != wantFirst-1 || s.Offset > foundingIndex && s.OffsetTerm != 1 {
			t.Errorf("raft's log begins behind entry %d of term %d, want %d", s.Offset, s.OffsetTerm, wantFirst-1)
		}
	}
	r.feed(t, 2, 8, 1, false)
	check(2, 8, 0)
	r.feedCommit(t, 5, 1)
	check(2, 8, 4)
	r.feed(t, 9, 40, 1, false)
	r.feedCommit(t, 30, 1)
	check(21, 40, 10)
	r.feed(t, 35, 36, 2, false) // from another leader: entries after 34 are void
	check(21, 36, 10)
	r.feedCommit(t, 36, 2)
	check(27, 36, 10)
	if r.replica.applied != 36 || r.replica.appliedTerm != 2 {
		t.Errorf("applied up to %d of term %d", r.replica.applied, r.replica.appliedTerm)
	}
	r.feed(t, 38, 38, 2, false)
	if r.fault == nil {
		t.Error("a missing entry is not seen")
	}
}

// TestReplayKeepsNothingOfASoleVoter: a sole voter has no followers to keep applied entries for.
func TestReplayKeepsNothingOfASoleVoter(t *testing.T) {
	r := newRecovery(retainBytes)
	r.replica.store.Conf = &pb.ConfState{Voters: []uint64{1}}
	r.feed(t, 2, 1000, 1, true)
	r.feed(t, 1001, 1002, 1, false)
	if first, last, applied := r.held(); first != 1001 || last != 1002 || applied != 0 || r.replica.store.Offset != 1000 {
		t.Errorf("entries %d to %d are held, %d of them applied; raft's log begins behind %d", first, last, applied, r.replica.store.Offset)
	}
}

// TestReplayAppliesNothingThatAPeersSnapshotSuperseded: a replica took over the state of another
// one and ended before its log had the mark of it. The next process started from the snapshot and
// logged its commit index. The snapshot was deleted with the replica, and the log before the
// tombstone is read without it: entries that were never committed come before that commit index.
func TestReplayAppliesNothingThatAPeersSnapshotSuperseded(t *testing.T) {
	r := newRecovery(retainBytes)
	r.feed(t, 2, 29, 5, true)
	r.feed(t, 30, 30, 5, false) // of a leader that was deposed
	r.feedCommit(t, 35, 7)
	if g := r.replica; g.applied != 29 {
		t.Errorf("entries up to %d are applied, want 29", g.applied)
	}
	if r.fault != nil {
		t.Errorf("a tombstone may follow, and the replay fails with %v", r.fault)
	}
}

// TestReplayKeepsTheLogFromAPeersSnapshotOn: the group's own snapshot was made after one from a
// peer. After a start it still needs the log from the peer's on, in case its own turns out to be
// damaged, and counts only what came after its own.
func TestReplayKeepsTheLogFromAPeersSnapshotOn(t *testing.T) {
	r := newRecovery(retainBytes)
	own := record.Mark{Replica: 1, Index: 40, Term: 1, Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}}}
	r.replica.place(own)
	r.replica.files.Newest = own
	peers := own
	peers.Index, peers.Installed = 20, true
	r.feed(t, 2, 20, 1, true)
	if err := r.replay(wal.Position{Gen: 3}, wal.Record{Type: wal.RecordSnapMark, Shard: 1, Data: record.AppendMark(nil, peers)}); err != nil {
		t.Fatal(err)
	}
	r.gen = 4
	for i := uint64(21); i <= 60; i++ {
		if i == 41 {
			r.gen = 7
		}
		if err := r.Entries([]record.Entry{{Index: i, Term: 1, Data: make([]byte, 84)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.HardState(record.HardState{Term: 1, Commit: 40}); err != nil {
		t.Fatal(err)
	}
	f := &r.replica.files
	f.Trim()
	if f.Older() != 20 || f.Needed() != 4 {
		t.Errorf("the older snapshot is that of entry %d, want 20; the log is needed from generation %d on, want 4", f.Older(), f.Needed())
	}
	if f.Bytes() != 20*100 {
		t.Errorf("%d bytes of entries since its own snapshot, want %d", f.Bytes(), 20*100)
	}
}
