package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS is the two sides of mutual TLS.
type TLS struct{ Server, Client *tls.Config }

// LoadTLS reads PEM files: a node's certificate and key, and the authorities that every
// other node's certificate must come from. The authority is what counts, not the name in
// the certificate: nodes move between addresses. So give the cluster an authority of its
// own. The certificate needs the usages of a server and of a client.
func LoadTLS(cert, key, ca string) (*TLS, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("peer: load certificate %s: %w", cert, err)
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("peer: load authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer: load authority %s: no certificate in it", ca)
	}
	return &TLS{
		Server: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		},
		Client: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
			// Only the check of the host name is left out: verifyServer checks the chain.
			InsecureSkipVerify: true,
			VerifyConnection:   func(s tls.ConnectionState) error { return verifyServer(s, roots) },
		},
	}, nil
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
