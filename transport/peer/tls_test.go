package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs the certificates of a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func signed(t *testing.T, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writePEM(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = signed(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour),
	}, nil, nil)
	writePEM(t, filepath.Join(a.dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
	return a
}

// issue loads a certificate of a, trusting those of trusted.
func (a *authority) issue(t *testing.T, trusted *authority, valid time.Duration) *TLS {
	t.Helper()
	pair, err := a.issueTo(t, "n", "n", trusted, valid)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// issueTo makes a certificate for one name and loads it under another.
func (a *authority) issueTo(t *testing.T, name, as string, trusted *authority, valid time.Duration) (*TLS, error) {
	t.Helper()
	cert, key := signed(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "n"}, DNSNames: []string{"other", name}, NotAfter: time.Now().Add(valid),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return LoadTLS(writePEM(t, filepath.Join(a.dir, "node.pem"), "CERTIFICATE", cert.Raw),
		writePEM(t, filepath.Join(a.dir, "node.key"), "PRIVATE KEY", der), filepath.Join(trusted.dir, "ca.pem"), as)
}

// named issues a certificate to the node of that name.
func (a *authority) named(t *testing.T, name string) *TLS {
	t.Helper()
	pair, err := a.issueTo(t, name, name, a, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// A certificate speaks for the node that it names and for no other, on either side of a dial.
func TestCertificateIsBoundToAName(t *testing.T) {
	ca := newAuthority(t)
	under := func(node uint64, name string) Hello {
		h := helloOf(node)
		h.Name = name
		return h
	}
	with := func(name string) func(*Config) { return func(c *Config) { c.TLS = ca.named(t, name) } }
	addresses := newBook()
	n1 := start(t, addresses, loopback(t), under(1, "n1"), func(c *Config) {
		c.TLS = ca.named(t, "n1")
		c.Admit = func(h Hello) error { // which id has which name is not the transport's to know
			if h.Node == 2 && h.Name != "n2" {
				return errors.New("node 2 is n2")
			}
			return nil
		}
	})
	n2 := start(t, addresses, loopback(t), under(2, "n2"), with("n2"))
	ctx := timeout(t)
	if _, err := n1.Call(ctx, 2, 1, nil); err != nil {
		t.Fatal(err)
	}
	for name, thief := range map[string]*member{
		"another's name":                    start(t, newBook(), loopback(t), under(3, "n3"), with("stolen")),
		"the common name does not count":    start(t, newBook(), loopback(t), under(3, "n"), with("stolen")),
		"no pattern":                        start(t, newBook(), loopback(t), under(3, "n3"), with("*")),
		"letter by letter":                  start(t, newBook(), loopback(t), under(3, "n3"), with("N3")),
		"in the name of who is spoken to":   start(t, newBook(), loopback(t), under(2, "n2"), with("stolen")),
		"under the id of who is spoken to":  start(t, newBook(), loopback(t), under(2, "stolen"), with("stolen")),
		"with more starts, a later process": start(t, newBook(), loopback(t), Hello{Cluster: "c1", Node: 1, Name: "n1", Starts: 9, Nonce: 7}, with("stolen")),
	} {
		if _, _, err := thief.CallAddr(ctx, n2.addr, 1, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		addresses.set(3, thief.addr)
		if _, err := n1.Call(ctx, 3, 1, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s, dialled: %v", name, err)
		}
		if _, _, err := n1.CallAddr(ctx, thief.addr, 1, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s, dialled once: %v", name, err)
		}
		n1.Forget(3)
	}
	if len(n2.host.superseded)+len(n1.host.superseded)+len(n2.host.goneOnes) > 0 {
		t.Error("another's certificate made a node believe that itself or another one has ended")
	}
	if _, err := n2.Call(ctx, 1, 1, nil); err != nil {
		t.Error(err)
	}
	if _, err := ca.issueTo(t, "n2", "n1", ca, time.Hour); err == nil || !strings.Contains(err.Error(), `DNS:n1`) {
		t.Errorf("a node loads another's certificate: %v", err)
	}
}

// A node that was let in before more was known of it is disconnected when it is.
func TestReview(t *testing.T) {
	started := make(chan struct{})
	a, b := pair(t, func(c *Config) {
		c.Handler.(*host).call = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ended := make(chan error, 1)
	go func() {
		_, err := a.Call(context.Background(), 2, 1, nil)
		ended <- err
	}()
	within(t, "call", started)
	b.Review(func(h Hello) error {
		if h.Node != 1 {
			t.Error(h)
		}
		return errors.New("not him")
	})
	if err := within(t, "end of the call", ended); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestMutualTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	with := func(pair *TLS) func(*Config) { return func(c *Config) { c.TLS = pair } }
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), with(ours.issue(t, ours, time.Hour)))
	good := start(t, addresses, loopback(t), helloOf(1), with(ours.issue(t, ours, time.Hour)))
	ctx := timeout(t)
	if got, err := good.Call(ctx, 2, 'x', []byte("y")); string(got) != "xy" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	good.Send(2, make([]byte, 3<<20))
	if got := within(t, "frame", b.host.frames); len(got.frame) != 3<<20 {
		t.Errorf("%d bytes", len(got.frame))
	}
	noCert := ours.issue(t, ours, time.Hour)
	noCert.Client = &tls.Config{InsecureSkipVerify: true}
	for name, pair := range map[string]*TLS{
		"a certificate that the listener does not trust": theirs.issue(t, ours, time.Hour),
		"a listener that the dialler does not trust":     ours.issue(t, theirs, time.Hour),
		"an expired certificate":                         ours.issue(t, ours, -time.Minute),
		"no certificate":                                 noCert,
		"no TLS":                                         nil,
	} {
		stranger := start(t, addresses, loopback(t), helloOf(3), with(pair))
		if _, err := stranger.Call(ctx, 2, 1, nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := good.CallAddr(ctx, stranger.addr, 1, nil); name != "no certificate" && !errors.Is(err, ErrNotSent) {
			t.Errorf("%s, dialled: %v", name, err)
		}
		stranger.stop()
	}
}

func TestLoadTLSFaults(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, a, time.Hour)
	cert, key, ca := filepath.Join(a.dir, "node.pem"), filepath.Join(a.dir, "node.key"), filepath.Join(a.dir, "ca.pem")
	for _, c := range [][4]string{
		{"none", key, ca, "none"}, {cert, cert, ca, "certificate"}, {cert, key, "none", "none"}, {cert, key, key, "no certificate in it"},
	} {
		if _, err := LoadTLS(c[0], c[1], c[2], "n"); err == nil || !strings.Contains(err.Error(), c[3]) {
			t.Errorf("%v: %v", c[:3], err)
		}
	}
}
