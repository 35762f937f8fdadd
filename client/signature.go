package client

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrSignature is the answer to every call that is not signed as it should be. It does not name the
// reason.
var ErrSignature = errors.New("the signature is not good")

const (
	secretPrefix    = "whsec_"
	minSecretBytes  = 24
	maxSecretBytes  = 64
	signaturePrefix = "v1,"
	maxSignatures   = 16 // of one header: bounds the work that it can ask for

	signingKeyPrefix   = "whsk_"
	publicKeyPrefix    = "whpk_"
	keySignaturePrefix = "v1a,"
)

// NewSecret makes a secret to sign callbacks with: whsec_ and 32 random bytes.
func NewSecret() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// NewSigningKey makes a private key to sign callbacks with, whsk_…, and the public one that checks
// them, whpk_…. A topic that gets its key by RotateSigningKey needs none: the private one then
// never leaves the cluster.
func NewSigningKey() (private, public string) {
	check, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return signingKeyPrefix + base64.StdEncoding.EncodeToString(key), publicKeyPrefix + base64.StdEncoding.EncodeToString(check)
}

func parsePublicKey(text string) (ed25519.PublicKey, error) {
	encoded, ok := strings.CutPrefix(text, publicKeyPrefix)
	if !ok {
		return nil, errors.New("does not start with " + publicKeyPrefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("is not the base64 of 32 bytes")
	}
	return key, nil
}

func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, errors.New("does not start with " + secretPrefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, errors.New("is not the base64 of 24 to 64 bytes") // the cause would quote it
	}
	return key, nil
}

// Verify checks a call with one of the secrets or public keys, and that its timestamp is near the
// clock. Webhook-Signature covers the body, by the Standard Webhooks scheme; Carillon-Signature
// covers the Carillon-* headers, which that scheme leaves open: without it a call that was
// overheard could be sent again for another timer or with a higher fence. Signatures are compared
// in constant time.
func (r *Receiver) Verify(h http.Header, body []byte) error {
	if r.options.Unsigned {
		return nil
	}
	id, stamp := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil {
		return ErrSignature
	}
	if off := r.options.Now().Sub(time.Unix(seconds, 0)); off > r.options.Tolerance || off < -r.options.Tolerance {
		return ErrSignature
	}
	ofBody := r.signed(h.Get("Webhook-Signature"), slices.Concat([]byte(id+"."+stamp+"."), body))
	ofValues := r.signed(h.Get("Carillon-Signature"), signedValues(h))
	if !ofBody || !ofValues {
		return ErrSignature
	}
	return nil
}

// signed reports whether a header holds the signature that one of the secrets or private keys makes
// of a text.
func (r *Receiver) signed(header string, text []byte) bool {
	offered := strings.SplitN(header, " ", maxSignatures+1)
	offered = offered[:min(len(offered), maxSignatures)]
	good := false
	for _, key := range r.keys {
		want := []byte(sign(key, text))
		for _, one := range offered {
			good = hmac.Equal([]byte(one), want) || good
		}
	}
	for _, key := range r.public {
		for _, one := range offered {
			encoded, of := strings.CutPrefix(one, keySignaturePrefix)
			signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
			good = of && err == nil && ed25519.Verify(key, text, signature) || good
		}
	}
	return good
}

// signedHeaders are those whose values Carillon-Signature covers, in this order. One that is
// missing counts as empty.
var signedHeaders = []string{
	"Webhook-Id", "Webhook-Timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt",
}

// signedValues is the line carillon-v1 and the values, each on a line of its own. No value can hold
// the end of a line.
func signedValues(h http.Header) []byte {
	text := []byte("carillon-v1")
	for _, name := range signedHeaders {
		text = append(append(text, '\n'), h.Get(name)...)
	}
	return text
}

func sign(key, text []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
