package topics

import (
	"slices"

	"carillon/timer"
	"carillon/transport/api/web"
)

// Rotation of a topic's secrets and signing keys: the policy's list, the newest first, is all that
// there is of it. While there are several each of them signs every call, so that receivers can
// change over in their own time.

// RotateSecret, FinishSecrets, RotateKey and FinishKeys begin and end a rotation.
func RotateSecret(rq *web.Request) *web.Problem  { return secrets.rotate(rq) }
func FinishSecrets(rq *web.Request) *web.Problem { return secrets.finish(rq) }
func RotateKey(rq *web.Request) *web.Problem     { return signingKeys.rotate(rq) }
func FinishKeys(rq *web.Request) *web.Problem    { return signingKeys.finish(rq) }

// rotate takes one, or none, and puts that, or one that is made here, before those that the topic
// has. One that is there already, by its name, stays as it is kept.
func (s *signers[T]) rotate(rq *web.Request) *web.Problem {
	text, p := optionalText(rq, s.one)
	if p != nil {
		return p
	}
	generated := text == ""
	if generated {
		text = s.generate()
	}
	added, ok := s.parse(text)
	if !ok {
		return web.Fail(422, web.BadPolicy, s.one+": must be "+s.form+s.hint)
	}
	if !generated || !s.shownOnce {
		text = ""
	}
	return s.change(rq, text, func(have []T) ([]T, *web.Problem) {
		at := slices.IndexFunc(have, func(kept T) bool { return s.name(kept) == s.name(added) })
		switch {
		case at >= 0:
			return append([]T{have[at]}, slices.Delete(slices.Clone(have), at, at+1)...), nil
		case len(have) == maxSecrets:
			return nil, web.Failf(422, web.BadPolicy, "the topic has %d %s, which is all that it may; finish the rotation before another one begins", maxSecrets, s.many)
		}
		return append([]T{added}, have...), nil
	})
}

// finish takes {"keep"?}, a name, and drops all but that one, or but the newest.
func (s *signers[T]) finish(rq *web.Request) *web.Problem {
	keep, p := optionalText(rq, "keep")
	if p != nil {
		return p
	}
	return s.change(rq, "", func(have []T) ([]T, *web.Problem) {
		at := 0
		if keep != "" {
			at = slices.IndexFunc(have, func(kept T) bool { return s.name(kept) == keep })
		}
		if at < 0 || len(have) == 0 {
			return nil, web.Fail(422, web.BadPolicy, "the topic has no such "+s.lacking)
		}
		return have[at : at+1], nil
	})
}

func optionalText(rq *web.Request, name string) (text string, p *web.Problem) {
	if len(rq.Body) == 0 {
		return "", nil
	}
	r := rq.Reader()
	r.Body([]string{name}, func(string) { text = r.Text(name) })
	if r.Err() == nil && text == "" && len(rq.Body) > len("{}") {
		r.Reject(web.Badf(web.BadRequest, "%s: must not be empty", name))
	}
	return text, r.Problem()
}

// change sets the list of a topic's policy, and nothing else of it. The answer shows the names, and
// made, unless it is "".
func (s *signers[T]) change(rq *web.Request, made string, change func(have []T) ([]T, *web.Problem)) *web.Problem {
	return retried(rq, timer.TopicChange{}, func(t *timer.Topic) (*web.Problem, error) {
		policy := t.Policy
		have := *s.list(&policy)
		next, p := change(have)
		if p != nil {
			return p, nil
		}
		if *s.list(&policy) = next; !slices.Equal(next, have) {
			var err error
			if t, _, err = rq.Core.Topics.Put(rq.Base, rq.Topic, &policy, timer.TopicChange{ID: t.ID, Version: t.Version}); err != nil {
				return nil, err
			}
		}
		o := web.Object{B: rq.Out()}
		o.Text("topic", rq.Topic)
		o.OptText(s.one, made)
		o.Texts(s.member, s.names(&t.Policy))
		return rq.JSON(200, o.End()), nil
	})
}
