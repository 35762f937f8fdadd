package ring

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// MaxFounders bounds the nodes that found a cluster together.
const MaxFounders = 99

// FoundingPlan is the agreement of the founders, each bound for life: the cluster's id and shape,
// and its first nodes.
type FoundingPlan struct {
	ClusterID string `json:"cluster_id"`
	Shards    int    `json:"shards"`
	Replicas  int    `json:"replicas"`
	Nodes     []Node `json:"nodes"` // in order of id
}

// FoundingAnswer is a founder's answer to the question which plan it has accepted.
type FoundingAnswer struct {
	Accepted *FoundingPlan `json:"accepted,omitempty"` // nil: none so far
	// Why not the plan that came with the question.
	Refused string `json:"refused,omitempty"`
}

// FoundingStep are the actions of a founder now, in this order.
type FoundingStep struct {
	Propose *FoundingPlan // store it as accepted, durably, before anything else; nil: nothing new
	Ask     []uint64      // ask these for their answer, sending Accepted along (it may be nil)
	Found   *FoundingPlan // every node of the plan has accepted it: found
	Join    string        // the id of a cluster that exists; this node is free to join it instead
	Waiting string        // the missing part, when nothing is wrong
	Trouble string        // why this cannot succeed, and how the operator can mend it
}

// Founding is the logic by which several founders agree on one plan, without clock, network or
// disk.
//
// Invariant: a founder accepts at most one plan in its life, and stores it before it says so. A
// plan is founded only when every node of it has accepted it. So two plans that have a node in
// common are never both founded, even if messages are lost, repeated or reordered, or founders
// crash. The choice of the proposer, the lowest id among exactly the expected number, only makes it
// likely that there is one plan.
//
// The caller serialises Step and Accept, and stores the plans that they name before it calls either
// again or lets anything out; when that fails it must not go on with this Founding but begin anew
// from the disk. It keeps answering, with the accepted plan, after it has founded. Questions and
// answers may be lost: it calls Step again every now and then.
type Founding struct {
	self     Member
	accepted *FoundingPlan
	random   func() string
}

// NewFounding begins, or goes on after a restart with the plan that was stored (nil: none). random
// makes a cluster id.
func NewFounding(self Member, accepted *FoundingPlan, random func() string) *Founding {
	return &Founding{self: self, accepted: accepted, random: random}
}

// Accepted is this founder's plan, nil before there is one. It must not be changed.
func (f *Founding) Accepted() *FoundingPlan { return f.accepted }

// Step gives the next actions, from the view of gossip (with or without this node) and every
// founder's latest answer.
func (f *Founding) Step(members []Member, answers map[uint64]FoundingAnswer) FoundingStep {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.ID == f.self.ID })
	if f.accepted != nil {
		return f.agree(members, answers)
	}
	// A dead node's cluster counts too: founding another beside it would hide its timers.
	for _, m := range members {
		if m.Cluster != "" {
			return FoundingStep{Join: m.Cluster, Trouble: fmt.Sprintf("node %s (%s) belongs to cluster %s already, so there is nothing to found: "+
				"start this node without --bootstrap-expect to join that cluster", m.Name, m.Gossip, m.Cluster)}
		}
	}
	candidates := f.candidates(members)
	if step, decided := f.adopt(candidates, answers); decided {
		return step
	}
	step := FoundingStep{Trouble: f.disagreement(candidates)}
	step.Ask = idsOf(candidates[1:])
	if step.Trouble != "" {
		return step
	}
	if here := len(candidates); here < f.self.Expect {
		step.Waiting = fmt.Sprintf("%d of %d founders are here", here, f.self.Expect)
		return step
	}
	// All have to say that they are free before anybody commits itself: a plan that somebody cannot
	// accept binds for life.
	for _, m := range candidates[1:] {
		if _, known := answers[m.ID]; !known {
			step.Waiting = fmt.Sprintf("waiting for node %s (%s) to answer", m.Name, cmp.Or(m.Peer, m.Gossip))
			return step
		}
	}
	lowest := slices.MinFunc(candidates, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if lowest.ID != f.self.ID {
		step.Waiting = fmt.Sprintf("waiting for node %s (%s) to propose", lowest.Name, cmp.Or(lowest.Peer, lowest.Gossip))
		return step
	}
	f.accepted = f.plan(candidates)
	step.Propose = f.accepted
	return step
}

// candidates are this node, first, and the living members that wish to found.
func (f *Founding) candidates(members []Member) []Member {
	out := []Member{f.self}
	for _, m := range members {
		if m.State == MemberAlive && m.Cluster == "" && m.Expect > 0 {
			out = append(out, m)
		}
	}
	return out
}

// adopt looks whether others agreed on a plan while this node was away: with it, or without.
func (f *Founding) adopt(candidates []Member, answers map[uint64]FoundingAnswer) (FoundingStep, bool) {
	without := ""
	for _, m := range candidates[1:] {
		plan := answers[m.ID].Accepted
		switch {
		case plan == nil:
		case !plan.has(f.self.ID):
			without = fmt.Sprintf("node %s has accepted to found cluster %s with %s, without this node: wait until that cluster is there, "+
				"then start this node without --bootstrap-expect to join it", m.Name, plan.ClusterID, plan.names())
		case f.refusal(plan) == "":
			f.accepted = plan
			return FoundingStep{Propose: plan, Ask: plan.others(f.self.ID)}, true
		}
	}
	return FoundingStep{Trouble: without, Ask: idsOf(candidates[1:])}, without != ""
}

// disagreement says why the candidates cannot found together.
func (f *Founding) disagreement(candidates []Member) string {
	names := map[string]Member{}
	for _, m := range candidates {
		if m.Expect != f.self.Expect || m.Shards != f.self.Shards || m.Replicas != f.self.Replicas {
			return fmt.Sprintf("node %s (%s) was started with --bootstrap-expect %d --shards %d --replicas %d, this node with %d, %d, %d: "+
				"start all founders with the same", m.Name, m.Gossip, m.Expect, m.Shards, m.Replicas, f.self.Expect, f.self.Shards, f.self.Replicas)
		}
		if other, taken := names[m.Name]; taken {
			return fmt.Sprintf("two founders have the name %s (%s and %s): give each its own --name", m.Name,
				cmp.Or(other.Gossip, "this node"), cmp.Or(m.Gossip, "this node"))
		}
		names[m.Name] = m
	}
	if len(candidates) > f.self.Expect {
		return fmt.Sprintf("%d nodes were started with --bootstrap-expect %d (%s): stop those that are too many; they can join later without --bootstrap-expect",
			len(candidates), f.self.Expect, namesOf(candidates))
	}
	return ""
}

func (f *Founding) plan(candidates []Member) *FoundingPlan {
	p := &FoundingPlan{ClusterID: f.random(), Shards: f.self.Shards, Replicas: f.self.Replicas}
	for _, m := range candidates {
		n := m.node()
		n.State = NodeMember
		p.Nodes = append(p.Nodes, n)
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return p
}

// agree goes on once there is a plan: until every node of it has accepted it.
func (f *Founding) agree(members []Member, answers map[uint64]FoundingAnswer) FoundingStep {
	plan, waiting := f.accepted, []string(nil)
	var step FoundingStep
	for _, m := range members {
		switch m.Cluster {
		case "":
		case plan.ClusterID: // somebody has founded it, so he had everybody's answer
			return FoundingStep{Found: plan}
		default:
			step.Trouble = fmt.Sprintf("node %s (%s) belongs to cluster %s, but this node has promised to found %s with %s: "+
				"stop this node, empty its data directory and start it without --bootstrap-expect to join that cluster", m.Name, m.Gossip, m.Cluster, plan.ClusterID, plan.names())
		}
	}
	for _, n := range plan.Nodes {
		if n.ID == f.self.ID {
			continue
		}
		switch answer := answers[n.ID]; {
		case answer.Accepted.equal(plan):
			continue
		case answer.Accepted != nil:
			step.Trouble = cmp.Or(step.Trouble, fmt.Sprintf("node %s has promised to found cluster %s with %s, this node %s with %s, and a promise binds: "+
				"no cluster was founded; stop all founders, empty their data directories and start them again", n.Name, answer.Accepted.ClusterID, answer.Accepted.names(), plan.ClusterID, plan.names()))
		case answer.Refused != "":
			step.Trouble = cmp.Or(step.Trouble, fmt.Sprintf("node %s refuses to found cluster %s: %s", n.Name, plan.ClusterID, answer.Refused))
		}
		step.Trouble = cmp.Or(step.Trouble, wiped(n, members))
		step.Ask = append(step.Ask, n.ID)
		waiting = append(waiting, n.Name)
	}
	switch {
	case len(step.Ask) == 0:
		// Even if gossip shows more: every promise is given, and others may act on it.
		return FoundingStep{Found: plan}
	case step.Trouble == "":
		step.Waiting = "waiting for " + strings.Join(waiting, ", ") + " to accept the founding plan"
	}
	return step
}

// wiped says when a node of the plan seems to have come back without its data, under another id.
func wiped(n Node, members []Member) string {
	for _, m := range members {
		if m.Name == n.Name && m.ID != n.ID && m.State == MemberAlive {
			return fmt.Sprintf("node %s has lost its data directory after it was counted on as a founder: "+
				"if no node belongs to a cluster yet, stop all founders, empty their data directories and start them again", n.Name)
		}
	}
	return ""
}

// Accept answers another founder that asks, and brings its plan (nil: it has none). persist: store
// Accepted first, durably.
func (f *Founding) Accept(plan *FoundingPlan, members []Member) (answer FoundingAnswer, persist bool) {
	if plan == nil || f.accepted != nil {
		if plan != nil && !plan.equal(f.accepted) {
			answer.Refused = "it has accepted another plan"
		}
		answer.Accepted = f.accepted
		return answer, false
	}
	for _, m := range append([]Member{f.self}, members...) {
		if m.Cluster != "" && m.Cluster != plan.ClusterID {
			return FoundingAnswer{Refused: fmt.Sprintf("node %s belongs to cluster %s already", m.Name, m.Cluster)}, false
		}
	}
	if refused := f.refusal(plan); refused != "" {
		return FoundingAnswer{Refused: refused}, false
	}
	f.accepted = plan
	return FoundingAnswer{Accepted: plan}, true
}

// refusal says why a plan does not fit the flags that this node was started with. More candidates
// than the plan has nodes are no reason: its proposer is bound already, and the nodes that are left
// over can join.
func (f *Founding) refusal(plan *FoundingPlan) string {
	switch err := plan.validate(); {
	case err != nil:
		return err.Error()
	case !plan.has(f.self.ID):
		return "the plan is without it"
	case len(plan.Nodes) != f.self.Expect || plan.Shards != f.self.Shards || plan.Replicas != f.self.Replicas:
		return fmt.Sprintf("it was started with --bootstrap-expect %d --shards %d --replicas %d, the plan has %d, %d, %d: start all founders with the same",
			f.self.Expect, f.self.Shards, f.self.Replicas, len(plan.Nodes), plan.Shards, plan.Replicas)
	}
	return ""
}

func (p *FoundingPlan) validate() error {
	if p.ClusterID == "" || len(p.ClusterID) > metaMaxCluster || !textPattern.MatchString(p.ClusterID) {
		return fmt.Errorf("the plan's cluster id %q is out of bounds", p.ClusterID)
	}
	if p.Shards < 1 || p.Shards > 65535 || p.Replicas < 1 || len(p.Nodes) < 1 || len(p.Nodes) > MaxFounders {
		return fmt.Errorf("a plan of %d shards, %d replicas, %d nodes is out of bounds", p.Shards, p.Replicas, len(p.Nodes))
	}
	names := map[string]bool{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if err := n.validate(); err != nil {
			return err
		}
		if i > 0 && p.Nodes[i-1].ID >= n.ID || names[n.Name] {
			return fmt.Errorf("the plan's nodes are not in order of id, or two are named %s", n.Name)
		}
		names[n.Name] = true
	}
	return nil
}

func (p *FoundingPlan) has(id uint64) bool {
	return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.ID == id })
}

// equal: nil is equal to nothing.
func (p *FoundingPlan) equal(q *FoundingPlan) bool {
	return p != nil && q != nil && reflect.DeepEqual(p, q)
}

func (p *FoundingPlan) others(self uint64) []uint64 {
	var ids []uint64
	for _, n := range p.Nodes {
		if n.ID != self {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (p *FoundingPlan) names() string {
	var names []string
	for _, n := range p.Nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

func idsOf(members []Member) []uint64 {
	var ids []uint64
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func namesOf(members []Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Of a plan or an answer: 99 nodes at their largest are about 110 KiB.
const maxFoundingBytes = 256 << 10

// Encode makes the bytes that are stored and sent.
func (p *FoundingPlan) Encode() []byte { return encodeFounding(p) }

// Encode makes the bytes that are sent.
func (a FoundingAnswer) Encode() []byte { return encodeFounding(a) }

func encodeFounding(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("ring: encode founding: %v", err)) // plain data: cannot happen
	}
	return b
}

// DecodeFoundingPlan reads and checks a plan; "null" is no plan.
func DecodeFoundingPlan(b []byte) (*FoundingPlan, error) {
	var p *FoundingPlan
	if err := decodeFounding(b, &p); err != nil {
		return nil, err
	}
	if p == nil {
		return nil, nil
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("ring: founding plan: %w", err)
	}
	return p, nil
}

// DecodeFoundingAnswer reads and checks an answer.
func DecodeFoundingAnswer(b []byte) (FoundingAnswer, error) {
	var a FoundingAnswer
	if err := decodeFounding(b, &a); err != nil {
		return FoundingAnswer{}, err
	}
	if a.Accepted != nil {
		if err := a.Accepted.validate(); err != nil {
			return FoundingAnswer{}, fmt.Errorf("ring: founding answer: %w", err)
		}
	}
	return a, nil
}

func decodeFounding(b []byte, v any) error {
	err := errors.New("too long")
	if len(b) <= maxFoundingBytes {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("ring: read founding of %d bytes: %w", len(b), err)
	}
	return nil
}
