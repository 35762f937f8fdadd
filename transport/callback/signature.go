package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Signatures follow the Standard Webhooks specification, version 1:
// "v1," + base64(HMAC-SHA256(secret, id "." timestamp "." body)).

// ErrBadSecret is returned for a secret in any other form than ParseSecret's.
var ErrBadSecret = errors.New("callback: a secret is whsec_ and the base64 of 24–64 bytes")

// ErrBadSignature is wrapped by every refusal of Verify.
var ErrBadSignature = errors.New("callback: signature does not verify")

const (
	secretPrefix    = "whsec_"
	minSecretBytes  = 24
	maxSecretBytes  = 64
	signaturePrefix = "v1,"
)

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

// Sign returns the signature of one message by one decoded secret.
func Sign(secret []byte, id string, unixSeconds int64, body []byte) string {
	return string(appendSignature(nil, secret, id, unixSeconds, body))
}

// appendSignatures joins the signatures of all secrets by single spaces, so that a
// receiver may rotate its secret.
func appendSignatures(dst []byte, secrets [][]byte, id string, unixSeconds int64, body []byte) []byte {
	for i, secret := range secrets {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = appendSignature(dst, secret, id, unixSeconds, body)
	}
	return dst
}

func appendSignature(dst, secret []byte, id string, unixSeconds int64, body []byte) []byte {
	var scratch [192]byte
	mac := hmac.New(sha256.New, secret)
	head := append(scratch[:0], id...)
	head = append(head, '.')
	head = strconv.AppendInt(head, unixSeconds, 10)
	head = append(head, '.')
	mac.Write(head)
	mac.Write(body)
	sum := mac.Sum(scratch[:0])
	dst = append(dst, signaturePrefix...)
	return base64.StdEncoding.AppendEncode(dst, sum)
}

// Verify checks the three webhook headers of a received message against any of
// the secrets, in constant time, and that its timestamp is within tolerance of now.
func Verify(secrets [][]byte, id, timestamp, signature string, body []byte, now time.Time, tolerance time.Duration) error {
	unixSeconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: timestamp is not a number", ErrBadSignature)
	}
	if age := now.Sub(time.Unix(unixSeconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: timestamp is %v off", ErrBadSignature, age.Round(time.Second))
	}
	for _, secret := range secrets {
		want := appendSignature(nil, secret, id, unixSeconds, body)
		for given := range strings.SplitSeq(signature, " ") {
			if hmac.Equal(want, []byte(given)) {
				return nil
			}
		}
	}
	return ErrBadSignature
}
