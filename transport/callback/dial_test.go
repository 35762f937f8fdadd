package callback

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRefusalsSayWhatToDo: the refusal of a literal address names it, because the user did. The
// refusal of a name leaves the address out, which may be known inside this network alone.
func TestRefusalsSayWhatToDo(t *testing.T) {
	r := receive(t, always(answer200))
	loopback := func() [4]byte { return [4]byte{127, 0, 0, 1} }
	port := r.url[strings.LastIndexByte(r.url, ':'):]
	own := netip.MustParseAddrPort("127.0.0.1" + port)
	f := func(policy Policy, url, want string) {
		t.Helper()
		p := startPool(t, Config{Policy: policy, Resolver: nameServer(t, loopback)})
		if out := callOnce(t, p, post(url)); out.Err != want {
			t.Errorf("%s:\n%q, want\n%q", url, out.Err, want)
		}
	}
	const byName = "http://name.example"
	f(Policy{}, r.url, "refused: address not allowed: 127.0.0.1 is not public; the node's --callback-allow names the private networks that may be called")
	f(Policy{}, byName+port, "refused: address not allowed: the name's address is not public; the node's --callback-allow names the private networks that may be called")
	f(Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, r.url, "refused: address not allowed: "+own.String()+" is the cluster's own")
	f(Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, byName+port, "refused: address not allowed: the name's address is the cluster's own")
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

// TestSearchDomains: the machine's search domains complete names only where private networks may be
// called, because the names are theirs. Elsewhere a name is looked up as it was written: otherwise
// nobody outside could tell which host was called.
func TestSearchDomains(t *testing.T) {
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f := func(policy Policy, host, want string) {
		t.Helper()
		if got := policy.lookupName(host); got != want {
			t.Errorf("%+v: %s is looked up as %s, want %s", policy, host, got, want)
		}
	}
	f(Policy{}, "shop.example", "shop.example.")
	f(Policy{}, "shop", "shop.")
	f(Policy{}, "shop.example.", "shop.example.")
	f(Policy{}, "8.8.8.8", "8.8.8.8")
	f(Policy{}, "2606:4700::1111", "2606:4700::1111")
	f(Policy{Allow: ten}, "orders.shop.svc", "orders.shop.svc")
	f(Policy{AllowPrivate: true}, "orders", "orders")
}
