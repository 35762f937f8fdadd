package peer

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// keyContext separates the keys that are derived here from all others that are derived of the same
// key. It is part of the protocol: nodes that differ in it do not know each other.
const keyContext = "carillon peer authority 1"

// KeyTLS makes mutual TLS of nothing but secret keys that all nodes share. Every key stands for a
// certificate authority, whose private key is derived from it. A process makes itself a certificate
// of the first key's authority, and believes those of every key's. So any process with a key is
// believed to be a node, and no other can finish a handshake. A certificate of this kind proves
// nothing about a node's name: all nodes can make every one.
//
// Why TLS and not a proof within the hello: the session is bound to the handshake, encrypted and
// safe from replay, by a protocol that is not ours.
func KeyTLS(keys [][]byte) (*TLS, error) {
	if len(keys) == 0 {
		return nil, errors.New("peer: no key")
	}
	authorities := x509.NewCertPool()
	var own tls.Certificate
	for i, key := range keys {
		cert, private, err := authorityOf(key)
		if err != nil {
			return nil, fmt.Errorf("peer: key %d: %w", 1+i, err)
		}
		authorities.AddCert(cert)
		if i > 0 {
			continue
		}
		if own, err = leafOf(cert, private); err != nil {
			return nil, fmt.Errorf("peer: make a certificate: %w", err)
		}
	}
	return mutual(own, authorities, func(err error) error {
		return fmt.Errorf("it does not have this node's key: %w", err)
	}), nil
}

// authorityOf is the authority that a key stands for. Its subject is the same for every key; the
// public key distinguishes them.
func authorityOf(key []byte) (*x509.Certificate, ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, keyContext, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	cert, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "carillon key"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, private.Public(), private)
	return cert, private, err
}

// leafOf makes a certificate of this process's own, which is never stored.
func leafOf(authority *x509.Certificate, by ed25519.PrivateKey) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "carillon node"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, public, by)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: private, Leaf: leaf}, nil
}

// sign fills in a certificate's life, which is for ever: a key ends when it is taken out of the
// files, and a wrong clock must not cut a cluster apart. parent nil: it signs itself.
func sign(c, parent *x509.Certificate, public any, by ed25519.PrivateKey) (*x509.Certificate, error) {
	c.NotBefore, c.NotAfter = time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
