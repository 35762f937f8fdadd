package sink

import (
	"cmp"
	"strconv"

	"github.com/valyala/fasthttp"
)

// Delivery is one callback as it arrived. Its slices are the connection's own
// buffers: they may be read until the handler returns, never kept.
type Delivery struct {
	Topic     []byte
	Timer     []byte
	WebhookID []byte
	Timestamp []byte // webhook-timestamp as sent
	Signature []byte // webhook-signature as sent
	Body      []byte
	DueMs     int64 // Carillon-Due, -1 when absent or not a number
	AskedMs   int64 // Carillon-Asked, asked_ms in a call of many, -1 when absent or not a number
	Attempt   int64 // Carillon-Attempt, -1 when absent or not a number
	Fence     int64 // Carillon-Fence, -1 when absent or not a number
	ArrivedUs int64 // wall clock as the request had been read, Unix µs
	ClockUs   int64 // the node's test clock, Unix µs; 0: it has none

	Answer []byte // set by the handler: the answer's body

	problem string // with its signature

	header *fasthttp.RequestHeader // the rest that the signatures need
}

// Early reports whether the callback came before its due time, and before somebody
// asked for it by hand. These times are whole milliseconds, so no rounding can
// make it so.
func (d *Delivery) Early() bool { return d.LatenessUs() < 0 }

// LatenessUs is the time from due, or from an earlier request by hand, to
// arrival, in µs: negative when early and 0 when the due time is unknown.
func (d *Delivery) LatenessUs() int64 {
	from := d.DueMs
	if d.AskedMs > 0 {
		from = min(from, d.AskedMs)
	}
	if from < 0 {
		return 0
	}
	return cmp.Or(d.ClockUs, d.ArrivedUs) - from*1000
}

// Decimal reads a plain non-negative integer, -1 if it is none.
func Decimal(text []byte) int64 {
	n, err := strconv.ParseUint(string(text), 10, 60)
	if err != nil {
		return -1
	}
	return int64(n)
}
