package secret

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

var words = [...][]byte{[]byte("authorization"), []byte("cookie"), []byte("token"), []byte("key"), []byte("secret"), []byte("password")}

// Named reports whether a header's name marks its value as a secret.
func Named(header string) bool {
	var room [64]byte
	lower := room[:0]
	for i := range len(header) { // a name is ASCII; strings.ToLower would allocate
		c := header[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower = append(lower, c)
	}
	return slices.ContainsFunc(words[:], func(w []byte) bool { return bytes.Contains(lower, w) })
}

// FingerprintPrefix begins every fingerprint, and no secret.
const FingerprintPrefix = "sha256:"

// Fingerprint identifies a signing secret without revealing it. The fingerprint of an envelope is
// the one that SealSigning has added to it. A fingerprint is its own.
func Fingerprint(text string) string {
	switch {
	case Sealed(text):
		return hintOf(text)
	case strings.HasPrefix(text, FingerprintPrefix):
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return FingerprintPrefix + hex.EncodeToString(sum[:8])
}

// SealSigning is Renew for a signing secret. It adds the secret's fingerprint to the envelope, so
// that nodes without the key can show it.
func (k *Keys) SealSigning(topic, text string) string {
	if k == nil || Sealed(text) {
		return k.Renew(Signing(topic), text)
	}
	return withHint(k.Seal(Signing(topic), text), Fingerprint(text))
}

func withHint(envelope, hint string) string {
	if hint == "" {
		return envelope
	}
	return envelope + string(hintMark) + hint
}

func hintOf(envelope string) string {
	_, hint, _ := strings.Cut(envelope, string(hintMark))
	return hint
}
