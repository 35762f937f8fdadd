package callback

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/transport/callback/address"
)

// TestRefusalsSayWhatToDo: the refusal of a literal address names it, because the user did. The
// refusal of a name leaves the address out, which may be known inside this network alone.
func TestRefusalsSayWhatToDo(t *testing.T) {
	r := receive(t, always(answer200))
	loopback := func() [4]byte { return [4]byte{127, 0, 0, 1} }
	port := r.url[strings.LastIndexByte(r.url, ':'):]
	own := netip.MustParseAddrPort("127.0.0.1" + port)
	f := func(policy address.Policy, url, want string) {
		t.Helper()
		p := startPool(t, Config{Policy: policy, Resolver: nameServer(t, loopback)})
		if out := callOnce(t, p, post(url)); out.Err != want {
			t.Errorf("%s:\n%q, want\n%q", url, out.Err, want)
		}
	}
	const byName = "http://name.example"
	f(address.Policy{}, r.url, "refused: address not allowed: 127.0.0.1 is not public; the node's --callback-allow names the private networks that may be called")
	f(address.Policy{}, byName+port, "refused: address not allowed: the name's address is not public; the node's --callback-allow names the private networks that may be called")
	f(address.Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, r.url, "refused: address not allowed: "+own.String()+" is the cluster's own")
	f(address.Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, byName+port, "refused: address not allowed: the name's address is the cluster's own")
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

// TestNamesOfPrivateNetworks: on a node that calls public addresses alone, names that only a
// private network knows are refused by the policy, with its reason. A name that does not exist
// elsewhere is another fault.
func TestNamesOfPrivateNetworks(t *testing.T) {
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	none := nameServerOf(t, func(string) [][4]byte { return nil })
	const allow = "; the node's --callback-allow names the private networks that may be called"
	f := func(policy address.Policy, host, want string) {
		t.Helper()
		p := startPool(t, Config{Policy: policy, Resolver: none})
		out := callOnce(t, p, post("http://"+host+":8080/"))
		if out.Err != want || out.Refused != strings.HasPrefix(want, "refused: ") || out.Sent {
			t.Errorf("%s: %+v, want\n%s", host, out, want)
		}
	}
	f(address.Policy{}, "localhost", "refused: address not allowed: localhost is not public"+allow)
	f(address.Policy{}, "LocalHost.", "refused: address not allowed: localhost. is not public"+allow)
	f(address.Policy{}, "shop.localhost", "refused: address not allowed: shop.localhost is not public"+allow)
	f(address.Policy{Allow: ten}, "localhost", "refused: address not allowed: localhost is not public"+allow)
	f(address.Policy{}, "shop", "refused: address not allowed: shop is not a public name"+allow)
	f(address.Policy{}, "host.docker.internal", "refused: address not allowed: host.docker.internal is not a public name"+allow)
	f(address.Policy{}, "shop.svc.cluster.local", "refused: address not allowed: shop.svc.cluster.local is not a public name"+allow)
	f(address.Policy{}, "shop.example", "name not found")
	f(address.Policy{}, "internal.example", "name not found")
	f(address.Policy{Allow: ten}, "shop", "name not found")
	f(address.Policy{AllowPrivate: true}, "shop", "name not found")
}

// TestNamesRefusedAtTheAdd: what this machine itself is called needs no look-up.
func TestNamesRefusedAtTheAdd(t *testing.T) {
	f := func(policy address.Policy, host string, refused bool) {
		t.Helper()
		for _, url := range []string{"http://" + host + "/x", "https://" + host + ":8443"} {
			if err := policy.CheckURL(url); errors.Is(err, address.ErrRefused) != refused {
				t.Errorf("%+v: %s: %v, refused should be %v", policy, url, err, refused)
			}
		}
	}
	prefix := func(s string) address.Policy { return address.Policy{Allow: []netip.Prefix{netip.MustParsePrefix(s)}} }
	for _, host := range []string{"localhost", "LOCALHOST", "localhost.", "shop.localhost", "shop.localhost."} {
		f(address.Policy{}, host, true)
		f(prefix("10.0.0.0/8"), host, true)
		f(prefix("127.0.0.0/8"), host, false)
		f(prefix("::1/128"), host, false)
		f(local, host, false)
	}
	for _, host := range []string{"shop", "host.docker.internal", "localhost.example", "mylocalhost"} {
		f(address.Policy{}, host, false)
	}
}

// TestDeadAddressOfAName: a call whose name has several addresses goes to another one soon when
// nobody answers at the first, and at once when that refuses.
func TestDeadAddressOfAName(t *testing.T) {
	targets := []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("192.0.2.2:80"), netip.MustParseAddrPort("192.0.2.3:80"),
	}
	refused := errors.New("connection refused")
	const never, ms = time.Hour, time.Millisecond
	f := func(name string, answers [3]time.Duration, fails [3]bool, wantConn int, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var conns [3]net.Conn
			started := time.Now()
			conn, err := dialFirst(ctx, targets, func(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
				i := int(target.Addr().As4()[3]) - 1
				select {
				case <-time.After(answers[i]):
				case <-ctx.Done():
					if answers[i] == never {
						return nil, ctx.Err()
					} // else it has just connected
				}
				if fails[i] {
					return nil, refused
				}
				conns[i], _ = net.Pipe()
				return conns[i], nil
			})
			if took := time.Since(started); took != want {
				t.Errorf("%s: took %v, want %v", name, took, want)
			}
			switch {
			case wantConn < 0 && (conn != nil || err == nil):
				t.Errorf("%s: %v %v, want an error", name, conn, err)
			case wantConn >= 0 && (err != nil || conn != conns[wantConn]):
				t.Errorf("%s: %v, want the connection of address %d", name, err, wantConn)
			}
			for i, c := range conns {
				if c != nil && i != wantConn {
					_ = c.SetWriteDeadline(time.Now())
					if _, err := c.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
						t.Errorf("%s: the connection of address %d was left open", name, i)
					}
				}
			}
		})
	}
	f("first answers", [3]time.Duration{ms, ms, ms}, [3]bool{}, 0, ms)
	f("first is dead", [3]time.Duration{never, ms, ms}, [3]bool{}, 1, 251*ms)
	f("first is dead, second refuses", [3]time.Duration{never, ms, ms}, [3]bool{false, true}, 2, 252*ms)
	f("first refuses", [3]time.Duration{ms, ms, ms}, [3]bool{true}, 1, 2*ms)
	f("first is slow", [3]time.Duration{400 * ms, never, never}, [3]bool{}, 0, 400*ms)
	f("first is slow, second is fast", [3]time.Duration{400 * ms, 10 * ms, never}, [3]bool{}, 1, 260*ms)
	f("all refuse", [3]time.Duration{ms, ms, ms}, [3]bool{true, true, true}, -1, 3*ms)
	f("all are dead", [3]time.Duration{never, never, never}, [3]bool{}, -1, 10*time.Second)
}

// TestFamiliesTakeTurns: neither IPv6 nor IPv4 without a way out holds up a call for long.
func TestFamiliesTakeTurns(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		var targets []netip.AddrPort
		for _, text := range strings.Fields(in) {
			targets = append(targets, netip.AddrPortFrom(netip.MustParseAddr(text), 80))
		}
		var got []string
		for _, target := range alternate(targets) {
			got = append(got, target.Addr().String())
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", in, text, want)
		}
	}
	f("::1 ::2 ::3 1.1.1.1 2.2.2.2", "::1 1.1.1.1 ::2 2.2.2.2 ::3")
	f("1.1.1.1 ::1 ::2", "1.1.1.1 ::1 ::2")
	f("1.1.1.1 2.2.2.2", "1.1.1.1 2.2.2.2")
}

// TestOneAddressOfANameIsRefused: the others are called.
func TestOneAddressOfANameIsRefused(t *testing.T) {
	r := receive(t, always(answer200))
	p := startPool(t, Config{Policy: local, Resolver: nameServerOf(t, func(string) [][4]byte {
		return [][4]byte{{169, 254, 169, 254}, {127, 0, 0, 1}}
	})})
	if out := callOnce(t, p, post("http://name.example"+r.url[strings.LastIndexByte(r.url, ':'):])); out.Err != "" {
		t.Errorf("%+v, want success", out)
	}
}

// TestSearchDomains: the machine's search domains complete names only where private networks may be
// called, because the names are theirs. Elsewhere a name is looked up as it was written: otherwise
// nobody outside could tell which host was called.
func TestSearchDomains(t *testing.T) {
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f := func(policy address.Policy, host, want string) {
		t.Helper()
		if got := policy.LookupName(host); got != want {
			t.Errorf("%+v: %s is looked up as %s, want %s", policy, host, got, want)
		}
	}
	f(address.Policy{}, "shop.example", "shop.example.")
	f(address.Policy{}, "shop", "shop.")
	f(address.Policy{}, "shop.example.", "shop.example.")
	f(address.Policy{}, "8.8.8.8", "8.8.8.8")
	f(address.Policy{}, "2606:4700::1111", "2606:4700::1111")
	f(address.Policy{Allow: ten}, "orders.shop.svc", "orders.shop.svc")
	f(address.Policy{AllowPrivate: true}, "orders", "orders")
}
