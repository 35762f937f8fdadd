// Package certificate reads the authorities of TLS, and finds when certificates end.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// Ends are when the first certificate in each of two files ends: in that which is shown, with its
// chain, and in that of the authorities. Zero: there is no such file.
type Ends struct{ Cert, CA time.Time }

// Pool reads the authorities in a text of PEM, and when the first of them ends. nil: it has none.
func Pool(text []byte) (pool *x509.CertPool, ends time.Time) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // as x509.CertPool does
		}
		if pool == nil {
			pool = x509.NewCertPool()
		}
		pool.AddCert(cert)
		ends = first(ends, cert)
	}
	return pool, ends
}

// ChainEnds is when the first certificate of a chain ends.
func ChainEnds(chain *tls.Certificate) (ends time.Time) {
	for _, der := range chain.Certificate {
		if cert, err := x509.ParseCertificate(der); err == nil {
			ends = first(ends, cert)
		}
	}
	return ends
}

// Follows returns an error if a certificate must not replace another one: it has ended, and the
// other has not. So an expired file does not stop a node that serves.
func Follows(next, old *tls.Certificate, now time.Time) error {
	if next.Leaf == nil || old.Leaf == nil || !now.After(next.Leaf.NotAfter) || now.After(old.Leaf.NotAfter) {
		return nil
	}
	return fmt.Errorf("the certificate has ended at %s; that from before stays, until %s",
		next.Leaf.NotAfter.UTC().Format(time.RFC3339), old.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

func first(ends time.Time, cert *x509.Certificate) time.Time {
	if ends.IsZero() || cert.NotAfter.Before(ends) {
		return cert.NotAfter
	}
	return ends
}
