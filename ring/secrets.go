package ring

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"carillon/internal/secret"
	"carillon/timer"
)

// SecretBytes is the length of the cluster's secret.
const SecretBytes = 32

// ErrBadSecret refuses one that could be guessed.
var ErrBadSecret = errors.New("the cluster's secret must be 32 bytes, or sealed")

// SecretCommand gives the cluster its secret, from which receipts are made, sealed if there are
// keys; see State.Secret.
func SecretCommand(plain [SecretBytes]byte, keys *secret.Keys) Command {
	kept := plain[:]
	if keys != nil {
		kept = []byte(keys.SealBytes(secret.Cluster, string(kept)))
	}
	return Command{Verb: SetSecret, Secret: kept}
}

// OpenSecret gives the 32 bytes of the secret that State.Secret holds.
func OpenSecret(kept []byte, keys *secret.Keys) ([]byte, error) {
	if len(kept) == SecretBytes {
		return kept, nil
	}
	plain, err := keys.Open(secret.Cluster, string(kept))
	if err == nil && len(plain) != SecretBytes {
		err = ErrBadSecret
	}
	return []byte(plain), err
}

// goodSecret reports whether the cluster may keep a secret. 32 bytes are the secret itself: an
// envelope is longer.
func goodSecret(kept []byte) bool {
	return len(kept) == SecretBytes || len(kept) <= maxSealedSecret && secret.Sealed(string(kept))
}

// maxSealedSecret is above any envelope of 32 bytes.
const maxSealedSecret = 256

// Secret is the cluster's secret in its stored form (see OpenSecret). It is the same on all nodes
// and never changes, but it may be sealed again. nil before the controller has had it made.
func (s *State) Secret() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.secret
}

// SecretSealedBy is the id of the key that sealed the cluster's secret; "": it is in the clear, or
// not made yet.
func (s *State) SecretSealedBy() string {
	kept := s.Secret()
	if len(kept) == SecretBytes { // whatever it begins with
		return ""
	}
	return secret.KeyOf(string(kept))
}

// setSecret keeps the first secret: receipts that were made with it must hold.
func (c *cluster) setSecret(_ int64, cmd *Command) Reply {
	switch {
	case c.id == "":
		return Reply{Err: ErrNotFounded}
	case !goodSecret(cmd.Secret):
		return Reply{Err: ErrBadSecret}
	case c.secret == nil:
		c.secret = slices.Clone(cmd.Secret)
		c.version++
	}
	return Reply{}
}

// A node that has keys reseals the secrets that the meta group keeps in the clear, or under
// another key than the first. It cannot be done where commands are applied, which knows no keys. So
// a command names the value that it has read, by a hash, and gives the new one. If the value has
// changed meanwhile, nothing happens.

// Swap is one secret and its new envelope.
type Swap struct {
	Sum []byte `json:"sum"` // of the present value: see sumOf
	New string `json:"new"`
}

// sumOf names a secret without showing it: an envelope, or one in the clear, which an older entry
// of the same log shows anyway.
func sumOf(kept string) []byte {
	sum := sha256.Sum256([]byte(kept))
	return sum[:16]
}

// swapped is the value in a secret's place after the swaps.
func swapped(kept string, swaps []Swap) string {
	sum := sumOf(kept)
	for i := range swaps {
		if bytes.Equal(swaps[i].Sum, sum) && secret.Sealed(swaps[i].New) {
			return swaps[i].New
		}
	}
	return kept
}

// resealPolicy changes a copy of a topic's policy, and reports whether anything has changed.
func resealPolicy(p *timer.Policy, swaps []Swap) (changed bool) {
	*p = withOwnSecrets(p)
	eachSecret(p, func(_ string, kept *string) {
		if next := swapped(*kept, swaps); next != *kept {
			*kept, changed = next, true
		}
	})
	return changed
}

func (c *cluster) reseal(_ int64, cmd *Command) Reply {
	if next := swapped(string(c.secret), cmd.Swaps); c.secret != nil && next != string(c.secret) && goodSecret([]byte(next)) {
		c.secret = []byte(next)
		c.version++
	}
	return Reply{}
}

// withOwnSecrets returns a copy of a policy with its own copies of all fields that eachSecret
// visits.
func withOwnSecrets(p *timer.Policy) timer.Policy {
	own := *p
	own.Secrets, own.SigningKeys = slices.Clone(p.Secrets), slices.Clone(p.SigningKeys)
	own.Callback.Headers = slices.Clone(p.Callback.Headers)
	return own
}

// eachSecret visits the fields of a policy that must not be stored in the clear: signing secrets
// and private keys, with header "", and values of headers that look secret or are sealed already.
func eachSecret(p *timer.Policy, visit func(header string, kept *string)) {
	for i := range p.Secrets {
		visit("", &p.Secrets[i])
	}
	for i := range p.SigningKeys {
		visit("", &p.SigningKeys[i].Private)
	}
	for i := range p.Callback.Headers {
		if h := &p.Callback.Headers[i]; h.Secret() {
			visit(h.Name, &h.Value)
		}
	}
}

// SealPolicy gives a policy whose secrets are sealed by the first key; the one given stays as it
// is.
func SealPolicy(keys *secret.Keys, topic string, p *timer.Policy) *timer.Policy {
	if keys == nil || !hasSecrets(p) {
		return p
	}
	sealed := withOwnSecrets(p)
	eachSecret(&sealed, func(header string, kept *string) { *kept = renew(keys, topic, header, *kept) })
	return &sealed
}

// WithoutSecrets gives a policy to readers that need not have its secrets.
func WithoutSecrets(p *timer.Policy) *timer.Policy {
	if !hasSecrets(p) {
		return p
	}
	bare := withOwnSecrets(p)
	eachSecret(&bare, func(_ string, kept *string) { *kept = "" })
	bare.Secrets, bare.SigningKeys = nil, nil
	return &bare
}

func hasSecrets(p *timer.Policy) (has bool) {
	if len(p.Secrets)+len(p.SigningKeys)+len(p.Callback.Headers) > 0 {
		eachSecret(p, func(string, *string) { has = true })
	}
	return has
}

func renew(keys *secret.Keys, topic, header, kept string) string {
	switch {
	case header == "":
		return keys.SealSigning(topic, kept)
	case secret.Sealed(kept):
		return keys.Renew(secret.OfTopic(topic, header), kept)
	}
	return keys.Seal(secret.OfTopic(topic, header), kept)
}

// Resealing lists at most so many commands that have secrets sealed by the first of keys, where
// keys can open them.
func (s *State) Resealing(keys *secret.Keys, most int) (list []Command) {
	if keys == nil {
		return nil
	}
	if kept := s.Secret(); kept != nil {
		plain, err := OpenSecret(kept, keys)
		if err != nil {
			return nil // other nodes may not have these keys
		}
		if len(kept) == SecretBytes || !keys.Current(string(kept)) {
			list = append(list, Command{Verb: Reseal, Swaps: []Swap{{sumOf(string(kept)), keys.SealBytes(secret.Cluster, string(plain))}}})
		}
	}
	for _, t := range s.unsealed(keys, most) {
		var swaps []Swap
		eachSecret(&t.Policy, func(header string, kept *string) {
			if next := renew(keys, t.Name, header, *kept); next != *kept {
				swaps = append(swaps, Swap{sumOf(*kept), next})
			}
		})
		if len(list) < most {
			list = append(list, Command{Verb: Reseal, Name: t.Name, ID: t.ID, Swaps: swaps})
		}
	}
	return list
}

func (s *topicSet) countSealed(v *timer.Topic, by int) {
	if !hasSecrets(&v.Policy) {
		return
	}
	eachSecret(&v.Policy, func(_ string, kept *string) {
		id := secret.KeyOf(*kept)
		if s.sealed[id] += by; s.sealed[id] == 0 {
			delete(s.sealed, id)
		}
	})
}

// SealedBy counts the secrets of topics by the id of the key that sealed them; "" are those in the
// clear.
func (t *Topics) SealedBy() map[string]int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.sealed)
}

// Lacks names a key that is not among these although the meta group has something sealed with it;
// nil: none.
func (s *State) Lacks(keys *secret.Keys) error {
	if kept := s.Secret(); kept != nil {
		if _, err := OpenSecret(kept, keys); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.SealedBy())) {
		if id != "" && !keys.Has(id) && !keys.Lost(id) {
			return &secret.KeyError{ID: id}
		}
	}
	return nil
}

// Replacing is the command that gives the cluster another secret, sealed by the first of keys,
// where the key of the present one is lost; false: it is not. Earlier receipts are void then, and
// contents that contain secrets count as different.
func (s *State) Replacing(keys *secret.Keys, random func([]byte)) (Command, bool) {
	kept := string(s.Secret())
	if !keys.Lost(s.SecretSealedBy()) {
		return Command{}, false
	}
	var plain [SecretBytes]byte
	random(plain[:])
	return Command{Verb: Reseal, Swaps: []Swap{{sumOf(kept), keys.SealBytes(secret.Cluster, string(plain[:]))}}}, true
}

// Locked names topics, at most so many in order of id, whose calls wait for a key that is not among
// these.
func (t *Topics) Locked(keys *secret.Keys, most int) (names []string) {
	for _, v := range t.sealedBy(func(id string) bool { return id != "" && !keys.Has(id) }, most) {
		names = append(names, v.Name)
	}
	return names
}

// unsealed finds topics with a secret that the first of keys has not sealed and could.
func (t *Topics) unsealed(keys *secret.Keys, most int) []*timer.Topic {
	return t.sealedBy(func(id string) bool { return id != keys.First() && (id == "" || keys.Has(id)) }, most)
}

// sealedBy finds topics with a secret that was sealed by one of some keys, "" for one in the clear:
// at most so many, in order of id. It walks the topics only if the counts show that there are any.
func (t *Topics) sealedBy(some func(key string) bool, most int) (list []*timer.Topic) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(t.SealedBy())), some) {
		return nil
	}
	for v := range t.each() {
		if len(list) == most {
			break
		}
		found := false
		eachSecret(&v.Policy, func(_ string, kept *string) { found = found || some(secret.KeyOf(*kept)) })
		if found {
			list = append(list, v)
		}
	}
	return list
}
