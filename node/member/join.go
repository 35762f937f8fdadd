package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"carillon/ring"
	"carillon/shard"
	"carillon/transport/peer"
)

const joinTries = 3 // members asked in one step

// joinAnswer is the cluster's shape, and the joining node's place in the meta group once it has
// one.
type joinAnswer struct {
	ClusterID string            `json:"cluster_id"`
	Shards    int               `json:"shards"`
	First     int               `json:"first_shards,omitempty"` // founded with; 0: Shards
	Replicas  int               `json:"replicas"`
	Meta      *shard.Assignment `json:"meta,omitempty"`
	// Plan has the joining node, and is not founded yet: it is one of the founders.
	Plan *ring.FoundingPlan `json:"plan,omitempty"`
}

// join asks members that gossip knows to let this node in. Once it has a place in the meta group,
// the identity has the cluster; until then waiting is the reason.
func (s *Self) join(ctx context.Context) (waiting string, err error) {
	answer, err := s.askToJoin(ctx)
	switch {
	case errors.Is(err, ErrRemoved):
		return "", err
	case errors.Is(err, ring.ErrStale):
		return "", s.outdated(err)
	case err != nil:
		return "joining: " + err.Error(), nil
	case answer.Plan != nil:
		return "", s.Found(answer.Plan)
	case answer.Meta == nil:
		return "joining: waiting for a place in the meta group", nil
	}
	return "", s.Change(func(id *Identity) {
		id.ClusterID, id.Shards, id.Replicas, id.Meta = answer.ClusterID, answer.Shards, answer.Replicas, answer.Meta
		id.FirstShards = answer.First
		id.Rejoin = nil
	})
}

// askToJoin asks a member, or a few until one answers. The next step asks the next member:
// the copy of one may stand still until this node has joined, and never has its place.
func (s *Self) askToJoin(ctx context.Context) (*joinAnswer, error) {
	self, err := s.describe()
	if err != nil {
		return nil, err
	}
	cluster, seeds := "", s.cfg.Join
	if r := s.Identity().Rejoin; r != nil {
		cluster, seeds = r.ClusterID, slices.Concat(seeds, r.Seeds)
	}
	err = fmt.Errorf("no member of a cluster has been found at %v yet", seeds)
	members := slices.DeleteFunc(s.gossip.List(), func(m ring.Member) bool {
		return m.Cluster == "" || m.ID == s.id || m.State != ring.MemberAlive || cluster != "" && m.Cluster != cluster
	})
	for range min(joinTries, len(members)) {
		m := members[s.askedToJoin%len(members)]
		s.askedToJoin++
		var a joinAnswer
		_, callErr := ask(ctx, s, m.Peer, methodJoin, self, &a)
		if isAnswer(callErr, removedCode) && s.cfg.PeersProven {
			return nil, ErrRemoved
		}
		if isAnswer(callErr, outdatedCode) && s.cfg.PeersProven {
			return nil, fmt.Errorf("%w (node %s says: %w)", ring.ErrStale, m.Name, callErr)
		}
		if callErr != nil {
			err = fmt.Errorf("node %s (%s) refuses this node: %w", m.Name, m.Peer, callErr)
			continue
		}
		if cluster == "" || a.ClusterID == cluster {
			return &a, nil
		}
		err = fmt.Errorf("%w: node %s is of %s, this one was of %s", ring.ErrOtherCluster, m.Name, a.ClusterID, cluster)
	}
	return nil, err
}

// answerJoin lets a node in. It can only ask for itself: its certificate, where there are any,
// names it.
func (s *Self) answerJoin(ctx context.Context, from peer.Hello, body []byte) ([]byte, error) {
	var n ring.Node
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("node: join: %w", err)
	}
	if n.ID != from.Node || n.Name != from.Name {
		return nil, fmt.Errorf("node: join: node %s (%010x) asks for node %s (%010x)", from.Name, from.Node, n.Name, n.ID)
	}
	// A process that connected before had the cluster's id on disk.
	if _, nonce, met := s.peers.Met(n.ID); met && from.Cluster == "" && nonce != from.Nonce {
		return nil, outdatedError{fmt.Errorf("%w: it is from before the node joined", ring.ErrStale)}
	}
	m := s.member.Load()
	if plan := s.unfounded(m); plan.Has(n.ID) {
		return json.Marshal(joinAnswer{ClusterID: plan.ClusterID, Plan: plan})
	}
	if m == nil {
		return nil, errNotYet
	}
	if _, err := m.Propose(ctx, ring.Command{Verb: ring.Register, Node: &n}); errors.Is(err, ring.ErrRemoved) {
		return nil, removedError{}
	} else if errors.Is(err, ring.ErrStale) {
		return nil, outdatedError{err}
	} else if err != nil {
		return nil, m.addNameAdvice(&n, err)
	}
	var a joinAnswer
	a.ClusterID, a.Shards, a.Replicas = m.State.Cluster()
	if n := m.State.Shards(); n.First != n.Now {
		a.First = n.First
	}
	if row, ok := m.State.Row(ring.MetaGroup); ok && row.Names(n.ID) {
		meta := row.ForHost()
		a.Meta = &meta
	}
	return json.Marshal(a)
}

// unfounded is the plan of this node's cluster, as long as nothing of it is known to be founded.
func (s *Self) unfounded(m *Member) *ring.FoundingPlan {
	id := s.Identity()
	if id.ClusterID == "" || id.Founded {
		return nil
	}
	if m != nil {
		if known, _, _ := m.State.Cluster(); known != "" {
			return nil
		}
	}
	return id.AcceptedPlan
}

// addNameAdvice adds to the refusal of a node what the operator can do where it has another node's
// name: its volume may not have been mounted.
func (m *Member) addNameAdvice(n *ring.Node, err error) error {
	if other, ok := m.State.NodeNamed(n.Name); !ok || other.ID == n.ID {
		return err
	}
	return fmt.Errorf("%w; %s is a member of the cluster, and this data directory is not the one that it had: mount that one, or give another node another --name. "+
		"If it is lost, wait until all other nodes are ready; if one of them never will be, use carillon ctl remove %s --accept-loss", err, n.Name, n.Name)
}

// removedError answers a node that the cluster has removed. That node may not know it yet.
type removedError struct{}

const (
	removedCode  = 1
	outdatedCode = 2
)

func (removedError) Error() string { return ring.ErrRemoved.Error() }

// PeerCode makes it known on the other side.
func (removedError) PeerCode() byte { return removedCode }

// outdatedError answers a node of which the cluster knows a later start of its data directory.
type outdatedError struct{ error }

// PeerCode makes it known on the other side.
func (outdatedError) PeerCode() byte { return outdatedCode }

// isAnswer reports whether another node's answer was the error that has the code.
func isAnswer(err error, code byte) bool {
	remote, ok := errors.AsType[*peer.RemoteError](err)
	return ok && remote.Code == code
}
