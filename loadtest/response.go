package loadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"carillon/loadtest/sink"
)

// Bounds of one answer.
const (
	firstBufferBytes = 8 << 10
	maxAnswerBytes   = 32 << 20
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
	from   io.Reader
	buffer []byte
	filled int
}

// ask sends a request and reads its response.
func (a *answers) ask(conn net.Conn, request []byte) (answer, error) {
	a.filled = 0
	if _, err := conn.Write(request); err != nil {
		return answer{}, err
	}
	return a.next()
}

// next reads the rest of one response, of which filled bytes are there.
func (a *answers) next() (answer, error) {
	head := bytes.Index(a.buffer[:a.filled], []byte("\r\n\r\n"))
	for head < 0 {
		if err := a.fill(); err != nil {
			return answer{}, err
		}
		head = bytes.Index(a.buffer[:a.filled], []byte("\r\n\r\n"))
	}
	head += 4
	result, length, chunked, err := parseHead(a.buffer[:head])
	if err != nil {
		return result, err
	}
	switch {
	case chunked:
		result.body, err = a.chunks(head)
		return result, err
	case length < 0:
		result.close = true
		return result, fmt.Errorf("%w: no length", errAnswer)
	}
	for a.filled < head+length {
		if err := a.fill(); err != nil {
			return result, err
		}
	}
	if a.filled > head+length {
		return result, errMore
	}
	result.body = a.buffer[head : head+length]
	return result, nil
}

// fill reads more, growing the buffer as needed.
func (a *answers) fill() error {
	if a.filled >= maxAnswerBytes {
		return fmt.Errorf("%w: above %d bytes", errAnswer, maxAnswerBytes)
	}
	if a.filled == len(a.buffer) {
		a.buffer = append(a.buffer, make([]byte, max(len(a.buffer), firstBufferBytes))...)
	}
	n, err := a.from.Read(a.buffer[a.filled:])
	a.filled += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// chunks reads a chunked body that starts at the offset and joins it in place.
func (a *answers) chunks(at int) ([]byte, error) {
	start, body := at, at // the joined body is buffer[start:body]
	for {
		end := -1
		for end < 0 {
			if end = bytes.Index(a.buffer[at:a.filled], []byte("\r\n")); end < 0 {
				if err := a.fill(); err != nil {
					return nil, err
				}
			}
		}
		size, digits := 0, a.buffer[at:at+end]
		for _, c := range digits {
			v := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
			if v < 0 || size > maxAnswerBytes {
				return nil, errAnswer
			}
			size = size<<4 | v
		}
		at += end + 2
		for a.filled < at+size+2 {
			if err := a.fill(); err != nil {
				return nil, err
			}
		}
		if size == 0 {
			if a.filled > at+len("\r\n") {
				return nil, errMore
			}
			return a.buffer[start:body], nil
		}
		body += copy(a.buffer[body:], a.buffer[at:at+size])
		at += size + 2
	}
}

// parseHead reads the status and the three headers that matter. length is -1
// when none is given.
func parseHead(head []byte) (result answer, length int, chunked bool, err error) {
	if len(head) < 15 || string(head[:7]) != "HTTP/1." {
		return result, 0, false, errAnswer
	}
	status := sink.Decimal(head[9:12])
	if status < 100 {
		return result, 0, false, errAnswer
	}
	result.status = int(status)
	length = -1
	if status == 204 || status == 304 {
		length = 0
	}
	for {
		end := bytes.IndexByte(head, '\n')
		if end < 0 || end+1 == len(head) {
			return result, length, chunked, nil
		}
		head = head[end+1:]
		name, value, found := cutHeader(head)
		if !found {
			continue
		}
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			n := sink.Decimal(value)
			if n < 0 || n > maxAnswerBytes {
				return result, 0, false, errAnswer
			}
			length = int(n)
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("connection")):
			result.close = bytes.EqualFold(value, []byte("close"))
		case bytes.EqualFold(name, []byte("carillon-leader")):
			result.leader = value
		case bytes.EqualFold(name, []byte("retry-after")):
			result.retry = time.Duration(max(sink.Decimal(value), 0)) * time.Second
		case bytes.EqualFold(name, []byte("location")):
			result.location = value
		}
	}
}

func cutHeader(line []byte) (name, value []byte, found bool) {
	end := bytes.IndexByte(line, '\r')
	colon := bytes.IndexByte(line, ':')
	if end < 0 || colon < 0 || colon > end {
		return nil, nil, false
	}
	return line[:colon], bytes.TrimSpace(line[colon+1 : end]), true
}
