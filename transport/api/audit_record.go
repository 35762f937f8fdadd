package api

import (
	"cmp"
	"strings"

	"carillon/internal/audit"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// nobody stands for a client without a token.
const nobody = "-"

// audit records the request, if it was for a change, or was refused for want of a token or a scope.
func (rq *request) audit(p *web.Problem) {
	record := rq.s.cfg.Audit
	if record == nil || rq.Unlogged {
		return
	}
	if rq.Outcomes != nil {
		rq.auditEach()
		return
	}
	change := rq.route != nil && rq.route.audit != ""
	refused := p != nil && p.Refuses() && rq.Count == 0
	if !change && !(refused && (p.Code == web.Unauthorized || p.Code == web.Forbidden)) {
		return
	}
	c := audit.Entry{Who: rq.auditor(), What: auditRefused, Object: nobody, From: rq.from(), Status: rq.Ctx.Response.StatusCode()}
	if p != nil {
		c.Status = p.Status
	}
	if rq.route != nil {
		c.Object = rq.object()
	}
	if change {
		c.What = rq.route.audit
	}
	c.Count = rq.Count
	if change && c.Count == 0 && c.Status == fasthttp.StatusOK { // nothing was changed
		switch {
		case rq.route.audit == auditPull:
			return
		case strings.HasPrefix(rq.route.audit, auditLeases): // each receipt has it in the answer
			c.Status, refused = fasthttp.StatusGone, true
		}
	}
	if refused {
		c.Count = 0
		rq.s.refusals.add(rq.Who.Token(), c)
		return
	}
	record(c)
}

const (
	auditPull   = "timers.pull"
	auditLeases = "lease." // how ack, nack and extend begin

	// auditRefused is of requests that were refused and are no changes, and of those that are only
	// counted.
	auditRefused = "refused"
)

// auditEach records the operations of a batch.
func (rq *request) auditEach() {
	c := audit.Entry{Who: rq.auditor(), From: rq.from()}
	for _, o := range rq.Outcomes {
		if c.What = "batch.unreadable"; o.Verb != "" {
			c.What = "timer." + o.Verb
		}
		c.Object, c.Status = objectOf(rq.Topic, o.ID, ""), o.Status
		if o.Refused {
			rq.s.refusals.add(rq.Who.Token(), c)
		} else {
			rq.s.cfg.Audit(c)
		}
	}
}

func (rq *request) auditor() string {
	if rq.Who == nil {
		return nobody
	}
	return rq.Who.Name
}

// object names the topic, timer or node that the request was about.
func (rq *request) object() string {
	if rq.Topic == "" && rq.NodeName == "" {
		return cmp.Or(rq.route.object, rq.route.path)
	}
	return objectOf(rq.Topic, rq.ID, rq.NodeName)
}

func objectOf(topic, id, node string) string {
	switch {
	case node != "":
		return "nodes/" + node
	case id != "":
		return "topics/" + topic + "/timers/" + id
	}
	return "topics/" + topic
}

// from is the client's address and port.
func (rq *request) from() string {
	c, ok := rq.Ctx.Conn().(*framedConn)
	if !ok {
		return nobody
	}
	if c.remote == "" {
		c.remote = c.RemoteAddr().String()
	}
	return c.remote
}
