package shard

import (
	"slices"
	"testing"
)

// lateRow is the first assignment of shard 1 that node 7 sees. The shard was bootstrapped on nodes
// 7 and 8, and a move to node 9 has begun.
func lateRow(epoch uint32, founders []Member, nodes ...uint64) Assignment {
	row := Assignment{Group: 1, Epoch: epoch, Founders: founders}
	for _, node := range nodes {
		e := epoch
		if slices.ContainsFunc(founders, func(m Member) bool { return m.Node == node }) {
			e = 1
		}
		row.Members = append(row.Members, Member{Node: node, Replica: ReplicaID(node, e)})
	}
	return row
}

// TestFounderThatIsLate: a founder first sees its assignment after that has changed. It creates its
// founding replica all the same, whether the replica is to leave or to stay: without its vote the
// group has no majority, and so no leader to make the move. Found by the simulator.
func TestFounderThatIsLate(t *testing.T) {
	founders := []Member{{Node: 7, Replica: ReplicaID(7, 1)}, {Node: 8, Replica: ReplicaID(8, 1)}}
	for name, first := range map[string]Assignment{
		"it leaves":             lateRow(2, founders, 9, 8),
		"it leaves, redirected": lateRow(4, founders, 10, 8),
		"it stays":              lateRow(2, founders, 7, 9),
		"the order is another":  lateRow(2, founders, 8, 7),
	} {
		t.Run(name, func(t *testing.T) {
			first.Settled = name == "the order is another"
			r, c := withFakePeers(t, false, nil)
			defer func() { r.abort() }()
			g := r.host.group(1)
			g.remove() // the group that withFakePeers assigned
			g.tombstone, g.membership.row = 0, Assignment{}
			r.host.Place([]Assignment{first})
			r.runIdle()
			want := []uint64{ReplicaID(7, 1), ReplicaID(8, 1)}
			if g.id != want[0] || !slices.Equal(g.store.Conf.Voters, want) {
				t.Fatalf("replica %x with the voters %x", g.id, g.store.Conf.Voters)
			}
			c.leads()
		})
	}
}

// TestFounderThatIsTooLate: once a move is settled, the assignment no longer lists the founders. A
// founder that is a member starts empty. A founder that is not a member creates nothing. A founder
// that has left does not return by an older assignment.
func TestFounderThatIsTooLate(t *testing.T) {
	r, _ := withFakePeers(t, false, nil)
	defer func() { r.abort() }()
	g := r.host.group(1)
	founders := r.rows[1].Members
	gone := lateRow(3, nil, 8, 9)
	gone.Settled = true
	r.host.Place([]Assignment{gone})
	r.runIdle()
	if g.id != 0 || g.tombstone != ReplicaID(7, 1) {
		t.Fatalf("replica %x, tombstone %x", g.id, g.tombstone)
	}
	g.membership.row = Assignment{} // a new process, with an older copy of the meta group's state
	r.host.Place([]Assignment{lateRow(2, founders, 8, 9, 10)})
	r.runIdle()
	if g.id != 0 {
		t.Fatalf("replica %x, which was given up", g.id)
	}
	g.membership.row, g.tombstone = Assignment{}, 0 // a node that never had a replica
	r.host.Place([]Assignment{gone})
	r.runIdle()
	if g.id != 0 {
		t.Fatalf("replica %x by a row that does not name the node", g.id)
	}
	named := Assignment{Group: 1, Epoch: 4, Settled: true, Members: founders[:2]}
	r.host.Place([]Assignment{named})
	r.runIdle()
	if g.id != ReplicaID(7, 1) || len(g.store.Conf.Voters) != 0 {
		t.Fatalf("replica %x with the voters %x", g.id, g.store.Conf.Voters)
	}
}
