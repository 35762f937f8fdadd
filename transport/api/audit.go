package api

import (
	"crypto/sha256"
	"strings"

	"github.com/valyala/fasthttp"
)

// Change is one change that was asked for, and its outcome: for the audit log. It holds no payload,
// header or token.
type Change struct {
	Who    string // the token's name; "-" where nobody is asked for one
	What   string // of the route table, such as timer.add
	Object string // such as topics/orders/timers/order-77
	From   string // the client's address
	Status int    // of the answer
	Count  int    // how many timers or leases it was about, where the object does not say; else 0
	// Refused is how many requests of the token were refused with this status since the entry of
	// the one before, this one included; 0: it was not refused.
	Refused int
}

// nobody stands for a client without a token.
const nobody = "-"

// audit records the request, if it was for a change, or was refused for want of a token or a scope.
func (rq *request) audit(p *problem) {
	record := rq.s.cfg.Audit
	if record == nil || rq.audited {
		return
	}
	change := rq.route != nil && rq.route.audit != ""
	refused := p != nil && p.refuses()
	if !change && !(refused && (p.code == unauthorized || p.code == forbidden)) {
		return
	}
	c := Change{Who: rq.auditor(), What: auditRefused, Object: nobody, From: rq.from(), Status: rq.ctx.Response.StatusCode()}
	if p != nil {
		c.Status = p.status
	}
	if rq.route != nil {
		c.Object = rq.object()
	}
	if change {
		c.What = rq.route.audit
	}
	c.Count = rq.count
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
		rq.s.refusals.add(rq.sum(), c)
		return
	}
	record(c)
}

// sum stands for the request's token; zero: none.
func (rq *request) sum() (sum [sha256.Size]byte) {
	if rq.who != nil {
		sum = rq.who.sum
	}
	return sum
}

const (
	auditPull   = "timers.pull"
	auditLeases = "lease." // how ack, nack and extend begin
	auditBackup = "cluster.backup"

	auditFinalize = "cluster.finalize"

	// auditRefused is of requests that were refused and are no changes, and of those that are only
	// counted.
	auditRefused = "refused"
)

// auditOps records the operations of a batch, each by itself.
func (rq *request) auditOps(ops []operation) {
	record := rq.s.cfg.Audit
	if record == nil {
		return
	}
	rq.audited = true
	who, from := rq.auditor(), rq.from()
	for i := range ops {
		op := &ops[i]
		c := Change{Who: who, What: "batch.unreadable", From: from}
		id := ""
		if op.in != nil && op.verb != noVerb {
			c.What = "timer." + verbs[op.verb].name
			if validID(op.in.id) {
				id = op.in.id
			}
		}
		c.Object = objectOf(rq.topic, id, "")
		p := op.problem
		if p == nil {
			p = refusal(op.result.Code)
		}
		switch {
		case p == nil:
			c.Status = status(op.result.Code)
		case p.refuses():
			c.Status = p.status
			rq.s.refusals.add(rq.sum(), c)
			continue
		default:
			c.Status = p.status
		}
		record(c)
	}
}

func (rq *request) auditor() string {
	if rq.who == nil {
		return nobody
	}
	return rq.who.name
}

// object names the topic, timer or node that the request was about.
func (rq *request) object() string {
	switch {
	case strings.HasPrefix(rq.route.audit, auditLeases):
		return "leases"
	case rq.route.audit == "cluster.replicas":
		return "cluster/replicas"
	case rq.route.audit == auditBackup, rq.route.audit == auditFinalize:
		return "cluster"
	}
	if rq.topic == "" && rq.node == "" {
		return rq.route.path
	}
	return objectOf(rq.topic, rq.id, rq.node)
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
	c, ok := rq.ctx.Conn().(*framedConn)
	if !ok {
		return nobody
	}
	if c.remote == "" {
		c.remote = c.RemoteAddr().String()
	}
	return c.remote
}
