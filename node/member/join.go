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

// joinAnswer tells a node that wants to join the shape of the cluster, and its place in the meta
// group once it has one.
type joinAnswer struct {
	ClusterID string            `json:"cluster_id"`
	Shards    int               `json:"shards"`
	Replicas  int               `json:"replicas"`
	Meta      *shard.Assignment `json:"meta,omitempty"`
}

// join asks members that gossip knows to let this node in, until its place in the meta group is
// known.
func (s *Self) join(ctx context.Context) error {
	said := NewNotice(s.tasks, sayEach)
	for {
		answer, err := s.askToJoin(ctx)
		switch {
		case errors.Is(err, ErrRemoved):
			return err
		case errors.Is(err, ring.ErrStale):
			return s.outdated(err)
		case err != nil:
			s.Wait("joining: " + err.Error())
			said.Say(func() { s.log.Warn("joining", "waiting", err.Error()) })
		case answer.Meta == nil:
			s.Wait("joining: waiting for a place in the meta group")
		default:
			return s.Change(func(id *Identity) {
				id.ClusterID, id.Shards, id.Replicas, id.Meta = answer.ClusterID, answer.Shards, answer.Replicas, answer.Meta
				id.Rejoin = nil
			})
		}
		if !s.tasks.Sleep(ctx, stepEach) {
			return ctx.Err()
		}
	}
}

func (s *Self) askToJoin(ctx context.Context) (*joinAnswer, error) {
	self, err := s.describe()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	cluster, seeds := "", s.cfg.Join
	if r := s.Identity().Rejoin; r != nil {
		cluster, seeds = r.ClusterID, slices.Concat(seeds, r.Seeds)
	}
	err = fmt.Errorf("no member of a cluster is seen yet at %v", seeds)
	tries := 0
	for _, m := range s.gossip.List() {
		if m.Cluster == "" || m.ID == s.id || m.State != ring.MemberAlive || tries == joinTries || cluster != "" && m.Cluster != cluster {
			continue
		}
		tries++
		ctx, cancel := s.tasks.WithTimeout(ctx, askFor)
		reply, _, callErr := s.peers.CallAddr(ctx, m.Peer, methodJoin, body)
		cancel()
		if toldRemoved(callErr) && s.cfg.PeersProven {
			return nil, ErrRemoved
		}
		if toldOutdated(callErr) && s.cfg.PeersProven {
			return nil, fmt.Errorf("%w (node %s says: %w)", ring.ErrStale, m.Name, callErr)
		}
		if callErr != nil {
			err = fmt.Errorf("node %s (%s) does not let this node in: %w", m.Name, m.Peer, callErr)
			continue
		}
		var a joinAnswer
		if err = json.Unmarshal(reply, &a); err == nil && cluster != "" && a.ClusterID != cluster {
			err = fmt.Errorf("%w: node %s is of %s, this one was of %s", ring.ErrOtherCluster, m.Name, a.ClusterID, cluster)
		}
		if err == nil {
			return &a, nil
		}
	}
	return nil, err
}

// answerJoin lets a node in. It can only ask for itself: its certificate, where there are any,
// names it.
func (s *Self) answerJoin(ctx context.Context, from peer.Hello, body []byte) ([]byte, error) {
	m := s.member.Load()
	if m == nil {
		return nil, errNotYet
	}
	var n ring.Node
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("node: join: %w", err)
	}
	if n.ID != from.Node || n.Name != from.Name {
		return nil, fmt.Errorf("node: join: %s (%010x) asks in the name of %s (%010x)", from.Name, from.Node, n.Name, n.ID)
	}
	// A node that was met knew the cluster's id, on disk.
	if _, nonce, met := s.peers.Met(n.ID); met && from.Cluster == "" && nonce != from.Nonce {
		return nil, isOutdated{fmt.Errorf("%w: it is from before the node joined", ring.ErrStale)}
	}
	if _, err := m.Propose(ctx, ring.Command{Verb: ring.Register, Node: &n}); errors.Is(err, ring.ErrRemoved) {
		return nil, wasRemoved{}
	} else if errors.Is(err, ring.ErrStale) {
		return nil, isOutdated{err}
	} else if err != nil {
		return nil, m.sayWhatToDo(&n, err)
	}
	var a joinAnswer
	a.ClusterID, a.Shards, a.Replicas = m.State.Cluster()
	if row, ok := m.State.Row(ring.MetaGroup); ok && row.Names(n.ID) {
		meta := row.ForHost()
		a.Meta = &meta
	}
	return json.Marshal(a)
}

// sayWhatToDo adds it to why a node was not let in that comes with the name of another: its volume
// may not have been mounted.
func (m *Member) sayWhatToDo(n *ring.Node, err error) error {
	if other, ok := m.State.NodeNamed(n.Name); !ok || other.ID == n.ID {
		return err
	}
	return fmt.Errorf("%w; %s is a member of the cluster, and this data directory is not the one that it had: mount that one. If it is lost, wait until all "+
		"other nodes are ready; if one of them never will be, carillon ctl remove %s --accept-loss", err, n.Name, n.Name)
}

// wasRemoved tells a node that the cluster has removed it: it may not have heard.
type wasRemoved struct{}

const (
	removedCode  = 1
	outdatedCode = 2
)

func (wasRemoved) Error() string { return ring.ErrRemoved.Error() }

// PeerCode makes it known on the other side.
func (wasRemoved) PeerCode() byte { return removedCode }

// toldRemoved says of an answer that it is wasRemoved.
func toldRemoved(err error) bool {
	remote, ok := errors.AsType[*peer.RemoteError](err)
	return ok && remote.Code == removedCode
}

// isOutdated tells a node that the cluster knows of a later start of its data directory.
type isOutdated struct{ error }

// PeerCode makes it known on the other side.
func (isOutdated) PeerCode() byte { return outdatedCode }

// toldOutdated says of an answer that it is isOutdated.
func toldOutdated(err error) bool {
	remote, ok := errors.AsType[*peer.RemoteError](err)
	return ok && remote.Code == outdatedCode
}

// askForPlace asks other members for the cluster's record of this node; removed: it does not belong
// to it any more. Else row is the meta group's, if it names this node; nil: no member has answered
// so.
func (m *Member) askForPlace(ctx context.Context) (row *shard.Assignment, removed bool) {
	self, err := m.describe()
	if err != nil {
		return nil, false
	}
	body, err := json.Marshal(self)
	if err != nil {
		return nil, false
	}
	for _, n := range m.others() {
		addr := m.AddressOf(n.ID)
		if addr == "" {
			continue
		}
		ctx, cancel := m.tasks.WithTimeout(ctx, askFor)
		reply, from, err := m.peers.CallAddr(ctx, addr, methodJoin, body)
		cancel()
		if toldRemoved(err) && m.believesItsEnd(n, from, "was removed from the cluster") {
			return nil, true
		}
		if toldOutdated(err) && m.believesItsEnd(n, from, "runs on an older copy of its data directory") {
			m.haltAsOlder(fmt.Errorf("%w (node %s says: %w)", ring.ErrStale, n.Name, err))
			return nil, false
		}
		var a joinAnswer
		if err == nil && from.Cluster == m.Identity().ClusterID && json.Unmarshal(reply, &a) == nil && a.ClusterID == m.Identity().ClusterID && a.Meta != nil {
			return a.Meta, false
		}
	}
	return nil, false
}

// believesItsEnd says whether a word by which this node must end is believed: it must come from the
// member that was asked, and from one that has proven that it is a node. The word itself is for the
// log.
func (m *Member) believesItsEnd(asked ring.Node, from peer.Hello, word string) bool {
	if from.Node != asked.ID || from.Cluster != m.Identity().ClusterID {
		return false
	}
	if m.cfg.PeersProven {
		return true
	}
	m.unproven.Say(func() {
		m.log.Warn("another node says that this one "+word+". Without a key (--gossip-key) that could be anybody, so this node "+
			"goes on and is not heard by the others; if it is so, stop it", "node", asked.Name)
	})
	return false
}
