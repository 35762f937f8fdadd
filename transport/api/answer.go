package api

import "carillon/transport/api/web"

// mayAnswer refuses a request that may have a large answer while unread answers take as much memory
// as they may.
func (rq *request) mayAnswer() *web.Problem {
	if !rq.route.large || !rq.s.answers.full(rq.Sender()) {
		return nil
	}
	return web.Fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
}

// heldAnswer is the room that an answer takes until it has been written.
type heldAnswer struct {
	owner web.Sender
	bytes int64
}

// keepAnswer has the connection hold the room of the answer, and no more, until the answer has been
// written.
func (rq *request) keepAnswer() {
	if rq.Ctx.Response.IsBodyStream() {
		return // it has bounds of its own
	}
	taken := rq.Answer.End()
	n := int64(len(rq.Ctx.Response.Body()))
	c, ok := rq.Ctx.Conn().(*framedConn)
	if n <= web.SmallBody || !ok {
		n = 0
	}
	if n != taken {
		rq.s.answers.must(rq.Sender(), n-taken)
	}
	if n > 0 {
		c.hold(&heldAnswer{rq.Sender(), n})
	}
}

// hold keeps the room of an answer until it has been written. A connection that was cut off while
// the answer was made writes nothing, and gives the room back at once.
func (c *framedConn) hold(a *heldAnswer) {
	c.answer.Store(a)
	if c.cutOff.Load() {
		c.written()
	}
}

// written gives back the room of the answers before. They are on their way once the connection is
// read for more.
func (c *framedConn) written() {
	if c.answer.Load() == nil {
		return
	}
	if a := c.answer.Swap(nil); a != nil {
		c.listener.answers.Give(a.owner, a.bytes)
	}
}
