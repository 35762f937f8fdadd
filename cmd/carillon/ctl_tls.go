package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// clientTLS is how a command speaks to https nodes: files that are "" add nothing.
func clientTLS(ca, cert string) (*tls.Config, error) {
	config := &tls.Config{}
	if ca != "" {
		data, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--ca: %s holds no certificate (PEM)", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, cert)
		if err != nil {
			return nil, fmt.Errorf("--client-cert: a certificate and its private key are expected: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
