package api

import (
	"fmt"
	"strconv"

	"carillon/timer"
	"carillon/transport/api/internal/http1"

	"github.com/valyala/fasthttp"
)

// problem is an answer that says no: RFC 9457, with our code, and whether trying the same again can
// help. detail is shown to the client: no secret, nothing of our insides.
type problem struct {
	status  int
	code    string
	detail  string
	outcome string // of a cancel that came too late
	allow   string // of a 405
	// existing is the timer that is in the way; nil: none, or it is not known.
	existing *timer.Timer
	// retryAfter is in seconds; 0: one.
	retryAfter int
	// An error of the engine that has no problem of its own: for the log, never shown.
	cause error
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

func fail(status int, code, detail string) *problem {
	return &problem{status: status, code: code, detail: detail}
}

func failf(status int, code, format string, args ...any) *problem {
	return fail(status, code, fmt.Sprintf(format, args...))
}

// The codes of API.md section 1 that are used in more than one place.
const (
	badRequest    = "bad_request"
	badJSON       = "bad_json"
	unknownField  = "unknown_field"
	badTime       = "bad_time"
	badName       = "bad_name"
	badHeader     = "bad_header"
	badURL        = "bad_url"
	badPolicy     = "bad_policy"
	quotaUsed     = "quota"
	overloaded    = "overloaded"
	unauthorized  = "unauthorized"
	forbidden     = "forbidden"
	tooLarge      = "too_large"
	notFound      = "not_found"
	unknownTopic  = "unknown_topic"
	unknownTimer  = "unknown_timer"
	notDrained    = "not_drained"
	wrongDelivery = "wrong_delivery"
	unavailable   = "unavailable"
	internalError = "internal"
)

func bad(code, detail string) *problem { return fail(400, code, detail) }

func badf(code, format string, args ...any) *problem { return failf(400, code, format, args...) }

// framingFault is the answer to a request that was stopped before it was whole, or whose target is
// none.
func framingFault(f *http1.Fault) *problem {
	if f.Status == 400 {
		return bad(badRequest, f.Detail)
	}
	return fail(f.Status, tooLarge, f.Detail)
}

// refuses reports whether the request was refused and has changed nothing. A 5xx may have.
func (p *problem) refuses() bool { return p.status < 500 }

// retryable: the same request may succeed later without anything else having changed.
func (p *problem) retryable() bool { return p.status == 503 || p.status == 429 || p.status == 408 }

var titles = map[string]string{
	badRequest: "Bad request", badJSON: "Body is not the JSON that is asked", unknownField: "Unknown field",
	badTime: "Bad time", badName: "Bad name", badHeader: "Bad callback header", badURL: "Bad callback URL",
	unauthorized: "No valid token", forbidden: "Token may not do this",
	notFound: "Not found", unknownTopic: "Unknown topic", unknownTimer: "Unknown timer",
	"method_not_allowed": "Method not allowed",
	"exists":             "Id in use with other content", "in_flight": "A call is running", "not_empty": "Topic is not empty",
	notDrained: "Node is not drained", wrongDelivery: "Wrong delivery", quotaUsed: "As many as allowed",
	"over": "Timer has ended", "version_mismatch": "Another version", tooLarge: "Too large",
	"misdirected":            "Not a name of this node",
	"unsupported_media_type": "Unsupported media type", "no_callback": "No callback URL",
	"callback_refused": "Callback address refused", "beyond_horizon": "Too far ahead", badPolicy: "Bad policy",
	unavailable: "Not now", "no_leader": "Shard has no leader now", overloaded: "Overloaded", "low_disk": "Disk almost full",
	internalError: "Internal error",
}

func appendProblem(b []byte, p *problem) []byte {
	b = append(b, `{"type":"urn:carillon:`...)
	b = append(b, p.code...)
	b = append(b, `","title":`...)
	title := titles[p.code]
	if title == "" {
		title = fasthttp.StatusMessage(p.status)
	}
	b = appendString(b, title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"detail":`...)
	b = appendString(b, p.detail)
	b = append(b, `,"code":"`...)
	b = append(b, p.code...)
	b = append(b, `","retryable":`...)
	b = strconv.AppendBool(b, p.retryable())
	if p.outcome != "" {
		b = append(b, `,"outcome":"`...)
		b = append(b, p.outcome...)
		b = append(b, '"')
	}
	if t := p.existing; t != nil {
		b = append(b, `,"existing":{"version":`...)
		b = strconv.AppendUint(b, uint64(t.Version), 10)
		b = append(append(append(b, `,"state":"`...), stateNames[t.State]...), '"')
		b = append(appendTime(b, "due", t.DueMs), '}')
	}
	return append(b, '}')
}

// writeProblem makes p the whole response.
func writeProblem(ctx *fasthttp.RequestCtx, p *problem) {
	ctx.SetStatusCode(p.status)
	ctx.SetContentType("application/problem+json")
	if p.status == 503 || p.status == 429 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(max(1, p.retryAfter)))
	}
	if p.allow != "" {
		ctx.Response.Header.Set("Allow", p.allow)
	}
	if p.status == 401 {
		ctx.Response.Header.Set("WWW-Authenticate", `Bearer realm="carillon"`)
	}
	ctx.Response.SwapBody(appendProblem(ctx.Response.SwapBody(nil)[:0], p))
}
