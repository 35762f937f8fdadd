package http1

import (
	"bytes"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

// Framer follows a stream of requests byte by byte, before an HTTP library sees it, and stops it at
// the first thing that two implementations could cut differently (request smuggling). It keeps no
// more than one unfinished line.
//
// RFC 9112 is the grammar; where it lets a recipient be lenient, a Framer is not.
type Framer struct {
	limits  *Limits
	state   frameState
	part    []byte // the unfinished line
	head    int    // bytes of the request line and headers, or of the trailers, so far
	left    uint64 // bytes to come of the body or chunk
	length  int64  // Content-Length; -1 none
	chunked bool
	http10  bool
	host    bool // a Host has come
	browser bool
	extra   bool
	body    uint64 // bytes of the body so far known to come
	most    uint64 // bytes that the body may have
}

// Limits bounds the parts of a request, in bytes. A part that exceeds its bound is refused before
// it has arrived.
type Limits struct {
	Head   int // the request line and all headers
	Target int // the request target
	// The body of a request for a target, which is raw; it must not be kept.
	Body func(target []byte) uint64
}

// NewFramer follows a new connection. The limits may be shared.
func NewFramer(limits *Limits) Framer { return Framer{limits: limits, length: -1} }

type frameState uint8

const (
	inRequestLine frameState = iota
	inHeaders
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailers
)

// Fault is why a request is refused. After a fault of a Framer the connection can only end with an
// answer.
type Fault struct {
	Status int // 400, 413, 414 or 431
	Detail string
}

func (f *Fault) Error() string { return f.Detail }

const (
	maxChunkLine  = 256 // size and extensions
	maxEmptyLines = 4   // before a request
)

// Feed takes the bytes that have arrived and returns how many of them may be handed on. With an
// error, these end before the end of the line at fault, so that no parser can take the line for
// complete.
func (f *Framer) Feed(p []byte) (n int, err *Fault) {
	for n < len(p) {
		switch f.state {
		case inBody, inChunk:
			k := min(f.left, uint64(len(p)-n))
			n += int(k)
			if f.left -= k; f.left == 0 {
				if f.state == inBody {
					f.next()
				} else {
					f.state = inChunkEnd
				}
			}
		default:
			end := bytes.IndexByte(p[n:], '\n')
			if end < 0 {
				if err := f.keep(p[n:]); err != nil {
					return n, err
				}
				return len(p), nil
			}
			line := p[n : n+end+1]
			if len(f.part) > 0 {
				f.part = append(f.part, line...)
				line = f.part
			}
			if err := f.line(line); err != nil {
				if f.state == inRequestLine && end <= 1 {
					// Empty lines alone are a silent close to the parser; this makes them a bad
					// request.
					p[n] = '?'
					end = 1
				}
				return n + end, err
			}
			f.part = f.part[:0]
			n += end + 1
		}
	}
	return n, nil
}

// keep holds the start of a line whose end has not arrived, within the bounds.
func (f *Framer) keep(p []byte) *Fault {
	if err := f.bound(len(f.part) + len(p)); err != nil {
		return err
	}
	f.part = append(f.part, p...)
	return nil
}

// bound refuses a line by the length that it has so far.
func (f *Framer) bound(line int) *Fault {
	switch f.state {
	case inRequestLine:
		if line > f.limits.Target+32 {
			return &Fault{414, "the request line is too long"}
		}
	case inChunkSize, inChunkEnd:
		if line > maxChunkLine {
			return &Fault{400, "chunk size line too long"}
		}
		return nil
	}
	if f.head+line > f.limits.Head {
		return &Fault{431, "the request header is too large"}
	}
	return nil
}

// line takes a whole line, its end included.
func (f *Framer) line(line []byte) *Fault {
	if err := f.bound(len(line)); err != nil {
		return err
	}
	n := len(line)
	if n < 2 || line[n-2] != '\r' {
		return &Fault{400, "a line ends in a bare LF"}
	}
	body := line[:n-2]
	switch f.state {
	case inRequestLine:
		f.head += n
		return f.requestLine(body)
	case inHeaders:
		f.head += n
		if len(body) == 0 {
			return f.endOfHeaders()
		}
		return f.header(body)
	case inTrailers:
		f.head += n
		if len(body) == 0 {
			f.next()
			return nil
		}
		return &Fault{400, "fields behind the last chunk are not taken"}
	case inChunkSize:
		return f.chunkSize(body)
	default: // inChunkEnd
		if len(body) != 0 {
			return &Fault{400, "a chunk is longer than it says"}
		}
		f.state = inChunkSize
		return nil
	}
}

// BetweenRequests reports whether the bytes so far end with a request.
func (f *Framer) BetweenRequests() bool {
	return f.state == inRequestLine && f.head == 0 && len(f.part) == 0
}

// Browser reports whether a header has come, of this request or one before, that only browsers
// send.
func (f *Framer) Browser() bool { return f.browser }

// Extra reports whether a header has come, of this request or one before, besides those that nearly
// every client sends.
func (f *Framer) Extra() bool { return f.extra }

// next gets ready for another request.
func (f *Framer) next() {
	f.state, f.head, f.left, f.length, f.chunked, f.http10, f.host, f.body = inRequestLine, 0, 0, -1, false, false, false, 0
}

func (f *Framer) requestLine(line []byte) *Fault {
	if len(line) == 0 {
		if f.head > maxEmptyLines*len("\r\n") {
			return &Fault{400, "empty lines in place of a request"}
		}
		return nil // skipped, RFC 9112 section 2.2
	}
	method, rest, ok1 := bytes.Cut(line, []byte{' '})
	target, version, ok2 := bytes.Cut(rest, []byte{' '})
	if !ok1 || !ok2 || len(method) == 0 || len(target) == 0 || bytes.IndexByte(version, ' ') >= 0 {
		return &Fault{400, "the request line is not method, target and version"}
	}
	switch string(version) {
	case "HTTP/1.1":
		f.http10 = false
	case "HTTP/1.0":
		f.http10 = true
	default:
		return &Fault{400, "HTTP/1.1 and HTTP/1.0 only"}
	}
	if !Token(method) {
		return &Fault{400, "the method is not a token"}
	}
	for _, c := range target {
		if c <= ' ' || c == 0x7f {
			return &Fault{400, "control character in the request target"}
		}
	}
	if len(target) > f.limits.Target {
		return &Fault{414, "the request target is too long"}
	}
	f.state, f.length, f.most = inHeaders, -1, f.limits.Body(target)
	return nil
}

// cutHeader takes a header line apart. A name that is not a token covers white space before the
// colon and folding.
func cutHeader(line []byte) (name, value []byte, err *Fault) {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return nil, nil, &Fault{400, "a header line has no name"}
	}
	if !Token(line[:colon]) {
		return nil, nil, &Fault{400, "a header name is not a token (or is folded, or has white space before its colon)"}
	}
	for _, c := range line[colon+1:] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, &Fault{400, "control character in a header"}
		}
	}
	return line[:colon], line[colon+1:], nil
}

// is reports whether a header has a name, in any case of letters.
func is(name []byte, want string) bool {
	return string(name) == want || bytes.EqualFold(name, []byte(want))
}

func (f *Framer) header(line []byte) *Fault {
	name, value, err := cutHeader(line)
	if err != nil {
		return err
	}
	known := false
	switch len(name) {
	case len("Host"):
		if known = is(name, "Host"); known {
			if f.host {
				return &Fault{400, "Host is given twice"}
			}
			if len(bytes.Trim(value, " \t")) == 0 {
				return &Fault{400, "Host is empty"}
			}
			f.host = true
		}
	case len("Accept"): // and of Origin
		known = is(name, "Accept")
		f.browser = f.browser || is(name, "Origin")
	case len("User-Agent"):
		known = is(name, "User-Agent") || is(name, "Connection")
	case len("Content-Type"):
		known = is(name, "Content-Type")
	case len("Authorization"):
		known = is(name, "Authorization")
	case len("Content-Length"): // and of Sec-Fetch-Site
		if is(name, "Content-Length") {
			return f.contentLength(bytes.Trim(value, " \t"))
		}
		f.browser = f.browser || is(name, "Sec-Fetch-Site")
	case len("Accept-Encoding"):
		known = is(name, "Accept-Encoding")
	case len("Transfer-Encoding"):
		if known = is(name, "Transfer-Encoding"); known {
			if f.chunked || f.http10 || !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
				return &Fault{400, "Transfer-Encoding: only chunked, once, in HTTP/1.1"}
			}
			f.chunked = true
		}
	}
	f.extra = f.extra || !known
	return nil
}

func (f *Framer) contentLength(value []byte) *Fault {
	if f.length >= 0 {
		return &Fault{400, "Content-Length is given twice"}
	}
	if len(value) == 0 || len(value) > 18 {
		return &Fault{400, "Content-Length is not a number"}
	}
	f.length = 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return &Fault{400, "Content-Length is not a number"}
		}
		f.length = f.length*10 + int64(c-'0')
	}
	return nil
}

func (f *Framer) endOfHeaders() *Fault {
	switch {
	case !f.host && !f.http10:
		return &Fault{400, "Host is missing"}
	case f.chunked && f.length >= 0:
		return &Fault{400, "Content-Length beside Transfer-Encoding"}
	case f.chunked:
		f.state = inChunkSize
	case f.length > 0:
		f.state, f.left = inBody, uint64(f.length)
		return f.expect(f.left)
	default:
		f.next()
	}
	return nil
}

// chunkSize reads hexadecimal digits, then perhaps extensions, which mean nothing here.
func (f *Framer) chunkSize(line []byte) *Fault {
	digits, extensions, _ := bytes.Cut(line, []byte{';'})
	size, err := strconv.ParseUint(string(digits), 16, 60)
	if err != nil || len(digits) > 15 {
		return &Fault{400, "bad chunk size"}
	}
	for _, c := range extensions {
		if c < ' ' && c != '\t' || c == 0x7f {
			return &Fault{400, "control character in a chunk extension"}
		}
	}
	if size == 0 {
		f.state, f.head = inTrailers, 0
		return nil
	}
	f.state, f.left = inChunk, size
	return f.expect(size)
}

// expect refuses a body that is larger than any may be, as soon as that is known.
func (f *Framer) expect(n uint64) *Fault {
	if f.body += n; f.body > f.most {
		return &Fault{413, "the request body is too large"}
	}
	return nil
}

// Token reports whether s is a token, RFC 9110 section 5.6.2; nothing is.
func Token[S ~[]byte | ~string](s S) bool {
	for i := range len(s) {
		if !httpguts.IsTokenRune(rune(s[i])) {
			return false
		}
	}
	return true
}
