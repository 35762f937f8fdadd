package member

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"carillon/ring"
	"carillon/transport/peer"
)

// A node whose directory is damaged is replaced (docs/adr/0055): when the meta group's leader has
// confirmed that every group has a majority without the node, it sets its directory aside and joins
// its cluster as a new node. See also SetAside.

const (
	replaceInterval = time.Second
	// Between two confirmations. What ended just before the first is no longer heard at the second:
	// two nodes that are damaged at the same moment do not count for each other.
	confirmationGap = suspectAfter + 2*heartbeatInterval
	refusalTime     = 10 * time.Second // no refusal counts before: the others may just be starting
	replaceTimeout  = 10 * time.Minute // then a node that nobody has confirmed is not replaced
	aloneTimeout    = 30 * time.Second // the same for one that finds no other node and has no --join
)

// replaceQuestion asks whether a node may be replaced, as JSON. A node asks for itself; a member
// passes the question on to the meta group's leader.
type replaceQuestion struct {
	Node uint64 `json:"node"`
}

// replaceAnswer is the answer, as JSON. Why is the refusal; empty: the node may be replaced.
type replaceAnswer struct {
	Why string `json:"why,omitempty"`
}

// AwaitReplacement is for a node whose directory is damaged. It returns nil when the meta group's
// leader has confirmed that every group has a majority without this node; else an error for the
// operator.
func (s *Self) AwaitReplacement(ctx context.Context, cause error) error {
	s.damaged.Store(true)
	r := replacement{s}
	notice := newRareLog(s.tasks)
	begun := s.tasks.Now()
	confirmed, refused := time.Duration(-1), time.Duration(-1) // since when
	for {
		s.Wait("the data directory is damaged; the cluster is asked whether this node can be replaced: " + cause.Error())
		yes, unsure, reasons := r.askAll(ctx)
		now := s.tasks.Now()
		switch {
		case !yes:
			confirmed = -1
		case confirmed < 0:
			confirmed = now
		case now-confirmed >= confirmationGap:
			return nil
		}
		switch {
		case yes || unsure:
			refused = -1
		case refused < 0:
			refused = now
		}
		state := cmp.Or(strings.Join(reasons, "; "), "no other node of the cluster is found")
		known := len(reasons) > 0 || yes
		if refused >= 0 && known && now-refused >= refusalTime || !yes && now-begun > replaceTimeout || !known && len(s.cfg.Join) == 0 && now-begun > aloneTimeout {
			return fmt.Errorf("%w; this node is not replaced, since no node confirms that the others have majorities without it (%s): %s", cause, state, damagedAdvice)
		}
		if !yes {
			notice.do(func() {
				s.log.Warn("this node's data directory is damaged; it waits to be replaced", "reason", state)
			})
		}
		if !s.tasks.Sleep(ctx, replaceInterval) {
			return ctx.Err()
		}
	}
}

// damagedAdvice is what the operator can do where a node cannot be replaced.
const damagedAdvice = "start the other nodes, and then this one again; if they are lost, or there are none, restore a backup into an empty directory"

// Damaged adds the advice to the error of a node that is alone.
func Damaged(cause error) error { return fmt.Errorf("%w; %s", cause, damagedAdvice) }

// replacement asks the other nodes whether this one may be replaced.
type replacement struct{ *Self }

// askAll asks all others once. unsure: a node did not answer, and may answer later. reasons has one
// for each node that did not confirm.
func (r replacement) askAll(ctx context.Context) (yes, unsure bool, reasons []string) {
	others := r.others()
	for _, id := range slices.Sorted(maps.Keys(others)) {
		why, err := r.ask(ctx, id, others[id])
		switch {
		case err != nil:
			unsure, why = true, err.Error()
		case why == "":
			return true, false, nil
		}
		reasons = append(reasons, fmt.Sprintf("node %s at %s: %s", r.NameOf(id), others[id], why))
	}
	return false, unsure, reasons
}

func (r replacement) ask(ctx context.Context, id uint64, addr string) (why string, err error) {
	var a replaceAnswer
	from, err := ask(ctx, r.Self, addr, methodReplace, replaceQuestion{r.id}, &a)
	if err != nil {
		return "", err
	}
	if from.Node != id || from.Cluster != r.Identity().ClusterID {
		return "", fmt.Errorf("node %010x of cluster %q answers in its place", from.Node, from.Cluster)
	}
	return a.Why, nil
}

// others are the peer addresses of the other nodes that gossip and the founding plan know. The
// cluster's record is not read, for this node's copy of it may be damaged.
func (r replacement) others() map[uint64]string {
	id, found := r.Identity(), map[uint64]string{}
	if plan := id.AcceptedPlan; plan != nil && plan.ClusterID == id.ClusterID {
		for _, n := range plan.Nodes {
			found[n.ID] = n.Peer
		}
	}
	for _, m := range r.gossip.List() {
		if m.Cluster != id.ClusterID {
			continue
		}
		if delete(found, m.ID); m.State == ring.MemberAlive {
			found[m.ID] = m.Peer
		}
	}
	delete(found, r.id)
	return found
}

// seeds are the gossip addresses by which a node without a configuration of others finds them.
func (s *Self) seeds() (list []string) {
	if plan := s.Identity().AcceptedPlan; plan != nil {
		for _, n := range plan.Nodes {
			list = append(list, n.Gossip)
		}
	}
	for _, m := range s.gossip.List() {
		list = append(list, m.Gossip)
	}
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(a string) bool { return a == "" || a == s.gossip.Addr() })
	return list[:min(len(list), maxSeeds)]
}

const maxSeeds = 16

// answerReplace answers whether a node may be replaced. A node asks for itself, or a member passes
// its question on.
func (s *Self) answerReplace(ctx context.Context, from peer.Hello, body []byte) ([]byte, error) {
	var q replaceQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("node: replacement: %w", err)
	}
	id := s.Identity()
	if id.ClusterID == "" || from.Cluster != id.ClusterID {
		return nil, fmt.Errorf("node: replacement: it belongs to cluster %q, this node to %q", from.Cluster, id.ClusterID)
	}
	if s.damaged.Load() {
		return json.Marshal(replaceAnswer{Why: "its data directory is damaged, too"})
	}
	m := s.member.Load()
	if m == nil || !m.hasRead() {
		return nil, errNotYet
	}
	if q.Node != from.Node {
		if n, member := m.State.Node(from.Node); from.Lane == peer.LaneOnce || !member || n.State == ring.NodeRemoved {
			return nil, fmt.Errorf("node: replacement: node %010x asks for node %010x", from.Node, q.Node)
		}
	}
	var a replaceAnswer
	if err := m.decisions.mayReplace(ctx, q.Node, body); errors.Is(err, errUnsure) {
		return nil, err
	} else if err != nil {
		a.Why = err.Error()
	}
	return json.Marshal(a)
}

// errUnsure is the root of errors that decide nothing.
var errUnsure = errors.New("node: replacement: the question could not be decided")
