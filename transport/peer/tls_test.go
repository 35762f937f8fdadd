package peer

import (
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

func certificate(t *testing.T, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
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
	a.cert, a.key = certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour),
	}, nil, nil)
	writePEM(t, filepath.Join(a.dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
	return a
}

// issue loads a certificate of a, trusting those of trusted.
func (a *authority) issue(t *testing.T, trusted *authority, valid time.Duration) *TLS {
	t.Helper()
	cert, key := certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(valid),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := LoadTLS(writePEM(t, filepath.Join(a.dir, "node.pem"), "CERTIFICATE", cert.Raw),
		writePEM(t, filepath.Join(a.dir, "node.key"), "PRIVATE KEY", der), filepath.Join(trusted.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
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
		if _, err := LoadTLS(c[0], c[1], c[2]); err == nil || !strings.Contains(err.Error(), c[3]) {
			t.Errorf("%v: %v", c[:3], err)
		}
	}
}
