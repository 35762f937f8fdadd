package topics

import (
	"slices"
	"strings"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api/web"
	"carillon/transport/callback/signing"
)

// signers are one list of a policy by which calls are signed: secrets, or private keys. What is
// stored is not shown; a name stands for it, and sent back keeps it.
type signers[T comparable] struct {
	one, member string // an added one in a body, and the list in the policy
	many        string
	list        func(*timer.Policy) *[]T
	name        func(T) string
	namePrefix  string
	parse       func(text string) (T, bool)
	generate    func() string
	shownOnce   bool   // the answer that adds a generated one shows it
	form, hint  string // how a text must be, and where to get one
	unknown     string // the fault of a name of none that is stored
	lacking     string // the same where one is to be kept
}

var secrets = signers[string]{
	one: "secret", member: "secrets", many: "secrets",
	list: func(p *timer.Policy) *[]string { return &p.Secrets },
	name: secret.Fingerprint, namePrefix: secret.FingerprintPrefix,
	parse: func(text string) (string, bool) {
		_, err := signing.ParseSecret(text)
		return text, err == nil
	},
	generate: signing.NewSecret, shownOnce: true,
	form: "whsec_ and 24 to 64 bytes in base64", hint: "; carillon token --webhook makes one",
	unknown: "a fingerprint that no stored secret has",
	lacking: "secret; GET it for the fingerprints of those that it has",
}

// A private key that is made here never leaves the cluster: receivers need the public key alone,
// which every read of the topic shows.
var signingKeys = signers[timer.SigningKey]{
	one: "signing_key", member: "signing_keys", many: "signing keys",
	list: func(p *timer.Policy) *[]timer.SigningKey { return &p.SigningKeys },
	name: func(key timer.SigningKey) string { return key.Public }, namePrefix: "whpk_",
	parse: func(text string) (timer.SigningKey, bool) {
		key, err := signing.ParseKey(text)
		if err != nil {
			return timer.SigningKey{}, false
		}
		return timer.SigningKey{Private: text, Public: signing.PublicKeyOf(key)}, true
	},
	generate: func() string {
		text, _ := signing.NewKey()
		return text
	},
	form:    "whsk_ and an ed25519 private key of 64 bytes in base64; carillon token --webhook --ed25519 makes one",
	unknown: "a public key of which the topic does not have the private one",
	lacking: "signing key; GET it for the public keys of those that it has",
}

// read reads the list of a policy. No fault repeats a text.
func (s *signers[T]) read(r *web.Reader, stored *timer.Policy) (out []T) {
	r.Texts(s.member, func(n int, text string) *web.Problem {
		if n == maxSecrets {
			return r.OutOfRange(s.member + ": more than 3")
		}
		one, ok := s.parse(text)
		fault := ": each must be " + s.form
		if strings.HasPrefix(text, s.namePrefix) {
			at := -1
			if stored != nil {
				at = slices.IndexFunc(*s.list(stored), func(have T) bool { return s.name(have) == text })
			}
			if ok, fault = at >= 0, ": "+s.unknown; ok {
				one = (*s.list(stored))[at]
			}
		}
		if !ok {
			return r.OutOfRange(s.member + fault)
		}
		out = append(out, one)
		return nil
	})
	return out
}

// names are how the list of a policy is shown.
func (s *signers[T]) names(p *timer.Policy) []string {
	var out []string
	for _, one := range *s.list(p) {
		out = append(out, s.name(one))
	}
	return out
}
