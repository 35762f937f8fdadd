package node

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"carillon/ring"
	"carillon/transport/callback"
	"carillon/transport/callback/address"
)

// ownAddresses keeps callbacks off the cluster's own ports, every member's, as members come, move
// and go. One goroutine at a time uses it.
type ownAddresses struct {
	pool    *callback.Pool
	forget  func()      // the URLs that were found good before
	learned atomic.Bool // the other members' ports are known; no call is made before
}

// where is the policy of a node's callbacks before any other member is known. The first of the
// addresses that the node listens on is the API's. A node alone does not listen at its ports for
// other nodes; a timer that calls there would never be called once it does.
func (c Config) where(listens []netip.AddrPort) address.Policy {
	p := address.Policy{
		Allow:        c.CallbackAllow,
		AllowPrivate: c.AuthFile == "" && listens[0].Addr().Unmap().IsLoopback(),
		Own:          slices.Concat(c.Own, listens),
	}
	for _, address := range []string{c.Peer, c.Gossip} {
		if own, ok := boundTo(address, ""); ok && !slices.Contains(p.Own, own) {
			p.Own = append(p.Own, own)
		}
	}
	return p
}

func allowedText(p address.Policy) string {
	if p.AllowPrivate {
		return "public, private and loopback addresses: the API is on loopback and asks for no tokens"
	}
	if len(p.Allow) == 0 {
		return "public addresses alone: --callback-allow is not set"
	}
	text := "public addresses, and by --callback-allow"
	for _, allowed := range p.Allow {
		text += " " + allowed.String()
	}
	return text
}

// boundTo is where a listener is that was bound to an address: at its port, or where that is free
// to choose, at that of actual. A host that is a name is taken for every address of the machine.
func boundTo(bind, actual string) (netip.AddrPort, bool) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return netip.AddrPort{}, false
	}
	if port == "0" {
		_, port, _ = net.SplitHostPort(actual)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ip = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(ip, uint16(n)), true
}

// bound adds a listener of this node that has been bound since the policy was made.
func (o *ownAddresses) bound(bind, actual string) {
	own, ok := boundTo(bind, actual)
	policy := o.pool.Policy()
	if !ok || slices.Contains(policy.Own, own) {
		return
	}
	policy.Own = append(slices.Clone(policy.Own), own)
	o.pool.SetPolicy(policy)
	o.forget()
}

// update takes the members as the cluster's record has them, with the addresses that gossip knows
// of live nodes: these are newer.
func (o *ownAddresses) update(nodes []ring.Node, heard []ring.Member) {
	cluster := map[netip.AddrPort]bool{}
	for _, n := range nodes {
		listeners(cluster, n.Gossip, n.HTTP, n.Peer)
	}
	for _, m := range heard {
		if m.State == ring.MemberAlive {
			listeners(cluster, m.Gossip, m.HTTP, m.Peer)
		}
	}
	defer o.learned.Store(true)
	policy := o.pool.Policy()
	if maps.Equal(policy.Cluster, cluster) {
		return
	}
	policy.Cluster = cluster
	o.pool.SetPolicy(policy)
	o.forget()
}

// listeners adds the addresses at which a node listens. Its API and its port for others may be
// given by a name, or as every address of its machine: then they are taken to be at the address of
// its gossip, which is always one that others use.
func listeners(into map[netip.AddrPort]bool, gossip string, others ...string) {
	var known netip.Addr
	if at, err := netip.ParseAddrPort(gossip); err == nil {
		known = at.Addr().Unmap()
		into[netip.AddrPortFrom(known, at.Port())] = true
	}
	for _, address := range others {
		host, text, err := net.SplitHostPort(address)
		port, notPort := strconv.ParseUint(text, 10, 16)
		if err != nil || notPort != nil {
			continue
		}
		ip, err := netip.ParseAddr(host)
		if err != nil || ip.IsUnspecified() {
			ip = known
		}
		if ip.IsValid() {
			into[netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(port))] = true
		}
	}
}
