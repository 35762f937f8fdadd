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

// defaultTimeout is that of a request which names none.
const defaultTimeout = 10 * time.Second

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
	s := span{started: started, timeout: req.Timeout, lease: req.Deadline}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	s.end = started.Add(s.timeout)
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

// span is the time that a call has.
type span struct {
	started time.Time
	timeout time.Duration
	end     time.Time     // started + timeout: nothing of the call outlasts it
	lease   time.Duration // Request.Deadline
}

// heldBack is the dispatch guard: the call would not fit before the lease ends. held is now, on the
// clock of leases.
func (s span) heldBack(held, left time.Duration) bool {
	return s.lease != 0 && held+left > s.lease
}

// late is asked right before the write. The process may have been stopped since
// the call began, or the whole machine, and the connection's own deadline need not
// have been noticed yet. After a dial, whose time is part of the call's, the rest of
// the call must fit. Were it a whole one, a receiver that is slow to connect could
// never be called, and its breaker would never learn of it.
func (s span) late(now time.Time, held time.Duration, dialled bool) error {
	left := s.timeout
	if dialled {
		left = s.end.Sub(now)
	}
	if s.heldBack(held, left) {
		return errHeldBack
	}
	if !now.Before(s.end) {
		return errTimeout
	}
	return nil
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
