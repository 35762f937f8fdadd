package topics

import (
	"errors"
	"slices"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
	"carillon/transport/callback"
)

// Rotation of a topic's signing secrets: the policy's list, the newest first, is all that there is
// of it. While there are several each of them signs every call, so that receivers can change over
// in their own time.

// RotateSecret takes {"secret"?} and puts that, or one that is made here, before those that the
// topic has. Doing it again with the same secret changes nothing.
func RotateSecret(rq *web.Request) *web.Problem {
	added, p := rotation(rq, "secret")
	if p != nil {
		return p
	}
	made := ""
	if added == "" {
		made = callback.NewSecret()
		added = made
	} else if _, err := callback.ParseSecret(added); err != nil {
		return web.Fail(422, web.BadPolicy, "secret: must be whsec_ and 24 to 64 bytes in base64; carillon token --webhook makes one")
	}
	return changeSecrets(rq, made, func(have []string) ([]string, *web.Problem) {
		return inFront(have, added, Fingerprint, "secrets")
	})
}

// FinishSecrets takes {"keep"?}, a fingerprint, and drops all secrets but that one, or but the
// newest.
func FinishSecrets(rq *web.Request) *web.Problem {
	keep, p := rotation(rq, "keep")
	if p != nil {
		return p
	}
	return changeSecrets(rq, "", func(have []string) ([]string, *web.Problem) {
		return theOne(have, keep, Fingerprint, "secret; GET it for the fingerprints of those that it has")
	})
}

// rotation reads a body with one optional text.
func rotation(rq *web.Request, name string) (text string, p *web.Problem) {
	if len(rq.Body) == 0 {
		return "", nil
	}
	r, p := rq.Reader()
	if p != nil {
		return "", p
	}
	r.Body([]string{name}, func(string) { text = r.Text(name) })
	if r.Err() == nil && text == "" && len(rq.Body) > len("{}") {
		r.Reject(web.Badf(web.BadRequest, "%s: must not be empty", name))
	}
	return text, r.Problem()
}

// inFront puts one before the others. One that is there already, by its name, stays as it is kept.
func inFront[T any](have []T, added T, name func(T) string, what string) ([]T, *web.Problem) {
	at := slices.IndexFunc(have, func(kept T) bool { return name(kept) == name(added) })
	switch {
	case at >= 0:
		return append([]T{have[at]}, slices.Delete(slices.Clone(have), at, at+1)...), nil
	case len(have) == maxSecrets:
		return nil, web.Failf(422, web.BadPolicy, "the topic has %d %s, which is all that it may; finish the rotation before another one begins", maxSecrets, what)
	}
	return append([]T{added}, have...), nil
}

// theOne is the list of that with a name alone, or of the newest.
func theOne[T any](have []T, keep string, name func(T) string, what string) ([]T, *web.Problem) {
	at := 0
	if keep != "" {
		at = slices.IndexFunc(have, func(kept T) bool { return name(kept) == keep })
	}
	if at < 0 || len(have) == 0 {
		return nil, web.Fail(422, web.BadPolicy, "the topic has no such "+what)
	}
	return have[at : at+1], nil
}

// changePolicy sets one list of a topic's policy, and nothing else of it.
func changePolicy[T comparable](rq *web.Request, list func(*timer.Policy) *[]T, change func(have []T) ([]T, *web.Problem)) (*timer.Topic, *web.Problem) {
	var err error
	for try := range patchTries {
		var t *timer.Topic
		if t, err = rq.Core.Topics.Latest(rq.Base, rq.Topic); err != nil {
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
		if t, _, err = rq.Core.Topics.Put(rq.Base, rq.Topic, &policy, as); err == nil {
			return t, nil
		}
		if !errors.Is(err, timer.ErrTopicVersion) || !rq.Sleep(2*time.Millisecond<<try) {
			break
		}
	}
	return nil, topicFault(err, timer.TopicChange{})
}

func changeSecrets(rq *web.Request, made string, change func(have []string) ([]string, *web.Problem)) *web.Problem {
	t, p := changePolicy(rq, func(p *timer.Policy) *[]string { return &p.Secrets }, change)
	if p != nil {
		return p
	}
	o := web.Object{B: rq.Out()}
	o.Text("topic", rq.Topic)
	if made != "" {
		o.Text("secret", made)
	}
	o.Texts("secrets", fingerprints(&t.Policy))
	return rq.JSON(200, o.End())
}
