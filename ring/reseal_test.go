package ring

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"carillon/internal/secret"
	"carillon/timer"
)

const (
	signing = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	bearer  = "Bearer 1234567890"

	signingKey = "whsk_private"
)

func keysOf(t testing.TB, of string) *secret.Keys {
	t.Helper()
	var list [][]byte
	for _, c := range []byte(of) {
		list = append(list, bytes.Repeat([]byte{c}, secret.KeyBytes))
	}
	k, err := secret.New(list)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func done(t *testing.T, s *State, c Command) Reply {
	t.Helper()
	r := s.applied(1, c.Encode())
	if r.Err != nil {
		t.Fatalf("%s: %v", c.Verb, r.Err)
	}
	return r
}

// secretive is a policy with two secrets and a header that is none.
func secretive() *timer.Policy {
	p := timer.DefaultPolicy()
	p.Secrets = []string{signing}
	p.SigningKeys = []timer.SigningKey{{Private: signingKey, Public: "whpk_public"}}
	p.Callback.Headers = []timer.Header{{Name: "Authorization", Value: bearer}, {Name: "X-Tenant", Value: "seven"}}
	p.Callback.HasHeaders = true
	return &p
}

// opens checks that all of a topic's secrets are sealed by the first of keys, and open to their old
// values.
func opens(t *testing.T, keys *secret.Keys, topic *timer.Topic) {
	t.Helper()
	p := &topic.Policy
	at := secret.OfTopic(topic.Name, "Authorization")
	for kept, want := range map[string]struct {
		at   secret.Place
		text string
	}{p.Secrets[0]: {secret.Signing(topic.Name), signing}, p.SigningKeys[0].Private: {secret.Signing(topic.Name), signingKey}, p.Callback.Headers[0].Value: {at, bearer}} {
		if got, err := keys.Open(want.at, kept); err != nil || got != want.text || secret.KeyOf(kept) != keys.First() {
			t.Errorf("%s: %q opens as %q, %v", topic.Name, kept, got, err)
		}
	}
	if p.Callback.Headers[1].Value != "seven" {
		t.Errorf("what is no secret is %q", p.Callback.Headers[1].Value)
	}
	if secret.Fingerprint(p.Secrets[0]) != secret.Fingerprint(signing) {
		t.Errorf("its fingerprint is %q", secret.Fingerprint(p.Secrets[0]))
	}
}

func TestSealPolicy(t *testing.T) {
	keys, given := keysOf(t, "a"), secretive()
	sealed := SealPolicy(keys, "t", given)
	opens(t, keys, &timer.Topic{Name: "t", Policy: *sealed})
	if given.Secrets[0] != signing || given.SigningKeys[0].Private != signingKey || given.Callback.Headers[0].Value != bearer {
		t.Error("the one that was given has changed")
	}
	if again := SealPolicy(keys, "t", sealed); again.Secrets[0] != sealed.Secrets[0] || again.Callback.Headers[0] != sealed.Callback.Headers[0] {
		t.Error("what is sealed is sealed again")
	}
	// As after a GET and PUT.
	opens(t, keysOf(t, "ba"), &timer.Topic{Name: "t", Policy: *SealPolicy(keysOf(t, "ba"), "t", sealed)})
	if SealPolicy(nil, "t", given) != given {
		t.Error("without keys it is another")
	}
	bare := WithoutSecrets(given)
	if len(bare.Secrets) > 0 || bare.Callback.Headers[0] != (timer.Header{Name: "Authorization"}) || bare.Callback.Headers[1].Value != "seven" {
		t.Errorf("without secrets: %+v", bare)
	}
	plain := timer.DefaultPolicy()
	if SealPolicy(keys, "t", &plain) != &plain || WithoutSecrets(&plain) != &plain {
		t.Error("a policy without secrets is copied")
	}
}

// resealAll acts as the meta group's leader until all is sealed.
func resealAll(t *testing.T, s *State, keys *secret.Keys) (commands int) {
	t.Helper()
	for {
		list := s.Resealing(keys, 3)
		if len(list) == 0 {
			return commands
		}
		if len(list) > 3 || commands > 100 {
			t.Fatalf("%d commands at once, %d in all", len(list), commands)
		}
		for _, c := range list {
			for _, plain := range []string{signing, bearer, strings.Repeat("\x07", SecretBytes)} {
				if bytes.Contains(c.Encode(), []byte(plain)) {
					t.Fatalf("a command shows %q", plain)
				}
			}
			done(t, s, c)
			commands++
		}
	}
}

// TestEverythingIsSealedAnew: secrets that lie in the clear when the first key comes, and those
// that an older key has sealed, are all under the new one in the end; nothing that a client can see
// has changed, and the snapshot shows none of it.
func TestEverythingIsSealedAnew(t *testing.T) {
	own := [SecretBytes]byte(bytes.Repeat([]byte{7}, SecretBytes))
	s := founded(t, 4, 3, 3)
	done(t, s, SecretCommand(own, nil))
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		done(t, s, Command{Verb: Put, Name: name, Policy: secretive()})
	}
	done(t, s, Command{Verb: Ensure, Name: "plain"})
	before, _ := s.Named("a")
	if n := s.SealedBy()[""]; n != 15 {
		t.Errorf("%d secrets in the clear", n)
	}
	if list := s.Resealing(nil, 3); list != nil {
		t.Errorf("without keys: %+v", list)
	}
	for _, of := range []string{"a", "ba", "b"} {
		keys := keysOf(t, of)
		if n := resealAll(t, s, keys); (n == 0) != (of == "b") {
			t.Errorf("keys %s: %d commands", of, n)
		}
		for _, name := range names {
			topic, _ := s.Named(name)
			opens(t, keys, topic)
			if topic.UpdatedMs != before.UpdatedMs || topic.ID == 0 {
				t.Errorf("a client sees a change: %+v", topic)
			}
		}
		if got, err := OpenSecret(s.Secret(), keys); err != nil || !bytes.Equal(got, own[:]) || len(s.Secret()) == SecretBytes {
			t.Errorf("keys %s: the cluster's secret is kept as %q: %x, %v", of, s.Secret(), got, err)
		}
		if got := s.SealedBy(); !maps.Equal(got, map[string]int{keys.First(): 15}) {
			t.Errorf("keys %s: sealed by %v", of, got)
		}
		if got := s.SecretSealedBy(); got != keys.First() {
			t.Errorf("keys %s: the cluster's secret is sealed by %q", of, got)
		}
		again := NewState(nil, nil)
		if err := again.Load(s.Save()); err != nil || again.Hash() != s.Hash() {
			t.Errorf("loaded: %v", err)
		}
		if got := again.SealedBy(); !maps.Equal(got, map[string]int{keys.First(): 15}) {
			t.Errorf("loaded: sealed by %v", got)
		}
		for _, plain := range []string{signing, bearer} {
			if bytes.Contains(s.Save(), []byte(plain)) {
				t.Errorf("the snapshot shows %q", plain)
			}
		}
	}
	if _, err := OpenSecret(s.Secret(), keysOf(t, "x")); err == nil {
		t.Error("opened by another key")
	}
	done(t, s, Command{Verb: Put, Name: "clear", Policy: secretive()})
	if list := s.Resealing(keysOf(t, "x"), 3); len(list) != 0 {
		t.Errorf("who cannot open them seals %+v", list)
	}
	done(t, s, Command{Verb: Close, Name: "clear"})
	done(t, s, Command{Verb: Delete, Name: "clear"})
	done(t, s, Command{Verb: Close, Name: "a"})
	done(t, s, Command{Verb: Delete, Name: "a"})
	if n := s.SealedBy()[keysOf(t, "b").First()]; n != 12 {
		t.Errorf("%d are counted after one topic went", n)
	}
}

// TestClusterSecretThatBeginsLikeAnEnvelope: its 32 bytes are drawn by chance, and one of 256
// begins with the byte that every envelope begins with. It is sealed like any other, when it is
// made and when the first key comes.
func TestClusterSecretThatBeginsLikeAnEnvelope(t *testing.T) {
	own := [SecretBytes]byte(bytes.Repeat([]byte{0xe7}, SecretBytes))
	own[0] = 1
	for _, first := range []*secret.Keys{nil, keysOf(t, "a")} {
		s := founded(t, 4, 3, 3)
		done(t, s, SecretCommand(own, first))
		if got := s.SecretSealedBy(); got != first.First() {
			t.Errorf("the cluster's secret is sealed by %q, want %q", got, first.First())
		}
		for _, of := range []string{"a", "ba", "b", "cb"} {
			keys := keysOf(t, of)
			resealAll(t, s, keys)
			if got, err := OpenSecret(s.Secret(), keys); err != nil || !bytes.Equal(got, own[:]) || !keys.Current(string(s.Secret())) {
				t.Errorf("keys %s: the cluster's secret is kept as %q: %x, %v", of, s.Secret(), got, err)
			}
		}
	}
}

// TestSwapsOfThePast: between the reading and the applying somebody else sets the policy. His
// stays.
func TestSwapsOfThePast(t *testing.T) {
	s := founded(t, 4, 3, 3)
	done(t, s, SecretCommand([SecretBytes]byte{1}, nil))
	done(t, s, Command{Verb: Put, Name: "t", Policy: secretive()})
	swaps := s.Resealing(keysOf(t, "a"), 10)
	newer := secretive()
	newer.Secrets[0] = "whsec_" + strings.Repeat("x", 32)
	newer.Callback.Headers[0].Value = "Bearer changed"
	done(t, s, Command{Verb: Put, Name: "t", Policy: newer})
	for _, c := range swaps {
		done(t, s, c)
	}
	topic, _ := s.Named("t")
	if topic.Policy.Secrets[0] != newer.Secrets[0] || topic.Policy.Callback.Headers[0].Value != "Bearer changed" {
		t.Errorf("the newer policy is lost: %+v", topic.Policy)
	}
	done(t, s, Command{Verb: Put, Name: "u", Policy: secretive()})
	if r := s.applied(1, (&Command{Verb: Reseal, Name: "gone", Swaps: swaps[len(swaps)-1].Swaps}).Encode()); !errors.Is(r.Err, timer.ErrNoTopic) {
		t.Errorf("a topic that is gone: %+v", r)
	}
	clear := Command{Verb: Reseal, Name: "u", Swaps: []Swap{{sumOf(bearer), "in the clear"}, {sumOf(signing), ""}}}
	done(t, s, clear)
	done(t, s, Command{Verb: Reseal, Swaps: []Swap{{sumOf(string(s.Secret())), "in the clear"}}})
	if u, _ := s.Named("u"); !slices.Equal(u.Policy.Secrets, []string{signing}) || u.Policy.Callback.Headers[0].Value != bearer {
		t.Errorf("a swap puts something in the clear: %+v", u.Policy)
	}
}
