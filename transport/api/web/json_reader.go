package web

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"carillon/timer/duration"
	"carillon/transport/api/internal/strictjson"
)

// Reader reads client documents under the server's limits.
type Reader struct {
	strictjson.Scanner
	Limits *Limits
	URLs   *URLCache
	// Resets: null stands for the default, where a policy is patched.
	Resets bool
	// OutOfRange is the status and code of a callback or retry value out of range: 400 in a timer,
	// 422 in a policy.
	OutOfRange func(detail string) *Problem
}

func refuseInTimer(detail string) *Problem { return Bad(BadRequest, detail) }

// RefuseInPolicy is OutOfRange for policies.
func RefuseInPolicy(detail string) *Problem { return Fail(422, BadPolicy, detail) }

// Reject records a fault of the input, unless it has one already.
func (r *Reader) Reject(p *Problem) {
	if p != nil {
		r.Fail(p)
	}
}

// Problem is the answer to the first fault; nil when there is none.
func (r *Reader) Problem() *Problem {
	switch err := r.Err().(type) {
	case nil:
		return nil
	case *Problem:
		return err
	case *strictjson.Fault:
		if !err.Grammar {
			return Bad(BadRequest, err.Detail)
		}
	}
	return Bad(BadJSON, r.Err().Error())
}

// TimeText is a string; anything else is no time. The fault of the caller is the better one.
func (r *Reader) TimeText(name string) string {
	if r.Err() == nil && r.Peek() != '"' {
		r.Mistyped(name, "a string")
		r.recode(BadTime)
		return ""
	}
	return r.Text(name)
}

// TimeInteger is an integer; anything else is no time.
func (r *Reader) TimeInteger(name string) (int64, bool) {
	n := r.Integer(name)
	r.recode(BadTime)
	return n, r.Err() == nil
}

// recode turns a bad_request into a more exact code.
func (r *Reader) recode(code string) {
	if p := r.Problem(); p != nil && p.Code == BadRequest {
		p.Code = code
		r.Restate(p)
	}
}

// SpanRule is the form of a duration, for faults.
const SpanRule = `must be a duration, 0 or longer, like "1h30m", "250ms" or "30d"; the units are ` + duration.Units

// Span reads a duration ≥ 0 in ms.
func (r *Reader) Span(name string) int64 { return r.SpanCode(name, BadRequest) }

// SpanCode is Span whose faults have the code.
func (r *Reader) SpanCode(name, code string) int64 {
	ms := r.span(name, code)
	if ms == math.MaxInt64 {
		r.Reject(r.OutOfRange(name + ": must be shorter than 292 years"))
	}
	return ms
}

// Delay reads the field delay. One that no clock reaches is math.MaxInt64, beyond any horizon.
func (r *Reader) Delay() int64 { return r.span("delay", BadTime) }

func (r *Reader) span(name, code string) int64 {
	s := r.Text(name)
	if r.Err() != nil {
		r.recode(code)
		return 0
	}
	ms, ok := ParseSpan(s)
	if !ok || ms < 0 {
		r.Reject(Badf(code, "%s: "+SpanRule, name))
		return 0
	}
	return ms
}

func (r *Reader) Choice(name string, among []string) string {
	s := r.Text(name)
	if i := slices.Index(among, s); i >= 0 {
		return among[i]
	}
	r.Reject(Badf(BadRequest, "%s: must be one of %s", name, strings.Join(among, ", ")))
	return ""
}

// Texts reads a list of texts. check is given each, and how many there were before it.
func (r *Reader) Texts(name string, check func(n int, text string) *Problem) (list []string) {
	n := r.Open('[', name)
	for ; r.More(n, ']'); n++ {
		text := r.Text(name)
		if r.Err() == nil {
			r.Reject(check(n, text))
		}
		list = append(list, text)
	}
	return list
}

func (r *Reader) Labels(name string) []string {
	return r.Texts(name, func(n int, label string) *Problem {
		if n < maxLabels && validLabel(label) {
			return nil
		}
		return Badf(BadRequest, "%s: up to 16, each 1–64 of A-Z a-z 0-9 _ . : = -", name)
	})
}

// Clip bounds how many of the client's bytes an answer repeats.
func Clip(b []byte) string {
	if len(b) > 64 {
		return strings.ToValidUTF8(string(b[:64]), "") + "…"
	}
	return string(b)
}

// InstantOrMs reads an instant in either of its forms.
func (r *Reader) InstantOrMs(name string) int64 {
	if r.Err() == nil && r.Peek() != '"' {
		ms, ok := r.TimeInteger(name)
		switch {
		case ok && inSeconds(ms):
			r.Reject(MeantMs(name))
		case ok && ms >= 0:
			return ms
		}
	} else if ms, ok := ParseInstant(r.Text(name)); ok && ms >= 0 {
		return ms
	}
	r.Reject(Badf(BadTime, "%s: "+instantRule, name))
	return 0
}

// LabelOrLabels reads one label or a list of them.
func (r *Reader) LabelOrLabels(name string) []string {
	if r.Err() == nil && r.Peek() == '[' {
		return r.Labels(name)
	}
	l := r.Text(name)
	if !validLabel(l) {
		r.Reject(Badf(BadRequest, "%s: each 1–64 of A-Z a-z 0-9 _ . : = -", name))
	}
	return []string{l}
}

// Ranged and RangedSpan read an integer, and a duration in ms, within bounds.
func (r *Reader) Ranged(name string, low, high int64) int64 {
	v := r.Integer(name)
	if v < low || v > high {
		r.Reject(r.OutOfRange(fmt.Sprintf("%s: must be %d to %d", name, low, high)))
	}
	return v
}

func (r *Reader) RangedSpan(name string, low, high int64) int64 {
	ms := r.Span(name)
	if ms < low || ms > high {
		r.Reject(r.OutOfRange(fmt.Sprintf("%s: must be %s to %s", name, AppendSpan(nil, low), AppendSpan(nil, high))))
	}
	return ms
}

func (r *Reader) begin(buf []byte, limits *Limits) {
	*r = Reader{Scanner: strictjson.Of(buf), Limits: limits, OutOfRange: refuseInTimer}
}
