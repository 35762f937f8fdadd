package api

import (
	"errors"
	"slices"
	"time"

	"carillon/timer"
	"carillon/transport/callback"
)

// Rotation of a topic's signing secrets: the policy's list, the newest first, is all that there is
// of it. While there are several each of them signs every call, so that receivers can change over
// in their own time.

// rotateSecret takes {"secret"?} and puts that, or one that is made here, before those that the
// topic has. Doing it again with the same secret changes nothing.
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
		return inFront(have, added, fingerprint, "secrets")
	})
}

// finishRotation takes {"keep"?}, a fingerprint, and drops all secrets but that one, or but the
// newest.
func (rq *request) finishRotation() *problem {
	keep, p := rq.rotation("keep")
	if p != nil {
		return p
	}
	return rq.changeSecrets("", func(have []string) ([]string, *problem) {
		return theOne(have, keep, fingerprint, "secret; GET it for the fingerprints of those that it has")
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

// inFront puts one before the others. One that is there already, by its name, stays as it is kept.
func inFront[T any](have []T, added T, name func(T) string, what string) ([]T, *problem) {
	at := slices.IndexFunc(have, func(kept T) bool { return name(kept) == name(added) })
	switch {
	case at >= 0:
		return append([]T{have[at]}, slices.Delete(slices.Clone(have), at, at+1)...), nil
	case len(have) == maxSecrets:
		return nil, failf(422, badPolicy, "the topic has %d %s, which is all that it may; finish the rotation before another one begins", maxSecrets, what)
	}
	return append([]T{added}, have...), nil
}

// theOne is the list of that with a name alone, or of the newest.
func theOne[T any](have []T, keep string, name func(T) string, what string) ([]T, *problem) {
	at := 0
	if keep != "" {
		at = slices.IndexFunc(have, func(kept T) bool { return name(kept) == keep })
	}
	if at < 0 || len(have) == 0 {
		return nil, fail(422, badPolicy, "the topic has no such "+what)
	}
	return have[at : at+1], nil
}

// changePolicy sets one list of a topic's policy, and nothing else of it.
func changePolicy[T comparable](rq *request, list func(*timer.Policy) *[]T, change func(have []T) ([]T, *problem)) (*timer.Topic, *problem) {
	var err error
	for try := range patchTries {
		var t *timer.Topic
		if t, err = rq.core.Topics.Latest(rq.s.base, rq.topic); err != nil {
			break
		}
		policy := t.Policy
		have := *list(&policy)
		next, p := change(have)
		if p != nil {
			return nil, p
		}
		if *list(&policy) = next; slices.Equal(next, have) {
			return t, nil
		}
		as := timer.TopicChange{ID: t.ID, Version: t.Version}
		if t, _, err = rq.core.Topics.Put(rq.s.base, rq.topic, &policy, as); err == nil {
			return t, nil
		}
		if !errors.Is(err, timer.ErrTopicVersion) || !rq.s.sleep(2*time.Millisecond<<try) {
			break
		}
	}
	return nil, topicFault(err, timer.TopicChange{})
}

func (rq *request) changeSecrets(made string, change func(have []string) ([]string, *problem)) *problem {
	t, p := changePolicy(rq, func(p *timer.Policy) *[]string { return &p.Secrets }, change)
	if p != nil {
		return p
	}
	o := object{b: rq.out()}
	o.str("topic", rq.topic)
	if made != "" {
		o.str("secret", made)
	}
	o.texts("secrets", fingerprints(&t.Policy))
	rq.json(200, o.end())
	return nil
}

// fingerprints are how a policy's secrets are shown.
func fingerprints(p *timer.Policy) []string {
	out := make([]string, 0, len(p.Secrets))
	for _, kept := range p.Secrets {
		out = append(out, fingerprint(kept))
	}
	return out
}
