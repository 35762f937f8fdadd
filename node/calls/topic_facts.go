package calls

import (
	"crypto/ed25519"
	"fmt"
	"sync"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api"
	"carillon/transport/callback/signing"
)

// maxTopicFacts bounds topicFacts. The facts of a topic that is not kept are found out again for
// each call.
const maxTopicFacts = 10_000

// topicFacts keeps the facts of topics that calls need and that take long to find out. It is safe
// for concurrent use.
type topicFacts struct {
	auth *api.Auth // nil: nobody is asked for a token
	mu   sync.RWMutex
	of   map[timer.TopicID]*topicFact
}

// topicFact is of a topic as it stood, which is another value after each change, of the tokens of
// one reading, and of this node's keys.
type topicFact struct {
	topic   *timer.Topic
	tenants api.Tenants
	opener  *secret.Keys

	tenant  string               // whose it is
	secrets [][]byte             // decoded; not to be changed
	keys    []ed25519.PrivateKey // decoded; not to be changed
	failed  error                // why there are none: one of them cannot be opened
}

// fact is one topic's; opener opens its secrets.
func (f *topicFacts) fact(t *timer.Topic, opener *secret.Keys) *topicFact {
	tenants := f.auth.Tenants()
	f.mu.RLock()
	known := f.of[t.ID]
	f.mu.RUnlock()
	if known != nil && known.topic == t && known.tenants == tenants && known.opener == opener {
		return known
	}
	made := &topicFact{topic: t, tenants: tenants, opener: opener, tenant: tenants.Of(t.Name)}
	if made.secrets, made.failed = opened(t, opener, "secret", t.Policy.Secrets, func(kept string) string { return kept }, signing.ParseSecret); made.failed == nil {
		made.keys, made.failed = opened(t, opener, "key", t.Policy.SigningKeys, func(kept timer.SigningKey) string { return kept.Private }, signing.ParseKey)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.of) >= maxTopicFacts || f.of == nil {
		f.of = map[timer.TopicID]*topicFact{}
	}
	f.of[t.ID] = made
	return made
}

// opened are what a topic's calls are signed with. The texts were checked when the policy was set.
func opened[T, K any](t *timer.Topic, opener *secret.Keys, what string, list []T, kept func(T) string, parse func(text string) (K, error)) (out []K, err error) {
	for _, one := range list {
		text, err := opener.Open(secret.Signing(t.Name), kept(one))
		if err != nil {
			return nil, fmt.Errorf("a signing %s: %w", what, err)
		}
		if key, err := parse(text); err == nil {
			out = append(out, key)
		}
	}
	return out, nil
}
