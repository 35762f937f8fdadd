package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"carillon/internal/certificate"
)

// TLS is the two sides of mutual TLS: see LoadTLS and KeyTLS.
type TLS struct {
	Server, Client *tls.Config
	// Names: a certificate names its node, and a hello must have that name.
	Names bool
	Ends  certificate.Ends // of its files
}

// LoadTLS reads PEM files: the certificate and key of the node called name, and the
// authorities that every other node's certificate must come from. A certificate is bound
// to a node's name, not to addresses, since nodes move between these: see names. It needs
// the usages of a server and of a client.
func LoadTLS(cert, key, ca, name string) (*TLS, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("peer: load certificate %s: %w", cert, err)
	}
	if err := names(pair.Leaf, name); err != nil {
		return nil, fmt.Errorf("peer: certificate %s: %w", cert, err)
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("peer: load authority: %w", err)
	}
	roots, ends := certificate.Pool(pem)
	if roots == nil {
		return nil, fmt.Errorf("peer: load authority %s: no certificate in it", ca)
	}
	t := mutual(pair, roots, func(err error) error { return err })
	t.Names, t.Ends = true, certificate.Ends{Cert: certificate.ChainEnds(&pair), CA: ends}
	return t, nil
}

// mutual is TLS whose two sides show a certificate and check the other's. explain is given the
// fault of a listener's certificate, for the dialler's log.
func mutual(own tls.Certificate, roots *x509.CertPool, explain func(error) error) *TLS {
	return &TLS{
		Server: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		},
		Client: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
			// Only the check of the host name is left out: verifyServer checks the chain.
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				if err := verifyServer(s, roots); err != nil {
					return explain(err)
				}
				return nil
			},
		},
	}
}

// names reports whether a certificate speaks for the node of that name: one of its
// subjectAltNames of the kind DNS is the name, letter by letter. There are no wildcards.
func names(c *x509.Certificate, name string) error {
	if slices.Contains(c.DNSNames, name) {
		return nil
	}
	return fmt.Errorf("it names %q, not %q: a certificate must have its node's name as a subjectAltName, DNS:%s", c.DNSNames, name, name)
}

// bound holds the name that a process gives itself against its certificate. Without one that
// names its node there is nothing to hold it against.
func bound(with *TLS, nc net.Conn, h Hello) error {
	secure, ok := nc.(*tls.Conn)
	if !ok || !with.Names {
		return nil
	}
	shown := secure.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return errors.New("no certificate")
	}
	return names(shown[0], h.Name)
}

func verifyServer(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
