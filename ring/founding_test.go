package ring

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"carillon/test/testkit"
)

func founder(id uint64, expect int) Member {
	return Member{ID: id, Name: fmt.Sprintf("n%d", id), Peer: fmt.Sprintf("h%d:7701", id), Gossip: fmt.Sprintf("h%d:7702", id), Expect: expect, Shards: 16, Replicas: 3}
}

// founderModel is a model of some founders: their disks survive, the rest and every message may be
// lost.
type founderModel struct {
	t        *rapid.T
	nodes    []*modelFounder
	messages []founderMessage
	ids      int
	founded  []byte // the plan that some node has founded
}

type modelFounder struct {
	self Member
	disk []byte // the plan
	up   bool
	met  map[int]bool // nodes that have connected to this process
	last FoundingStep
}

// founderMessage is the answer to a node that joins: the plan of another.
type founderMessage struct {
	to   int
	plan []byte
}

func newFounders(t *rapid.T, nodes, expect int) *founderModel {
	h := &founderModel{t: t}
	for i := range nodes {
		h.nodes = append(h.nodes, &modelFounder{self: founder(uint64(i+1), expect)})
		h.restart(i)
	}
	return h
}

func (fm *founderModel) restart(i int) {
	n := fm.nodes[i]
	n.up, n.met, n.last = true, map[int]bool{}, FoundingStep{}
}

func readPlan(t *rapid.T, b []byte) *FoundingPlan {
	var p *FoundingPlan
	testkit.Must(t, json.Unmarshal(b, &p))
	return p
}

// store is the disk: crash is "lost" or "kept" if the node dies before it, or after.
func (fm *founderModel) store(n *modelFounder, plan []byte, crash string) {
	switch {
	case crash == "lost":
		n.up = false
		return
	case n.disk != nil:
		fm.t.Fatalf("%s stores two plans:\n%s\n%s", n.self.Name, n.disk, plan)
	}
	p := readPlan(fm.t, plan)
	if !p.Has(n.self.ID) {
		fm.t.Fatalf("%s stores a plan without it: %s", n.self.Name, plan)
	}
	n.disk, n.up = plan, crash != "kept"
	n.self.Cluster, n.self.Expect = p.ClusterID, 0
}

// step is a step of a node: towards a plan, or, with one, towards the founding.
func (fm *founderModel) step(i int, members []Member, crash string) {
	n := fm.nodes[i]
	if !n.up {
		return
	}
	if n.disk != nil {
		fm.found(i)
		return
	}
	n.last = NextFounding(n.self, members, func() string { fm.ids++; return fmt.Sprintf("cluster%d", fm.ids) })
	switch s := n.last; {
	case s.Begin != nil:
		b, err := json.Marshal(s.Begin)
		testkit.Must(fm.t, err)
		fm.store(n, b, crash)
	case s.Join != "":
		for _, m := range members {
			other := fm.nodes[m.ID-1]
			if m.Cluster != "" && m.State == MemberAlive && other.up && other.disk != nil && readPlan(fm.t, other.disk).Has(n.self.ID) {
				fm.messages = append(fm.messages, founderMessage{i, other.disk})
			}
		}
	}
}

// deliver brings an answer to the node that asked, if it still waits for one.
func (fm *founderModel) deliver(k int, crash string) {
	if n := fm.nodes[fm.messages[k].to]; n.up && n.disk == nil {
		fm.store(n, fm.messages[k].plan, crash)
	}
}

// connect has two nodes connect, which only those of one cluster do.
func (fm *founderModel) connect(i, k int) {
	a, b := fm.nodes[i], fm.nodes[k]
	if a.up && b.up && a.disk != nil && a.self.Cluster == b.self.Cluster {
		a.met[k], b.met[i] = true, true
	}
}

// found founds the node's plan, if all its nodes have connected. At most one plan is ever founded,
// by anybody.
func (fm *founderModel) found(i int) {
	n := fm.nodes[i]
	for _, p := range readPlan(fm.t, n.disk).Nodes {
		if k := int(p.ID - 1); k != i && !n.met[k] {
			return
		}
	}
	if fm.founded != nil && string(fm.founded) != string(n.disk) {
		fm.t.Fatalf("two clusters:\n%s\n%s", fm.founded, n.disk)
	}
	fm.founded = n.disk
}

// view is a view that gossip could have: any node may be missing, dead, or seen as it was before it
// had a plan.
func (fm *founderModel) view() []Member {
	var out []Member
	for _, n := range fm.nodes {
		m := n.self
		switch rapid.IntRange(0, 7).Draw(fm.t, "visibility") {
		case 0:
			continue
		case 1:
			m.State = MemberDead
		case 2:
			m.Cluster, m.Expect = "", 3
		}
		out = append(out, m)
	}
	return out
}

func (fm *founderModel) truth() []Member {
	var out []Member
	for _, n := range fm.nodes {
		out = append(out, n.self)
	}
	return out
}

func (fm *founderModel) disturb() {
	for range rapid.IntRange(0, 60).Draw(fm.t, "events") {
		i := rapid.IntRange(0, len(fm.nodes)-1).Draw(fm.t, "node")
		crash := rapid.SampledFrom([]string{"", "", "", "lost", "kept"}).Draw(fm.t, "crash")
		switch what := rapid.IntRange(0, 10).Draw(fm.t, "what"); {
		case what < 4:
			fm.step(i, fm.view(), crash)
		case what < 8 && len(fm.messages) > 0:
			k := rapid.IntRange(0, len(fm.messages)-1).Draw(fm.t, "message")
			fm.deliver(k, crash)
			if rapid.IntRange(0, 3).Draw(fm.t, "again") > 0 { // else it may arrive once more
				fm.messages = slices.Delete(fm.messages, k, k+1)
			}
		case what == 8:
			fm.nodes[i].up = false
		case what == 9:
			fm.connect(i, rapid.IntRange(0, len(fm.nodes)-1).Draw(fm.t, "other"))
		default:
			fm.restart(i)
		}
	}
}

// recover has everybody up and nothing lost.
func (fm *founderModel) recover() {
	fm.messages = nil
	for i, n := range fm.nodes {
		if !n.up {
			fm.restart(i)
		}
	}
	fm.calm(10, -1)
}

// calm has nothing go wrong for some rounds, in which one node (-1: none) is cut off.
func (fm *founderModel) calm(rounds, without int) {
	for range rounds {
		seen := slices.DeleteFunc(fm.truth(), func(m Member) bool { return int(m.ID) == without+1 })
		for i := range fm.nodes {
			if i != without {
				fm.step(i, seen, "")
			}
		}
		for ; len(fm.messages) > 0; fm.messages = fm.messages[1:] {
			if fm.messages[0].to != without {
				fm.deliver(0, "")
			}
		}
		for i := range fm.nodes {
			for k := range i {
				if i != without && k != without {
					fm.connect(i, k)
				}
			}
		}
	}
}

func TestFoundersFoundOneCluster(t *testing.T) {
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := newFounders(t, size, size)
				h.disturb()
				h.recover()
				for _, n := range h.nodes {
					if h.founded == nil || string(n.disk) != string(h.founded) {
						t.Fatalf("%s has not founded: %+v", n.self.Name, n.last)
					}
				}
			})
		})
	}
}

// TestOneFounderTooMany: four were started with --bootstrap-expect 3. There is one cluster or none,
// and each founder that is left out has a reason.
func TestOneFounderTooMany(t *testing.T) {
	clusters, rivals := 0, 0
	check := func(t *rapid.T) {
		h := newFounders(t, 4, 3)
		for range 2 { // parts of them on their own, so that rival plans are made
			h.calm(rapid.IntRange(0, 4).Draw(t, "calm rounds"), rapid.IntRange(0, 3).Draw(t, "cut off"))
			if without := rapid.IntRange(0, 3).Draw(t, "cut off"); rapid.Bool().Draw(t, "then lose a round") {
				for i := range h.nodes {
					if i != without {
						h.step(i, slices.Delete(h.truth(), without, without+1), "")
					}
				}
				h.messages = nil
			}
		}
		h.disturb()
		h.recover()
		founders, plans := 0, map[string]bool{}
		for _, n := range h.nodes {
			if n.disk != nil {
				plans[string(n.disk)] = true
			}
			if h.founded != nil && string(n.disk) == string(h.founded) {
				founders++
			}
		}
		if founders != 0 && founders != 3 {
			t.Fatalf("%d founded", founders)
		}
		clusters += founders / 3
		if len(plans) > 1 {
			rivals++
		}
		for _, n := range h.nodes {
			switch {
			case n.disk != nil:
			case n.last.Trouble == "" && n.last.Join == "":
				t.Fatalf("%s is left out and has no reason: %+v", n.self.Name, n.last)
			case founders == 3 && n.last.Join == "":
				t.Fatalf("%s is free but does not join: %+v", n.self.Name, n.last)
			}
		}
	}
	for range 20 { // a few runs, as of a short test, may have no rivals
		if rapid.Check(t, check); clusters > 0 && rivals > 0 {
			return
		}
	}
	t.Fatalf("of the four, three founded a cluster in %d runs, and in %d there were rival plans", clusters, rivals)
}

func TestFoundingSteps(t *testing.T) {
	five, named, inCluster, down := founder(3, 5), founder(3, 3), founder(3, 3), founder(3, 3)
	named.Name, inCluster.Cluster, down.State = "n2", "old", MemberDead
	downInCluster := inCluster
	downInCluster.State = MemberDead
	for name, c := range map[string]struct {
		self    uint64
		members []Member
		want    string // in Trouble or Waiting
		join    string
	}{
		"too few":          {1, []Member{founder(2, 3)}, "2 of 3 founders", ""},
		"one is dead":      {1, []Member{founder(2, 3), down}, "2 of 3 founders", ""},
		"not the lowest":   {2, []Member{founder(1, 3), founder(3, 3)}, "node n1 (h1:7701) to begin", ""},
		"other wishes":     {1, []Member{founder(2, 3), five}, "--bootstrap-expect 5", ""},
		"same name":        {1, []Member{founder(2, 3), named}, "--name", ""},
		"one too many":     {1, []Member{founder(2, 3), founder(3, 3), founder(4, 3)}, "n1, n2, n3, n4", ""},
		"cluster there":    {1, []Member{founder(2, 3), inCluster}, "", "old"},
		"cluster was seen": {1, []Member{founder(2, 3), downInCluster}, "", "old"},
	} {
		s := NextFounding(founder(c.self, 3), c.members, func() string { return "new" })
		if !strings.Contains(s.Trouble+s.Waiting, c.want) || s.Trouble != "" && s.Waiting != "" || s.Join != c.join || s.Begin != nil {
			t.Errorf("%s: want %q: %+v", name, c.want, s)
		}
	}
	s := NextFounding(founder(1, 3), []Member{founder(3, 3), founder(1, 3), founder(2, 3)}, func() string { return "new" })
	if p := s.Begin; p == nil || p.ClusterID != "new" || p.Shards != 16 || p.Replicas != 3 || len(p.Nodes) != 3 || !p.Has(3) || p.Has(4) || p.Nodes[0].State != NodeMember {
		t.Errorf("the lowest of three: %+v", s)
	}
}
