package callback

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"carillon/timer"

	"github.com/valyala/fasthttp"
)

const (
	maxAnswerBytes  = 64 << 10 // of a body; its connection is closed beyond
	maxTrailerBytes = 4 << 10
	maxInterim      = 8 // 1xx answers before the real one

	// drainTime bounds reading the rest of a body. The status counts already: the
	// rest is read only so that the connection can be used again, and a receiver that
	// lets it drip would hold a call for as long as its time-out lasts.
	drainTime = time.Second
)

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

// drain reads the body away, so that the connection can be used again, and reports
// whether it came to its end within its bounds. keep: its beginning is kept in x.kept.
func (rt *roundTripper) drain(c *countingConn, keep bool) bool {
	h := &rt.answer.Header
	if bodylessStatus(h.StatusCode()) {
		return true
	}
	n := h.ContentLength()
	endless := n < -1 || n > maxAnswerBytes // it ends with the connection, or is too long
	if endless && !keep {
		return false
	}
	if n < 0 || n > rt.reader.Buffered() {
		if soon := time.Now().Add(drainTime); soon.Before(rt.span.end) && c.SetReadDeadline(soon) != nil {
			return false
		}
	}
	switch {
	case n == -1:
		return rt.drainChunks(keep)
	case keep:
		if n < 0 {
			n = maxKept
		}
		if n -= rt.keepMore(n); endless {
			return false
		}
	}
	_, err := rt.reader.Discard(n)
	return err == nil
}

func (rt *roundTripper) drainChunks(keep bool) bool {
	err := rt.answer.ReadBody(rt.reader, maxAnswerBytes)
	if keep {
		body := rt.answer.Body()
		rt.kept = append(rt.kept, body[:min(len(body), maxKept)]...)
		if err == fasthttp.ErrBodyTooLarge { // the next chunk is longer than what is left
			rt.keepMore(maxKept)
		}
	}
	rt.answer.ResetBody()
	return err == nil && rt.drainTrailers()
}

// maxKept is how much of a body is kept: one byte more than an answer has, which shows whether it
// is longer.
const maxKept = timer.MaxAnswerBody + 1

// keepMore reads at most n bytes into kept, and returns how many.
func (rt *roundTripper) keepMore(n int) int {
	had := len(rt.kept)
	rt.kept = slices.Grow(rt.kept, maxKept-had)
	got, _ := io.ReadFull(rt.reader, rt.kept[had:min(had+n, maxKept)])
	rt.kept = rt.kept[:had+got]
	return got
}

// keepsAnswer reports whether the answer of the present call is kept: the call has failed.
func (rt *roundTripper) keepsAnswer() bool {
	status := rt.result.status
	return rt.call != nil && rt.call.req.KeepAnswer && (status < 200 || status >= 300)
}

// keptAnswer returns what is kept of an answer; nil if that is nothing. Headers are made valid
// UTF-8, because they are shown as text.
func (rt *roundTripper) keptAnswer() *timer.Answer {
	h := &rt.answer.Header
	h.SetNoDefaultContentType(true)
	a := timer.Answer{Body: string(cutAnswer(rt.kept)), Type: headerText(h.ContentType(), timer.MaxAnswerType)}
	if status := h.StatusCode(); status >= 300 && status < 400 {
		a.Location = headerText(h.Peek(fasthttp.HeaderLocation), timer.MaxAnswerLocation)
	}
	if a.Empty() {
		return nil
	}
	return &a
}

// cutAnswer cuts a body that is longer than an answer. If it is UTF-8, the cut is between two
// characters.
func cutAnswer(b []byte) []byte {
	if len(b) <= timer.MaxAnswerBody {
		return b
	}
	b = b[:timer.MaxAnswerBody]
	for n := len(b) - 1; n >= len(b)-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			if !utf8.FullRune(b[n:]) && utf8.Valid(b[:n]) {
				return b[:n]
			}
			break
		}
	}
	return b
}

func headerText(b []byte, most int) string {
	b = bytes.ToValidUTF8(b, []byte("?"))
	for most = min(most, len(b)); most < len(b) && !utf8.RuneStart(b[most]); most-- {
	}
	return string(b[:most])
}

// readsBody reports whether the present answer is read whole, see Request.ReadBody.
func (rt *roundTripper) readsBody() bool {
	status := rt.result.status
	return rt.call != nil && rt.call.req.ReadBody && status >= 200 && status < 300 && !bodylessStatus(status)
}

// readBody returns a copy of the answer's body.
func (rt *roundTripper) readBody() ([]byte, error) {
	switch {
	case rt.noHeaders:
		return nil, errBadAnswer
	case rt.answer.Header.ContentLength() == 0:
		return nil, nil
	}
	err := rt.answer.ReadBody(rt.reader, MaxReadBody)
	body := bytes.Clone(rt.answer.Body())
	chunked := rt.answer.Header.ContentLength() == -1
	rt.answer.ResetBody()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errPeerClosed
	case err != nil:
		return nil, headerFault(err)
	case chunked && !rt.drainTrailers():
		return nil, errBadAnswer
	}
	return body, nil
}

// drainTrailers reads the trailers of a chunked body away, which mean nothing.
func (rt *roundTripper) drainTrailers() bool {
	for left := maxTrailerBytes; left > 0; {
		line, ok := rt.line()
		if !ok || len(line) == 0 {
			return ok
		}
		left -= len(line)
	}
	return false
}

// line reads to the next CRLF and leaves that out. No line is longer than the buffer.
func (rt *roundTripper) line() ([]byte, bool) {
	line, err := rt.reader.ReadSlice('\n')
	if err != nil {
		return nil, false
	}
	return bytes.CutSuffix(line, []byte("\r\n"))
}
