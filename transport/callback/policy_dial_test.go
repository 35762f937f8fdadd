package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers every A question with the address that address returns at that moment.
func nameServer(t *testing.T, address func() [4]byte) *net.Resolver {
	t.Helper()
	return nameServerOf(t, func(string) [][4]byte { return [][4]byte{address()} })
}

// nameServerOf answers A questions about a name with its addresses; none: the name does not exist.
func nameServerOf(t *testing.T, addresses func(name string) [][4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			q := m.Questions[0]
			known := addresses(q.Name.String())
			if len(known) == 0 {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, address := range known {
				if q.Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
						Body:   &dnsmessage.AResource{A: address},
					})
				}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestRebinding: a name that is harmless when it is added and dangerous at the next
// look-up is refused at the dial.
func TestRebinding(t *testing.T) {
	r := receive(t, always("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
	var evil atomic.Bool
	p := startPool(t, Config{Policy: local, Resolver: nameServer(t, func() [4]byte {
		if evil.Load() {
			return [4]byte{169, 254, 169, 254}
		}
		return [4]byte{127, 0, 0, 1}
	})})
	url := "http://rebind.example.:" + r.url[strings.LastIndexByte(r.url, ':')+1:] + "/"
	if err := local.CheckURL(url); err != nil {
		t.Fatal(err)
	}
	if out := callOnce(t, p, post(url)); out.Err != "" {
		t.Fatalf("%+v", out)
	}
	evil.Store(true)
	out := callOnce(t, p, post(url))
	if !out.failed() || !out.Refused || out.Sent || !strings.HasPrefix(out.Err, "refused: address not allowed: the name's address is never called") {
		t.Errorf("%+v, want refused", out)
	}
}

func TestRefusedAtTheDial(t *testing.T) {
	r := receive(t, always(answer200))
	own, _ := netip.ParseAddrPort(strings.TrimPrefix(r.url, "http://"))
	loopback := func() [4]byte { return [4]byte{127, 0, 0, 1} }
	byName := "http://name.example.:" + r.url[strings.LastIndexByte(r.url, ':')+1:] + "/"
	f := func(policy address.Policy, url string) {
		t.Helper()
		p := startPool(t, Config{Policy: policy, Resolver: nameServer(t, loopback)})
		// One failure would open this breaker: a refusal must not count.
		for range 3 {
			permit, verdict := acquire(p, Call{Key: keyOf(t, url), Breaker: Breaker{Failures: 1}}, newWaiter())
			if verdict.Kind != delivery.Granted {
				t.Fatalf("%s: %+v", url, verdict)
			}
			outs := make(chan Outcome, 1)
			permit.Start(post(url), func(o Outcome) { outs <- o })
			if out := <-outs; !out.Refused || !out.failed() || out.Sent {
				t.Errorf("%s: %+v, want refused", url, out)
			}
		}
	}
	f(address.Policy{}, r.url)
	f(address.Policy{}, byName)
	f(address.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, byName)
	f(address.Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, r.url)
	f(address.Policy{AllowPrivate: true, Own: []netip.AddrPort{own}}, byName)
	if n := r.connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

func TestTLSIsVerified(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	trusting := startPool(t, Config{Policy: local, RootCAs: roots})
	for range 3 {
		if out := callOnce(t, trusting, post(server.URL)); out.Err != "" {
			t.Errorf("%+v", out)
		}
	}
	if n := trusting.all()[0].client.ConnsCount(); n != 1 {
		t.Errorf("%d TLS connections, want 1 that is used again", n)
	}
	wary := startPool(t, Config{Policy: local, RootCAs: x509.NewCertPool()})
	if out := callOnce(t, wary, post(server.URL)); out.Err != "tls: certificate of an unknown authority" || out.Sent {
		t.Errorf("%+v", out)
	}
	plain := receive(t, always(answer200))
	https := strings.Replace(plain.url, "http:", "https:", 1)
	if out := callOnce(t, trusting, post(https)); !out.failed() || !strings.HasPrefix(out.Err, "tls: ") {
		t.Errorf("%+v", out)
	}
}

func TestNoProxyFromEnvironment(t *testing.T) {
	r := receive(t, always(answer200))
	proxy := receive(t, always(answerOf(502)))
	t.Setenv("HTTP_PROXY", proxy.url)
	t.Setenv("http_proxy", proxy.url)
	p := startPool(t, Config{Policy: local})
	if out := callOnce(t, p, post(r.url)); out.Status != 200 || proxy.connections() != 0 {
		t.Errorf("%+v, %d connections to the proxy", out, proxy.connections())
	}
}
