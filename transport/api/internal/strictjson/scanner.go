package strictjson

import (
	"bytes"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// Scanner reads one JSON document. The package comment has how it is driven. The first fault
// sticks: after it every method returns zero values and More returns false.
//
// Invariant: buf is valid UTF-8 and is never changed, so that the strings that point into it are
// good for as long as they are held.
type Scanner struct {
	buf    []byte
	pos    int
	err    error
	broken bool // err is of the grammar: nothing after it can be trusted
}

// Fault is an error that a Scanner itself finds.
type Fault struct {
	// The document is not JSON, or not UTF-8; otherwise a value is not of the type that was asked
	// for.
	Grammar bool
	Detail  string
}

func (f *Fault) Error() string { return f.Detail }

// Of makes a scanner of a document, which it takes over: the caller changes none of it any more.
func Of(doc []byte) Scanner {
	s := Scanner{buf: doc}
	if !utf8.Valid(doc) {
		s.err, s.broken = &Fault{true, "not valid UTF-8"}, true
	}
	return s
}

// maxDepth bounds the nesting of a value. It fits the bits of one word: see Value.
const maxDepth = 64

// Err is the first fault: a *Fault, or the error that Fail was given.
func (s *Scanner) Err() error { return s.err }

// Fail is for a fault that the caller finds in the values that it has read. It does nothing after
// an earlier fault.
func (s *Scanner) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Restate puts another fault in the place of the one that there is.
func (s *Scanner) Restate(err error) { s.err = err }

// Pos is the place of the next value.
func (s *Scanner) Pos() int {
	s.Peek()
	return s.pos
}

// Skip forgets the fault and goes past the value that starts at a place where Pos has been; false
// when the fault is of the grammar, and stays.
func (s *Scanner) Skip(from int) bool {
	if s.broken {
		return false
	}
	s.err, s.pos = nil, from
	s.Value()
	return true
}

func (s *Scanner) mistyped(name, kind string) {
	s.Fail(&Fault{Detail: name + ": must be " + kind})
}

func (s *Scanner) syntax(what string) {
	s.Fail(&Fault{true, "byte " + strconv.Itoa(s.pos) + ": " + what})
	s.broken = true
}

// Peek is the next byte that is not white space, 0 at the end.
func (s *Scanner) Peek() byte {
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

// Open enters an object '{' or an array '['; want names the place, for the fault.
func (s *Scanner) Open(c byte, want string) int {
	if s.err != nil {
		return 0
	}
	if s.Peek() != c {
		kind := "an object"
		if c == '[' {
			kind = "an array"
		}
		s.Mistyped(want, kind)
		return 0
	}
	s.pos++
	return 0
}

// More reports whether there is another member or element, n being how many there were.
func (s *Scanner) More(n int, end byte) bool {
	if s.err != nil {
		return false
	}
	c := s.Peek()
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
		if s.Peek() == end {
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

// Key reads a member's name and its colon.
func (s *Scanner) Key() []byte {
	if s.err != nil {
		return nil
	}
	if s.Peek() != '"' {
		s.syntax("expected the name of a field")
		return nil
	}
	k := s.str()
	if s.Peek() != ':' {
		s.syntax("expected a colon")
		return nil
	}
	s.pos++
	return k
}

// Null consumes a null, if one is next.
func (s *Scanner) Null() bool {
	if s.err != nil || s.Peek() != 'n' {
		return false
	}
	return s.literal("null")
}

func (s *Scanner) literal(word string) bool {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		s.syntax("not a JSON value")
		return false
	}
	s.pos += len(word)
	return true
}

// Mistyped reports that the next value is not of a kind, unless there is no well-formed value at
// all.
func (s *Scanner) Mistyped(name, kind string) {
	at := s.pos
	s.Value()
	if s.err == nil {
		s.pos = at
		s.mistyped(name, kind)
	}
}

// Text reads a string. The result points into the document where it can.
func (s *Scanner) Text(name string) string {
	if s.err != nil {
		return ""
	}
	if s.Peek() != '"' {
		s.Mistyped(name, "a string")
		return ""
	}
	b := s.str()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Boolean reads true or false.
func (s *Scanner) Boolean(name string) bool {
	if s.err != nil {
		return false
	}
	switch s.Peek() {
	case 't':
		return s.literal("true")
	case 'f':
		s.literal("false")
		return false
	}
	s.Mistyped(name, "true or false")
	return false
}

// Integer reads a number spelled -?(0|[1-9][0-9]*) that fits in 64 bits.
func (s *Scanner) Integer(name string) int64 {
	b := s.numeral(name, "an integer")
	if b == nil {
		return 0
	}
	n, ok := ParseInteger(b)
	if !ok {
		s.mistyped(name, "an integer of 64 bits, written in digits only")
	}
	return n
}

// ParseInteger reads a number spelled -?(0|[1-9][0-9]*). ok is false for one beyond 64 bits, too.
func ParseInteger(b []byte) (n int64, ok bool) {
	digits := bytes.TrimPrefix(b, []byte{'-'})
	if len(digits) == 0 || digits[0] < '0' || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// Float reads any number that is finite as a float64.
func (s *Scanner) Float(name string) float64 {
	b := s.numeral(name, "a number")
	if b == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		s.Fail(&Fault{Detail: name + ": number out of range"})
	}
	return f
}

// numeral is the bytes of a number; nil: the next value is none.
func (s *Scanner) numeral(name, kind string) []byte {
	if s.err != nil {
		return nil
	}
	if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
		s.Mistyped(name, kind)
		return nil
	}
	return s.number()
}

// number reads a number by JSON's grammar and returns its bytes.
func (s *Scanner) number() []byte {
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

// Value reads any value and returns its bytes as they stand, inner white space included. Which of
// the enclosing levels are objects is kept in the bits of a word: that is why depth is bounded by
// 64.
func (s *Scanner) Value() []byte {
	if s.err != nil {
		return nil
	}
	s.Peek()
	start := s.pos
	var objects uint64
	depth := 0
	for {
		switch c := s.Peek(); c {
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
			if s.Peek() == end {
				s.pos++
				depth--
				objects >>= 1
				break
			}
			if c == '{' {
				s.Key()
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

// closeLevels goes past the ends of arrays and objects after a value, to the next element or
// member.
func (s *Scanner) closeLevels(objects *uint64, depth int) int {
	for depth > 0 {
		inObject := *objects&1 == 1
		switch c := s.Peek(); {
		case c == ',':
			s.pos++
			if inObject {
				s.Key()
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

// End asks that nothing follows.
func (s *Scanner) End() {
	if s.err == nil && s.Peek() != 0 || s.err == nil && s.pos < len(s.buf) {
		s.syntax("something follows the end of the document")
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// plainUntil is the first place from i on that holds a quote, a backslash or a control character.
// Eight bytes at a time: a byte that is zero after the XOR, or below 0x20, borrows into its own
// high bit. A borrow can also reach the byte above it, so only the lowest flag is exact; the lowest
// is the one that is used.
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
