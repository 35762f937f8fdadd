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

// Code is what a refusal is about. It is an error, so that errors.Is(err, client.InFlight) asks for it.
type Code string

// The codes of the API.
const (
	BadRequest           Code = "bad_request"
	BadJSON              Code = "bad_json"
	UnknownField         Code = "unknown_field"
	BadTime              Code = "bad_time"
	BadName              Code = "bad_name"
	BadHeader            Code = "bad_header"
	BadURL               Code = "bad_url"
	Unauthorized         Code = "unauthorized"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	UnknownTopic         Code = "unknown_topic"
	UnknownTimer         Code = "unknown_timer"
	MethodNotAllowed     Code = "method_not_allowed"
	Exists               Code = "exists"
	InFlight             Code = "in_flight"
	NotEmpty             Code = "not_empty"
	WrongDelivery        Code = "wrong_delivery"
	NotDrained           Code = "not_drained"
	Over                 Code = "over"
	VersionMismatch      Code = "version_mismatch"
	TooLarge             Code = "too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	NoCallback           Code = "no_callback"
	CallbackRefused      Code = "callback_refused"
	BeyondHorizon        Code = "beyond_horizon"
	BadPolicy            Code = "bad_policy"
	Quota                Code = "quota"
	Unavailable          Code = "unavailable"
	NoLeader             Code = "no_leader"
	Overloaded           Code = "overloaded"
	LowDisk              Code = "low_disk"
	Internal             Code = "internal"
)

func (c Code) Error() string { return string(c) }

// Problem is an answer that says no (RFC 9457).
type Problem struct {
	Status    int    `json:"status"`
	Code      Code   `json:"code"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Retryable bool   `json:"retryable"`
	// Outcome is, with Over, how the timer ended.
	Outcome    Outcome       `json:"outcome,omitempty"`
	RetryAfter time.Duration `json:"-"`
}

func (p *Problem) Error() string {
	text := fmt.Sprintf("carillon: %s (%d %s)", cmp.Or(p.Detail, p.Title, http.StatusText(p.Status)), p.Status, p.Code)
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

// readProblem is an error in any case: what is no problem document came from something between us and the node.
func readProblem(resp *http.Response, body []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(body, p); err != nil || p.Code == "" {
		*p = Problem{Detail: fmt.Sprintf("%s, and no explanation that a node gives: %q", resp.Status, body[:min(len(body), 200)])}
	}
	p.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(min(seconds, math.MaxInt64/int(time.Second))) * time.Second
	}
	return p
}
