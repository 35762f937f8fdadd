package callback

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// The vector that the Standard Webhooks libraries publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// TestSignatures: of the message as the Standard Webhooks libraries make it, of the values by the
// text that docs/callbacks.md gives, and both by every secret.
func TestSignatures(t *testing.T) {
	current, err := ParseSecret(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Repeat([]byte{7}, 32)
	req := &Request{
		WebhookID: vectorID, Topic: "orders", Timer: "{o-77}close", DueMs: 1614265330000, Attempt: 2, Fence: 7, Receipt: "r",
	}
	const text = "carillon-v1\n" + vectorID + "\n1614265330\norders\n{o-77}close\n1614265330000\n2\n7\nr"
	var s signer
	const message = vectorID + ".1614265330." + vectorBody
	if got := signature(current, message); got != vectorSignature {
		t.Fatalf("the vector is %s, not %s", vectorSignature, got)
	}
	for _, secrets := range [][][]byte{{old, current}, {old, current}, {current, old}, {current}, {old, current}} { // what was made for one call is used again
		req.Secrets = secrets
		s.sign(req, []byte(vectorBody), vectorTimestamp)
		var ofMessage, ofValues []string
		for _, secret := range secrets {
			ofMessage, ofValues = append(ofMessage, signature(secret, message)), append(ofValues, signature(secret, text))
		}
		if got, want := string(s.ofMessage), strings.Join(ofMessage, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got, want := string(s.ofValues), strings.Join(ofValues, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// signature is written after the specification, not after the code.
func signature(secret []byte, text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestParseSecret(t *testing.T) {
	whsec := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, s := range []string{whsec(24), whsec(32), whsec(64)} {
		if key, err := ParseSecret(s); err != nil || len(key) < 24 {
			t.Errorf("%q: %d bytes, %v", s, len(key), err)
		}
	}
	for _, s := range []string{
		"", "whsec_", whsec(23), whsec(65), whsec(24)[6:], "WHSEC_" + whsec(24)[6:],
		whsec(25)[:len(whsec(25))-2], "whsec_" + "####################################", whsec(24)[:20] + "\n" + whsec(24)[20:],
	} {
		if _, err := ParseSecret(s); !errors.Is(err, ErrBadSecret) || err.Error() != ErrBadSecret.Error() {
			t.Errorf("%q: %v, want the bare ErrBadSecret", s, err)
		}
	}
}
