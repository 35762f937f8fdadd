package timers

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api/spec"
)

// content is a hash of an add or put as it was sent: which fields were named and their values, a
// delay as a delay, the payload's bytes. The order of names and the white space around them do not
// count; the id does not either, the hash is compared under it. scratch is used and returned, to be
// used again. The hash is kept in the clear, so that of a secret digest takes the place; the error
// is digest's.
func (tr *timerRequest) content(scratch []byte, digest func(string) (uint64, error)) (hash uint64, _ []byte, err error) {
	b := scratch[:0]
	num := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	str := func(s string) { b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...) }

	// The spellings of an instant, or of a delay, are one.
	given := tr.given & spec.SpecFields &^ (spec.TimeFields | spec.FZone)
	if tr.when.Delay {
		given |= spec.FDelay
	}
	s := &tr.spec
	num(uint64(given))
	num(uint64(tr.when.Ms))
	num(xxhash.Sum64(s.Payload))
	str(s.ContentType)
	num(uint64(s.Priority))
	if s.Weight != 0 {
		num(uint64(s.Weight))
	}
	num(uint64(s.ExpiresAfterMs))
	num(uint64(len(s.Labels)))
	for _, l := range s.Labels {
		str(l)
	}
	if given&spec.FCallback != 0 {
		str(s.Callback.URL)
		str(s.Callback.Method)
		num(uint64(s.Callback.TimeoutMs))
		for _, h := range sortedHeaders(s.Callback.Headers) {
			str(h.Name)
			if digest == nil || !secret.Named(h.Name) {
				str(h.Value)
				continue
			}
			n, err := digest(h.Value)
			if err != nil {
				return 0, b, err
			}
			num(n)
		}
	}
	if given&spec.FRetry != 0 {
		num(uint64(s.Retry.MaxAttempts))
		num(uint64(s.Retry.MinBackoffMs))
		num(uint64(s.Retry.MaxBackoffMs))
		num(math.Float64bits(s.Retry.Multiplier))
		num(math.Float64bits(s.Retry.Jitter))
	}
	if p := s.Repeat; p != nil {
		str(p.Cron)
		str(p.Zone)
		for _, n := range [...]int64{p.EveryMs, p.UntilMs, p.Count, int64(p.CatchUp)} {
			num(uint64(n))
		}
		if p.Overlap {
			num(1)
		}
	}
	for _, o := range [...]*timer.OutcomeTopic{s.OnDone, s.OnDead} {
		if o != nil {
			str(o.Name)
		}
	}
	return xxhash.Sum64(b), b, nil
}

// sortedHeaders is the headers in order of name: they came as an object, whose order means nothing.
func sortedHeaders(headers []timer.Header) []timer.Header {
	if len(headers) < 2 {
		return headers
	}
	out := slices.Clone(headers)
	slices.SortFunc(out, func(a, b timer.Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// nameByContent gives an add without an id the one that its content makes, where the topic asks for
// it: equal payloads to one URL are one timer. With a key the id starts with it.
func (tr *timerRequest) nameByContent(t *timer.Topic) {
	if !tr.unnamed || !t.Policy.ByContent {
		return
	}
	url := cmp.Or(tr.spec.Callback.URL, t.Policy.Callback.URL)
	key := cmp.Or(tr.key, t.Policy.Key)
	name := timer.ContentID(t.Name, tr.spec.Payload, url, key)
	tr.id, tr.cmd.ID = name, name
}
