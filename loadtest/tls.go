package loadtest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// clientTLS is how https servers are spoken to. Sessions are resumed, as clients do that connect often.
func (c Config) clientTLS() (*tls.Config, error) {
	config := &tls.Config{NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if c.CA != "" {
		data, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: %s holds no certificate (PEM)", c.CA)
		}
	}
	if c.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientCert)
		if err != nil {
			return nil, fmt.Errorf("client-cert: a certificate and its private key are expected: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
