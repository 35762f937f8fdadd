package node

import (
	"errors"
	"net"
	"net/netip"

	"carillon/node/member"
	"carillon/transport/peer"
)

// A node opens ports for other nodes only when it was asked for: by a key or a certificate, by an
// address of such a port, or by the names of other nodes. A node alone needs none, and a port that
// is not there cannot be reached past the API's tokens.

// asksForPorts reports whether the configuration, without its defaults, asks for ports for other
// nodes.
func (c Config) asksForPorts() bool {
	return c.Peer != "" || c.Gossip != "" || c.Advertise != "" || len(c.Join) > 0 || c.BootstrapExpect > 1 ||
		c.GossipKeyFile != "" || c.PeerCert != ""
}

// hasOthers reports whether the directory's node has founded a cluster with others, or joined one.
// Whether others have joined a node that founded alone is not known here.
func hasOthers(id *member.Identity) bool {
	return id.Rejoin != nil || id.ClusterID != "" && (id.AcceptedPlan == nil || len(id.AcceptedPlan.Nodes) > 1)
}

var errPortsClosed = errors.New("node: this node is one of several, and was started without anything that opens its ports for the others: " +
	"give it --gossip-key with the cluster's key file, or --peer and --gossip")

// listenForPeers binds the port for other nodes, where there is to be one.
func (p *process) listenForPeers() (err error) {
	id := p.self.Identity()
	if p.ports = p.cfg.ports || hasOthers(&id); p.ports {
		p.peer, err = net.Listen("tcp", p.cfg.Peer)
	}
	return err
}

// gossipAddress is where gossip binds; empty: nowhere.
func (p *process) gossipAddress() string {
	if !p.ports {
		return ""
	}
	return p.cfg.Gossip
}

// proven reports whether other nodes prove that they are nodes. Otherwise no answer of theirs may
// end this process.
func (p *process) proven() bool { return p.cfg.PeerCert != "" || p.cfg.GossipKeyFile != "" }

// peerTLS is how nodes know each other: by the certificates that the operator gave, else by the key
// that all of them have; nil: by nothing.
func (c Config) peerTLS(keys [][]byte) (*peer.TLS, error) {
	switch {
	case c.PeerCert != "":
		if _, err := c.checkPeerKey(); err != nil {
			return nil, err
		}
		return peer.LoadTLS(c.PeerCert, c.PeerKey, c.PeerCA, c.Name)
	case len(keys) > 0:
		return peer.KeyTLS(keys)
	}
	return nil, nil
}

// warnUnproven logs once at the start which attacks a node without a key is open to.
func (p *process) warnUnproven() {
	if !p.ports || p.proven() {
		return
	}
	p.log.Warn("nodes do not authenticate each other: anybody who reaches the port for other nodes, also from this machine, can act as one; "+
		"give all nodes the same --gossip-key", "peer", p.cfg.Peer, "gossip", p.cfg.Gossip)
}

// reloadKeys reads the files again by which nodes know each other. Connections that stand stay;
// after an error all is as before.
func (p *process) reloadKeys() error {
	file, err := p.cfg.readGossipKeys()
	if err != nil {
		return err
	}
	made, err := p.cfg.peerTLS(file.keys)
	if err != nil || made == nil {
		return err
	}
	p.warnShared(p.cfg.GossipKeyFile, file.shared)
	if err := p.peers.UseTLS(made); err != nil {
		return err
	}
	return p.members.SetKeys(file.keys)
}

// listening are the addresses that this process listens on for requests.
func (p *process) listening() []netip.AddrPort {
	own := []netip.AddrPort{netip.MustParseAddrPort(p.http.Addr().String())}
	if p.peer != nil {
		own = append(own, netip.MustParseAddrPort(p.peer.Addr().String()))
	}
	return own
}
