package node

import (
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
	"strconv"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
)

// certificates are files of an authority and of what it signs, which name every node n.
type certificates struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCertificates makes an authority, as ca.pem.
func newCertificates(t testing.TB, ends time.Time) *certificates {
	t.Helper()
	c := &certificates{t: t, dir: t.TempDir()}
	c.issue("ca", ends)
	return c
}

func (c *certificates) at(name string) string { return filepath.Join(c.dir, name) }

// issue writes NAME.pem, with the authority behind it, and NAME.key.
func (c *certificates) issue(name string, ends time.Time) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(c.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(ends.UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: ends, DNSNames: []string{"n"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, by := c.cert, c.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	testkit.Must(c.t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if c.cert == nil {
		if c.cert, err = x509.ParseCertificate(der); err != nil {
			c.t.Fatal(err)
		}
		c.key = key
	} else {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})...)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.Must(c.t, err)
	for file, text := range map[string][]byte{name + ".pem": text, name + ".key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		testkit.Must(c.t, os.WriteFile(c.at(file), text, 0o600))
	}
}

// betweenNodes sets the certificate between nodes.
func (c *certificates) betweenNodes(cfg *Config) {
	cfg.Name, cfg.Peer, cfg.Gossip = "n", "127.0.0.1:0", "127.0.0.1:0"
	cfg.PeerCert, cfg.PeerKey, cfg.PeerCA = c.at("peer.pem"), c.at("peer.key"), c.at("ca.pem")
}

// TestEndsOfCertificates: the metrics have when the first certificate of each file ends, as it was
// read last.
func TestEndsOfCertificates(t *testing.T) {
	day := time.Now().Truncate(time.Second).Add(24 * time.Hour)
	peers, clients := newCertificates(t, day.Add(time.Hour)), newCertificates(t, day.Add(2*time.Hour))
	peers.issue("peer", day.Add(3*time.Hour)) // after its authority, which is in the chain
	clients.issue("http", day)
	r, _ := begin(t, t.TempDir(), peers.betweenNodes, func(c *Config) {
		c.HTTPCert, c.HTTPKey, c.HTTPClientCA = clients.at("http.pem"), clients.at("http.key"), clients.at("ca.pem")
	})
	if !r.node.AwaitReady(t.Context()) {
		t.Fatal("not ready")
	}
	pair, err := tls.LoadX509KeyPair(clients.at("http.pem"), clients.at("http.key"))
	testkit.Must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(clients.cert)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}}
	check := func(want map[string]time.Time) {
		t.Helper()
		resp, err := client.Get(r.node.URL() + "/metrics")
		testkit.Must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		const name = "carillon_certificate_not_after_timestamp_seconds{of=\""
		if n := strings.Count(string(body), name); n != len(want) {
			t.Errorf("%d series, want %d", n, len(want))
		}
		for of, end := range want {
			_, rest, _ := strings.Cut(string(body), name+of+"\"} ")
			value, _, _ := strings.Cut(rest, "\n")
			if at, err := strconv.ParseFloat(value, 64); err != nil || int64(at) != end.Unix() {
				t.Errorf("%s ends at %q, want %d", of, value, end.Unix())
			}
		}
	}
	check(map[string]time.Time{"http_cert": day, "http_client_ca": day.Add(2 * time.Hour), "peer_cert": day.Add(time.Hour), "peer_ca": day.Add(time.Hour)})
	clients.issue("http", day.Add(time.Minute))
	peers.issue("peer", day.Add(time.Second))
	testkit.Must(t, r.node.Reload())
	check(map[string]time.Time{"http_cert": day.Add(time.Minute), "http_client_ca": day.Add(2 * time.Hour), "peer_cert": day.Add(time.Second), "peer_ca": day.Add(time.Hour)})
}

// TestEndedCertificateIsNotTakenForOneThatServes: a reload that finds a certificate that has ended
// says so, and leaves the one that serves; where that has ended too, the file is taken.
func TestEndedCertificateIsNotTakenForOneThatServes(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	later, ago := now.Add(time.Hour), now.Add(-time.Minute)
	c := newCertificates(t, later)
	put := func(ends time.Time) {
		c.issue("peer", ends)
		c.issue("http", ends)
	}
	put(ago)
	r, _ := begin(t, t.TempDir(), c.betweenNodes, func(cfg *Config) { cfg.HTTPCert, cfg.HTTPKey = c.at("http.pem"), c.at("http.key") })
	if !r.node.AwaitReady(t.Context()) {
		t.Fatal("not ready")
	}
	serves := func(want time.Time) {
		t.Helper()
		if http, peers := r.node.tls.Ends().Cert, r.node.run.Load().peers.CertificateEnds().Cert; !http.Equal(want) || !peers.Equal(want) {
			t.Errorf("until %v %v, want %v", http, peers, want)
		}
	}
	for _, ends := range []time.Time{ago.Add(-time.Minute), later} {
		put(ends)
		if err := r.node.Reload(); err != nil {
			t.Error(err)
		}
		serves(ends)
	}
	put(ago)
	err := r.node.Reload()
	for _, says := range []string{"http-cert", "peer-cert", "has ended at " + ago.UTC().Format(time.RFC3339)} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
	serves(later)
}
