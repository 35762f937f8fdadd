package api

import (
	"math"
	"math/bits"
	"strconv"
	"unsafe"
)

// scanner reads one JSON document, strictly, in one pass and without building a tree. The caller drives it:
//
//	for n := s.open('{'); s.more(n, '}'); n++ { switch string(s.key()) { case "id": id = s.text("id") … } }
//
// The first fault sticks in err; after it every method returns zero values and more returns false. A fault of the
// grammar sets broken too: then nothing after it can be trusted, while after any other fault the document can be
// skipped and what follows be read.
//
// Invariant: buf is valid UTF-8 (checked once, over the whole body, by whoever made the scanner) and is never
// changed, so that the strings that point into it are good for as long as they are held.
type scanner struct {
	buf    []byte
	pos    int
	err    *problem
	broken bool
}

// maxDepth bounds the nesting of a value. It fits the bits of one word: see value.
const maxDepth = 64

func (s *scanner) fail(p *problem) {
	if s.err == nil {
		s.err = p
	}
}

func (s *scanner) syntax(what string) {
	if s.err == nil {
		s.err = badf(badJSON, "byte %d: %s", s.pos, what)
	}
	s.broken = true
}

// peek is the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// open enters an object '{' or an array '['; want says what the place is, for the fault.
func (s *scanner) open(c byte, want string) int {
	if s.err != nil {
		return 0
	}
	if s.peek() != c {
		kind := "an object"
		if c == '[' {
			kind = "an array"
		}
		s.mistyped(want, kind)
		return 0
	}
	s.pos++
	return 0
}

// more reports whether there is another member or element, n being how many there were.
func (s *scanner) more(n int, end byte) bool {
	if s.err != nil {
		return false
	}
	c := s.peek()
	if c == end {
		s.pos++
		return false
	}
	if n > 0 {
		if c != ',' {
			s.syntax("expected a comma or the end of the object or array")
			return false
		}
		s.pos++
		if s.peek() == end {
			s.syntax("comma before the end")
			return false
		}
	}
	if s.pos == len(s.buf) {
		s.syntax("ends too early")
		return false
	}
	return true
}

// key reads a member's name and its colon.
func (s *scanner) key() []byte {
	if s.err != nil {
		return nil
	}
	if s.peek() != '"' {
		s.syntax("expected the name of a field")
		return nil
	}
	k := s.str()
	if s.peek() != ':' {
		s.syntax("expected a colon")
		return nil
	}
	s.pos++
	return k
}

// null consumes a null, if one is next.
func (s *scanner) null() bool {
	if s.err != nil || s.peek() != 'n' {
		return false
	}
	return s.literal("null")
}

func (s *scanner) literal(word string) bool {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		s.syntax("not a JSON value")
		return false
	}
	s.pos += len(word)
	return true
}

// mistyped reports a value of the wrong type, unless there is no well-formed value at all.
func (s *scanner) mistyped(name, kind string) {
	at := s.pos
	s.value()
	if s.err == nil {
		s.pos = at
		s.fail(badf(badRequest, "%s: must be %s", name, kind))
	}
}

// text reads a string. The result points into the document where it can.
func (s *scanner) text(name string) string {
	if s.err != nil {
		return ""
	}
	if s.peek() != '"' {
		s.mistyped(name, "a string")
		return ""
	}
	b := s.str()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// boolean reads true or false.
func (s *scanner) boolean(name string) bool {
	if s.err != nil {
		return false
	}
	switch s.peek() {
	case 't':
		return s.literal("true")
	case 'f':
		s.literal("false")
		return false
	}
	s.mistyped(name, "true or false")
	return false
}

// integer reads a number spelled -?(0|[1-9][0-9]*), held at the bounds of int64 where it is beyond them.
func (s *scanner) integer(name string) int64 {
	if s.err != nil {
		return 0
	}
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		s.mistyped(name, "an integer")
		return 0
	}
	b := s.number()
	if s.err != nil {
		return 0
	}
	n, ok := parseInteger(b)
	if !ok {
		s.fail(badf(badRequest, "%s: must be an integer, written in digits only", name))
	}
	return n
}

func parseInteger(b []byte) (n int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-int64(c-'0'))/10 {
			n = math.MaxInt64 // held there: the next digits cannot lower it
			continue
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// float reads any number that is finite as a float64.
func (s *scanner) float(name string) float64 {
	if s.err != nil {
		return 0
	}
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		s.mistyped(name, "a number")
		return 0
	}
	b := s.number()
	if s.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		s.fail(badf(badRequest, "%s: number out of range", name))
	}
	return f
}

// number reads a number by JSON's grammar and returns its bytes.
func (s *scanner) number() []byte {
	b, i, start := s.buf, s.pos, s.pos
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	ok := true
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		ok = digits()
	}
	if ok && i < len(b) && b[i] == '.' {
		i++
		ok = digits()
	}
	if ok && i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		ok = digits()
	}
	// A digit here follows a leading zero.
	if !ok || i < len(b) && b[i] >= '0' && b[i] <= '9' {
		s.syntax("not a number")
		return nil
	}
	s.pos = i
	return b[start:i]
}

// value reads any value and returns its bytes as they stand, inner white space included. Which of the enclosing
// levels are objects is kept in the bits of a word: that is why depth is bounded by 64.
func (s *scanner) value() []byte {
	if s.err != nil {
		return nil
	}
	s.peek()
	start := s.pos
	var objects uint64
	depth := 0
	for {
		switch c := s.peek(); c {
		case '{', '[':
			if depth == maxDepth {
				s.syntax("nested deeper than 64")
				return nil
			}
			s.pos++
			depth++
			objects <<= 1
			end := byte(']')
			if c == '{' {
				objects |= 1
				end = '}'
			}
			if s.peek() == end {
				s.pos++
				depth--
				objects >>= 1
				break
			}
			if c == '{' {
				s.key()
			}
			if s.err != nil {
				return nil
			}
			continue
		case '"':
			s.skipString()
		case 't':
			s.literal("true")
		case 'f':
			s.literal("false")
		case 'n':
			s.literal("null")
		default:
			if c != '-' && (c < '0' || c > '9') {
				s.syntax("not a JSON value")
				return nil
			}
			s.number()
		}
		if s.err != nil {
			return nil
		}
		if depth = s.closeLevels(&objects, depth); s.err != nil {
			return nil
		}
		if depth == 0 {
			return s.buf[start:s.pos]
		}
	}
}

// closeLevels goes past the ends of arrays and objects after a value, to the next element or member.
func (s *scanner) closeLevels(objects *uint64, depth int) int {
	for depth > 0 {
		inObject := *objects&1 == 1
		switch c := s.peek(); {
		case c == ',':
			s.pos++
			if inObject {
				s.key()
			}
			return depth
		case c == '}' && inObject, c == ']' && !inObject:
			s.pos++
			depth--
			*objects >>= 1
		default:
			s.syntax("expected a comma or the end of the object or array")
			return depth
		}
	}
	return 0
}

// end asks that nothing follows.
func (s *scanner) end() {
	if s.err == nil && s.peek() != 0 || s.err == nil && s.pos < len(s.buf) {
		s.syntax("something follows the end of the document")
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plainUntil is the first place from i on that holds a quote, a backslash or a control character. Eight bytes at a
// time: a byte that is zero after the XOR, or below 0x20, borrows into its own high bit. A borrow can also reach the
// byte above it, so only the lowest flag is exact; the lowest is the one that is used.
func plainUntil(b []byte, i int) int {
	for i+8 <= len(b) {
		w := *(*uint64)(unsafe.Pointer(&b[i]))
		quote := w ^ (lowBits * '"')
		slash := w ^ (lowBits * '\\')
		hit := ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (w-lowBits*0x20)&^w) & highBits
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}
