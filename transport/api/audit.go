package api

import (
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
}

// nobody stands for a client without a token.
const nobody = "-"

// audit records the request, if it is for a change and may be told of: a client without a token,
// where one is needed, could fill the log with changes that never were.
func (rq *request) audit(p *problem) {
	record := rq.s.cfg.Audit
	if record == nil || rq.route == nil || rq.route.audit == "" || rq.who == nil && rq.s.cfg.Auth != nil || rq.audited {
		return
	}
	status := rq.ctx.Response.StatusCode()
	if p != nil {
		status = p.status
	}
	if rq.route.audit == auditPull && rq.count == 0 && status == fasthttp.StatusOK {
		return // nothing was leased
	}
	record(Change{Who: rq.auditor(), What: rq.route.audit, Object: rq.object(), From: rq.from(), Status: status, Count: rq.count})
}

const (
	auditPull   = "timers.pull"
	auditBackup = "cluster.backup"

	auditFinalize = "cluster.finalize"
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
		switch {
		case op.problem != nil:
			c.Status = op.problem.status
		case refusal(op.result.Code) != nil:
			c.Status = refusal(op.result.Code).status
		default:
			c.Status = status(op.result.Code)
		}
		c.Object = objectOf(rq.topic, id, "")
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
	case strings.HasPrefix(rq.route.audit, "lease."):
		return "leases"
	case rq.route.audit == "cluster.replicas":
		return "cluster/replicas"
	case rq.route.audit == auditBackup, rq.route.audit == auditFinalize:
		return "cluster"
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
