package loadtest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"carillon/client"
	"carillon/loadtest/sink"
)

// Bounds of one answer.
const (
	headBytes      = 8 << 10
	maxAnswerBytes = 32 << 20
)

var (
	errAnswer = errors.New("loadtest: the answer is not HTTP/1.1 as expected, or about another timer")
	errMore   = fmt.Errorf("%w: there is more than one", errAnswer)
)

// answer is one response; its body lives until the next read.
type answer struct {
	status int
	body   []byte
	close  bool          // the server ends the connection
	retry  time.Duration // Retry-After; 0: it is not given
	leader []byte        // of the timer's shard: see client.LeaderHeader; nil: it is not named
	// location is where a redirect leads, which is not followed.
	location []byte
}

// text is the answer for a person to read.
func (a *answer) text() []byte {
	if a.status/100 == 3 && a.location != nil {
		return fmt.Appendf(nil, "to %s, which is not followed: no node redirects", a.location)
	}
	return a.body
}

// answers reads one response after another off a connection. Requests are not
// pipelined, so nothing is left over between two.
type answers struct {
	conn net.Conn
	from *bufio.Reader
	got  fasthttp.Response
}

func newAnswers(conn net.Conn) *answers {
	return &answers{conn: conn, from: bufio.NewReaderSize(conn, headBytes)}
}

// ask sends a request and reads its response.
func (a *answers) ask(request []byte) (answer, error) {
	if _, err := a.conn.Write(request); err != nil {
		return answer{}, err
	}
	if _, err := a.from.Peek(1); err != nil { // the library hides this one
		return answer{}, err
	}
	err := a.got.ReadLimitBody(a.from, maxAnswerBytes)
	h := &a.got.Header
	result := answer{
		status: h.StatusCode(), body: a.got.Body(), close: h.ConnectionClose() || strings.EqualFold(string(h.Peek("Connection")), "close"),
		leader: h.Peek(client.LeaderHeader), location: h.Peek("Location"),
		retry: time.Duration(max(sink.Decimal(h.Peek("Retry-After")), 0)) * time.Second,
	}
	if err == nil && a.from.Buffered() > 0 {
		err = errMore
	}
	return result, err
}
