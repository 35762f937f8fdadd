package signing

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
)

// What the Standard Webhooks libraries publish.
const (
	vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorKey    = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// TestParseKey: only an ed25519 key that is whole, whose halves belong together. No fault
// says it back.
func TestParseKey(t *testing.T) {
	private, public := NewKey()
	key, err := ParseKey(private)
	if err != nil || PublicKeyOf(key) != public {
		t.Fatalf("%s, %s: %v", private, public, err)
	}
	halves := slices.Clone(key)
	halves[63] ^= 1
	encoded := func(b []byte) string { return "whsk_" + base64.StdEncoding.EncodeToString(b) }
	for _, s := range []string{
		"", "whsk_", vectorPublic, vectorSecret, encoded(key[:32]), encoded(append(slices.Clone(key), 0)), encoded(halves), encoded(key)[5:], "WHSK_" + encoded(key)[5:],
		encoded(key)[:len(encoded(key))-1], encoded(key)[:20] + "\n" + encoded(key)[21:], strings.Replace(vectorKey, "g==", "h==", 1),
	} {
		if _, err := ParseKey(s); !errors.Is(err, ErrBadKey) || err.Error() != ErrBadKey.Error() {
			t.Errorf("%q: %v, want the bare ErrBadKey", s, err)
		}
	}
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
