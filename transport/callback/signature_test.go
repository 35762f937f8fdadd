package callback

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"carillon/transport/callback/signing"
)

// The vector that the Standard Webhooks libraries publish.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTimestamp = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

	// The same message by the pair of keys that they publish.
	vectorKey          = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	vectorPublic       = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	vectorKeySignature = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)

// TestSignatures: of the message as the Standard Webhooks libraries make it, of the values by the
// text that docs/callbacks.md gives, and both by every secret and by every key.
func TestSignatures(t *testing.T) {
	current, err := signing.ParseSecret(vectorSecret)
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
	// The signer reuses its buffers and hashes.
	for _, secrets := range [][][]byte{{old, current}, {old, current}, {current, old}, {current}, {old, current}} {
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
	key, err := signing.ParseKey(vectorKey)
	if err != nil || signing.PublicKeyOf(key) != vectorPublic {
		t.Fatalf("%v, %s", err, signing.PublicKeyOf(key))
	}
	_, other, _ := ed25519.GenerateKey(nil)
	byOther := func(text string) string {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(other, []byte(text)))
	}
	req.Secrets, req.SigningKeys = [][]byte{current}, []ed25519.PrivateKey{key, other}
	s.sign(req, []byte(vectorBody), vectorTimestamp)
	if got, want := string(s.ofMessage), strings.Join([]string{vectorSignature, vectorKeySignature, byOther(message)}, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	ofValues := "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
	if got, want := string(s.ofValues), strings.Join([]string{signature(current, text), ofValues, byOther(text)}, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	req.Secrets, req.SigningKeys = nil, req.SigningKeys[:1]
	s.sign(req, []byte(vectorBody), vectorTimestamp)
	if string(s.ofMessage) != vectorKeySignature || string(s.ofValues) != ofValues {
		t.Errorf("by a key alone: %s, %s", s.ofMessage, s.ofValues)
	}
	s.sign(req, make([]byte, 1<<20), vectorTimestamp)
	if cap(s.message) > keptMessage {
		t.Errorf("%d bytes are kept of a long message", cap(s.message))
	}
}

// signature is written after the specification, not after the code.
func signature(secret []byte, text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
