package ring

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// TestThousandNodes runs the control plane of docs/scale.md alone: a thousand nodes have 16,384
// shards of 183 MB, three replicas of each, and a tenth of the nodes dies for good. Each shard that
// keeps its majority has three live replicas again within a minute and a half, hardly one is copied
// that need not be, and no turn proposes more than its nodes carry. It logs what a turn costs.
func TestThousandNodes(t *testing.T) {
	if os.Getenv("CARILLON_SOAK") == "" {
		t.Skip("only with CARILLON_SOAK=1: it takes two minutes")
	}
	const nodes, shards, size = 1000, 16_384, int64(183e6)
	m := newMovingClusterOf(t, nodes, shards, 3, func(int) int64 { return size })
	lost, stuck := 0, 0
	for id := uint64(1); id <= nodes; id += 10 {
		m.down[id] = m.nowMs - defaultReplaceAfterMs
	}
	for _, row := range m.s.Rows() {
		dead := 0
		for _, r := range row.Replicas {
			dead += boolInt(row.Group != MetaGroup && !m.alive(r.Node))
		}
		if dead > 1 { // no majority: its leader is needed for every step
			stuck++
		} else {
			lost += dead
		}
	}
	var longest, sum time.Duration
	commands, bytes, most := 0, 0, 0
	rings := &Rings{}
	for idle := false; !idle; {
		view, facts := m.s.View(), m.facts()
		begun := time.Now()
		list, _ := Plan(view, facts, rings)
		took := time.Since(begun)
		longest, sum = max(longest, took), sum+took
		turn := 0
		for i := range list {
			text, err := json.Marshal(list[i])
			if err != nil {
				t.Fatal(err)
			}
			turn += len(text)
		}
		commands, bytes, most = commands+len(list), bytes+turn, max(most, turn)
		if idle = m.turn(); m.turns > 600 {
			t.Fatalf("no end: %d of %d replicas moved", m.moved, lost)
		}
	}
	for _, row := range m.s.Rows() {
		dead := 0
		for _, r := range row.Replicas {
			dead += boolInt(row.Group != MetaGroup && !m.alive(r.Node))
		}
		if stuck -= boolInt(dead > 1); dead == 1 {
			t.Fatalf("shard %d still counts on a dead node: %+v", row.Group, row)
		}
	}
	if stuck != 0 {
		t.Errorf("%d more shards without a majority than before", -stuck)
	}
	const turnsAtRest = 20
	view, facts, rest := m.s.View(), m.facts(), time.Now()
	for range turnsAtRest {
		if list, _ := Plan(view, facts, rings); len(list) > 0 {
			t.Fatalf("not at rest: %+v", list)
		}
	}
	atRest := time.Since(rest) / turnsAtRest
	least := float64(int64(lost)*size) / (0.9 * nodes) / MoveRate
	t.Logf("%d replicas lost; %d copied, %.0f GB, in %d s (the links need %.0f s); %d commands of %d bytes in all, %d in a turn; a plan takes %v on average, %v at most, %v at rest",
		lost, m.moved, m.sent/1e9, m.turns, least, commands, bytes, most, (sum / time.Duration(m.turns)).Round(time.Millisecond), longest.Round(time.Millisecond), atRest.Round(time.Millisecond))
	if float64(m.moved) > 1.2*float64(lost) {
		t.Errorf("%d replicas were copied, %d is the least", m.moved, lost)
	}
	if m.turns > 90 {
		t.Errorf("it took %d s, the links need %.0f s", m.turns, least)
	}
}
