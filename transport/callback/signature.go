package callback

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"
)

// webhook-signature follows the Standard Webhooks specification, version 1:
// "v1," + base64(HMAC-SHA256(secret, id "." timestamp "." body)), and "v1a," + base64 of the
// ed25519 signature of the same by a key. It leaves the Carillon headers open, so that
// Carillon-Signature covers these: see appendValues.

const (
	signaturePrefix    = "v1,"
	keySignaturePrefix = "v1a,"
)

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
// message of Standard Webhooks begins with, and the values that identify the call, each on a
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

func appendKeySignature(dst []byte, key ed25519.PrivateKey, text []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(dst, keySignaturePrefix...), ed25519.Sign(key, text))
}
