package api

import (
	"strings"

	"carillon/timer"
	"carillon/transport/callback"
)

const publicKeyPrefix = "whpk_"

// signingKey reads a private key. No fault says it back.
func signingKey(text string) (timer.SigningKey, bool) {
	key, err := callback.ParseSigningKey(text)
	if err != nil {
		return timer.SigningKey{}, false
	}
	return timer.SigningKey{Private: text, Public: callback.PublicKeyOf(key)}, true
}

// signingKeys reads the keys of a policy. A public key keeps the stored private one that it belongs
// to.
func (r *reader) signingKeys(stored *timer.Policy) []timer.SigningKey {
	var out []timer.SigningKey
	n := r.Open('[', "signing_keys")
	for ; r.More(n, ']'); n++ {
		text := r.Text("signing_keys")
		if r.Err() != nil {
			return nil
		}
		if n == maxSecrets {
			r.fail(r.refuse("signing_keys: more than 3"))
			return nil
		}
		var key timer.SigningKey
		ok := false
		if strings.HasPrefix(text, publicKeyPrefix) {
			if stored != nil {
				for _, have := range stored.SigningKeys {
					if have.Public == text {
						key, ok = have, true
					}
				}
			}
			if !ok {
				r.fail(r.refuse("signing_keys: a public key of which the topic does not have the private one"))
			}
		} else if key, ok = signingKey(text); !ok {
			r.fail(r.refuse("signing_keys: each must be whsk_ and an ed25519 private key of 64 bytes in base64; carillon token --webhook --ed25519 makes one"))
		}
		out = append(out, key)
	}
	return out
}

// publicKeys are how a policy's keys are shown.
func publicKeys(p *timer.Policy) []string {
	out := make([]string, 0, len(p.SigningKeys))
	for _, key := range p.SigningKeys {
		out = append(out, key.Public)
	}
	return out
}

func publicKey(key timer.SigningKey) string { return key.Public }

// rotateSigningKey takes {"signing_key"?} and puts that, or one that is made here, before those
// that the topic has. One that is made here never leaves the cluster: receivers need the public key
// alone, which every read of the topic shows.
func (rq *request) rotateSigningKey() *problem {
	text, p := rq.rotation("signing_key")
	if p != nil {
		return p
	}
	if text == "" {
		text, _ = callback.NewSigningKey()
	}
	added, ok := signingKey(text)
	if !ok {
		return fail(422, badPolicy, "signing_key: must be whsk_ and an ed25519 private key of 64 bytes in base64; carillon token --webhook --ed25519 makes one")
	}
	return rq.changeKeys(func(have []timer.SigningKey) ([]timer.SigningKey, *problem) {
		return inFront(have, added, publicKey, "signing keys")
	})
}

// finishKeyRotation takes {"keep"?}, a public key, and drops all keys but that one, or but the
// newest.
func (rq *request) finishKeyRotation() *problem {
	keep, p := rq.rotation("keep")
	if p != nil {
		return p
	}
	return rq.changeKeys(func(have []timer.SigningKey) ([]timer.SigningKey, *problem) {
		return theOne(have, keep, publicKey, "signing key; GET it for the public keys of those that it has")
	})
}

func (rq *request) changeKeys(change func(have []timer.SigningKey) ([]timer.SigningKey, *problem)) *problem {
	t, p := changePolicy(rq, func(p *timer.Policy) *[]timer.SigningKey { return &p.SigningKeys }, change)
	if p != nil {
		return p
	}
	o := object{b: rq.out()}
	o.str("topic", rq.topic)
	o.texts("signing_keys", publicKeys(&t.Policy))
	rq.json(200, o.end())
	return nil
}
