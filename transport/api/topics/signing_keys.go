package topics

import (
	"strings"

	"carillon/timer"
	"carillon/transport/api/web"
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

// readSigningKeys reads the keys of a policy. A public key keeps the stored private one that it belongs
// to.
func readSigningKeys(r *web.Reader, stored *timer.Policy) []timer.SigningKey {
	var out []timer.SigningKey
	n := r.Open('[', "signing_keys")
	for ; r.More(n, ']'); n++ {
		text := r.Text("signing_keys")
		if r.Err() != nil {
			return nil
		}
		if n == maxSecrets {
			r.Reject(r.OutOfRange("signing_keys: more than 3"))
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
				r.Reject(r.OutOfRange("signing_keys: a public key of which the topic does not have the private one"))
			}
		} else if key, ok = signingKey(text); !ok {
			r.Reject(r.OutOfRange("signing_keys: each must be whsk_ and an ed25519 private key of 64 bytes in base64; carillon token --webhook --ed25519 makes one"))
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

// RotateKey takes {"signing_key"?} and puts that, or one that is made here, before those
// that the topic has. One that is made here never leaves the cluster: receivers need the public key
// alone, which every read of the topic shows.
func RotateKey(rq *web.Request) *web.Problem {
	text, p := rotation(rq, "signing_key")
	if p != nil {
		return p
	}
	if text == "" {
		text, _ = callback.NewSigningKey()
	}
	added, ok := signingKey(text)
	if !ok {
		return web.Fail(422, web.BadPolicy, "signing_key: must be whsk_ and an ed25519 private key of 64 bytes in base64; carillon token --webhook --ed25519 makes one")
	}
	return changeKeys(rq, func(have []timer.SigningKey) ([]timer.SigningKey, *web.Problem) {
		return inFront(have, added, publicKey, "signing keys")
	})
}

// FinishKeys takes {"keep"?}, a public key, and drops all keys but that one, or but the
// newest.
func FinishKeys(rq *web.Request) *web.Problem {
	keep, p := rotation(rq, "keep")
	if p != nil {
		return p
	}
	return changeKeys(rq, func(have []timer.SigningKey) ([]timer.SigningKey, *web.Problem) {
		return theOne(have, keep, publicKey, "signing key; GET it for the public keys of those that it has")
	})
}

func changeKeys(rq *web.Request, change func(have []timer.SigningKey) ([]timer.SigningKey, *web.Problem)) *web.Problem {
	t, p := changePolicy(rq, func(p *timer.Policy) *[]timer.SigningKey { return &p.SigningKeys }, change)
	if p != nil {
		return p
	}
	o := web.Object{B: rq.Out()}
	o.Text("topic", rq.Topic)
	o.Texts("signing_keys", publicKeys(&t.Policy))
	return rq.JSON(200, o.End())
}
