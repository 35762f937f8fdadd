package api

import "carillon/transport/api/web"

// mayAnswer refuses a request that may have a large answer while unread answers take as much memory
// as they may.
func (rq *request) mayAnswer() *web.Problem {
	if !rq.route.large || !rq.s.answers.full(rq.Address()) {
		return nil
	}
	return web.Fail(503, "overloaded", "answers that have not been read yet take as much memory as they may")
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
		rq.s.answers.must(rq.Address(), n-taken)
	}
	if n > 0 {
		c.answer.Add(n)
	}
}

// written gives back the room of the answers before. They are on their way once the connection is
// read for more.
func (c *framedConn) written() {
	if c.answer.Load() > 0 {
		c.listener.answers.Give(c.address, c.answer.Swap(0))
	}
}
