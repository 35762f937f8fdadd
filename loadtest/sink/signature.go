package sink

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"sync"
)

const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64

	// signatureToleranceSeconds is how far webhook-timestamp may be from our
	// clock: the five minutes of the Standard Webhooks reference libraries.
	signatureToleranceSeconds = 300

	// maxSignatures bounds the work that one header can ask for.
	maxSignatures = 16
)

// verifier checks both signatures of a call against any of its secrets: that of
// Standard Webhooks over the body, and Carillon's over the headers that name the
// call it is. It is safe for concurrent use.
type verifier struct {
	keys [][]byte
	macs sync.Pool // of []hash.Hash, one per key
}

// newVerifier parses secrets of the form whsec_<base64>.
func newVerifier(secrets []string) (*verifier, error) {
	v := &verifier{}
	for i, secret := range secrets {
		text, found := strings.CutPrefix(secret, secretPrefix)
		if !found {
			return nil, fmt.Errorf("sink: secret %d does not start with %s", i+1, secretPrefix)
		}
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("sink: secret %d is not base64 after %s", i+1, secretPrefix)
		}
		if len(key) < minSecretBytes || len(key) > maxSecretBytes {
			return nil, fmt.Errorf("sink: secret %d has %d bytes, want %d to %d", i+1, len(key), minSecretBytes, maxSecretBytes)
		}
		v.keys = append(v.keys, key)
	}
	v.macs.New = func() any {
		macs := make([]hash.Hash, len(v.keys))
		for i, key := range v.keys {
			macs[i] = hmac.New(sha256.New, key)
		}
		return &macs
	}
	return v, nil
}

// problem names the fault of the delivery's signature, "" if there is none.
func (v *verifier) problem(d *Delivery) string {
	if len(d.Signature) == 0 {
		return "no signature"
	}
	signed := Decimal(d.Timestamp)
	if len(d.WebhookID) == 0 || signed < 0 {
		return "no webhook-id or webhook-timestamp"
	}
	if off := signed - d.ArrivedUs/1e6; off > signatureToleranceSeconds || off < -signatureToleranceSeconds {
		return "webhook-timestamp is more than 5 minutes off"
	}
	macs := v.macs.Get().(*[]hash.Hash)
	defer v.macs.Put(macs)
	body, values := false, false
	for _, mac := range *macs {
		var buffer [sha256.Size]byte
		mac.Reset()
		mac.Write(d.WebhookID)
		mac.Write([]byte{'.'})
		mac.Write(d.Timestamp)
		mac.Write([]byte{'.'})
		mac.Write(d.Body)
		body = body || offered(d.Signature, mac.Sum(buffer[:0]))
		mac.Reset()
		mac.Write([]byte("carillon-v1"))
		for _, name := range signedHeaders {
			mac.Write([]byte{'\n'})
			mac.Write(d.header.Peek(name))
		}
		values = values || offered(d.header.Peek("Carillon-Signature"), mac.Sum(buffer[:0]))
	}
	switch {
	case !body:
		return "signature does not match"
	case !values:
		return "Carillon-Signature does not match the headers"
	}
	return ""
}

// signedHeaders are those whose values Carillon-Signature covers, in this order.
var signedHeaders = []string{
	"Webhook-Id", "Webhook-Timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt",
}

// offered reports whether one of the space-separated v1 signatures is the sum.
func offered(header, sum []byte) bool {
	for range maxSignatures {
		one, rest, more := bytes.Cut(header, []byte{' '})
		var raw [sha256.Size + 1]byte
		if len(one) == len("v1,")+44 && string(one[:3]) == "v1," {
			n, err := base64.StdEncoding.Decode(raw[:], one[3:])
			if err == nil && hmac.Equal(raw[:n], sum) {
				return true
			}
		}
		if !more {
			return false
		}
		header = rest
	}
	return false
}
