package http1

import (
	"bytes"
	"strconv"
)

// SplitTarget takes a request target apart, raw: path and query. An absolute-form target (for
// proxies) loses its scheme and authority.
func SplitTarget(target []byte) (path, query []byte, ok bool) {
	if len(target) == 0 || target[0] != '/' {
		scheme, rest, _ := bytes.Cut(target, []byte("://"))
		if !bytes.EqualFold(scheme, []byte("http")) && !bytes.EqualFold(scheme, []byte("https")) {
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

// SplitPath decodes percent-encoding once and cuts the path at its slashes. A target that a program
// on the way could read as another path (an encoded slash, a backslash, a dot segment, a NUL or
// control character, an encoding of an encoding) is refused rather than normalised: the path that
// is authorised is the one that was sent. Segments point into path or buf; with the fault
// NoName they are those before its place. Of a path with more than most segments the rest is
// not looked at.
func SplitPath(path, buf []byte, into [][]byte, most int) (segments [][]byte, _ []byte, fault *Fault) {
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
				if c, fault = percent(raw[i:]); fault != nil {
					return nil, buf, fault
				}
				if plain {
					buf = append(buf, raw[:i]...)
					plain = false
				}
				i += 2
			}
			if c == ' ' || c > 0x7f {
				return segments, buf, NoName
			}
			if c == '\\' || c < ' ' || c == 0x7f {
				return nil, buf, &Fault{400, "path: backslash or control character"}
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
			return nil, buf, &Fault{400, "path: dot segment"}
		}
		if len(segments) == most {
			return segments, buf, nil
		}
		segments = append(segments, segment)
	}
	return segments, buf, nil
}

// NoName is the fault of a path that no program reads as another path, but which has characters
// that no name has.
var NoName = &Fault{400, "path: space or non-ASCII character"}

// percent decodes the three bytes of an encoded plain character.
func percent(b []byte) (byte, *Fault) {
	v, err := strconv.ParseUint(string(b[1:min(3, len(b))]), 16, 8)
	if err != nil || len(b) < 3 {
		return 0, &Fault{400, "path: broken percent-encoding"}
	}
	c := byte(v)
	if c == '/' || c == '%' {
		return 0, &Fault{400, "path: encoded slash or double encoding"}
	}
	return c, nil
}
