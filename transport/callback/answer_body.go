package callback

import (
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

	// drainTime bounds reading the rest of a body. The status counts already: the
	// rest is read only so that the connection can be used again, and a receiver that
	// lets it drip would hold a call for as long as its time-out lasts.
	drainTime = time.Second
)

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
