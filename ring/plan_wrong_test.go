package ring

import (
	"slices"
	"testing"

	"carillon/internal/placement"
	"carillon/timer"
)

// TestPlanReplacesWrongReplicas: a replica whose state is wrong, of a shard or of the meta group, goes,
// and another takes its place under a new id: on another node where there is one, else on the same
// node. That waits as long as most of the others are not alive.
func TestPlanReplacesWrongReplicas(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, rank := range []int{0, 2} {
			tw := newFoundedCluster(t, 1, nodes, 8, 3)
			tw.see(1)
			tw.rest()
			rows := tw.s.Rows()
			for _, group := range []timer.ShardID{MetaGroup, 1, 5} {
				tw.wrong = append(tw.wrong, placement.WrongReplica{Group: group, Replica: rows[group].Replicas[rank].ID})
			}
			if nodes == 5 { // a learner of the meta group's, too, if there is one
				last := rows[MetaGroup].Replicas[len(rows[MetaGroup].Replicas)-1]
				tw.wrong = append(tw.wrong, placement.WrongReplica{Group: MetaGroup, Replica: last.ID})
			}
			tw.down[rows[1].Replicas[1].Node] = tw.nowMs
			tw.steps(20, 1)
			row, _ := tw.s.Row(1)
			if _, there := onNode(row.Replicas, rows[1].Replicas[rank].Node); nodes == 3 && (!there || row.Epoch != rows[1].Epoch) {
				t.Errorf("%d nodes, rank %d: with another node down the row has become %+v", nodes, rank, row)
			}
			clear(tw.down)
			tw.rest()
			for _, r := range tw.wrong {
				row, _ := tw.s.Row(r.Group)
				if slices.ContainsFunc(row.Replicas, func(o Replica) bool { return o.ID == r.Replica }) {
					t.Errorf("%d nodes, rank %d: %x is still in %+v", nodes, rank, r.Replica, row)
				}
				if len(row.Nodes()) != len(rows[r.Group].Nodes()) {
					t.Errorf("%d nodes, rank %d: %+v had %d voters", nodes, rank, row, len(rows[r.Group].Nodes()))
				}
			}
			// What no row has any more is not heeded.
			if plan := plan(tw.s.View(), Observations{NowMs: tw.nowMs, Nodes: tw.facts().Nodes, Wrong: tw.wrong}); len(plan) > 0 {
				t.Errorf("%d nodes, rank %d: at rest it plans %+v", nodes, rank, plan)
			}
		}
	}
}

// TestPlanKeepsAWrongReplicaThatIsNeeded: the only replica of a group stays.
func TestPlanKeepsAWrongReplicaThatIsNeeded(t *testing.T) {
	tw := newFoundedCluster(t, 1, 1, 4, 3)
	tw.see(1)
	tw.wrong = []placement.WrongReplica{{Group: 1, Replica: placement.ReplicaID(1, 1)}, {Group: MetaGroup, Replica: placement.ReplicaID(1, 1)}}
	tw.steps(5, 1)
	if rows := tw.s.Rows(); rows[0].Epoch != 1 || rows[1].Epoch != 1 {
		t.Errorf("%+v", rows)
	}
}
