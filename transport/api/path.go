package api

import "bytes"

// maxSegments is one more than the longest route has.
const maxSegments = 7

// splitTarget takes a request target apart, raw: path and query. An absolute-form target (for proxies) loses its
// scheme and authority.
func splitTarget(target []byte) (path, query []byte, ok bool) {
	if len(target) == 0 || target[0] != '/' {
		_, rest, found := bytes.Cut(target, []byte("://"))
		if !found {
			return nil, nil, false
		}
		i := bytes.IndexByte(rest, '/')
		if i < 0 {
			return []byte("/"), nil, true
		}
		target = rest[i:]
	}
	if bytes.IndexByte(target, '#') >= 0 {
		return nil, nil, false
	}
	path, query, _ = bytes.Cut(target, []byte{'?'})
	return path, query, true
}

// splitPath decodes percent-encoding once and cuts the path at its slashes. What could be read as another path by
// somebody else on the way (an encoded slash, a backslash, a dot segment, a NUL or control character, an encoding of an
// encoding) is refused rather than normalised: we authorise what we see. Segments point into path or buf.
func splitPath(path, buf []byte, into [][]byte) (segments [][]byte, _ []byte, p *problem) {
	segments = into[:0]
	buf = buf[:0]
	for rest, more := path[1:], true; more; {
		var raw []byte
		raw, rest, more = bytes.Cut(rest, []byte{'/'})
		from := len(buf)
		plain := true
		for i := 0; i < len(raw); i++ {
			c := raw[i]
			if c == '%' {
				if c, p = percent(raw[i:]); p != nil {
					return nil, buf, p
				}
				if plain {
					buf = append(buf, raw[:i]...)
					plain = false
				}
				i += 2
			}
			if c == '\\' || c <= ' ' || c >= 0x7f {
				return nil, buf, bad(badRequest, "path: backslash, space, control or non-ASCII character")
			}
			if !plain {
				buf = append(buf, c)
			}
		}
		segment := raw
		if !plain {
			segment = buf[from:len(buf):len(buf)]
		}
		if string(segment) == "." || string(segment) == ".." {
			return nil, buf, bad(badRequest, "path: dot segment")
		}
		if len(segments) == maxSegments {
			return segments, buf, nil // longer than any route
		}
		segments = append(segments, segment)
	}
	return segments, buf, nil
}

// percent decodes the three bytes of an encoded plain character.
func percent(b []byte) (byte, *problem) {
	if len(b) < 3 || hexDigit(b[1]) < 0 || hexDigit(b[2]) < 0 {
		return 0, bad(badRequest, "path: broken percent-encoding")
	}
	c := byte(hexDigit(b[1])<<4 | hexDigit(b[2]))
	if c == '/' || c == '%' {
		return 0, bad(badRequest, "path: encoded slash or double encoding")
	}
	return c, nil
}
