package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"carillon/internal/certificate"
	"carillon/internal/secret"
)

// TLS encrypts the connections of clients. Its files are read again by Reload; connections that are
// open stay so, unless their clients' authority has gone. Safe for use by any goroutine.
type TLS struct {
	cert, key, clientCA string // files
	current             atomic.Pointer[tls.Config]
	ends                atomic.Pointer[certificate.Ends]
	shared              atomic.Bool
}

// LoadTLS reads the certificate of the API with its chain, its private key, and, where clients must
// show a certificate, the authorities that may have signed it: PEM files, the last "" where they
// need none.
func LoadTLS(cert, key, clientCA string) (*TLS, error) {
	t := &TLS{cert: cert, key: key, clientCA: clientCA}
	return t, t.Reload()
}

// Reload reads the files again. When that fails all stays as it was.
func (t *TLS) Reload() error {
	info, err := os.Stat(t.key)
	if err != nil {
		return fmt.Errorf("http-key: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("http-key: others than its owner may write %s: chmod 600 %s", t.key, t.key)
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return fmt.Errorf("http-cert, http-key: %w", err)
	}
	if old := t.current.Load(); old != nil {
		if err := certificate.Follows(&pair, &old.Certificates[0], time.Now()); err != nil {
			return fmt.Errorf("http-cert: %s: %w", t.cert, err)
		}
	}
	// Each reading makes a configuration of its own, so that sessions from before are not resumed
	// past a change.
	ends := certificate.Ends{Cert: certificate.ChainEnds(&pair)}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if t.clientCA != "" {
		data, err := os.ReadFile(t.clientCA)
		if err != nil {
			return fmt.Errorf("http-client-ca: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if config.ClientCAs, ends.CA = certificate.Pool(data); config.ClientCAs == nil {
			return fmt.Errorf("http-client-ca: %s holds no certificate (PEM)", t.clientCA)
		}
	}
	t.shared.Store(secret.Shared(uint32(info.Mode())))
	t.ends.Store(&ends)
	t.current.Store(config)
	return nil
}

// Ends is when the certificates of the API, and the authorities of its clients, end.
func (t *TLS) Ends() certificate.Ends { return *t.ends.Load() }

// Shared reports whether others than its owner may read the private key's file, which is worth a
// warning.
func (t *TLS) Shared() bool { return t.shared.Load() }

// speaksPlain reports whether the client has begun with HTTP in clear, and answers it then.
func (c *framedConn) speaksPlain(err error) bool {
	header := tls.RecordHeaderError{}
	if !errors.As(err, &header) || header.Conn == nil {
		return false
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		_, _ = c.raw.Write(c.listener.plain)
		return true
	}
	return false
}

// secure encrypts a connection, where the server is to.
func (l *listener) secure(c *framedConn) {
	if l.tls != nil {
		config := l.tls.current.Load()
		c.config.Store(config)
		c.Conn = tls.Server(c.raw, config)
	}
}

// Trusted reports whether the client's certificate is of an authority as they are now: they may
// have been read again since the connection began. It may be called from any goroutine.
func (c *framedConn) Trusted() bool {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	current := c.listener.tls.current.Load()
	if current == c.config.Load() {
		return true
	}
	if current.ClientCAs != nil {
		shown := secured.ConnectionState().PeerCertificates
		if len(shown) == 0 {
			return false
		}
		to := x509.VerifyOptions{Roots: current.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		for _, cert := range shown[1:] {
			to.Intermediates.AddCert(cert)
		}
		if _, err := shown[0].Verify(to); err != nil {
			return false
		}
	}
	c.config.Store(current)
	return true
}
