package ring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func founder(id uint64, expect int) Member {
	return Member{ID: id, Name: fmt.Sprintf("n%d", id), Peer: fmt.Sprintf("h%d:7701", id), Gossip: fmt.Sprintf("h%d:7702", id), Expect: expect, Shards: 16, Replicas: 3}
}

// founderModel is a model of some founders: their disks survive, the rest and every message may be
// lost.
type founderModel struct {
	t        *rapid.T
	nodes    []*hamletNode
	messages []hamletMessage
	ids      int
}

type hamletNode struct {
	self     Member
	disk     []byte // the accepted plan
	cluster  []byte // the plan it has founded
	up       bool
	founding *Founding
	answers  map[uint64]FoundingAnswer
	last     FoundingStep
}

type hamletMessage struct {
	from, to int
	question bool
	body     []byte
}

func newHamlet(t *rapid.T, nodes, expect int) *founderModel {
	h := &founderModel{t: t}
	for i := range nodes {
		h.nodes = append(h.nodes, &hamletNode{self: founder(uint64(i+1), expect)})
		h.restart(i)
	}
	return h
}

func (h *founderModel) restart(i int) {
	n := h.nodes[i]
	var accepted *FoundingPlan
	if n.disk != nil {
		var err error
		if accepted, err = DecodeFoundingPlan(n.disk); err != nil {
			h.t.Fatal(err)
		}
	}
	n.up, n.answers, n.last = true, map[uint64]FoundingAnswer{}, FoundingStep{}
	n.founding = NewFounding(n.self, accepted, func() string { h.ids++; return fmt.Sprintf("cluster%d", h.ids) })
}

// store is the disk: crash says whether the node dies before ("lost") or after ("kept") it, or not.
func (h *founderModel) store(n *hamletNode, plan *FoundingPlan, crash string) bool {
	if crash == "lost" {
		n.up = false
		return false
	}
	if n.disk != nil && string(n.disk) != string(plan.Encode()) {
		h.t.Fatalf("%s accepted two plans:\n%s\n%s", n.self.Name, n.disk, plan.Encode())
	}
	n.disk = plan.Encode()
	n.up = crash != "kept"
	return n.up
}

func (h *founderModel) step(i int, members []Member, crash string) {
	n := h.nodes[i]
	if !n.up || n.cluster != nil {
		return
	}
	s := n.founding.Step(members, n.answers)
	n.last = s
	if s.Propose != nil && !h.store(n, s.Propose, crash) {
		return
	}
	for _, id := range s.Ask {
		body := []byte("null")
		if p := n.founding.Accepted(); p != nil {
			body = p.Encode()
		}
		h.messages = append(h.messages, hamletMessage{i, int(id - 1), true, body})
	}
	if s.Found != nil {
		if n.disk == nil || string(n.disk) != string(s.Found.Encode()) {
			h.t.Fatalf("%s founds what is not on its disk", n.self.Name)
		}
		n.cluster, n.self.Cluster = n.disk, s.Found.ClusterID
		if crash != "" {
			n.up = false
		}
	}
	h.check()
}

func (h *founderModel) deliver(k int, members []Member, crash string) {
	m := h.messages[k]
	n := h.nodes[m.to]
	if !n.up {
		return
	}
	if !m.question {
		a, err := DecodeFoundingAnswer(m.body)
		if err != nil {
			h.t.Fatal(err)
		}
		n.answers[h.nodes[m.from].self.ID] = a
		return
	}
	plan, err := DecodeFoundingPlan(m.body)
	if err != nil {
		h.t.Fatal(err)
	}
	answer, persist := n.founding.Accept(plan, members)
	if persist && !h.store(n, n.founding.Accepted(), crash) {
		return
	}
	h.messages = append(h.messages, hamletMessage{m.to, m.from, false, answer.Encode()})
}

// view is a view that gossip could have: any node may be missing, dead, or seen as it was before it
// founded.
func (h *founderModel) view() []Member {
	var out []Member
	for _, n := range h.nodes {
		m := n.self
		switch rapid.IntRange(0, 7).Draw(h.t, "sight") {
		case 0:
			continue
		case 1:
			m.State = MemberDead
		case 2:
			m.Cluster = ""
		}
		out = append(out, m)
	}
	return out
}

func (h *founderModel) truth() []Member {
	var out []Member
	for _, n := range h.nodes {
		out = append(out, n.self)
	}
	return out
}

// check: at most one plan is ever founded, by anybody.
func (h *founderModel) check() {
	var founded []byte
	for _, n := range h.nodes {
		if n.cluster == nil {
			continue
		}
		if founded != nil && string(founded) != string(n.cluster) {
			h.t.Fatalf("two clusters:\n%s\n%s", founded, n.cluster)
		}
		founded = n.cluster
	}
}

func (h *founderModel) disturb() {
	for range rapid.IntRange(0, 60).Draw(h.t, "events") {
		i := rapid.IntRange(0, len(h.nodes)-1).Draw(h.t, "node")
		crash := rapid.SampledFrom([]string{"", "", "", "lost", "kept"}).Draw(h.t, "crash")
		switch what := rapid.IntRange(0, 9).Draw(h.t, "what"); {
		case what < 4:
			h.step(i, h.view(), crash)
		case what < 8 && len(h.messages) > 0:
			k := rapid.IntRange(0, len(h.messages)-1).Draw(h.t, "message")
			h.deliver(k, h.view(), crash)
			if rapid.IntRange(0, 3).Draw(h.t, "again") > 0 { // else it may come once more
				h.messages = slices.Delete(h.messages, k, k+1)
			}
		case what == 8:
			h.nodes[i].up = false
		default:
			h.restart(i)
		}
	}
}

// settle has everybody up and nothing lost.
func (h *founderModel) settle() {
	h.messages = nil
	for i, n := range h.nodes {
		if !n.up {
			h.restart(i)
		}
	}
	h.calm(10, -1)
}

// calm has nothing go wrong for some rounds, in which one node (-1: none) is cut off.
func (h *founderModel) calm(rounds, without int) {
	seen := slices.DeleteFunc(h.truth(), func(m Member) bool { return int(m.ID) == without+1 })
	for range rounds {
		for i := range h.nodes {
			if i != without {
				h.step(i, seen, "")
			}
		}
		for ; len(h.messages) > 0; h.messages = h.messages[1:] {
			if m := h.messages[0]; m.from != without && m.to != without {
				h.deliver(0, seen, "")
			}
		}
		for k := range seen {
			seen[k] = h.nodes[seen[k].ID-1].self
		}
	}
}

func TestFoundersFoundOneCluster(t *testing.T) {
	for _, size := range []int{3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h := newHamlet(t, size, size)
				h.disturb()
				h.settle()
				for _, n := range h.nodes {
					if n.cluster == nil {
						t.Fatalf("%s has not founded: %+v", n.self.Name, n.last)
					}
				}
			})
		})
	}
}

// Four were started with --bootstrap-expect 3: one cluster or none, and a founder that is left out
// says so.
func TestOneFounderTooMany(t *testing.T) {
	clusters := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHamlet(t, 4, 3)
		for range 2 { // parts of them on their own, so that rival plans come up
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
		h.settle()
		h.check()
		founders, cluster := 0, ""
		for _, n := range h.nodes {
			if n.cluster != nil {
				founders++
				cluster = n.self.Cluster
			}
		}
		if founders != 0 && founders != 3 {
			t.Fatalf("%d founded", founders)
		}
		clusters += founders / 3
		for _, n := range h.nodes {
			switch {
			case n.cluster != nil:
			case n.last.Trouble == "":
				t.Fatalf("%s is left out and silent: %+v", n.self.Name, n.last)
			case founders == 3 && n.disk == nil && n.last.Join != cluster:
				t.Fatalf("%s is free but is not told to join: %+v", n.self.Name, n.last)
			case n.disk != nil && n.last.Join != "":
				t.Fatalf("%s has given its promise and is told to join another cluster: %+v", n.self.Name, n.last)
			}
		}
	})
	if clusters == 0 {
		t.Fatal("the model never founded a cluster of three of the four")
	}
}

func TestFoundingTrouble(t *testing.T) {
	free := map[uint64]FoundingAnswer{1: {}, 2: {}, 3: {}, 4: {}}
	plan := func(ids ...uint64) *FoundingPlan {
		p := &FoundingPlan{ClusterID: fmt.Sprint("c", ids), Shards: 16, Replicas: 3}
		p.ClusterID = strings.ReplaceAll(p.ClusterID, " ", "-")
		for _, id := range ids {
			p.Nodes = append(p.Nodes, founder(id, 3).node())
		}
		return p
	}
	five, named, inCluster, down := founder(3, 5), founder(3, 3), founder(3, 3), founder(3, 3)
	named.Name, inCluster.Cluster, down.State = "n2", "old", MemberDead
	downInCluster := inCluster
	downInCluster.State = MemberDead
	returned := founder(9, 3)
	returned.Name = "n3"
	for name, c := range map[string]struct {
		accepted *FoundingPlan
		members  []Member
		answers  map[uint64]FoundingAnswer
		want     string // in Trouble or Waiting
		join     string
	}{
		"too few":          {nil, []Member{founder(2, 3)}, free, "2 of 3 founders", ""},
		"one is dead":      {nil, []Member{founder(2, 3), down}, free, "2 of 3 founders", ""},
		"no answer yet":    {nil, []Member{founder(2, 3), founder(3, 3)}, nil, "node n2 (h2:7701) to answer", ""},
		"other wishes":     {nil, []Member{founder(2, 3), five}, free, "--bootstrap-expect 5", ""},
		"same name":        {nil, []Member{founder(2, 3), named}, free, "--name", ""},
		"one too many":     {nil, []Member{founder(2, 3), founder(3, 3), founder(4, 3)}, free, "n1, n2, n3, n4", ""},
		"cluster there":    {nil, []Member{founder(2, 3), inCluster}, free, "cluster old already", "old"},
		"cluster was seen": {nil, []Member{founder(2, 3), downInCluster}, free, "cluster old already", "old"},
		"without it":       {nil, []Member{founder(2, 3), founder(3, 3)}, map[uint64]FoundingAnswer{2: {Accepted: plan(2, 3, 4)}}, "without this node", ""},
		"other promise":    {plan(1, 2, 3), []Member{founder(2, 3), founder(3, 3)}, map[uint64]FoundingAnswer{2: {Accepted: plan(2, 3, 4)}}, "empty their data", ""},
		"refused":          {plan(1, 2, 3), []Member{founder(2, 3)}, map[uint64]FoundingAnswer{2: {Refused: "because"}}, "n2 refuses to found cluster c[1-2-3]: because", ""},
		"bound elsewhere":  {plan(1, 2, 3), []Member{inCluster}, nil, "empty its data directory", ""},
		"lost its disk":    {plan(1, 2, 3), []Member{founder(2, 3), returned}, nil, "n3 has lost its data", ""},
		"not all yet":      {plan(1, 2, 3), nil, map[uint64]FoundingAnswer{2: {Accepted: plan(1, 2, 3)}}, "waiting for n3", ""},
	} {
		s := NewFounding(founder(1, 3), c.accepted, func() string { return "new" }).Step(c.members, c.answers)
		if !strings.Contains(s.Trouble+s.Waiting, c.want) || s.Trouble != "" && s.Waiting != "" || s.Join != c.join || s.Propose != nil || s.Found != nil {
			t.Errorf("%s: want %q: %+v", name, c.want, s)
		}
	}
}

func TestFoundingAccept(t *testing.T) {
	good := NewFounding(founder(1, 3), nil, func() string { return "new" }).plan([]Member{founder(1, 3), founder(2, 3), founder(3, 3)})
	change := func(f func(*FoundingPlan)) *FoundingPlan {
		p := *good
		p.Nodes = slices.Clone(p.Nodes)
		f(&p)
		return &p
	}
	inCluster := founder(3, 3)
	inCluster.Cluster = "old"
	for name, c := range map[string]struct {
		plan    *FoundingPlan
		members []Member
		want    string // in Refused; empty: accepted
	}{
		"good": {good, nil, ""},
		"without it": {change(func(p *FoundingPlan) {
			p.Nodes[1] = founder(2, 3).node()
			p.Nodes[1].ID, p.Nodes[1].Name = 1<<30, "x"
			p.Nodes = p.Nodes[:2]
		}), nil, "without it"},
		"other shards": {change(func(p *FoundingPlan) { p.Shards = 32 }), nil, "start all founders with the same"},
		"other number": {change(func(p *FoundingPlan) { p.Nodes = p.Nodes[:2] }), nil, "start all founders with the same"},
		"no id":        {change(func(p *FoundingPlan) { p.ClusterID = "" }), nil, "cluster id"},
		"twice":        {change(func(p *FoundingPlan) { p.Nodes[2] = p.Nodes[1] }), nil, "order of id"},
		"cluster":      {good, []Member{inCluster}, "old already"},
	} {
		f := NewFounding(founder(2, 3), nil, nil)
		answer, persist := f.Accept(c.plan, c.members)
		if persist != (c.want == "") || persist != (answer.Refused == "") || persist != (f.Accepted() != nil) || !strings.Contains(answer.Refused, c.want) {
			t.Errorf("%s: %+v %v", name, answer, persist)
		}
	}
	f := NewFounding(founder(2, 3), good, nil)
	other := change(func(p *FoundingPlan) { p.ClusterID = "other" })
	if a, persist := f.Accept(other, nil); persist || a.Refused == "" || !a.Accepted.equal(good) {
		t.Fatalf("a second plan: %+v %v", a, persist)
	}
	if a, persist := f.Accept(nil, nil); persist || a.Refused != "" || !a.Accepted.equal(good) {
		t.Fatalf("asked: %+v %v", a, persist)
	}
}

func TestFoundingEncoding(t *testing.T) {
	p := NewFounding(founder(1, 2), nil, func() string { return "new" }).plan([]Member{founder(1, 2), founder(2, 2)})
	got, err := DecodeFoundingPlan(p.Encode())
	if err != nil || !got.equal(p) {
		t.Fatalf("%+v %v", got, err)
	}
	a, err := DecodeFoundingAnswer(FoundingAnswer{Accepted: p, Refused: "r"}.Encode())
	if err != nil || !a.Accepted.equal(p) || a.Refused != "r" {
		t.Fatalf("%+v %v", a, err)
	}
	if p, err := DecodeFoundingPlan([]byte("null")); p != nil || err != nil {
		t.Fatalf("%+v %v", p, err)
	}
	for _, b := range []string{"", "{", "{}", `{"cluster_id":"a","shards":1,"replicas":1}`, `{"accepted":{}}`, strings.Repeat(" ", maxFoundingBytes+1) + "null"} {
		_, planErr := DecodeFoundingPlan([]byte(b))
		if planErr == nil {
			t.Errorf("plan %.40q was read", b)
		}
	}
	if _, err := DecodeFoundingAnswer([]byte(`{"accepted":{}}`)); err == nil {
		t.Error("an answer with an empty plan was read")
	}
	most := &FoundingPlan{ClusterID: strings.Repeat("c", metaMaxCluster), Shards: 65535, Replicas: 7}
	for i := range MaxFounders {
		n := Node{ID: maxNodeID - 200 + uint64(i), Name: fmt.Sprintf("%063d", i), Zone: strings.Repeat("z", maxZone), Version: strings.Repeat("v", maxVersion), Starts: 1<<32 - 1}
		n.HTTP, n.Peer, n.Gossip = strings.Repeat("h", maxAddress), strings.Repeat("p", maxAddress), strings.Repeat("g", maxAddress)
		most.Nodes = append(most.Nodes, n)
	}
	if got, err := DecodeFoundingPlan(most.Encode()); err != nil || !got.equal(most) {
		t.Fatalf("the largest plan, %d bytes: %v", len(most.Encode()), err)
	}
}
