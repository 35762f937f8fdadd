package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"carillon/transport/api"
)

// Credentials are the files by which clients and nodes are known, and that seal secrets.
type Credentials struct {
	AuthFile     string `placeholder:"FILE" help:"YAML list of tokens; without it nobody is asked for one. Read again on SIGHUP."`
	HTTPCert     string `name:"http-cert" placeholder:"FILE" help:"Certificate of the API, with its chain (PEM): clients use https. Read again on SIGHUP."`
	HTTPKey      string `name:"http-key" placeholder:"FILE" help:"Private key of --http-cert (PEM)."`
	HTTPClientCA string `name:"http-client-ca" placeholder:"FILE" help:"Clients must show a certificate of these authorities (PEM)."`
	// Insecure allows ports that other machines can reach without credentials: HTTP without
	// AuthFile, Gossip without GossipKeyFile, Peer without that or certificates.
	Insecure bool `name:"insecure-no-auth" help:"Allow addresses that are not loopback without credentials or keys."`
	// By it nodes know each other, and discovery is encrypted; empty: neither.
	GossipKeyFile string `name:"gossip-key" placeholder:"FILE" help:"Key file of the cluster, one for all nodes."`
	// The first key seals secrets before they are written or sent to other nodes, all of them open
	// (see package secret); empty: secrets lie in the clear.
	SecretsKeyFile string `name:"secrets-key" placeholder:"FILE" help:"Keys that seal secrets at rest, one file for all nodes."`
	// All three, or none: then mutual TLS between nodes is made of GossipKeyFile.
	PeerCert string `placeholder:"FILE" help:"Certificate that names this node (PEM)."`
	PeerKey  string `placeholder:"FILE" help:"Private key of --peer-cert (PEM)."`
	PeerCA   string `name:"peer-ca" placeholder:"FILE" help:"Authority of all nodes' certificates (PEM)."`
}

// validateAddresses: a port that other machines can reach needs credentials.
func (c Config) validateAddresses() (errs faults) {
	tls := c.PeerCert != "" && c.PeerKey != "" && c.PeerCA != ""
	for _, a := range []struct {
		setting, address string
		guarded          bool
		lacks            string
	}{
		{"http", c.HTTP, c.AuthFile != "" || c.HTTPClientCA != "", "no credentials are set: give --auth-file (or --http-client-ca), or --insecure-no-auth if anybody who reaches the port may use it"},
		{"peer", c.Peer, tls || c.GossipKeyFile != "", "there is no key: give --gossip-key (or --peer-cert, --peer-key and --peer-ca), or --insecure-no-auth if anybody who reaches the port may be a node"},
		{"gossip", c.Gossip, c.GossipKeyFile != "", "there is no key: give --gossip-key, or --insecure-no-auth if anybody who reaches the port may be a node"},
	} {
		host, err := splitAddress(a.address, 0)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", a.setting, err))
		case !loopback(host) && !a.guarded && !c.Insecure:
			errs = append(errs, fmt.Errorf("%s: %s is not loopback and %s", a.setting, a.address, a.lacks))
		}
	}
	errs.when((c.HTTPCert == "") != (c.HTTPKey == ""), "http-cert, http-key: give both or none")
	errs.when(c.HTTPClientCA != "" && c.HTTPCert == "", "http-client-ca: clients show certificates only over TLS: give --http-cert and --http-key, too")
	for _, host := range c.HTTPHosts {
		if err := api.CheckHost(host); err != nil {
			errs = append(errs, fmt.Errorf("http-host: %w", err))
		}
	}
	for _, origin := range c.CORSOrigins {
		if err := api.CheckOrigin(origin); err != nil {
			errs = append(errs, fmt.Errorf("cors-origin: %w", err))
		}
	}
	errs.when(c.Advertise != "" && !hostOnly(c.Advertise), "advertise: %q is not a host that others can reach: a name or an address, without a port", c.Advertise)
	return errs
}

// hosts are the names by which clients may call the API, besides the address that they reach. A
// node on loopback has only the names of loopback unless others are configured: its own name is the
// machine's, and no caller of it uses that.
func (c Config) hosts() []string {
	hosts := slices.Clone(c.HTTPHosts)
	bound, _, _ := net.SplitHostPort(c.HTTP)
	if loopback(bound) {
		return hosts
	}
	for _, own := range []string{bound, c.Advertise, c.Name} {
		a, err := netip.ParseAddr(own)
		if err == nil && a.Is6() {
			own = "[" + a.Unmap().WithZone("").String() + "]"
		}
		if (err != nil || !a.IsUnspecified()) && api.CheckHost(own) == nil {
			hosts = append(hosts, own)
		}
	}
	return hosts
}

// validate reads the files of keys, so that a fault in it is found before anything is started.
func (c Credentials) validate() (errs faults) {
	given := 0
	for _, path := range []string{c.PeerCert, c.PeerKey, c.PeerCA} {
		if path != "" {
			given++
		}
	}
	errs.when(given != 0 && given != 3, "peer-cert, peer-key, peer-ca: give all three or none")
	if _, err := c.readGossipKeys(); err != nil {
		errs = append(errs, err)
	}
	if _, _, err := c.readSecretsKeys(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// splitAddress takes host:port apart; the host may be empty, for every address of the machine.
func splitAddress(address string, lowestPort int) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < lowestPort || n > 65535 {
		return "", fmt.Errorf("%q: the port is not a number from %d to 65535", address, lowestPort)
	}
	return host, nil
}

// hostOnly reports whether s is a name or an address that others can use as it stands.
func hostOnly(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return !a.IsUnspecified() && !a.IsMulticast()
	}
	return len(s) <= 253 && !strings.ContainsAny(s, ":/[]@ \t\r\n")
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
