package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
)

// An asymmetric key is written as in Standard Webhooks: whsk_ and the base64 of the 64 bytes of an
// ed25519 private key, which is its seed and then its public key; whpk_ and the base64 of the 32
// bytes of the public one.
const (
	keyPrefix       = "whsk_"
	publicKeyPrefix = "whpk_"
)

// ErrBadKey is returned for a key in any other form than ParseKey's.
var ErrBadKey = errors.New("callback: a signing key is whsk_ and the base64 of an ed25519 private key of 64 bytes")

// NewKey makes a key that ParseKey takes, and the one that checks its signatures.
func NewKey() (private, public string) {
	_, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return keyPrefix + base64.StdEncoding.EncodeToString(key), PublicKeyOf(key)
}

// ParseKey decodes "whsk_…" (standard base64, padded). The public half must be that of the
// seed: with another one, signatures would give the private key away.
func ParseKey(s string) (ed25519.PrivateKey, error) {
	encoded, ok := strings.CutPrefix(s, keyPrefix)
	if !ok || len(encoded) != base64.StdEncoding.EncodedLen(ed25519.PrivateKeySize) || strings.ContainsAny(encoded, "\r\n") {
		return nil, ErrBadKey
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) != ed25519.PrivateKeySize || !bytes.Equal(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) {
		return nil, ErrBadKey // the cause would quote the key
	}
	return key, nil
}

// PublicKeyOf is "whpk_…", which receivers check a key's signatures with.
func PublicKeyOf(key ed25519.PrivateKey) string {
	return publicKeyPrefix + base64.StdEncoding.EncodeToString(key[ed25519.SeedSize:])
}
