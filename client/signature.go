package client

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrSignature is the answer to every call that is not signed as it should be. It does not say what is wrong with it.
var ErrSignature = errors.New("the signature is not good")

const (
	secretPrefix    = "whsec_"
	minSecretBytes  = 24
	maxSecretBytes  = 64
	signaturePrefix = "v1,"
	maxSignatures   = 16 // of one header: bounds the work that it can ask for
)

// NewSecret makes a secret to sign callbacks with: whsec_ and 32 random bytes.
func NewSecret() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
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

// Verify checks a call with one of the secrets, and that its timestamp is near the clock. Webhook-Signature covers the body, by the
// Standard Webhooks scheme; Carillon-Signature covers the Carillon-* headers, which that scheme leaves open: without it a call
// that was overheard could be sent again for another timer or with a higher fence. Signatures are compared in constant time.
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
	ofBody := r.signed(h.Get("Webhook-Signature"), func(key []byte) string { return sign(key, id, stamp, body) })
	ofValues := r.signed(h.Get("Carillon-Signature"), func(key []byte) string { return signValues(key, h) })
	if !ofBody || !ofValues {
		return ErrSignature
	}
	return nil
}

// signed reports whether a header holds what one of the secrets makes of a call.
func (r *Receiver) signed(header string, sign func(key []byte) string) bool {
	offered := strings.SplitN(header, " ", maxSignatures+1)
	good := false
	for _, key := range r.keys {
		want := sign(key)
		for _, one := range offered[:min(len(offered), maxSignatures)] {
			good = hmac.Equal([]byte(one), []byte(want)) || good
		}
	}
	return good
}

// signedHeaders are those whose values Carillon-Signature covers, in this order. One that is missing counts as empty.
var signedHeaders = []string{
	"Webhook-Id", "Webhook-Timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt",
}

// signValues signs the line carillon-v1 and the values, each on a line of its own. No value can hold the end of a line.
func signValues(key []byte, h http.Header) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("carillon-v1"))
	for _, name := range signedHeaders {
		mac.Write([]byte("\n" + h.Get(name)))
	}
	return signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
