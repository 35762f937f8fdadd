package strictjson

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads the string that starts at the quote at pos and returns its meaning: a slice of the
// document when it holds no escape.
func (s *Scanner) str() []byte {
	start := s.pos + 1
	i := plainUntil(s.buf, start)
	if i < len(s.buf) && s.buf[i] == '"' {
		s.pos = i + 1
		return s.buf[start:i]
	}
	s.skipString()
	if s.err != nil {
		return nil
	}
	out, ok := unescape(s.buf[start : s.pos-1])
	if !ok {
		s.Fail(&Fault{true, "byte " + strconv.Itoa(start) + ": half of a surrogate pair"})
		return nil
	}
	return out
}

// skipString goes past the string that starts at the quote at pos.
func (s *Scanner) skipString() {
	i := s.pos + 1
	for {
		i = plainUntil(s.buf, i)
		if i >= len(s.buf) {
			s.pos = len(s.buf)
			s.syntax("string without an end")
			return
		}
		switch s.buf[i] {
		case '"':
			s.pos = i + 1
			return
		case '\\':
			n := escapeLen(s.buf[i:])
			if n == 0 {
				s.pos = i
				s.syntax("bad escape in a string")
				return
			}
			i += n
		default:
			s.pos = i
			s.syntax("control character in a string")
			return
		}
	}
}

// escapeLen is the length of the escape that b starts with, 0 when it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(r), err == nil
}

// unescape resolves the escapes of a string whose grammar is known to be good. Half a surrogate
// pair means nothing and is refused, so that stored text is always UTF-8.
func unescape(b []byte) (out []byte, ok bool) {
	out = make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		switch b[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(b[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				if len(b) < i+7 || b[i+1] != '\\' || b[i+2] != 'u' {
					return nil, false
				}
				low, _ := hex4(b[i+3:])
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					return nil, false
				}
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default: // quote, backslash, slash
			out = append(out, b[i])
		}
	}
	return out, true
}
