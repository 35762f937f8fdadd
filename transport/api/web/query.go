package web

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// Query is the parameters of a request, decoded. Every name is one that the route takes. The first
// fault sticks: see Problem.
type Query struct {
	params []param
	fault  *Problem
}

type param struct{ name, value string }

const maxParams = 64

// ParseQuery reads the parameters. Only label may be given more than once.
func ParseQuery(raw []byte, takes []string) (q Query) {
	for rest, more := raw, len(raw) > 0; more; {
		var pair []byte
		pair, rest, more = bytes.Cut(rest, []byte{'&'})
		k, v, _ := bytes.Cut(pair, []byte{'='})
		name, ok1 := decodeParam(k)
		value, ok2 := decodeParam(v)
		_, given := q.Value(name)
		switch {
		case !ok1 || !ok2:
			q.Reject(BadRequest, "query: broken percent-encoding or not UTF-8")
		case !slices.Contains(takes, name):
			q.Reject(BadRequest, "query: unknown parameter %q", Clip([]byte(name)))
		case given && name != "label":
			q.Reject(BadRequest, "query: %s is given twice", name)
		case len(q.params) == maxParams:
			q.Reject(BadRequest, "query: too many parameters")
		}
		if q.fault != nil {
			break
		}
		q.params = append(q.params, param{name, value})
	}
	return q
}

// Reject records a fault of the parameters, unless there is one already.
func (q *Query) Reject(code, format string, args ...any) {
	if q.fault == nil {
		q.fault = Badf(code, format, args...)
	}
}

// Problem is the answer to the first fault; nil when there is none. What was read after it counts
// for nothing.
func (q *Query) Problem() *Problem { return q.fault }

func decodeParam(b []byte) (string, bool) {
	s, err := url.QueryUnescape(string(b))
	return s, err == nil && utf8.ValidString(s)
}

// Value is the first value of a parameter.
func (q *Query) Value(name string) (string, bool) {
	for i := range q.params {
		if q.params[i].name == name {
			return q.params[i].value, true
		}
	}
	return "", false
}

// Boolean reads a parameter that is true or false.
func (q *Query) Boolean(name string, otherwise bool) bool {
	v, given := q.Value(name)
	if given && v != "true" && v != "false" {
		q.Reject(BadRequest, "query: %s must be true or false", name)
	}
	return v == "true" || !given && otherwise
}

// Integer reads a number from 1 to most.
func (q *Query) Integer(name string, most, otherwise int) int {
	v, given := q.Value(name)
	if !given {
		return otherwise
	}
	n, ok := strictjson.ParseInteger([]byte(v))
	if !ok || n < 1 || n > int64(most) {
		q.Reject(BadRequest, "query: %s must be 1 to %d", name, most)
	}
	return int(n)
}

// Limit reads the size of a page.
func (q *Query) Limit() int { return q.Integer("limit", 1000, 100) }

// Cursor has take read the place where a page begins, if one was given.
func (q *Query) Cursor(take func(text string) (ok bool)) {
	if text, given := q.Value("cursor"); given && q.fault == nil && !take(text) {
		q.Reject(BadRequest, "query: cursor is not one of this listing with these filters; begin without a cursor")
	}
}

// Instant reads a time given as RFC 3339 or Unix ms.
func (q *Query) Instant(name string) (ms int64, given bool) {
	v, given := q.Value(name)
	if !given {
		return 0, false
	}
	// A plus sign that was not encoded has become a space; no time has one.
	v = strings.Replace(v, " ", "+", 1)
	ms, ok := strictjson.ParseInteger([]byte(v))
	if ok && inSeconds(ms) {
		q.fault = cmp.Or(q.fault, MeantMs("query: "+name))
	}
	if !ok {
		ms, ok = ParseInstant(v)
	}
	if !ok || ms < 0 {
		q.Reject(BadTime, "query: %s "+instantRule, name)
	}
	return ms, true
}

// Labels are all that the timer must have.
func (q *Query) Labels() (out []string) {
	for _, one := range q.params {
		if one.name == "label" {
			if !validLabel(one.value) || len(out) == maxLabels {
				q.Reject(BadRequest, "query: label must be 1–64 of A-Z a-z 0-9 _ . : = -, up to 16 of them")
			}
			out = append(out, one.value)
		}
	}
	return out
}

// States reads a comma list of states, from the first that may be asked for, as the bits of
// timer.Query.States.
func (q *Query) States(first timer.State, otherwise uint8) (set uint8) {
	v, given := q.Value("state")
	if !given {
		return otherwise
	}
	for name := range strings.SplitSeq(v, ",") {
		state := StateOf(name)
		if state < first {
			q.Reject(BadRequest, "query: state must be a comma list of %s", strings.Join(StateNames[first:], ", "))
		}
		set |= 1 << state
	}
	return set
}

// StateNames are the states as the API calls them.
var StateNames = []string{timer.Scheduled: "scheduled", timer.Leased: "leased", timer.Done: "done", timer.Dead: "dead", timer.Cancelled: "cancelled"}

// StateOf is a state by its name, 0 where it is none.
func StateOf(name string) timer.State { return timer.State(max(0, slices.Index(StateNames, name))) }

// Window reads the bounds of the times of a listing.
func (q *Query) Window(from, to string) (fromMs, toMs int64) {
	fromMs, _ = q.Instant(from)
	toMs, bounded := q.Instant(to)
	if bounded && toMs == 0 {
		// 0 means unbounded to the engine. Nothing is before 1970: an empty window somewhere else
		// means the same.
		return 1, 1
	}
	return fromMs, toMs
}
