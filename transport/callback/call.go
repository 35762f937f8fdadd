package callback

import (
	"cmp"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"carillon/transport/callback/address"

	"golang.org/x/net/http/httpguts"
)

func methodOf(req *Request) string {
	return cmp.Or(req.Method, "POST")
}

func bodyless(method string) bool { return method == "GET" || method == "DELETE" }

func (w *worker) call(t *callSlot) Outcome {
	p, d, req := w.pool, t.dest, t.req
	started := p.config.Now()
	t.began.Store(started.UnixNano())
	t.closeEvicted()
	if p.base.Err() != nil {
		return p.notSent("not sent: shut down")
	}
	if _, open := t.breaker.blocked(); open { // since the permit was granted
		return p.notSent("not sent: the breaker is open")
	}
	wall := p.config.Wall()
	out := Outcome{Started: started}
	out.stamp(&p.config, wall, 0)
	if why := w.unfit(d, req); why != "" {
		out.Err, out.unjudged = "bad request: "+why, true
		return out
	}
	d.calledBy(req.Topic)
	s := spanOf(req, started)
	w.roundTripper.prepare(req, p.config.UserAgent, wall)
	if p.config.TestClock != nil {
		w.roundTripper.add("Carillon-Test-Clock", time.UnixMilli(out.StartedMs).UTC().Format(time.RFC3339Nano))
	}
	result, err := w.roundTripper.do(t, s)
	out.judge(result, err, started)
	if out.failed() && p.base.Err() != nil && out.Status == 0 {
		out.Err, out.unjudged = "shut down", true
	}
	out.Took = w.roundTripper.ended.Sub(started)
	out.stamp(&p.config, wall, out.Took)
	if !out.NotSent && !out.Refused {
		d.observe(out.Took)
	}
	return out
}

// stamp sets when the call started and ended. By a test clock it takes no time.
func (out *Outcome) stamp(c *Config, wall time.Time, took time.Duration) {
	if c.TestClock != nil {
		out.StartedMs = c.TestClock().UnixMilli()
		out.EndedMs = out.StartedMs
		return
	}
	out.StartedMs, out.EndedMs = wall.UnixMilli(), wall.Add(took+time.Millisecond-1).UnixMilli()
}

// judge fills an outcome from the result of the round trip.
func (out *Outcome) judge(r result, err error, now time.Time) {
	out.Status, out.Sent, out.dialled, out.Answer, out.Body = r.status, r.sent, r.dialled, r.answer, r.body
	switch {
	case err == errHeldBack:
		out.NotSent, out.Err = true, err.Error()
	case err != nil:
		out.Err = fault(err)
		out.Refused = errors.Is(err, address.ErrRefused)
		out.unjudged = outOfFiles(err)
	case r.status >= 200 && r.status < 300:
	case r.status >= 300 && r.status < 400:
		out.Err = "redirect " + strconv.Itoa(r.status)
	default:
		out.Err = "status " + strconv.Itoa(r.status)
		out.RetryAfterMs = parseRetryAfter(r.retryAfter, now).Milliseconds()
	}
}

// unfit is the reason why a request cannot go out at all. The checks of the add are made again for
// fields that would break the message or reach another receiver.
func (w *worker) unfit(d *destination, req *Request) string {
	x := &w.roundTripper
	if x.url != req.URL || x.url == "" {
		u, err := address.Parse(req.URL)
		if err != nil {
			x.url = ""
			return "url"
		}
		x.url, x.target = req.URL, u
	}
	u := &x.target
	if u.Scheme != d.key.Scheme || u.Host != d.key.Host || u.Port != d.key.Port {
		return "url is not of the permit's destination"
	}
	switch methodOf(req) {
	case "POST", "PUT", "PATCH", "GET", "DELETE":
	default:
		return "method"
	}
	for i := range req.Headers {
		if !httpguts.ValidHeaderFieldName(req.Headers[i].Name) || hasControl(req.Headers[i].Value) {
			return "header"
		}
	}
	if hasControl(req.ContentType) || hasControl(req.Topic) || hasControl(req.Timer) ||
		hasControl(req.WebhookID) || hasControl(req.TraceParent) || hasControl(req.TraceState) || hasControl(req.Receipt) {
		return "control character"
	}
	return ""
}

// isNetwork reports errors of the connection, whose texts hold nothing of the answer.
func isNetwork(err error) bool {
	var op *net.OpError
	var number syscall.Errno
	return errors.As(err, &op) || errors.As(err, &number) || errors.Is(err, net.ErrClosed)
}
