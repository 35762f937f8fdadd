package web

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// Query is the parameters of a request, decoded. Every name is one that the route takes.
type Query []param

type param struct{ name, value string }

const maxParams = 64

// ParseQuery reads the parameters. Only label may be given more than once.
func ParseQuery(raw []byte, takes []string) (Query, *Problem) {
	if len(raw) == 0 {
		return nil, nil
	}
	var q Query
	for rest, more := raw, true; more; {
		var pair []byte
		pair, rest, more = bytes.Cut(rest, []byte{'&'})
		k, v, _ := bytes.Cut(pair, []byte{'='})
		name, ok1 := decodeParam(k)
		value, ok2 := decodeParam(v)
		if !ok1 || !ok2 {
			return nil, Bad(BadRequest, "query: broken percent-encoding or not UTF-8")
		}
		if !slices.Contains(takes, name) {
			return nil, Badf(BadRequest, "query: unknown parameter %q", Clip([]byte(name)))
		}
		if _, given := q.Value(name); given && name != "label" {
			return nil, Badf(BadRequest, "query: %s is given twice", name)
		}
		if len(q) == maxParams {
			return nil, Bad(BadRequest, "query: too many parameters")
		}
		q = append(q, param{name, value})
	}
	return q, nil
}

func decodeParam(b []byte) (string, bool) {
	s, err := url.QueryUnescape(string(b))
	return s, err == nil && utf8.ValidString(s)
}

// Value is the first value of a parameter.
func (q Query) Value(name string) (string, bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}

// Boolean reads a parameter that is true or false.
func (q Query) Boolean(name string, otherwise bool) (bool, *Problem) {
	v, given := q.Value(name)
	switch {
	case !given:
		return otherwise, nil
	case v == "true":
		return true, nil
	case v == "false":
		return false, nil
	}
	return false, Badf(BadRequest, "query: %s must be true or false", name)
}

// Integer reads a number from 1 to most.
func (q Query) Integer(name string, most, otherwise int) (int, *Problem) {
	v, given := q.Value(name)
	if !given {
		return otherwise, nil
	}
	n, ok := strictjson.ParseInteger([]byte(v))
	if !ok || n < 1 || n > int64(most) {
		return 0, Badf(BadRequest, "query: %s must be 1 to %d", name, most)
	}
	return int(n), nil
}

// Limit reads the size of a page.
func (q Query) Limit() (int, *Problem) { return q.Integer("limit", 1000, 100) }

// Instant reads a time given as RFC 3339 or Unix ms.
func (q Query) Instant(name string) (ms int64, given bool, p *Problem) {
	v, given := q.Value(name)
	if !given {
		return 0, false, nil
	}
	// A plus sign that was not encoded has become a space; no time has one.
	v = strings.Replace(v, " ", "+", 1)
	ms, ok := strictjson.ParseInteger([]byte(v))
	if ok && inSeconds(ms) {
		return 0, true, MeantMs("query: " + name)
	}
	if !ok {
		ms, ok = ParseInstant(v)
	}
	if !ok || ms < 0 {
		return 0, true, Badf(BadTime, "query: %s "+instantRule, name)
	}
	return ms, true, nil
}

// Labels are all that the timer must have.
func (q Query) Labels() ([]string, *Problem) {
	var out []string
	for i := range q {
		if q[i].name != "label" {
			continue
		}
		if !validLabel(q[i].value) || len(out) == maxLabels {
			return nil, Bad(BadRequest, "query: label must be 1–64 of A-Z a-z 0-9 _ . : = -, up to 16 of them")
		}
		out = append(out, q[i].value)
	}
	return out, nil
}

// States reads a comma list as the bits of timer.Query.States.
func (q Query) States() (uint8, *Problem) {
	v, given := q.Value("state")
	if !given {
		return 1<<timer.Scheduled | 1<<timer.Leased, nil
	}
	var set uint8
	for name := range strings.SplitSeq(v, ",") {
		state := StateOf(name)
		if state == 0 {
			return 0, Bad(BadRequest, "query: state must be a comma list of "+strings.Join(StateNames[1:], ", "))
		}
		set |= 1 << state
	}
	return set, nil
}

// StateNames are the states as the API calls them.
var StateNames = []string{timer.Scheduled: "scheduled", timer.Leased: "leased", timer.Done: "done", timer.Dead: "dead", timer.Cancelled: "cancelled"}

// StateOf is a state by its name, 0 where it is none.
func StateOf(name string) timer.State { return timer.State(max(0, slices.Index(StateNames, name))) }

// Dry reports whether only a count is asked for. That is no change, and not one for the audit log.
func (rq *Request) Dry() (bool, *Problem) {
	dry, p := rq.Query.Boolean("dry_run", false)
	rq.Unlogged = dry
	return dry, p
}

// Window reads the bounds of the times of a listing.
func (rq *Request) Window(q *timer.Query, from, to string) (p *Problem) {
	if q.FromMs, _, p = rq.Query.Instant(from); p != nil {
		return p
	}
	var bounded bool
	if q.ToMs, bounded, p = rq.Query.Instant(to); p != nil {
		return p
	}
	if bounded && q.ToMs == 0 {
		// 0 means unbounded to the engine. Nothing is before 1970: an empty window somewhere else
		// means the same.
		q.FromMs, q.ToMs = 1, 1
	}
	return nil
}
