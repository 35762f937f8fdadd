package calls

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/callback"
)

// keyRetry is when a call without its key is looked at again.
const keyRetry = time.Second

// needs lists the ids of the keys that headers are sealed with.
func needs(headers []timer.Header) (ids string) {
	for i := range headers {
		if id := secret.KeyOf(headers[i].Value); id != "" && !strings.Contains(ids, id) {
			ids = strings.TrimPrefix(ids+" "+id, " ")
		}
	}
	return ids
}

func (d *Dispatcher) openHeaders(place func(header string) secret.Place, headers []timer.Header) (out []callback.Header, err error) {
	keys := d.Keys()
	for _, h := range headers {
		if h.Value, err = keys.Open(place(h.Name), h.Value); err != nil {
			return nil, fmt.Errorf("header %s: %w", h.Name, err)
		}
		out = append(out, callback.Header{Name: h.Name, Value: h.Value})
	}
	return out, nil
}

// locked reports whether a call of the topic to a destination needs a missing key.
func (d *Dispatcher) locked(t *timer.Topic, ids string) bool {
	for id := range strings.FieldsSeq(ids) {
		if d.Lacks(id) {
			return true
		}
	}
	missing := func(kept string) bool {
		id := secret.KeyOf(kept)
		return id != "" && d.Lacks(id)
	}
	return slices.ContainsFunc(t.Policy.Secrets, missing) ||
		slices.ContainsFunc(t.Policy.SigningKeys, func(k timer.SigningKey) bool { return missing(k.Private) }) ||
		slices.ContainsFunc(t.Policy.Callback.Headers, func(h timer.Header) bool { return missing(h.Value) })
}

// unopened is how an attempt ends whose secrets cannot be opened. Without the key it was no
// attempt, and waits; with a damaged envelope it is one that failed.
func (d *Dispatcher) unopened(err error) delivery.Outcome {
	if _, lacks := errors.AsType[*secret.KeyError](err); lacks {
		return delivery.Outcome{NotSent: true}
	}
	now := d.NowMs()
	return delivery.Outcome{Err: err.Error(), StartedMs: now, EndedMs: now}
}
