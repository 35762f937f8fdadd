package node

import (
	"bytes"
	"testing"

	"carillon/secret"
	"carillon/shard"
)

// TestSecretsAreDecodedOnce: until the topic changes, and for a bounded number of topics.
func TestSecretsAreDecodedOnce(t *testing.T) {
	const a, b = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB"
	topic := func(id shard.TopicID, secrets ...string) *shard.Topic {
		return &shard.Topic{ID: id, Policy: shard.Policy{Secrets: secrets}}
	}
	var s signingKeys
	keys := func(of *shard.Topic) [][]byte {
		t.Helper()
		out, err := s.keys(of, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	old := topic(1, a, b)
	first := keys(old)
	if len(first) != 2 || bytes.Equal(first[0], first[1]) || len(first[0]) != 24 {
		t.Fatalf("%x", first)
	}
	if allocated := testing.AllocsPerRun(100, func() { keys(old) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
	rotated := topic(1, b)
	if got := keys(rotated); len(got) != 1 || !bytes.Equal(got[0], first[1]) {
		t.Errorf("after a rotation: %x", got)
	}
	if got := keys(topic(2)); got != nil || len(s.of) != 1 {
		t.Errorf("without a secret: %x, %d kept", got, len(s.of))
	}
	for id := range shard.TopicID(2 * maxSigningTopics) {
		keys(topic(id, a))
	}
	if len(s.of) > maxSigningTopics {
		t.Errorf("%d topics are kept", len(s.of))
	}
}

// TestSecretsAreNotOpenedWithoutTheirKey: not even those that were opened while it was there.
func TestSecretsAreNotOpenedWithoutTheirKey(t *testing.T) {
	keys, err := secret.New([][]byte{bytes.Repeat([]byte{7}, secret.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	other, err := secret.New([][]byte{bytes.Repeat([]byte{8}, secret.KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	sealed := keys.Seal(secret.Signing("t"), signingText)
	topic := &shard.Topic{ID: 1, Name: "t", Policy: shard.Policy{Secrets: []string{sealed}}}
	var s signingKeys
	for range 2 {
		if got, err := s.keys(topic, keys); err != nil || len(got) != 1 || string(got[0]) != "signing-secret-of-a-topic-01" {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := s.keys(topic, other); err == nil || got != nil {
			t.Errorf("without the key: %q", got)
		}
	}
}
