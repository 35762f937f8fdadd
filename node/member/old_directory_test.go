package member

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"carillon/ring"
	"carillon/shard/halt"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/transport/peer"
)

// TestOlder: by each thing that others know, a directory that lacks it is an older copy; one that
// has it is not, even if answers were lost.
func TestOlder(t *testing.T) {
	const opened = 100
	id := Identity{Starts: 6, Asked: 5}
	for _, tt := range []struct {
		name  string
		known knownFacts
		no    string
	}{
		{"nothing is known", knownFacts{}, ""},
		{"all that it was", knownFacts{Starts: 5, Met: 5, Other: true, LogEnd: opened}, ""},
		{"itself", knownFacts{Starts: 5, Met: 6}, ""},
		{"its number is on record, and it has not asked for that", knownFacts{Starts: 6}, "recorded its start 6"},
		{"a later one is on record", knownFacts{Starts: 7}, "recorded its start 7"},
		{"a later one was met", knownFacts{Starts: 5, Met: 7, Other: true}, "start 7 has been seen"},
		{"another with its number was met", knownFacts{Starts: 5, Met: 6, Other: true}, "was start 6 too"},
		{"more of its log was on disk", knownFacts{Starts: 5, LogEnd: opened + 1}, "frame 101"},
	} {
		err := id.older(&tt.known, opened)
		if (err == nil) != (tt.no == "") || err != nil && !strings.Contains(err.Error(), tt.no) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.no)
		}
	}
	id.Asked = 6 // and the answer was lost, or not
	if err := id.older(&knownFacts{Starts: 6, Met: 6}, opened); err != nil {
		t.Errorf("its own start is on record: %v", err)
	}
}

// TestStartsAskedFor: an identity says which starts the cluster may have on record.
func TestStartsAskedFor(t *testing.T) {
	fsys := memfs.New()
	testkit.Must(t, fsys.MkdirAll("data"))
	claim := func(starts, asked uint32) {
		t.Helper()
		id, err := lockIdentity(fsys, "data", func(b []byte) { b[0] = 7 })
		if err != nil || id.Starts != starts || id.Asked != asked {
			t.Fatalf("start %d, asked %d, %v; want %d, %d", id.Starts, id.Asked, err, starts, asked)
		}
	}
	claim(1, 1) // of no cluster yet
	claim(2, 2)
	id := Identity{NodeID: 7, Starts: 5, Asked: 5, ClusterID: "c", Shards: 1, Replicas: 1}
	testkit.Must(t, id.Write(fsys, "data"))
	claim(6, 5)
	claim(7, 5)
}

// older is node 1 of the cluster of certified, in its second process, on a disk of its own.
func older(t *testing.T) (*Self, *memfs.FS) {
	t.Helper()
	s, fsys := certified(t), memfs.New()
	testkit.Must(t, fsys.MkdirAll("data"))
	s.log, s.cfg.FS, s.cfg.Dir = slog.New(slog.DiscardHandler), fsys, "data"
	testkit.Must(t, s.Change(func(id *Identity) { id.Starts, id.Asked, id.Shards = 2, 1, 1 }))
	return s, fsys
}

// TestVetReadsTheTail: a start of this node that its log knows and its identity does not ends the
// start and is noted, also if the entry is not known to be committed. Others' starts, and this
// node's that the identity has, do not.
func TestVetReadsTheTail(t *testing.T) {
	s, fsys := older(t)
	m := s.member.Load()
	register := func(id uint64, starts uint32) []byte {
		cmd := ring.Command{Verb: ring.Register, Node: &ring.Node{ID: id, Name: "n", Starts: starts}}
		return cmd.Encode()
	}
	testkit.Must(t, m.Vet(slices.Values([][]byte{register(1, 1), register(2, 9), []byte("{")})))
	if _, err := fsys.Stat("data/halted.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	err := m.Vet(slices.Values([][]byte{register(1, 1), register(1, 2)}))
	var why *halt.Error
	if !errors.As(err, &why) || why.Reason != halt.OldDirectory || !strings.Contains(err.Error(), "identity.json is older") {
		t.Errorf("%v", err)
	}
	if err := halt.Check(fsys, "data"); err == nil {
		t.Error("it is not noted")
	}
}

// TestNobodyIsHeardUnasked: a process that is not its directory's first hears no node that has not
// told it its knowledge.
func TestNobodyIsHeardUnasked(t *testing.T) {
	s, _ := older(t)
	h := peer.Hello{Cluster: "c", Node: 2, Name: "n2", Lane: peer.LaneControl}
	if err := s.Admit(h); !errors.Is(err, errUnasked) {
		t.Errorf("%v", err)
	}
	v := &s.confirmations
	if ids := v.open(s.member.Load().State.Nodes(), 1); !slices.Equal(ids, []uint64{2}) {
		t.Errorf("%v are to be asked", ids)
	}
	if !v.beginAsking(0, 2) || v.beginAsking(askMinPause, 2) {
		t.Error("it is asked twice at a time, or not at all")
	}
	v.answered(2, false)
	if err := s.Admit(h); !errors.Is(err, errUnasked) || v.beginAsking(askMinPause-1, 2) || !v.beginAsking(askMinPause, 2) {
		t.Errorf("after a question without an answer: %v", err)
	}
	if v.beginAsking(askMinPause+askRetry, 2) {
		t.Error("a silent node is asked twice at a time")
	}
	if err := s.Admit(h); !errors.Is(err, errUnasked) || v.beginAsking(askMinPause+askRetry-1, 2) || !v.beginAsking(askMinPause+askRetry, 2) {
		t.Errorf("it speaks, so the question or its answer may be lost; it is not asked again: %v", err)
	}
	v.answered(2, false)
	v.answered(2, true)
	if err := s.Admit(h); err != nil || v.beginAsking(askRetry, 2) || len(v.open(s.member.Load().State.Nodes(), 1)) != 0 {
		t.Errorf("once it vouches: %v", err)
	}
	s.identity.Store(&Identity{ClusterID: "c", NodeID: 1, Starts: 1})
	v.forget(2)
	if err := s.Admit(h); err != nil {
		t.Errorf("the first process of a directory: %v", err)
	}
}

// TestOlderProcessIsRefused: a node that has a later start of another on record does not hear an
// earlier one, with any claim of its own.
func TestOlderProcessIsRefused(t *testing.T) {
	s := certified(t)
	s.identity.Store(&Identity{ClusterID: "c", NodeID: 1, Starts: 1})
	n := ring.Node{ID: 2, Name: "n2", Starts: 5}
	cmd := ring.Command{Verb: ring.Register, Node: &n}
	if _, err := s.member.Load().State.Apply(9, cmd.Encode()); err != nil {
		t.Fatal(err)
	}
	for starts, no := range map[uint32]error{4: ring.ErrStale, 5: nil, 6: nil} {
		if err := s.Admit(peer.Hello{Cluster: "c", Node: 2, Name: "n2", Starts: starts, Lane: peer.LaneControl}); !errors.Is(err, no) {
			t.Errorf("start %d: %v", starts, err)
		}
	}
}

// TestLogEnds: the ends that a node's former processes have told are kept apart from those of the
// newest one.
func TestLogEnds(t *testing.T) {
	var l logEnds
	said := func(starts uint32, end uint64) {
		t.Helper()
		frame := encodeLogEnd(starts, end)
		gotStarts, gotEnd, ok := decodeLogEnd(frame[1:])
		if frame[0] != logEndFrame || !ok || gotStarts != starts || gotEnd != end {
			t.Fatalf("%x: %d, %d, %v", frame, gotStarts, gotEnd, ok)
		}
		l.record(7, gotStarts, gotEnd)
	}
	want := func(starts uint32, end uint64) {
		t.Helper()
		if got := l.before(7, starts); got != end {
			t.Errorf("before start %d: %d, want %d", starts, got, end)
		}
	}
	want(1, 0)
	said(3, 100)
	said(3, 90) // a frame that was late
	want(3, 0)
	want(4, 100)
	said(4, 100)
	said(4, 150)
	said(3, 999) // of a process that is over
	want(4, 100)
	want(5, 150)
	l.forget(7)
	want(5, 0)
	for _, bad := range [][]byte{{}, {1}, {1, 0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 1, 1}} {
		if _, _, ok := decodeLogEnd(bad); ok {
			t.Errorf("%x is read", bad)
		}
	}
}

// TestAnswerOfOneThatHasNotRead: a node that has not read its log yet says so, for it would have
// nothing against anybody.
func TestAnswerOfOneThatHasNotRead(t *testing.T) {
	s := certified(t)
	s.Connect(strangers{}, quiet{})
	s.SetMember(nil)
	answer, err := s.answerKnown(t.Context(), peer.Hello{Node: 2, Starts: 3}, []byte("{}"))
	var known knownFacts
	if err != nil || json.Unmarshal(answer, &known) != nil || known.Member {
		t.Errorf("%s, %v", answer, err)
	}
}

// strangers are nodes that were never met.
type strangers struct{ Peers }

func (strangers) Met(uint64) (uint32, uint64, bool) { return 0, 0, false }

// laggard is a host that has no leader of the meta group.
type laggard struct{ Host }

func (laggard) Leads(timer.ShardID) bool            { return false }
func (laggard) Leader(timer.ShardID) (uint64, bool) { return 0, false }
func (laggard) Applied(timer.ShardID) uint64        { return 1 }
func (laggard) LogEnd() (uint64, uint64)            { return 10, 10 }

// informed are peers of which node 2 answers with its knowledge.
type informed struct {
	Peers
	known knownFacts
}

func (i *informed) Call(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return nil, peer.ErrNotSent
}

func (i *informed) CallAddr(context.Context, string, uint8, []byte) ([]byte, peer.Hello, error) {
	answer, err := json.Marshal(i.known)
	return answer, peer.Hello{Cluster: "c", Node: 2, Name: "n2"}, err
}

// neighbour is a discovery that sees node 2.
type neighbour struct{ quiet }

func (neighbour) List() []ring.Member {
	return []ring.Member{{ID: 2, Name: "n2", Peer: "10.0.0.2:7701", State: ring.MemberAlive}}
}

// TestRecordIsReadFirst: a process is not put on record before it has had the record read as a
// majority has it; once it was, it would look like the one that is there. Its request is on disk
// before.
func TestRecordIsReadFirst(t *testing.T) {
	s, fsys := older(t)
	var end error
	s.cfg.Fail, s.cfg.PeersProven = func(err error) { end = err }, true
	m := s.member.Load()
	m.Attach(laggard{})
	p := &informed{known: knownFacts{Member: true, Starts: 1}}
	s.Connect(p, neighbour{})
	asked := func() uint32 {
		t.Helper()
		id, err := ReadIdentity(fsys, "data")
		testkit.Must(t, err)
		return id.Asked
	}
	if m.mayRegister(t.Context()) || asked() != 1 || end != nil {
		t.Errorf("nobody has confirmed what the record has: asked for %d, %v", asked(), end)
	}
	p.known.Confirmed, p.known.Starts = true, 2
	if m.mayRegister(t.Context()) || asked() != 1 || !errors.Is(end, ring.ErrStale) {
		t.Errorf("the record has its number: asked for %d, %v", asked(), end)
	}
	p.known.Starts = 1
	if !m.mayRegister(t.Context()) || asked() != 2 {
		t.Errorf("the record has what this directory asked for: asked for %d", asked())
	}
}
