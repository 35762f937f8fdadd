package callback

import (
	"bytes"
	"encoding/base64"
	"errors"
	"testing"
	"time"
)

// The vector that the Standard Webhooks libraries publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestSignVector(t *testing.T) {
	secret, err := ParseSecret(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	if got := Sign(secret, vectorID, vectorTimestamp, []byte(vectorBody)); got != vectorSignature {
		t.Errorf("%s, want %s", got, vectorSignature)
	}
}

func TestVerify(t *testing.T) {
	current, _ := ParseSecret(vectorSecret)
	old := bytes.Repeat([]byte{7}, 32)
	both := string(appendSignatures(nil, [][]byte{old, current}, vectorID, vectorTimestamp, []byte(vectorBody)))
	now := time.Unix(vectorTimestamp+10, 0)
	f := func(secret []byte, stamp, signature, body string, now time.Time, want error) {
		t.Helper()
		err := Verify([][]byte{secret}, vectorID, stamp, signature, []byte(body), now, time.Minute)
		if !errors.Is(err, want) {
			t.Errorf("Verify: %v, want %v", err, want)
		}
	}
	f(current, "1614265330", vectorSignature, vectorBody, now, nil)
	f(current, "1614265330", both, vectorBody, now, nil) // rotation: either secret verifies
	f(old, "1614265330", both, vectorBody, now, nil)
	f(old, "1614265330", vectorSignature, vectorBody, now, ErrBadSignature)
	f(current, "1614265330", vectorSignature, vectorBody+" ", now, ErrBadSignature)
	f(current, "1614265331", vectorSignature, vectorBody, now, ErrBadSignature)
	f(current, "x", vectorSignature, vectorBody, now, ErrBadSignature)
	f(current, "9223372036854775807", vectorSignature, vectorBody, now, ErrBadSignature)
	f(current, "1614265330", vectorSignature, vectorBody, now.Add(2*time.Minute), ErrBadSignature)
	f(current, "1614265330", vectorSignature, vectorBody, now.Add(-2*time.Minute), ErrBadSignature)
	f(current, "1614265330", "", vectorBody, now, ErrBadSignature)
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
