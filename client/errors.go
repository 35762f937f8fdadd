package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the reason of a refusal. It is an error, so that errors.Is(err, client.ErrInFlight) asks
// for it.
type Code string

// The codes of the API.
const (
	ErrBadRequest           Code = "bad_request"
	ErrBadJSON              Code = "bad_json"
	ErrUnknownField         Code = "unknown_field"
	ErrBadTime              Code = "bad_time"
	ErrBadName              Code = "bad_name"
	ErrBadHeader            Code = "bad_header"
	ErrBadURL               Code = "bad_url"
	ErrUnauthorized         Code = "unauthorized"
	ErrForbidden            Code = "forbidden"
	ErrNotFound             Code = "not_found"
	ErrUnknownTopic         Code = "unknown_topic"
	ErrUnknownTimer         Code = "unknown_timer"
	ErrMethodNotAllowed     Code = "method_not_allowed"
	ErrExists               Code = "exists"
	ErrInFlight             Code = "in_flight"
	ErrNotEmpty             Code = "not_empty"
	ErrInUse                Code = "in_use"
	ErrWrongDelivery        Code = "wrong_delivery"
	ErrNotDrained           Code = "not_drained"
	ErrBusy                 Code = "busy"
	ErrFeatureLevel         Code = "feature_level"
	ErrNoTestClock          Code = "no_test_clock"
	ErrClockPast            Code = "clock_past"
	ErrOver                 Code = "over"
	ErrVersionMismatch      Code = "version_mismatch"
	ErrTooLarge             Code = "too_large"
	ErrMisdirected          Code = "misdirected"
	ErrUnsupportedMediaType Code = "unsupported_media_type"
	ErrNoCallback           Code = "no_callback"
	ErrCallbackRefused      Code = "callback_refused"
	ErrBeyondHorizon        Code = "beyond_horizon"
	ErrNotJSON              Code = "not_json"
	ErrBadPolicy            Code = "bad_policy"
	ErrUnknownOutcomeTopic  Code = "unknown_outcome_topic"
	ErrBadShards            Code = "bad_shards"
	ErrQuota                Code = "quota"
	ErrUnavailable          Code = "unavailable"
	ErrNoLeader             Code = "no_leader"
	ErrOverloaded           Code = "overloaded"
	ErrLowDisk              Code = "low_disk"
	ErrInternal             Code = "internal"
)

func (c Code) Error() string { return string(c) }

// Problem is the answer of a request that was refused or has failed (RFC 9457).
type Problem struct {
	Status    int    `json:"status"`
	Code      Code   `json:"code"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Retryable bool   `json:"retryable"`
	// Outcome is, with Over, how the timer ended.
	Outcome Outcome `json:"outcome,omitempty"`
	// Existing is, with ErrExists, ErrInFlight and ErrVersionMismatch, the timer that is there, if
	// the node knew it.
	Existing   *Existing     `json:"existing,omitempty"`
	RetryAfter time.Duration `json:"-"`
}

// Existing is the timer that is in the way of a change.
type Existing struct {
	Version uint32    `json:"version"`
	State   State     `json:"state"`
	Due     time.Time `json:"due"`
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("carillon: %s (%s)", cmp.Or(p.Detail, p.Title, http.StatusText(p.Status)), strings.TrimSpace(fmt.Sprintf("%d %s", p.Status, p.Code)))
	if p.Outcome != "" {
		text += ": " + strings.ReplaceAll(string(p.Outcome), "_", " ")
	}
	return text
}

// Is makes errors.Is find the code.
func (p *Problem) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == p.Code
}

// readProblem is an error in any case: an answer that is no problem document came from something
// between us and the node.
func readProblem(resp *http.Response, body []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil || p.Code == "" {
		*p = Problem{Detail: fmt.Sprintf("%s, and no explanation that a node gives: %q", resp.Status, body[:min(len(body), 200)])}
		if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
			p.Detail = fmt.Sprintf("%s to %.200q, which is not followed: no node redirects", resp.Status, to)
		}
	}
	p.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(min(seconds, math.MaxInt64/int(time.Second))) * time.Second
	}
	return p
}
