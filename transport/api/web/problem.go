package web

import (
	"cmp"
	"fmt"

	"carillon/timer"

	"github.com/valyala/fasthttp"
)

// Problem is a refusal: RFC 9457, with our code, and whether trying the same again can
// help. detail is shown to the client: no secret, nothing of our insides.
type Problem struct {
	Status  int
	Code    string
	Detail  string
	Outcome string // of a cancel that came too late
	Allow   string // of a 405
	// Existing is the timer that is in the way; nil: none, or it is not known.
	Existing *timer.Timer
	// ETag is, of a 412, what the timer or topic has now; nil: it is not known.
	ETag []byte
	// RetryAfter is in seconds; 0: one.
	RetryAfter int
	// An error of the engine that has no problem of its own: for the log, never shown.
	Cause error
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Fail, Failf, Bad and Badf make problems; those that are Bad have the status 400.
func Fail(status int, code, detail string) *Problem {
	return &Problem{Status: status, Code: code, Detail: detail}
}

func Failf(status int, code, format string, args ...any) *Problem {
	return Fail(status, code, fmt.Sprintf(format, args...))
}

// The codes of API.md section 1 that are used in more than one place.
const (
	BadRequest          = "bad_request"
	BadJSON             = "bad_json"
	UnknownField        = "unknown_field"
	BadTime             = "bad_time"
	BadName             = "bad_name"
	BadHeader           = "bad_header"
	BadURL              = "bad_url"
	BadPolicy           = "bad_policy"
	UnknownOutcomeTopic = "unknown_outcome_topic"
	BadShards           = "bad_shards"
	QuotaUsed           = "quota"
	Overloaded          = "overloaded"
	Unauthorized        = "unauthorized"
	Forbidden           = "forbidden"
	TooLarge            = "too_large"
	NotFound            = "not_found"
	UnknownTopic        = "unknown_topic"
	UnknownTimer        = "unknown_timer"
	NotDrained          = "not_drained"
	WrongDelivery       = "wrong_delivery"
	Unavailable         = "unavailable"
	InternalError       = "internal"
)

func Bad(code, detail string) *Problem { return Fail(400, code, detail) }

func Badf(code, format string, args ...any) *Problem { return Failf(400, code, format, args...) }

// Refuses reports whether the request was refused and has changed nothing. A 5xx may have.
func (p *Problem) Refuses() bool { return p.Status < 500 }

var titles = map[string]string{
	BadRequest: "Bad request", BadJSON: "Body is not the JSON that is asked", UnknownField: "Unknown field",
	BadTime: "Bad time", BadName: "Bad name", BadHeader: "Bad callback header", BadURL: "Bad callback URL",
	Unauthorized: "No valid token", Forbidden: "Token may not do this",
	NotFound: "Not found", UnknownTopic: "Unknown topic", UnknownTimer: "Unknown timer",
	"method_not_allowed": "Method not allowed", "no_test_clock": "No test clock", "clock_past": "The clock never goes back",
	"exists": "Id in use with other content", "in_flight": "An attempt is running", "not_empty": "Topic is not empty",
	NotDrained: "Node is not drained", WrongDelivery: "Wrong delivery", QuotaUsed: "As many as allowed",
	"over": "Timer has ended", "version_mismatch": "Another version", TooLarge: "Too large",
	"in_use": "In use", "feature_level": "Not every node can do this yet",
	"misdirected":            "Not a name of this node",
	"unsupported_media_type": "Unsupported media type", "no_callback": "No callback URL",
	"callback_refused": "Callback address refused", "beyond_horizon": "Too far ahead", "not_json": "Payload is not JSON", BadPolicy: "Bad policy", UnknownOutcomeTopic: "Topic takes no outcomes",
	BadShards: "No such number of shards", "busy": "Busy with another",
	Unavailable: "Not now", "no_leader": "Shard has no leader now", Overloaded: "Overloaded", "low_disk": "Disk almost full",
	InternalError: "Internal error",
}

// ErrorPath begins the path of the page about a code, which is a problem's type.
const ErrorPath = "/errors/"

// AppendProblem writes a problem document.
func AppendProblem(b []byte, p *Problem) []byte {
	title := cmp.Or(titles[p.Code], fasthttp.StatusMessage(p.Status))
	o := Object{B: b}
	o.Name("type")
	o.B = append(append(append(o.B, `"`+ErrorPath...), p.Code...), '"')
	o.Text("title", title)
	o.Integer("status", int64(p.Status))
	o.Text("detail", p.Detail)
	o.Text("code", p.Code)
	o.Boolean("retryable", p.retryable())
	o.OptText("outcome", p.Outcome)
	if t := p.Existing; t != nil {
		o.Name("existing")
		e := Object{B: o.B}
		e.Integer("version", int64(t.Version))
		e.Text("state", StateNames[t.State])
		o.B = append(AppendTime(e.B, "due", t.DueMs), '}')
	}
	return o.End()
}

// WriteProblem makes p the whole response.
func WriteProblem(ctx *fasthttp.RequestCtx, p *Problem) {
	ctx.SetStatusCode(p.Status)
	ctx.SetContentType("application/problem+json")
	p.setRetryAfter(&ctx.Response.Header)
	if p.Allow != "" {
		ctx.Response.Header.Set("Allow", p.Allow)
	}
	if p.ETag != nil {
		ctx.Response.Header.SetCanonical(ETagName, p.ETag)
	}
	if p.Status == 401 {
		ctx.Response.Header.Set("WWW-Authenticate", `Bearer realm="carillon"`)
	}
	ctx.Response.SwapBody(AppendProblem(ctx.Response.SwapBody(nil)[:0], p))
}
