package client

import (
	"crypto/hmac"
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

// Verify checks a call by the Standard Webhooks scheme: one of its signatures is that of one of the secrets over
// id.timestamp.body, and the timestamp is near the clock. Signatures are compared in constant time.
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
	offered := strings.SplitN(h.Get("Webhook-Signature"), " ", maxSignatures+1)
	good := false
	for _, key := range r.keys {
		want := sign(key, id, stamp, body)
		for _, one := range offered[:min(len(offered), maxSignatures)] {
			good = hmac.Equal([]byte(one), []byte(want)) || good
		}
	}
	if !good {
		return ErrSignature
	}
	return nil
}

func sign(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return signaturePrefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
