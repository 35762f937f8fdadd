package calls

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carillon/internal/secret"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/transport/api"
)

// The secret and the keys of a topic.
const (
	signingText    = "whsec_c2lnbmluZy1zZWNyZXQtb2YtYS10b3BpYy0wMQ=="
	signingKeyText = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKeyText  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// TestSecretsAreDecodedOnce: until the topic changes, and for a bounded number of topics.
func TestSecretsAreDecodedOnce(t *testing.T) {
	const a, b = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
	topic := func(id timer.TopicID, secrets ...string) *timer.Topic {
		return &timer.Topic{ID: id, Policy: timer.Policy{Secrets: secrets}}
	}
	var f topicFacts
	old := topic(1, a, b)
	first := f.fact(old, nil).secrets
	if len(first) != 2 || bytes.Equal(first[0], first[1]) || len(first[0]) != 24 {
		t.Fatalf("%x", first)
	}
	if allocated := testing.AllocsPerRun(100, func() { f.fact(old, nil) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
	rotated := topic(1, b)
	if got := f.fact(rotated, nil).secrets; len(got) != 1 || !bytes.Equal(got[0], first[1]) {
		t.Errorf("after a rotation: %x", got)
	}
	for id := range timer.TopicID(2 * maxTopicFacts) {
		f.fact(topic(id, a), nil)
	}
	if len(f.of) > maxTopicFacts {
		t.Errorf("%d topics are kept", len(f.of))
	}
}

// TestTenantFollowsTheTokens: a topic is another's once the auth file says so.
func TestTenantFollowsTheTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(name string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(file, []byte("- {name: "+name+", scopes: [add], topics: [\"*\"], sha256: \""+strings.Repeat("a", 64)+"\"}\n"), 0o600))
	}
	write("shop")
	auth, err := api.LoadAuth(file)
	testkit.Must(t, err)
	f, topic := topicFacts{auth: auth}, &timer.Topic{ID: 1, Name: "orders"}
	if got := f.fact(topic, nil).tenant; got != "shop" {
		t.Errorf("%q", got)
	}
	write("bank")
	testkit.Must(t, auth.Reload())
	if got := f.fact(topic, nil).tenant; got != "bank" {
		t.Errorf("after a reading: %q", got)
	}
}

// TestSecretsAreNotOpenedWithoutTheirKey: not even those that were opened while it was there.
func TestSecretsAreNotOpenedWithoutTheirKey(t *testing.T) {
	keys, err := secret.New([][]byte{bytes.Repeat([]byte{7}, secret.KeyBytes)})
	testkit.Must(t, err)
	other, err := secret.New([][]byte{bytes.Repeat([]byte{8}, secret.KeyBytes)})
	testkit.Must(t, err)
	sealed := keys.Seal(secret.Signing("t"), signingText)
	topic := &timer.Topic{ID: 1, Name: "t", Policy: timer.Policy{
		Secrets: []string{sealed}, SigningKeys: []timer.SigningKey{{Private: keys.Seal(secret.Signing("t"), signingKeyText), Public: publicKeyText}},
	}}
	var f topicFacts
	for range 2 {
		if got := f.fact(topic, keys); got.failed != nil || len(got.secrets) != 1 || string(got.secrets[0]) != "signing-secret-of-a-topic-01" || len(got.keys) != 1 {
			t.Errorf("%q, %v", got.secrets, got.failed)
		}
		if got := f.fact(topic, other); got.failed == nil || got.secrets != nil || got.keys != nil {
			t.Errorf("without the key: %q, %q", got.secrets, got.keys)
		}
	}
}
