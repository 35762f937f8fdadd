package callback

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/valyala/fasthttp"
)

const maxInterim = 8 // 1xx answers before the real one

// readHeaders skips interim answers (100 Continue, 103 Early Hints).
func (rt *roundTripper) readHeaders() error {
	for range maxInterim + 1 {
		if err := rt.readHead(); err != nil {
			return headerFault(err)
		}
		status := rt.answer.StatusCode()
		if status >= 200 || status == fasthttp.StatusSwitchingProtocols {
			return nil
		}
	}
	return errBadAnswer
}

// readHead reads the status line and the headers of one answer. The status counts however long the
// headers are, and lines may end in LF alone, as those of small devices and scripts do. After such
// an answer the connection is not used again.
func (rt *roundTripper) readHead() error {
	if err := rt.checkStatusLine(); err != nil {
		return err
	}
	size, plain, err := rt.waitForHead()
	switch {
	case err == bufio.ErrBufferFull:
		return rt.statusAlone()
	case err != nil:
		return err
	case plain:
		return rt.answer.Header.Read(rt.reader)
	}
	head, _ := rt.reader.Peek(size)
	head = bytes.ReplaceAll(head, []byte("\r\n"), []byte("\n"))
	head = bytes.ReplaceAll(head, []byte("\n"), []byte("\r\n"))
	_, _ = rt.reader.Discard(size)
	rt.lastOnConn = true
	return rt.answer.Header.Read(bufio.NewReaderSize(bytes.NewReader(head), len(head)))
}

// waitForHead waits for the blank line that ends the headers, and returns how many bytes the answer
// has until then. plain: every line ends in CRLF. bufio.ErrBufferFull: the headers are longer than
// the buffer.
func (rt *roundTripper) waitForHead() (size int, plain bool, err error) {
	plain = true
	for {
		b, _ := rt.reader.Peek(rt.reader.Buffered())
		for n := bytes.IndexByte(b[size:], '\n'); n >= 0; n = bytes.IndexByte(b[size:], '\n') {
			line, crlf := bytes.CutSuffix(b[size:size+n], []byte("\r"))
			size += n + 1
			plain = plain && crlf
			if len(line) == 0 {
				return size, plain, nil
			}
		}
		if _, err := rt.reader.Peek(len(b) + 1); err != nil {
			return 0, false, err
		}
	}
}

// statusAlone takes the status of an answer whose headers are never read to their end: where its
// body begins is not known.
func (rt *roundTripper) statusAlone() error {
	line, _ := rt.reader.Peek(len(statusLine))
	status := 0
	for _, c := range line[len(statusLine)-3:] {
		status = 10*status + int(c-'0')
	}
	if status < 200 {
		return errBadAnswer
	}
	rt.answer.Header.Reset()
	rt.answer.SetStatusCode(status)
	rt.lastOnConn, rt.noHeaders = true, true
	return nil
}

// statusLine is the beginning of an answer, '9' standing for a digit. The line ends there, or goes
// on with a space and the reason.
const statusLine = "HTTP/1.9 999"

// checkStatusLine waits for the version and the status and refuses everything else: fasthttp takes
// the status 000 for 200.
func (rt *roundTripper) checkStatusLine() error {
	for n := 1; ; n = rt.reader.Buffered() + 1 {
		if _, err := rt.reader.Peek(n); err != nil { // one byte more has arrived
			return err
		}
		got, _ := rt.reader.Peek(min(rt.reader.Buffered(), len(statusLine)+1))
		for i, c := range got {
			if !fitsStatusLine(i, c) {
				return errBadAnswer
			}
		}
		if len(got) > len(statusLine) {
			return nil
		}
	}
}

func fitsStatusLine(i int, c byte) bool {
	switch {
	case i == len(statusLine):
		return c == ' ' || c == '\r' || c == '\n'
	case statusLine[i] != '9':
		return c == statusLine[i]
	case i == len(statusLine)-3: // the first digit of the status
		return c >= '1' && c <= '9'
	}
	return c >= '0' && c <= '9'
}

// headerFault keeps the network's errors, and drops texts that quote the answer.
func headerFault(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, fasthttp.ErrConnectionClosed):
		return errPeerClosed
	case isTimeout(err), isNetwork(err):
		return err
	}
	return errBadAnswer
}

// reusable reports whether the headers allow another request on the connection. A
// body that an answer without one announces may follow at any time, and would be
// taken for the answer of the next call.
func (rt *roundTripper) reusable() bool {
	h := &rt.answer.Header
	switch {
	case rt.lastOnConn, rt.answer.ConnectionClose(), string(h.Protocol()) != "HTTP/1.1":
		return false
	case bodylessStatus(h.StatusCode()):
		n := h.ContentLength()
		return n != -1 && n <= 0 // -1 is chunked
	}
	return h.StatusCode() != fasthttp.StatusSwitchingProtocols
}

func bodylessStatus(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}
