package member

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/transport/peer"
)

// scripted are nodes whose answers a test gives: an answer, or an error.
type scripted struct {
	Peers
	answer func(node uint64) (string, error)
}

func (s scripted) CallAddr(_ context.Context, addr string, _ uint8, _ []byte) ([]byte, peer.Hello, error) {
	node := uint64(addr[0] - '0')
	text, err := s.answer(node)
	return []byte(text), peer.Hello{Cluster: "c", Node: node}, err
}

// seen is a discovery that sees nodes 2 and 3.
type seen struct{ quiet }

func (seen) List() []ring.Member {
	return []ring.Member{{ID: 2, Name: "n2", Peer: "2:7701", Cluster: "c"}, {ID: 3, Name: "n3", Peer: "3:7701", Cluster: "c"}, {ID: 4, Peer: "4:7701", Cluster: "d"}}
}

// TestDamagedNodeAwaitsReplacement: it is replaced after two confirmations with time between them,
// and refuses when all others have said no for ten seconds, or nobody has confirmed for ten minutes.
func TestDamagedNodeAwaitsReplacement(t *testing.T) {
	const yes, no, later = `{}`, `{"why":"group 1 has no majority"}`, ""
	silent := func(n int) string { return strings.Repeat(later+"|", n) }
	for name, tt := range map[string]struct {
		// The answers of nodes 2 and 3 by second; the last stays.
		two, three string
		after      time.Duration
		text       string // of the refusal
	}{
		"confirmed":                        {yes, no, 2 * time.Second, ""},
		"confirmed by one that was late":   {no, silent(8) + yes, 10 * time.Second, ""},
		"not confirmed again":              {yes + "|" + no, no, 11 * time.Second, "group 1 has no majority"},
		"refused by all":                   {no, no, 10 * time.Second, "node n2 at 2:7701: group 1 has no majority"},
		"refused by one, the other is off": {no, later, 10*time.Minute + time.Second, "restore a backup"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, begun := certified(t), time.Now()
				s.tasks, s.log = task.NewGoroutines(func() time.Duration { return time.Since(begun) }), slog.New(slog.DiscardHandler)
				s.Connect(scripted{answer: func(node uint64) (string, error) {
					list := strings.Split(map[uint64]string{2: tt.two, 3: tt.three}[node], "|")
					text := list[min(int(time.Since(begun)/time.Second), len(list)-1)]
					if text == later {
						return "", errors.New("nobody there")
					}
					return text, nil
				}}, seen{})
				err := s.AwaitReplacement(t.Context(), errors.New("offset 7"))
				if took := time.Since(begun); took != tt.after {
					t.Errorf("after %v", took)
				}
				if (err == nil) != (tt.text == "") || err != nil && (!strings.Contains(err.Error(), tt.text) || !strings.HasPrefix(err.Error(), "offset 7; ")) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestDamagedNodeAlone: a node that meets nobody, and was told of nobody, ends after half a minute.
func TestDamagedNodeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := certified(t), time.Now()
		s.tasks, s.log = task.NewGoroutines(func() time.Duration { return time.Since(begun) }), slog.New(slog.DiscardHandler)
		err := s.AwaitReplacement(t.Context(), errors.New("offset 7"))
		if took := time.Since(begun); err == nil || took != aloneTimeout+time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// decider is a host that leads the meta group, or knows who does.
type decider struct {
	Host
	leads bool
}

func (d decider) Leads(timer.ShardID) bool            { return d.leads }
func (decider) Leader(timer.ShardID) (uint64, bool)   { return 2, true }
func (decider) Confirm(timer.ShardID) (uint64, error) { return 1, nil }
func (decider) Applied(timer.ShardID) uint64          { return 1 }
func (decider) Started() <-chan struct{}              { return closed }

var closed = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// passing are peers of which node 2 says no.
type passing struct{ Peers }

func (passing) Call(_ context.Context, node uint64, method uint8, _ []byte) ([]byte, error) {
	if node != 2 || method != methodReplace {
		return nil, peer.ErrNotSent
	}
	return []byte(`{"why":"node 2 says no"}`), nil
}

// TestReplacementIsDecidedByTheLeader: a node asks for itself, a member for any; whoever does not lead
// asks the leader; the leader says yes only if majorities stay.
func TestReplacementIsDecidedByTheLeader(t *testing.T) {
	s := certified(t) // one replica of each group, on node 1; node 2 has none
	s.Connect(passing{}, quiet{})
	m := s.member.Load()
	ask := func(from peer.Hello, node uint64) string {
		body, _ := json.Marshal(replaceQuestion{node})
		from.Cluster = "c"
		answer, err := s.answerReplace(t.Context(), from, body)
		if err != nil {
			return "error: " + err.Error()
		}
		return string(answer)
	}
	two, three := peer.Hello{Node: 2, Lane: peer.LaneOnce}, peer.Hello{Node: 3, Lane: peer.LaneOnce}
	for _, tt := range []struct {
		host decider
		from peer.Hello
		node uint64
		want string
	}{
		{decider{leads: true}, two, 2, `{}`},
		{decider{leads: true}, three, 3, `{}`}, // it was removed
		{decider{leads: true}, two, 1, "asks for node"},
		{decider{leads: true}, peer.Hello{Node: 2, Lane: peer.LaneCall}, 1, "of group 0, 0 of 1 would be there"},
		{decider{leads: true}, peer.Hello{Node: 9, Lane: peer.LaneOnce}, 9, ring.ErrUnknownNode.Error()},
		{decider{}, two, 2, "node 2 says no"},
	} {
		m.Attach(tt.host)
		if got := ask(tt.from, tt.node); !strings.Contains(got, tt.want) {
			t.Errorf("node %d asks for %d: %s, want %s", tt.from.Node, tt.node, got, tt.want)
		}
	}
	s.damaged.Store(true)
	if got := ask(two, 2); !strings.Contains(got, "damaged, too") {
		t.Errorf("of one that is damaged itself: %s", got)
	}
}

// damagedDirectory is one with all that is moved, and some that is not.
func damagedDirectory(t *testing.T) (*Self, *memfs.FS) {
	t.Helper()
	fsys := memfs.New()
	for _, path := range []string{"data/wal/0/FIRST", "data/snapshots/a.snap", "data/history/1.hist", "data/clock.json"} {
		testkit.Must(t, fsys.MkdirAll(path[:strings.LastIndex(path, "/")]))
		f, err := fsys.Create(path)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		testkit.Must(t, err)
	}
	for _, dir := range []string{"", "data", "data/wal", "data/wal/0", "data/snapshots", "data/history"} {
		testkit.Must(t, fsys.SyncDir(dir))
	}
	s := certified(t)
	s.Connect(nil, seen{})
	s.cfg.FS, s.cfg.Dir, s.cfg.Random = fsys, "data", func(b []byte) { b[0] = 98 }
	testkit.Must(t, s.Change(func(id *Identity) { id.Shards, id.Founded = 1, true }))
	return s, fsys
}

// TestSetAsideSurvivesCrashes has the power cut at each operation: the next start finds the old
// node's directory as it was, or the new node's, with all of the old one in a folder.
func TestSetAsideSurvivesCrashes(t *testing.T) {
	content := []string{"wal/0/FIRST", "snapshots/a.snap", "history/1.hist"}
	outcomes := map[uint64]int{}
	for at, done := 1, false; !done; at++ {
		for seed := range uint64(20) {
			s, fsys := damagedDirectory(t)
			var clone *memfs.FS
			left := at
			fsys.SetHook(func(int, memfs.Op, string) error {
				if left--; left == 0 {
					clone = fsys.CrashClone(rand.New(rand.NewPCG(seed, 1)), memfs.CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 50})
				}
				if left <= 0 {
					return errors.New("the power is cut")
				}
				return nil
			})
			folder, err := s.SetAside()
			if done = clone == nil; done {
				if err != nil || !strings.HasPrefix(folder, "data/damaged-") {
					t.Fatalf("%q, %v", folder, err)
				}
				clone = fsys
				clone.SetHook(nil)
			}
			id, err := lockIdentity(clone, "data", nil)
			if err != nil {
				t.Fatalf("operation %d, seed %d: %v", at, seed, err)
			}
			outcomes[id.NodeID]++
			root := "data/"
			if id.NodeID != 1 {
				list, err := Asides(clone, "data")
				if err != nil || len(list) != 1 {
					t.Fatalf("operation %d, seed %d: %v, %v", at, seed, list, err)
				}
				root += list[0] + "/"
				if id.Rejoin == nil || id.Rejoin.ClusterID != "c" || id.ClusterID != "" || id.Founded || id.Starts != 1 {
					t.Fatalf("operation %d, seed %d: the new identity is %+v", at, seed, id)
				}
				if old, err := ReadIdentity(clone, strings.TrimSuffix(root, "/")); err != nil || old.NodeID != 1 {
					t.Fatalf("operation %d, seed %d: the old identity is %+v, %v", at, seed, old, err)
				}
			}
			for _, name := range content {
				if _, err := clone.Stat(root + name); err != nil {
					t.Fatalf("operation %d, seed %d, node %d: %v", at, seed, id.NodeID, err)
				}
			}
			if _, err := clone.Stat("data/clock.json"); err != nil {
				t.Fatal(err)
			}
			if _, err := clone.Stat("data/" + asideFile); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("operation %d, seed %d: %v", at, seed, err)
			}
		}
	}
	if outcomes[1] == 0 || outcomes[99] == 0 {
		t.Errorf("nodes after the crash: %v", outcomes)
	}
}

// TestSetAsideIsBounded: a disk that has damaged three directories is not filled with more, and an
// older folder is never written to again.
func TestSetAsideIsBounded(t *testing.T) {
	s, fsys := damagedDirectory(t)
	var folders []string
	for range maxAside {
		folder, err := s.SetAside()
		if err != nil || slices.Contains(folders, folder) {
			t.Fatalf("%q after %v, %v", folder, folders, err)
		}
		folders = append(folders, folder)
		testkit.Must(t, fsys.MkdirAll("data/wal"))
	}
	if _, err := s.SetAside(); err == nil || !strings.Contains(err.Error(), "check the disk") {
		t.Errorf("%v", err)
	}
	if _, err := fsys.Stat("data/wal"); err != nil {
		t.Errorf("it was moved: %v", err)
	}
}

// TestReplacementJoinsItsClusterOnly: a node that replaces a damaged one founds nothing, whatever its
// flags say, and joins no other cluster.
func TestReplacementJoinsItsClusterOnly(t *testing.T) {
	s := certified(t)
	s.log = slog.New(slog.DiscardHandler)
	s.cfg.BootstrapExpect = 1
	s.identity.Store(&Identity{NodeID: 1, Rejoin: &Rejoin{ClusterID: "c", Seeds: []string{"10.0.0.2:7702"}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.EnsureMembership(ctx); !errors.Is(err, context.Canceled) || s.Identity().ClusterID != "" {
		t.Errorf("%v, %+v", err, s.Identity())
	}
	s.cfg.HTTP, s.cfg.Peer = "10.0.0.1:7700", "10.0.0.1:7701"
	var asked []uint64
	s.Connect(scripted{answer: func(node uint64) (string, error) {
		asked = append(asked, node)
		return `{"cluster_id":"d"}`, nil
	}}, open{})
	if a, err := s.askToJoin(t.Context()); !errors.Is(err, ring.ErrOtherCluster) || !slices.Equal(asked, []uint64{2, 3}) {
		t.Errorf("%+v, %v; asked %v", a, err, asked)
	}
}

// TestReadinessNamesWhatIsNotFilled: by the names under which the cluster's view shows it.
func TestReadinessNamesWhatIsNotFilled(t *testing.T) {
	for group, want := range map[timer.ShardID]string{ring.MetaGroup: "n3: the meta group has not", 7: "n3: shard 7 has not"} {
		if err := unfilled("n3", group); !strings.Contains(err.Error(), want) {
			t.Errorf("group %d: %v", group, err)
		}
	}
}

// open is seen with an address of its own.
type open struct{ seen }

func (open) Ready() <-chan struct{} { return closed }
func (open) Addr() string           { return "10.0.0.1:7702" }
