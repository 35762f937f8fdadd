// Package signing has the secrets and the keys by which calls are signed, as people write them: the
// forms of Standard Webhooks.
package signing

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
)

// ErrBadSecret is returned for a secret in any other form than ParseSecret's.
var ErrBadSecret = errors.New("callback: a secret is whsec_ and the base64 of 24–64 bytes")

const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
)

// NewSecret makes a secret that ParseSecret takes, of 32 random bytes.
func NewSecret() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// ParseSecret decodes "whsec_…" (standard base64, padded) into 24–64 key bytes.
func ParseSecret(s string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(s, secretPrefix)
	if !ok || len(encoded) > base64.StdEncoding.EncodedLen(maxSecretBytes) {
		return nil, ErrBadSecret
	}
	if strings.ContainsAny(encoded, "\r\n") { // the decoder would skip them
		return nil, ErrBadSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, ErrBadSecret // the cause would quote the secret
	}
	return key, nil
}
