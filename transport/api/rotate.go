package api

import (
	"errors"
	"slices"

	"carillon/timer"
	"carillon/transport/callback"
)

// Rotation of a topic's signing secrets: the policy's list, the newest first, is all that there is of it. While there are
// several each of them signs every call, so that receivers can change over in their own time.

// rotateSecret takes {"secret"?} and puts that, or one that is made here, before those that the topic has. Doing it again
// with the same secret changes nothing.
func (rq *request) rotateSecret() *problem {
	added, p := rq.rotation("secret")
	if p != nil {
		return p
	}
	made := ""
	if added == "" {
		made = callback.NewSecret()
		added = made
	} else if _, err := callback.ParseSecret(added); err != nil {
		return fail(422, badPolicy, "secret: must be whsec_ and 24 to 64 bytes in base64; carillon token --webhook makes one")
	}
	return rq.changeSecrets(made, func(have []string) ([]string, *problem) {
		at := slices.IndexFunc(have, func(kept string) bool { return fingerprint(kept) == fingerprint(added) })
		switch {
		case at >= 0:
			kept := have[at]
			return append([]string{kept}, slices.Delete(slices.Clone(have), at, at+1)...), nil
		case len(have) == maxSecrets:
			return nil, failf(422, badPolicy, "the topic has %d secrets, which is all that it may; finish the rotation before another one begins", maxSecrets)
		}
		return append([]string{added}, have...), nil
	})
}

// finishRotation takes {"keep"?}, a fingerprint, and drops all secrets but that one, or but the newest.
func (rq *request) finishRotation() *problem {
	keep, p := rq.rotation("keep")
	if p != nil {
		return p
	}
	return rq.changeSecrets("", func(have []string) ([]string, *problem) {
		at := 0
		if keep != "" {
			at = slices.IndexFunc(have, func(kept string) bool { return fingerprint(kept) == keep })
		}
		if at < 0 || len(have) == 0 {
			return nil, fail(422, badPolicy, "the topic has no such secret; GET it for the fingerprints of those that it has")
		}
		return have[at : at+1], nil
	})
}

// rotation reads a body with one optional text.
func (rq *request) rotation(name string) (text string, p *problem) {
	if len(rq.body) == 0 {
		return "", nil
	}
	if _, p := rq.mediaType(); p != nil {
		return "", p
	}
	r := rq.reader()
	r.members([]string{name}, func(string) { text = r.Text(name) })
	if r.Err() == nil && text == "" && len(rq.body) > len("{}") {
		r.fail(badf(badRequest, "%s: must not be empty", name))
	}
	return text, r.problem()
}

// changeSecrets sets a topic's secrets, and nothing else of its policy. Of two who change one topic's policy at the same
// moment the later one counts, as it does of two PUTs.
func (rq *request) changeSecrets(made string, change func(have []string) ([]string, *problem)) *problem {
	t, err := rq.s.cfg.Engine.LatestTopic(rq.s.base, rq.topic)
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return noTopic()
	case err != nil:
		return engineFault(err)
	}
	policy := t.Policy
	var p *problem
	if policy.Secrets, p = change(t.Policy.Secrets); p != nil {
		return p
	}
	if !slices.Equal(policy.Secrets, t.Policy.Secrets) {
		if t, _, err = rq.s.cfg.Engine.PutTopic(rq.s.base, rq.topic, &policy); err != nil {
			return engineFault(err)
		}
	}
	o := object{b: rq.out()}
	o.str("topic", rq.topic)
	if made != "" {
		o.str("secret", made)
	}
	o.name("secrets")
	shown := array{b: o.b}
	for _, kept := range t.Policy.Secrets {
		shown.next()
		shown.b = appendString(shown.b, fingerprint(kept))
	}
	o.b = shown.end()
	rq.json(200, o.end())
	return nil
}
