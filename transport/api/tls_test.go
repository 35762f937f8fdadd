package api

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// authority signs certificates in files of a directory.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key, a.cert = a.sign(template, template, nil)
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.pem and NAME.key for a name and loopback.
func (a *authority) issue(name string) {
	a.t.Helper()
	key, cert := a.sign(&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost", name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", cert.Raw)
	a.write(name+".key", "EC PRIVATE KEY", der)
}

// trusting is a client that trusts the authority, with a certificate if it has a name.
func (a *authority) trusting(name string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// overTLS asks for something on a connection of its own.
func (h *harness) overTLS(c *tls.Config, request string) (*http.Response, tls.ConnectionState, error) {
	h.t.Helper()
	conn, err := tls.Dial("tcp", h.addr, c)
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, tls.ConnectionState{}, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
	}
	return res, conn.ConnectionState(), err
}

const askHealth = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("node")
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.TLS = files })
	trusting := a.trusting("")
	trusting.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	for i, version := range []uint16{tls.VersionTLS12, tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS13} {
		trusting.MinVersion, trusting.MaxVersion = version, version
		res, state, err := h.overTLS(trusting, askHealth)
		if err != nil || res.StatusCode != 200 || state.DidResume != (i%2 == 1) {
			t.Errorf("%d: %v %v, resumed %v", i, res, err, state.DidResume)
		}
	}
	trusting.MinVersion, trusting.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := h.overTLS(trusting, askHealth); err == nil {
		t.Error("takes TLS 1.1")
	}
	if _, _, err := h.overTLS(&tls.Config{ServerName: "127.0.0.1"}, askHealth); err == nil {
		t.Error("a client that trusts nobody is served")
	}
	for request, want := range map[string]int{
		"POST " + timersPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + lengthLine(100<<10) + "\r\n" + bodyOf("large", 100<<10): 201,
		"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n": 421,
		"GET /healthz HTTP/1.1\nHost: localhost\n\n":          400,
		// Host has no port, so that is another origin.
		"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nOrigin: https://" + h.addr + "\r\n\r\n":      403,
		"GET /v1/topics HTTP/1.1\r\nHost: " + h.addr + "\r\nOrigin: https://" + h.addr + "\r\n\r\n": 200,
	} {
		if res, _, err := h.overTLS(a.trusting(""), request); err != nil || res.StatusCode != want {
			t.Errorf("%.80q: %v %v, want %d", request, res, err, want)
		}
	}
	slow := newHarness(t, func(c *Config) { c.TLS, c.Limits.HeaderTimeout = files, 300*time.Millisecond })
	for begun := time.Now(); ; { // the handshake itself may outlast that, on a busy machine
		res, _, err := slow.overTLS(a.trusting(""), "GET /healthz HTTP/1.1\r\nHost: loc")
		if err == nil && res.StatusCode == 408 {
			break
		}
		if err == nil || time.Since(begun) > patience {
			t.Fatalf("half a header: %v %v, want 408", res, err)
		}
	}
	if got := h.raw(-1, askHealth); len(got.statuses) != 1 || got.statuses[0] != 400 || !strings.Contains(got.bodies[0], "https") {
		t.Errorf("HTTP in clear: %+v", got)
	}
	if got := h.raw(-1, "\x00\x01\x02\x03\x04 nothing that anybody speaks"); len(got.statuses) != 0 {
		t.Errorf("neither: %+v", got)
	}
}

// A connection that another one displaces is closed without waiting for its client.
func TestEvictedTLSConnectionHoldsNobodyUp(t *testing.T) {
	a := newAuthority(t)
	a.issue("node")
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.TLS, c.Limits.Connections = files, 4 })
	for range 8 {
		conn, err := tls.Dial("tcp", h.addr, a.trusting(""))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, askHealth); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
	}
}

func TestMutualTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	a.issue("node")
	a.issue("shop")
	other.issue("stranger")
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), a.file("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.TLS = files })
	if res, _, err := h.overTLS(a.trusting("shop"), askHealth); err != nil || res.StatusCode != 200 {
		t.Error(res, err)
	}
	if res, _, err := h.overTLS(a.trusting(""), askHealth); err == nil {
		t.Error("without a certificate:", res.StatusCode)
	}
	stranger := other.trusting("stranger")
	stranger.RootCAs = a.trusting("").RootCAs
	if res, _, err := h.overTLS(stranger, askHealth); err == nil {
		t.Error("with a certificate of another authority:", res.StatusCode)
	}
	// Another authority for clients: sessions from before do not outlive the old one.
	trusting := a.trusting("shop")
	trusting.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	if _, _, err := h.overTLS(trusting, askHealth); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", other.cert.Raw)
	if err := files.Reload(); err != nil {
		t.Fatal(err)
	}
	if res, _, err := h.overTLS(trusting, askHealth); err == nil {
		t.Error("after the authority has changed:", res.StatusCode)
	}
	if res, _, err := h.overTLS(stranger, askHealth); err != nil || res.StatusCode != 200 {
		t.Error("of the new authority:", err)
	}
}

// TestRevokedAuthorityEndsItsConnections: a connection that is open gets no more answers, and a
// stream of events ends, once the authority of its certificate has gone. Others are served.
func TestRevokedAuthorityEndsItsConnections(t *testing.T) {
	a, leaving := newAuthority(t), newAuthority(t)
	a.issue("node")
	a.issue("shop")
	leaving.issue("old")
	both := func(with ...*authority) {
		t.Helper()
		var pool []byte
		for _, w := range with {
			pool = append(pool, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.cert.Raw})...)
		}
		if err := os.WriteFile(a.file("clients.pem"), pool, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both(a, leaving)
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), a.file("clients.pem"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.TLS = files })
	h.server.node.Beat = time.Millisecond
	open := func(of *authority, name, request string) (ask func() bool, body io.Reader) {
		t.Helper()
		config := of.trusting(name)
		config.RootCAs = a.trusting("").RootCAs
		conn, err := tls.Dial("tcp", h.addr, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		in := bufio.NewReader(conn)
		ask = func() bool {
			if _, err := io.WriteString(conn, request); err != nil {
				return false
			}
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				return false
			}
			if body = res.Body; res.ContentLength >= 0 {
				_, err = io.Copy(io.Discard, body)
			}
			return err == nil && res.StatusCode == 200
		}
		if !ask() {
			t.Fatalf("%s is not served", name)
		}
		return ask, body
	}
	const stream = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
	old, _ := open(leaving, "old", askHealth)
	shop, _ := open(a, "shop", askHealth)
	_, events := open(leaving, "old", stream)
	both(a)
	if err := files.Reload(); err != nil {
		t.Fatal(err)
	}
	if old() {
		t.Error("a connection of the authority that has gone is served")
	}
	if _, err := io.Copy(io.Discard, events); err != nil {
		t.Errorf("its stream of events: %v", err)
	}
	if first, second := shop(), shop(); !first || !second {
		t.Error("a connection of the other authority is not served")
	}
}

// TestTrustIsAskedByMany: the shards of a bulk change ask at once whether the client is trusted
// still, also after the files have been read again.
func TestTrustIsAskedByMany(t *testing.T) {
	a := newAuthority(t)
	a.issue("node")
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := net.Pipe()
	c := &framedConn{raw: raw, listener: &listener{tls: files}}
	c.listener.secure(c)
	if err := files.Reload(); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			if !c.Trusted() {
				t.Error("it is not trusted")
			}
		})
	}
	asking.Wait()
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	a := newAuthority(t)
	a.issue("node")
	files, err := LoadTLS(a.file("node.pem"), a.file("node.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.TLS = files })
	serial := func() string {
		t.Helper()
		_, state, err := h.overTLS(a.trusting(""), askHealth)
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	a.issue("node")
	if serial() != first {
		t.Error("the files were read without being told to")
	}
	if err := files.Reload(); err != nil {
		t.Fatal(err)
	}
	second := serial()
	if second == first {
		t.Error("the old certificate is shown")
	}
	whole, _ := os.ReadFile(a.file("node.key"))
	for name, spoil := range map[string]func(){
		"http-key: others than its owner may write": func() { _ = os.Chmod(a.file("node.key"), 0o666) },
		"http-cert, http-key: ":                     func() { _ = os.WriteFile(a.file("node.key"), []byte("nonsense"), 0o600) },
		"http-key: ":                                func() { _ = os.Remove(a.file("node.key")) },
	} {
		spoil()
		if err := files.Reload(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
		if serial() != second {
			t.Error("a fault took the certificate away")
		}
		_ = os.Remove(a.file("node.key"))
		_ = os.WriteFile(a.file("node.key"), whole, 0o640)
	}
	if err := files.Reload(); err != nil || !files.Shared() {
		t.Error(err, files.Shared())
	}
	if _, err := LoadTLS(a.file("node.pem"), a.file("node.key"), a.file("node.key")); err == nil {
		t.Error("took a key for authorities")
	}
}
