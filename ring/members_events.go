package ring

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
)

// The library calls these methods of Members (see delegates), under its locks: copy and hand off,
// never call back into gossip.

// bound sets where other nodes reach this one, before anything else.
func (m *Members) bound(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.Gossip = addr
	m.self.HTTP, m.self.Peer = ReachedAt(m.self.HTTP, addr), ReachedAt(m.self.Peer, addr)
}

// ReachedAt is where others reach a listener of a node whose gossip they reach at an address. One
// that takes every address of its machine is reached at the same as gossip: of its own address
// others would come to themselves.
func ReachedAt(listener, gossip string) string {
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return listener
	}
	ip, err := netip.ParseAddr(host)
	at, _, noGossip := net.SplitHostPort(gossip)
	if err != nil || noGossip != nil || !ip.IsUnspecified() {
		return listener
	}
	return net.JoinHostPort(at, port)
}

// metadata is this node's description to others; at most metaMax bytes.
func (m *Members) metadata() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := encodeMember(m.self, m.leaving)
	if err != nil {
		// Invariant: NewMembers and Update have encoded it before.
		panic(fmt.Sprintf("ring: %v", err))
	}
	return b
}

// admit is called before each news of a living node. It keeps out nodes that do not belong here:
// other clusters, other software, and more nodes than there is room for.
func (m *Members) admit(n gossipNode) error {
	if n.name == nodeName(m.cfg.Self) {
		return nil
	}
	v, _, err := decodeMember(n)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if foreign(m.self, v) {
		m.refuseLocked(v)
		if s, ok := m.seen[v.ID]; ok && s.node == n.name { // it had no cluster when it came in
			delete(m.seen, v.ID)
			signal(m.dirty)
		}
		return errOtherCluster
	}
	if _, known := m.seen[v.ID]; !known && len(m.seen) >= maxMembers {
		return fmt.Errorf("there are %d nodes already", maxMembers)
	}
	return nil
}

// admitAny is called before a full exchange with another node that knows these living ones. It
// refuses one that is with another cluster only. Where nodes without a cluster are in between,
// admit judges each for itself.
func (m *Members) admitAny(nodes []gossipNode) error {
	var refused error
	for _, n := range nodes {
		if n.name == nodeName(m.cfg.Self) {
			continue
		}
		err := m.admit(n)
		if err == nil {
			return nil
		}
		refused = err
	}
	return refused
}

// refuseLocked logs once that a node belongs to another cluster.
func (m *Members) refuseLocked(v Member) {
	key := fmt.Sprint(v.ID, v.Cluster, m.self.Cluster)
	if _, logged := m.refused[key]; logged || len(m.refused) >= maxKinds {
		return
	}
	m.refused[key] = struct{}{}
	m.queueNotice(notice{level: slog.LevelWarn, text: "gossip: a node of another cluster is kept out; check --join on both",
		detail: []any{"node", v.Name, "addr", v.Gossip, "cluster", v.Cluster, "our_addr", m.self.Gossip, "our_cluster", m.self.Cluster}})
}

func (m *Members) nodeSeen(n gossipNode) {
	v, leaving, err := decodeMember(n)
	if err != nil || n.name == nodeName(m.cfg.Self) {
		return // admit has refused it
	}
	if leaving {
		v.State = MemberLeft
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.ID == m.self.ID {
		if v.Starts >= m.self.Starts && v.State == MemberAlive {
			m.queueNotice(notice{slog.LevelWarn, "twin " + v.Gossip, "gossip: another process has this node's id; was the data directory copied?",
				[]any{"addr", v.Gossip, "starts", v.Starts, "our_addr", m.self.Gossip, "our_starts", m.self.Starts}})
		}
		return
	}
	if old, ok := m.seen[v.ID]; ok && old.member.Starts > v.Starts {
		return // news of a process that has been replaced
	}
	m.putLocked(sighting{member: v, node: n.name})
}

func (m *Members) nodeLost(n gossipNode) {
	v, leaving, err := decodeMember(n)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.seen[v.ID]
	if !ok || s.node != n.name {
		return // of a process that has been replaced
	}
	s.member.State = MemberDead
	if leaving {
		s.member.State = MemberLeft
	}
	m.putLocked(s)
}

func (m *Members) putLocked(s sighting) {
	if s.member.State != MemberAlive {
		m.gone++
		s.goneAt = m.gone
	}
	m.seen[s.member.ID] = s
	if s.member.State != MemberAlive {
		m.forgetLocked()
	}
	signal(m.dirty)
}

// forgetLocked drops the node that is gone the longest, when too many are.
func (m *Members) forgetLocked() {
	count, oldest := 0, sighting{}
	for _, s := range m.seen {
		if s.member.State == MemberAlive {
			continue
		}
		count++
		if oldest.goneAt == 0 || s.goneAt < oldest.goneAt {
			oldest = s
		}
	}
	if count > maxGone {
		delete(m.seen, oldest.member.ID)
	}
}

// foreign is symmetric: two nodes that both belong to a cluster, and not to the same.
func foreign(a, b Member) bool {
	return a.Cluster != "" && b.Cluster != "" && a.Cluster != b.Cluster
}

// nodeName is unlike any other process's, so that a restarted or wiped node never conflicts with
// the others' memory of it.
func nodeName(v Member) string {
	return fmt.Sprintf("%s/%010x.%d", v.Name, v.ID, v.Starts)
}
