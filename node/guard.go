package node

import (
	"maps"
	"net"
	"net/netip"
	"strconv"

	"carillon/ring"
	"carillon/transport/callback"
)

// guard keeps callbacks off the cluster's own ports, every member's, as members come, move and go. One goroutine uses it.
type guard struct {
	pool   *callback.Pool
	forget func() // the URLs that were found good before
}

// learn takes the members as the cluster's record has them, with the addresses that gossip knows of who is there: these are newer.
func (g *guard) learn(nodes []ring.Node, heard []ring.Member) {
	cluster := map[netip.AddrPort]bool{}
	for _, n := range nodes {
		listeners(cluster, n.Gossip, n.HTTP, n.Peer)
	}
	for _, m := range heard {
		if m.State == ring.MemberAlive {
			listeners(cluster, m.Gossip, m.HTTP, m.Peer)
		}
	}
	policy := g.pool.Policy()
	if maps.Equal(policy.Cluster, cluster) {
		return
	}
	policy.Cluster = cluster
	g.pool.SetPolicy(policy)
	g.forget()
}

// listeners adds what a node listens at. Its API and its port for others may be given by a name, or as every address of its machine: then
// they are taken to be at the address of its gossip, which is always one that others use.
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
