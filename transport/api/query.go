package api

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// query is the parameters of a request, decoded. Every name is one that the route takes.
type query []param

type param struct{ name, value string }

const maxParams = 64

// parseQuery reads the parameters. Only label may be given more than once.
func parseQuery(raw []byte, takes []string) (query, *problem) {
	if len(raw) == 0 {
		return nil, nil
	}
	var q query
	for rest, more := raw, true; more; {
		var pair []byte
		pair, rest, more = bytes.Cut(rest, []byte{'&'})
		k, v, _ := bytes.Cut(pair, []byte{'='})
		name, ok1 := decodeParam(k)
		value, ok2 := decodeParam(v)
		if !ok1 || !ok2 {
			return nil, bad(badRequest, "query: broken percent-encoding or not UTF-8")
		}
		known := false
		for _, t := range takes {
			known = known || t == name
		}
		if !known {
			return nil, badf(badRequest, "query: unknown parameter %q", clip([]byte(name)))
		}
		if _, given := q.value(name); given && name != "label" {
			return nil, badf(badRequest, "query: %s is given twice", name)
		}
		if len(q) == maxParams {
			return nil, bad(badRequest, "query: too many parameters")
		}
		q = append(q, param{name, value})
	}
	return q, nil
}

func decodeParam(b []byte) (string, bool) {
	s, err := url.QueryUnescape(string(b))
	return s, err == nil && utf8.ValidString(s)
}

func (q query) value(name string) (string, bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}

// boolean reads a parameter that is true or false.
func (q query) boolean(name string, otherwise bool) (bool, *problem) {
	v, given := q.value(name)
	switch {
	case !given:
		return otherwise, nil
	case v == "true":
		return true, nil
	case v == "false":
		return false, nil
	}
	return false, badf(badRequest, "query: %s must be true or false", name)
}

// limit reads the size of a page: 1–1000, 100 when not given.
func (q query) limit() (int, *problem) {
	v, given := q.value("limit")
	if !given {
		return 100, nil
	}
	n, ok := strictjson.ParseInteger([]byte(v))
	if !ok || n < 1 || n > 1000 {
		return 0, bad(badRequest, "query: limit must be 1 to 1000")
	}
	return int(n), nil
}

// instant reads a time given as RFC 3339 or Unix ms.
func (q query) instant(name string) (ms int64, given bool, p *problem) {
	v, given := q.value(name)
	if !given {
		return 0, false, nil
	}
	// A plus sign that was not encoded has become a space; no time has one.
	v = strings.Replace(v, " ", "+", 1)
	ms, ok := strictjson.ParseInteger([]byte(v))
	if ok && inSeconds(ms) {
		return 0, true, meantMs("query: " + name)
	}
	if !ok {
		ms, ok = parseInstant(v)
	}
	if !ok || ms < 0 {
		return 0, true, badf(badTime, "query: %s "+instantRule, name)
	}
	return ms, true, nil
}

// labels are all that the timer must have.
func (q query) labels() ([]string, *problem) {
	var out []string
	for i := range q {
		if q[i].name != "label" {
			continue
		}
		if !validLabel(q[i].value) || len(out) == maxLabels {
			return nil, bad(badRequest, "query: label must be 1–64 of A-Z a-z 0-9 _ . : = -, up to 16 of them")
		}
		out = append(out, q[i].value)
	}
	return out, nil
}

// states reads a comma list as the bits of timer.Query.States.
func (q query) states() (uint8, *problem) {
	v, given := q.value("state")
	if !given {
		return 1<<timer.Scheduled | 1<<timer.Leased, nil
	}
	var set uint8
	for name := range strings.SplitSeq(v, ",") {
		state := stateOf(name)
		if state == 0 {
			return 0, bad(badRequest, "query: state must be a comma list of "+strings.Join(stateNames[1:], ", "))
		}
		set |= 1 << state
	}
	return set, nil
}

var stateNames = []string{timer.Scheduled: "scheduled", timer.Leased: "leased", timer.Done: "done", timer.Dead: "dead", timer.Cancelled: "cancelled"}

func stateOf(name string) timer.State {
	for i, n := range stateNames {
		if i > 0 && n == name {
			return timer.State(i)
		}
	}
	return 0
}

var reasonNames = []string{timer.MaxAttempts: "max_attempts", timer.Expired: "expired", timer.Stopped: "stopped", timer.Refused: "refused"}

func reasonOf(name string) (timer.Reason, bool) {
	for i, n := range reasonNames {
		if i > 0 && n == name {
			return timer.Reason(i), true
		}
	}
	return 0, false
}

func reasonName(r timer.Reason) string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return "reason_" + strconv.Itoa(int(r))
}
