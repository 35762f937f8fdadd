package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ErrRefused is wrapped by every refusal of a Policy.
var ErrRefused = errors.New("address not allowed")

// Policy decides which addresses may be called. The zero Policy allows public
// addresses only. It is asked about the resolved address of every dial, so a name
// that changes its address between two look-ups gains nothing.
type Policy struct {
	// AllowPrivate admits loopback, private and reserved ranges: for a node whose
	// own API is bound to loopback.
	AllowPrivate bool

	// Allow admits the private addresses inside these ranges. An address that is never allowed
	// stays so even here.
	Allow []netip.Prefix

	// Own are this node's own listeners, never called. An unspecified address
	// (0.0.0.0, ::) means every address of this machine.
	Own []netip.AddrPort

	// Cluster are the listeners of all members, never called. IPv4 is not mapped
	// into IPv6. The map must not change: a new list is a new Policy.
	Cluster map[netip.AddrPort]bool
}

// reach classes an address by the hosts that can be behind it; the higher the stricter.
type reach uint8

const (
	reachPublic reach = iota
	reachPrivate
	reachNever
)

// neverRanges are refused under every policy: link-local (with the metadata
// services in it), "this network", multicast, broadcast, and the metadata services
// that clouds put elsewhere.
var neverRanges = mustPrefixes(
	"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
	"::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128",
)

// privateRanges need AllowPrivate or Allow. IPv6 outside 2000::/3 is private by
// default, see reachOf.
var privateRanges = mustPrefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "3fff::/20",
)

var (
	globalUnicast6 = netip.MustParsePrefix("2000::/3")
	nat64          = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local     = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour      = netip.MustParsePrefix("2002::/16")
	teredo         = netip.MustParsePrefix("2001::/32")
	compatible4    = netip.MustParsePrefix("::/96")
	translated4    = netip.MustParsePrefix("::ffff:0:0:0/96") // SIIT
)

func mustPrefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}

func within(addr netip.Addr, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// Faults of an address, as the end of a sentence about it.
const (
	isNoAddress = "is no address of a receiver"
	isOwnPort   = "is the cluster's own"
	isNever     = "is never called"
	isNotPublic = "is not public; the node's --callback-allow names the private networks that may be called"

	isNotPublicName = "is not a public name; the node's --callback-allow names the private networks that may be called"
)

// CheckAddr decides about one resolved address. Its errors wrap ErrRefused.
func (p Policy) CheckAddr(target netip.AddrPort) error {
	fault := p.fault(target)
	switch fault {
	case "":
		return nil
	case isOwnPort, isNoAddress:
		return fmt.Errorf("%w: %s %s", ErrRefused, target, fault)
	}
	return fmt.Errorf("%w: %s %s", ErrRefused, target.Addr().Unmap(), fault)
}

// CheckNamed is CheckAddr for the address that a name led to, which the error keeps to itself: a
// client that may only have a name called must not read a private network's names.
func (p Policy) CheckNamed(target netip.AddrPort) error {
	if fault := p.fault(target); fault != "" {
		return fmt.Errorf("%w: the name's address %s", ErrRefused, fault)
	}
	return nil
}

// fault is the reason why an address may not be called; "" when it may.
func (p Policy) fault(target netip.AddrPort) string {
	addr := target.Addr().Unmap()
	if !addr.IsValid() || addr.Zone() != "" {
		return isNoAddress
	}
	if p.isOwn(netip.AddrPortFrom(addr, target.Port())) {
		return isOwnPort
	}
	worst := p.reachUnder(addr)
	for _, inner := range embedded4(addr) {
		worst = max(worst, p.reachUnder(inner))
	}
	switch worst {
	case reachNever:
		return isNever
	case reachPrivate:
		return isNotPublic
	}
	return ""
}

// LookupName is how the name of a host is asked for. The machine's search domains complete it only
// where private networks may be called: there they name the host that is meant. Elsewhere a name
// that does not exist would become one of the domain's.
func (p Policy) LookupName(host string) string {
	if !p.publicOnly() || strings.HasSuffix(host, ".") {
		return host
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	return host + "."
}

func (p Policy) publicOnly() bool { return !p.AllowPrivate && len(p.Allow) == 0 }

// privateDomains are never in public use (RFC 6761, 6762, 8375; ICANN's .internal), or hardly ever.
var privateDomains = []string{".internal", ".local", ".localdomain", ".lan", ".home.arpa", ".test"}

// CheckPrivateName refuses a name that could not be looked up, where the policy is why: only a
// private network knows names of one label and those of privateDomains, and under this policy no
// private network's search domains complete a name.
func (p Policy) CheckPrivateName(host string) error {
	name := "." + strings.TrimSuffix(host, ".")
	known := func(domain string) bool { return strings.HasSuffix(name, domain) }
	if p.publicOnly() && (strings.Count(name, ".") == 1 || slices.ContainsFunc(privateDomains, known)) {
		return fmt.Errorf("%w: %s %s", ErrRefused, host, isNotPublicName)
	}
	return nil
}

// checkLocalhost refuses the names that lead to loopback by RFC 6761, where that may not be called.
func (p Policy) checkLocalhost(host string, port uint16) error {
	name := strings.TrimSuffix(host, ".")
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return nil
	}
	fault := p.fault(netip.AddrPortFrom(netip.IPv6Loopback(), port))
	if fault != "" {
		fault = p.fault(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	}
	if fault != "" {
		return fmt.Errorf("%w: %s %s", ErrRefused, host, fault)
	}
	return nil
}

// CheckURLHost refuses a literal address ("ip", "ip:port", "[v6]:port") that would
// be refused at the dial, so that an add is refused at once; names of this machine
// ("localhost", "x.localhost:port") as well. Other names pass: their address is
// decided at the dial.
func (p Policy) CheckURLHost(host string) error {
	if target, err := netip.ParseAddrPort(host); err == nil {
		return p.CheckAddr(target)
	}
	bare := host
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		bare = host[1 : n-1]
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		return p.CheckAddr(netip.AddrPortFrom(addr, 0))
	}
	name, text, _ := strings.Cut(host, ":")
	port, _ := strconv.ParseUint(text, 10, 16) // 0: none
	return p.checkLocalhost(strings.ToLower(name), uint16(port))
}

// CheckURL is CheckURLHost for a whole URL, its default port included.
func (p Policy) CheckURL(url string) error {
	u, err := Parse(url)
	if err != nil {
		return err
	}
	return p.CheckURLHost(Key{Host: u.Host, Port: u.Port}.HostPort())
}

// reachUnder lifts addresses that the policy admits to public.
func (p Policy) reachUnder(addr netip.Addr) reach {
	r := reachOf(addr)
	if r == reachPrivate && (p.AllowPrivate || within(addr, p.Allow)) {
		return reachPublic
	}
	return r
}

// reachOf looks at the address alone, not at an address embedded in it.
func reachOf(addr netip.Addr) reach {
	if within(addr, neverRanges) {
		return reachNever
	}
	if addr.Is6() && (nat64.Contains(addr) || sixToFour.Contains(addr) || teredo.Contains(addr)) {
		return reachPublic // as good as the IPv4 address inside
	}
	if within(addr, privateRanges) || addr.Is6() && !globalUnicast6.Contains(addr) {
		return reachPrivate
	}
	return reachPublic
}

// embedded4 returns the IPv4 addresses that a router on the way may take out of an
// IPv6 address: IPv4-compatible, SIIT, NAT64, 6to4, Teredo (server and client), ISATAP.
func embedded4(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	var inner []netip.Addr
	switch {
	case addr == netip.IPv6Loopback(), addr == netip.IPv6Unspecified():
		return nil // they look IPv4-compatible and are not
	case nat64.Contains(addr), compatible4.Contains(addr), translated4.Contains(addr):
		inner = append(inner, at(12))
	case nat64Local.Contains(addr): // RFC 6052 lengths 48, 56, 64 and 96; byte 8 is skipped
		inner = append(inner, at(12), netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
			netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), at(9))
	case sixToFour.Contains(addr):
		inner = append(inner, at(2))
	case teredo.Contains(addr):
		inner = append(inner, at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	if b[8]&^3 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, any prefix
		inner = append(inner, at(12))
	}
	return inner
}

// isOwn reports whether the address is one of the cluster's listeners; addr is unmapped.
func (p Policy) isOwn(target netip.AddrPort) bool {
	if p.Cluster[target] {
		return true
	}
	for _, inner := range embedded4(target.Addr()) {
		if p.Cluster[netip.AddrPortFrom(inner, target.Port())] {
			return true
		}
	}
	for _, own := range p.Own {
		if own.Port() != target.Port() {
			continue
		}
		listen := own.Addr().Unmap()
		if listen == target.Addr() {
			return true
		}
		if listen.IsUnspecified() && isLocal(target.Addr()) {
			return true
		}
		if slices.Contains(embedded4(target.Addr()), listen) {
			return true
		}
	}
	return false
}

// isLocal reports whether the address is one of this machine's. A machine whose
// interfaces cannot be listed counts every address as its own.
func isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, local := range interfaces {
		prefix, err := netip.ParsePrefix(local.String())
		if err == nil && prefix.Addr().Unmap().WithZone("") == addr {
			return true
		}
	}
	return false
}
