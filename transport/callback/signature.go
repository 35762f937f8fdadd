package callback

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"strings"
)

// webhook-signature follows the Standard Webhooks specification, version 1:
// "v1," + base64(HMAC-SHA256(secret, id "." timestamp "." body)), and "v1a," + base64 of the
// ed25519 signature of the same by a key. It leaves the Carillon headers open, so that
// Carillon-Signature covers these: see appendValues.

// ErrBadSecret is returned for a secret in any other form than ParseSecret's.
var ErrBadSecret = errors.New("callback: a secret is whsec_ and the base64 of 24–64 bytes")

const (
	secretPrefix    = "whsec_"
	minSecretBytes  = 24
	maxSecretBytes  = 64
	signaturePrefix = "v1,"
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

// keptMessage is how long a message may be whose buffer is kept: there are as many as calls.
const keptMessage = 16 << 10

// signer makes the signatures of one call at a time. Its buffers are used again, and
// so are the hashes of its last secrets: the next call is often for the same topic.
type signer struct {
	text                []byte
	ofMessage, ofValues []byte
	sum                 []byte
	message             []byte // of the last call with keys, if it was short
	macs                []keyedMAC
}

type keyedMAC struct {
	key []byte
	hash.Hash
}

// mac is the hash of a call's secret of that number, with nothing written yet.
func (s *signer) mac(i int, key []byte) hash.Hash {
	if i == len(s.macs) {
		s.macs = append(s.macs, keyedMAC{})
	}
	m := &s.macs[i]
	if m.Hash == nil || !bytes.Equal(m.key, key) {
		*m = keyedMAC{key, hmac.New(sha256.New, key)}
	}
	m.Reset()
	return m.Hash
}

// sign makes one of each kind by every secret and then by every key, joined by single spaces, so
// that a receiver may rotate its own, or go from secrets to keys.
func (s *signer) sign(req *Request, body []byte, unixSeconds int64) {
	text := append(s.text[:0], req.WebhookID...)
	text = append(text, '.')
	text = strconv.AppendInt(text, unixSeconds, 10)
	text = append(text, '.')
	head := len(text)
	text = appendValues(text, req, unixSeconds)
	s.text, s.ofMessage, s.ofValues = text, s.ofMessage[:0], s.ofValues[:0]
	for i, secret := range req.Secrets {
		s.next()
		mac := s.mac(i, secret)
		mac.Write(text[:head])
		mac.Write(body)
		s.ofMessage = s.appendMAC(s.ofMessage, mac)
		mac.Reset()
		mac.Write(text[head:])
		s.ofValues = s.appendMAC(s.ofValues, mac)
	}
	if len(req.SigningKeys) == 0 {
		return
	}
	s.message = append(append(s.message[:0], text[:head]...), body...)
	for _, key := range req.SigningKeys {
		s.next()
		s.ofMessage = appendKeySignature(s.ofMessage, key, s.message)
		s.ofValues = appendKeySignature(s.ofValues, key, text[head:])
	}
	if cap(s.message) > keptMessage {
		s.message = nil
	}
}

// next begins another signature of both kinds.
func (s *signer) next() {
	if len(s.ofMessage) > 0 {
		s.ofMessage, s.ofValues = append(s.ofMessage, ' '), append(s.ofValues, ' ')
	}
}

// appendValues writes the text that Carillon-Signature covers: a first line of its own, which no
// message of Standard Webhooks begins with, and the values that say which call this is, each on a
// line. Their headers cannot hold the end of a line. A missing header is an empty line.
func appendValues(dst []byte, req *Request, unixSeconds int64) []byte {
	text := func(s string) { dst = append(append(dst, '\n'), s...) }
	number := func(n int64) { dst = strconv.AppendInt(append(dst, '\n'), n, 10) }
	dst = append(dst, "carillon-v1"...)
	text(req.WebhookID)
	number(unixSeconds)
	text(req.Topic)
	if req.Timer == "" {
		return append(dst, "\n\n\n\n\n"...)
	}
	text(req.Timer)
	number(req.DueMs)
	number(int64(req.Attempt))
	dst = strconv.AppendUint(append(dst, '\n'), req.Fence, 10)
	text(req.Receipt)
	return dst
}

func (s *signer) appendMAC(dst []byte, mac hash.Hash) []byte {
	s.sum = mac.Sum(s.sum[:0])
	return base64.StdEncoding.AppendEncode(append(dst, signaturePrefix...), s.sum)
}
