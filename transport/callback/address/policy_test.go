package address

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// local may call private networks.
var local = Policy{AllowPrivate: true}

func TestReach(t *testing.T) {
	f := func(want reach, addrs ...string) {
		t.Helper()
		for _, text := range addrs {
			target := netip.AddrPortFrom(netip.MustParseAddr(text), 80)
			public := Policy{}.CheckAddr(target)
			private := local.CheckAddr(target)
			if (public == nil) != (want == reachPublic) || (private == nil) != (want != reachNever) {
				t.Errorf("%s: public only: %v; private allowed: %v; want reach %d", text, public, private, want)
			}
			for _, err := range []error{public, private} {
				if err != nil && !errors.Is(err, ErrRefused) {
					t.Errorf("%s: %v does not wrap ErrRefused", text, err)
				}
			}
		}
	}
	f(reachPublic, "8.8.8.8", "1.1.1.1", "93.184.216.34", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1",
		"100.63.255.255", "100.128.0.0", "198.17.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1")
	f(reachPrivate, "127.0.0.1", "127.255.255.254", "::1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "240.0.0.1",
		"fc00::1", "fdff::1", "2001:db8::1", "3fff::1", "fec0::1", "100::1", "5f00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "2002:7f00:1::1", "2002:c0a8:101::", "::127.0.0.1", "::ffff:0:10.0.0.1",
		"2606:4700::5efe:a00:1", "2606:4700::200:5efe:7f00:1", "192.88.99.1")
	f(reachNever, "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "224.0.0.1", "239.255.255.255",
		"ff02::1", "255.255.255.255", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16",
		"::ffff:169.254.169.254", "::ffff:0.0.0.0", "::ffff:224.0.0.1", "::ffff:255.255.255.255", "::169.254.169.254",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::", "2002:a9fe:a9fe::1", "2002::1",
		"2001:0:a9fe:a9fe::1", "2001::5601:5601", "2606:4700::5efe:a9fe:a9fe", "fe80::5efe:8.8.8.8", "::ffff:0:169.254.169.254")
	// Teredo: server 8.8.8.8; client bits inverted: 127.0.0.1.
	f(reachPrivate, "2001:0:808:808::80ff:fffe")
	if err := local.CheckAddr(netip.MustParseAddrPort("[fe80::1%eth0]:80")); !errors.Is(err, ErrRefused) {
		t.Errorf("zone: %v", err)
	}
	if err := local.CheckAddr(netip.AddrPort{}); !errors.Is(err, ErrRefused) {
		t.Errorf("zero address: %v", err)
	}
}

func TestAllowRanges(t *testing.T) {
	p := Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd01::/16")}}
	f := func(addr string, allowed bool) {
		t.Helper()
		if err := p.CheckURLHost(addr); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", addr, err, allowed)
		}
	}
	f("10.1.2.3", true)
	f("10.1.2.3:8080", true)
	f("[::ffff:10.1.2.3]:80", true)
	f("[64:ff9b::10.1.2.3]", true)
	f("10.2.0.1", false)
	f("127.0.0.1", false)
	f("fd01::1", true)
	f("[fd02::1]:80", false)
	f("169.254.169.254", false) // never means never
	f("some.name", true)
	f("some.name:80", true)
}

// The other members' ports are never called either, in any form of the address.
func TestClusterPorts(t *testing.T) {
	p := Policy{AllowPrivate: true, Cluster: map[netip.AddrPort]bool{
		netip.MustParseAddrPort("10.1.2.3:7701"): true, netip.MustParseAddrPort("[fd01::1]:7700"): true,
	}}
	for host, allowed := range map[string]bool{
		"10.1.2.3:7701": false, "[::ffff:10.1.2.3]:7701": false, "[64:ff9b::10.1.2.3]:7701": false, "[fd01::1]:7700": false,
		"10.1.2.3:7700": true, "10.1.2.4:7701": true, "10.1.2.3": true, "[fd01::1]:7701": true,
	} {
		if err := p.CheckURLHost(host); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", host, err, allowed)
		}
	}
}

func TestOwnPorts(t *testing.T) {
	p := Policy{AllowPrivate: true, Own: []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:7701"), netip.MustParseAddrPort("0.0.0.0:7702"), netip.MustParseAddrPort("8.8.8.8:7700"),
	}}
	f := func(host string, allowed bool) {
		t.Helper()
		if err := p.CheckURLHost(host); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", host, err, allowed)
		}
	}
	f("127.0.0.1:7701", false)
	f("[::ffff:127.0.0.1]:7701", false)
	f("[64:ff9b::127.0.0.1]:7701", false)
	f("127.0.0.1:80", true)
	f("127.0.0.2:7701", true)
	f("127.0.0.2:7702", false)
	f("[::1]:7702", false)
	f("9.9.9.9:7702", true)
	f("8.8.8.8:7700", false)
	f("8.8.8.8:7701", true)
	interfaces, _ := net.InterfaceAddrs()
	for _, address := range interfaces {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && prefix.Addr().Is4() {
			f(netip.AddrPortFrom(prefix.Addr(), 7702).String(), false)
		}
	}
	if err := p.CheckURL("http://127.0.0.1:7701/x"); !errors.Is(err, ErrRefused) {
		t.Errorf("CheckURL: %v", err)
	}
	if err := (Policy{Own: []netip.AddrPort{netip.MustParseAddrPort("8.8.8.8:80")}}).CheckURL("http://8.8.8.8"); !errors.Is(err, ErrRefused) {
		t.Errorf("CheckURL with the default port: %v", err)
	}
}
