package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// LoadTLS makes Options.TLS of files (PEM). Those of ca are trusted in addition to the system's
// authorities. cert is a certificate with its private key, which is shown to nodes that ask for
// one. An empty name adds nothing. The error begins with ca or client-cert.
func LoadTLS(ca, cert string) (*tls.Config, error) {
	config := &tls.Config{}
	if ca != "" {
		data, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: %s holds no certificate (PEM)", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, cert)
		if err != nil {
			return nil, fmt.Errorf("client-cert: a certificate and its private key are expected: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
