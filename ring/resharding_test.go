package ring

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
)

// reread is the state as a process reads it that has begun again.
func reread(t *testing.T, s *State) *State {
	t.Helper()
	again := NewState(nil, nil)
	testkit.Must(t, again.Load(s.Save()))
	if again.Hash() != s.Hash() || string(again.Save()) != string(s.Save()) {
		t.Fatal("the state is another after it was saved and read")
	}
	return again
}

// TestShardsDouble: from 2 to 8 by two doublings, one shard after the other, with a crash at each
// step. A command that comes twice, late or out of turn changes nothing.
func TestShardsDouble(t *testing.T) {
	s := founded(t, 2, 3, 3)
	plain := string(s.Save())
	for _, to := range []int{0, 1, 2, 3, 5, 6, 12, 8192, -4} {
		refused(t, s, ErrBadShards, Command{Verb: SetShards, Shards: to})
	}
	refused(t, NewState(nil, nil), ErrNotFounded, Command{Verb: SetShards, Shards: 4})
	// A refusal says which numbers there can be.
	for _, tt := range []struct {
		now, to int
		want    string
	}{
		{2, 3, "there are 2, and there is no way back to fewer; ask for 4, 8, 16, … or 4096, not 3"},
		{2, 1 << 40, "ask for 4, 8, 16, … or 4096, not 1099511627776"},
		{3, -1, "there are 3, and there is no way back to fewer; ask for 6, 12, 24, … or 3072, not -1"},
		{512, 4, "ask for 1024, 2048 or 4096, not 4"}, {1024, 0, "ask for 2048 or 4096, not 0"}, {2000, 1, "ask for 4000, not 1"},
		{4096, 8192, "there are 4096, and there can be no more than 4096"}, {3000, 6000, "there are 3000, and twice as many would be more than 4096"},
	} {
		if err := (&cluster{id: "c", shards: tt.now}).mayGrow(tt.to); !errors.Is(err, ErrBadShards) || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("from %d to %d: %v, want … %s", tt.now, tt.to, err, tt.want)
		}
	}
	refused(t, s, ErrEpoch, Command{Verb: Divide, Group: 1, Epoch: 1})
	if string(s.Save()) != plain {
		t.Fatal("refused commands changed the state")
	}
	must(t, s, Command{Verb: SetShards, Shards: 8})
	want := []Resharding{{2, 8, 0, 1, false}, {2, 8, 1, 2, false}, {2, 8, 2, 1, false}, {2, 8, 3, 2, false}, {2, 8, 4, 3, false}, {2, 8, 5, 4, false}}
	for i, w := range want {
		s = reread(t, s)
		if got, _ := s.Resharding(); got != w {
			t.Fatalf("%+v, want %+v", got, w)
		}
		now := s.Shards().Now
		if want := ([]Shards{{4, 2, 2}, {8, 2, 4}}[min(i/2, 1)]); s.Shards() != want {
			t.Fatalf("step %d: %+v, want %+v", i, s.Shards(), want)
		}
		if from := s.UndividedFrom(timer.ShardID(3 + i)); from != w.Shard || s.UndividedFrom(w.Shard) != 0 {
			t.Fatalf("step %d: shard %d is yet to be divided from %d", i, 3+i, from)
		}
		refused(t, s, ErrResharding, Command{Verb: SetShards, Shards: 2 * now})
		refused(t, s, ErrEpoch, Command{Verb: Divide, Group: w.Shard + 1, Epoch: 1})
		refused(t, s, ErrEpoch, Command{Verb: Divide, Group: w.Shard, Epoch: 9})
		r := must(t, s, Command{Verb: Divide, Group: w.Shard, Epoch: 1})
		child := r.Row.Group
		if child != timer.ShardID(3+i) || r.Row.From != w.Shard || r.Row.Settled || !sameNodes(r.Row.Replicas, s.cluster.rows[w.Shard].Replicas) {
			t.Fatalf("%+v", r.Row)
		}
		s = reread(t, s)
		w.Dividing = true
		if got, _ := s.Resharding(); got != w {
			t.Fatalf("%+v, want %+v", got, w)
		}
		refused(t, s, ErrEpoch, Command{Verb: Divide, Group: w.Shard, Epoch: 1})
		// Neither moves, even by force, before the child is settled.
		for _, group := range []timer.ShardID{w.Shard, child} {
			refused(t, s, ErrMoving, Command{Verb: Place, Group: group, Epoch: 1, To: s.cluster.rows[group].Replicas[:2], Force: true})
		}
		must(t, s, Command{Verb: Reconciled, Group: child, Epoch: 1})
		must(t, s, Command{Verb: Reconciled, Group: child, Epoch: 1})
	}
	if _, on := s.Resharding(); on || s.cluster.shards != 8 || len(s.Rows()) != 9 {
		t.Fatalf("%d shards, %d rows", s.cluster.shards, len(s.Rows()))
	}
	testkit.Must(t, reread(t, s).Audit())
	must(t, s, Command{Verb: SetShards, Shards: 16})
}

// TestChildKeepsItsOrigin: the first replicas of a divided shard are made of its parent's, however
// late they are.
func TestChildKeepsItsOrigin(t *testing.T) {
	s := founded(t, 1, 3, 4)
	must(t, s, Command{Verb: SetShards, Shards: 2})
	must(t, s, Command{Verb: Divide, Group: 1, Epoch: 1})
	must(t, s, Command{Verb: Reconciled, Group: 2, Epoch: 1})
	row, _ := s.Row(2)
	if host := row.ForHost(); host.From != 1 || len(host.FirstMembers()) != 3 {
		t.Fatalf("%+v", host)
	}
	to := slices.Clone(row.Replicas[:2])
	must(t, s, Command{Verb: Place, Group: 2, Epoch: 1, To: to})
	if row, _ = s.Row(2); row.From != 1 || !row.Unmoved {
		t.Fatalf("%+v", row)
	}
	must(t, s, Command{Verb: Reconciled, Group: 2, Epoch: 2})
	if row, _ = s.Row(2); row.From != 1 || row.Unmoved || row.dividing() {
		t.Fatalf("%+v", row)
	}
}

// TestPlanDividesShards: shards double while nodes die, come back, leave and are replaced, and
// commands are lost; then the shards are spread over all nodes.
func TestPlanDividesShards(t *testing.T) {
	for _, c := range []struct {
		name   string
		shards int
		during func(tw *fakeCluster, step int)
	}{
		{"undisturbed", 4, func(*fakeCluster, int) {}},
		{"a node is away", 4, func(tw *fakeCluster, step int) {
			switch step {
			case 0:
				tw.down[2] = tw.nowMs
			case 20:
				delete(tw.down, 2)
			}
		}},
		{"a node is lost for good", 4, func(tw *fakeCluster, step int) {
			switch step {
			case 2:
				tw.down[3] = tw.nowMs
			case 70:
				tw.do(Command{Verb: Remove, NodeID: 3, Down: true})
			}
		}},
		{"a node is removed", 8, func(tw *fakeCluster, step int) {
			if step == 3 {
				tw.down[1] = tw.nowMs
			}
			// It is refused while the node is needed for a move that is under way.
			if n, _ := tw.s.Node(1); step >= 3 && n.State != NodeRemoved {
				tw.s.Apply(tw.nowMs, (&Command{Verb: Remove, NodeID: 1, Down: true}).Encode())
			}
			if n, _ := tw.s.Node(1); step == 10 && n.State != NodeRemoved {
				tw.t.Fatalf("the node that is down could not be removed for seven seconds")
			}
		}},
		{"a node is drained, others join", 8, func(tw *fakeCluster, step int) {
			switch step {
			case 1:
				tw.drain(2)
			case 2:
				tw.join(6, "")
			case 5:
				tw.join(7, "")
			}
		}},
		{"a node is replaced", 4, func(tw *fakeCluster, step int) {
			if step == 2 {
				tw.down[2] = tw.nowMs
				n := node(9)
				n.Name = "n2"
				tw.do(Command{Verb: Register, Node: &n, Replace: true})
			}
		}},
		{"most are away for a while", 4, func(tw *fakeCluster, step int) {
			for _, n := range []uint64{1, 2, 3} {
				switch step {
				case 3:
					tw.down[n] = tw.nowMs
				case 60:
					delete(tw.down, n)
				}
			}
		}},
	} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				tw := newFoundedCluster(t, seed, 5, c.shards, 3)
				tw.lossy = seed%2 == 1
				tw.see(1)
				tw.rest()
				to := 4 * c.shards
				tw.do(Command{Verb: SetShards, Shards: to})
				for step := 0; ; step++ {
					if step == 2000 {
						r, _ := tw.s.Resharding()
						t.Fatalf("no end: %+v; rows %+v", r, tw.s.Rows())
					}
					c.during(tw, step)
					tw.step(0.5)
					checkDividing(t, tw.s)
					if _, on := tw.s.Resharding(); !on && step > 80 {
						break
					}
					testkit.Must(t, tw.s.Audit())
				}
				tw.nowMs += 2 * defaultReplaceAfterMs
				tw.rest()
				if n := len(tw.s.Rows()); n != 1+to {
					t.Fatalf("%d rows", n)
				}
			})
		}
	}
}

// checkDividing: one shard at a time is divided, it does not move meanwhile, and all know that it
// has its child's timers.
func checkDividing(t *testing.T, s *State) {
	t.Helper()
	rows := s.Rows()
	for i := range rows {
		row := &rows[i]
		if !row.dividing() {
			continue
		}
		if i != len(rows)-1 {
			t.Fatalf("row %d of %d is being divided: %+v", i, len(rows), row)
		}
		if from := &rows[row.From]; !from.Settled || !sameNodes(from.Replicas, row.Replicas) {
			t.Fatalf("%+v moves while %+v is divided from it", from, row)
		}
		if from := s.UndividedFrom(row.Group); from != row.From {
			t.Fatalf("the timers of %+v are looked for in shard %d", row, from)
		}
	}
}

// TestGrowthMoves: what a preview counts is about what the plan then moves.
func TestGrowthMoves(t *testing.T) {
	tw := newFoundedCluster(t, 1, 5, 4, 3)
	tw.see(1)
	tw.rest()
	if _, err := tw.s.GrowthMoves(12); err == nil {
		t.Error("12 of 4 shards have a preview")
	}
	moves, err := tw.s.GrowthMoves(32)
	if err != nil || moves == 0 {
		t.Fatal(moves, err)
	}
	tw.moved = 0
	tw.do(Command{Verb: SetShards, Shards: 32})
	for on := true; on; _, on = tw.s.Resharding() {
		tw.step(1)
	}
	tw.rest()
	if tw.moved > 2*moves+4 || moves > 2*tw.moved+4 {
		t.Errorf("%d replicas have moved, the preview said %d", tw.moved, moves)
	}
}

// TestRestoredGrowth: the cluster of a backup divides the shards that were not divided in it.
func TestRestoredGrowth(t *testing.T) {
	grow := func(to, divided int) any {
		s := founded(t, 2, 1, 1)
		if to > 2 {
			must(t, s, Command{Verb: SetShards, Shards: to})
		}
		for i := range divided {
			r, _ := s.Resharding()
			must(t, s, Command{Verb: Divide, Group: r.Shard, Epoch: 1})
			must(t, s, Command{Verb: Reconciled, Group: timer.ShardID(3 + i), Epoch: 1})
		}
		saved, _, err := s.Read(bytes.NewReader(s.Save()))
		testkit.Must(t, err)
		return saved
	}
	for _, c := range []struct{ to, divided, groups, now, from, more int }{
		{2, 0, 2, 2, 0, 0}, {4, 0, 2, 4, 2, 4}, {4, 1, 2, 4, 2, 4}, {4, 1, 3, 4, 2, 4}, {4, 2, 2, 4, 2, 4}, {4, 2, 4, 4, 0, 0},
		{8, 1, 3, 4, 2, 8}, {8, 3, 4, 8, 2, 8}, {8, 4, 5, 8, 2, 8}, {8, 6, 2, 4, 2, 8}, {8, 6, 8, 8, 0, 0},
		{8, 6, 7, 8, 4, 8}, // it had ended by then: nobody knows what it was asked from
	} {
		s, err := Restored(grow(c.to, c.divided), 1000, "new", node(7), c.groups, func(timer.TopicID) bool { return false })
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		s = reread(t, s)
		now := s.Shards()
		r, _ := s.Resharding()
		if now.Now != c.now || now.First != 2 || r.From != c.from || r.To != c.more || len(s.Rows()) != 1+c.groups {
			t.Errorf("%+v: %+v, %d rows, growth %+v", c, now, len(s.Rows()), r)
		}
		if err := s.Audit(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		// Parents look for the row of a child that is settled before they drop its half.
		for i, row := range s.Rows() {
			if from := []timer.ShardID{0, 0, 0, 1, 2, 1, 2, 3, 4}[i]; row.From != from || !row.Settled {
				t.Errorf("%+v: shard %d came from %d, want %d", c, i, row.From, from)
			}
		}
	}
	for _, c := range []struct{ to, divided, groups int }{{2, 0, 1}, {2, 0, 3}, {4, 0, 1}, {4, 2, 5}} {
		if _, err := Restored(grow(c.to, c.divided), 1000, "new", node(7), c.groups, func(timer.TopicID) bool { return false }); err == nil {
			t.Errorf("%+v was restored", c)
		}
	}
}
