package loadtest

import (
	"bytes"
	"strconv"
)

// operation is one kind of thing to ask of the server.
type operation uint8

const (
	opAdd operation = iota
	opPatch
	opCancel
	opGet
)

var operationNames = [...]string{"add", "patch", "cancel", "get"}

func (o operation) String() string { return operationNames[o] }

// call is one request: an operation on timers of one topic, as a batch if there
// are several.
type call struct {
	op      operation
	numbers []int64
}

// requests writes calls as HTTP/1.1, into buffers that it keeps: a request is
// valid until the next.
type requests struct {
	names    *names
	ledger   *ledger
	callback string
	many     *receivers // nil: all timers go to callback
	body     []byte
	out      []byte
	scratch  []byte // an id to compare with
}

func newRequests(n *names, l *ledger, callback string, many *receivers) *requests {
	return &requests{names: n, ledger: l, callback: callback, many: many}
}

// fixedHeaders are the headers of every request to a host, the first line's end included.
func fixedHeaders(host, token string) []byte {
	fixed := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: carillon-loadtest\r\n"
	if token != "" {
		fixed += "Authorization: Bearer " + token + "\r\n"
	}
	return []byte(fixed)
}

func (r *requests) place(number int64) (topic, id string) {
	r.scratch = r.names.appendTopic(r.scratch[:0], r.names.topicOf(number))
	at := len(r.scratch)
	r.scratch = r.names.appendID(r.scratch, number)
	return string(r.scratch[:at]), string(r.scratch[at:])
}

func (r *requests) write(c *call, fixed []byte) []byte {
	if len(c.numbers) > 1 {
		return r.writeBatch(c, fixed)
	}
	number := c.numbers[0]
	r.body = r.body[:0]
	r.out = append(r.out[:0], [...]string{"POST", "PATCH", "DELETE", "GET"}[c.op]...)
	r.out = append(r.out, " /v1/topics/"...)
	r.out = r.names.appendTopic(r.out, r.names.topicOf(number))
	r.out = append(r.out, "/timers"...)
	switch c.op {
	case opAdd:
		r.body = append(r.body, `{"id":"`...)
		r.body = r.names.appendID(r.body, number)
		r.body = append(r.body, `",`...)
		r.appendAddFields(number)
	default:
		r.out = append(r.out, '/')
		r.out = r.names.appendPathID(r.out, number)
		if c.op == opPatch {
			r.body = append(r.body, '{')
			r.appendContent(number, 2)
		}
	}
	if len(r.body) > 0 {
		r.body = append(r.body, '}')
	}
	return r.finish(fixed)
}

func (r *requests) writeBatch(c *call, fixed []byte) []byte {
	r.out = append(r.out[:0], "POST /v1/topics/"...)
	r.out = r.names.appendTopic(r.out, r.names.topicOf(c.numbers[0]))
	r.out = append(r.out, "/batch?brief=true"...)
	r.body = append(r.body[:0], `{"ops":[`...)
	for i, number := range c.numbers {
		if i > 0 {
			r.body = append(r.body, ',')
		}
		r.body = append(r.body, `{"op":"`...)
		r.body = append(r.body, c.op.String()...)
		r.body = append(r.body, `","id":"`...)
		r.body = r.names.appendID(r.body, number)
		r.body = append(r.body, '"')
		switch c.op {
		case opAdd:
			r.body = append(r.body, ',')
			r.appendAddFields(number)
		case opPatch:
			r.body = append(r.body, ',')
			r.appendContent(number, 2)
		}
		r.body = append(r.body, '}')
	}
	r.body = append(r.body, "]}"...)
	return r.finish(fixed)
}

func (r *requests) appendAddFields(number int64) {
	r.appendContent(number, 1)
	if r.many != nil {
		r.body = r.many.appendCallback(r.body, number)
		return
	}
	r.body = append(r.body, `,"callback":{"url":"`...)
	r.body = append(r.body, r.callback...)
	r.body = append(r.body, `"}`...)
}

// appendContent appends the time and payload of a version, which belong
// together: a delivery that mixes two versions is recognised.
func (r *requests) appendContent(number int64, version int) {
	due := r.ledger.dueMs(number, version)
	r.body = append(r.body, `"at_ms":`...)
	r.body = strconv.AppendInt(r.body, due, 10)
	r.body = append(r.body, `,"payload":`...)
	r.body = r.names.appendPayload(r.body, number, version, due)
}

// isAbout reports whether an answer has the timer's id in it.
func (r *requests) isAbout(number int64, body []byte) bool {
	r.scratch = append(r.names.appendID(append(r.scratch[:0], '"'), number), '"')
	return bytes.Contains(body, r.scratch)
}

// isID reports whether the id is the timer's.
func (r *requests) isID(number int64, id string) bool {
	r.scratch = r.names.appendID(r.scratch[:0], number)
	return id == string(r.scratch)
}

// finish appends headers and body to the first line.
func (r *requests) finish(fixed []byte) []byte {
	r.out = append(r.out, fixed...)
	if len(r.body) > 0 {
		r.out = append(r.out, "Content-Type: application/json\r\nContent-Length: "...)
		r.out = strconv.AppendInt(r.out, int64(len(r.body)), 10)
		r.out = append(r.out, "\r\n"...)
	}
	r.out = append(r.out, "\r\n"...)
	r.out = append(r.out, r.body...)
	return r.out
}
