package strictjson

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// scanAll is the scanner's verdict on a whole document.
func scanAll(doc []byte) (value []byte, ok bool) {
	s := Of(doc)
	v := s.Value()
	s.End()
	return v, s.Err() == nil
}

// depthOf is how deep a valid document nests.
func depthOf(doc []byte) (deepest int) {
	d := json.NewDecoder(bytes.NewReader(doc))
	depth := 0
	for {
		tok, err := d.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// agree holds the scanner against encoding/json, which does not look at UTF-8 or depth.
func agree(t *testing.T, doc []byte) {
	t.Helper()
	want := json.Valid(doc) && utf8.Valid(doc)
	value, got := scanAll(doc)
	if got != want {
		if want && depthOf(doc) > maxDepth {
			return
		}
		t.Fatalf("%q: %v, encoding/json says %v", doc, got, want)
	}
	if got && !bytes.Equal(value, bytes.Trim(doc, " \t\r\n")) {
		t.Fatalf("%q: value is %q", doc, value)
	}
	if !got || len(value) == 0 || value[0] != '"' {
		return
	}
	// A string: its meaning must be the same too. encoding/json puts U+FFFD for half a surrogate
	// pair; we refuse it.
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		t.Fatal(err)
	}
	s := Of(doc)
	if mine := s.Text("x"); s.Err() == nil && mine != text {
		t.Fatalf("%q: %q, encoding/json says %q", doc, mine, text)
	} else if s.Err() != nil && !strings.ContainsRune(text, utf8.RuneError) {
		t.Fatalf("%q: %v", doc, s.Err())
	}
}

var documents = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `nulll`, `truefalse`, `0`, `-0`, `-`, `00`, `01`, `-01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1e5`, `1E-05`, `1.5e+3`, `+1`, `1 2`, `1,`, `0x1`, `1_0`, `Infinity`, `NaN`,
	`""`, `"`, `"a`, `"\`, `"\"`, `"\\"`, `"\/\b\f\n\r\t"`, `"\u0041"`, `"\u004"`, `"\u00zz"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ud83d\n"`, `"\x41"`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"a\nb\"", "\"\xff\"", "\"\xed\xa0\x80\"", `"ä"`, `"aaaaaaaaaaaaaaaaaaa\"aaaaaaaaaaaa"`, "\"aaaaaaa\x80\"", "\"1234567\x01\"", "\"12345678\x01\"",
	`[]`, `[ ]`, `[`, `]`, `[1`, `[1,`, `[1,]`, `[,1]`, `[,]`, `[1 2]`, `[[]]`, `[[],[]]`, `[[}`, `[}`, `{}`, `{ }`, `{`, `}`, `{]`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{,"a":1}`, `{"a":1 "b":2}`, `{"a":1,"b":2}`, `{"a":{"b":[{}]}}`, `{1:2}`, `{"a":1]`, `[{"a":1}`, `{"a":1}}`, `{"a":1}x`, "\ufeff{}", `{"a":1,"a":2}`, ` { "a" : [ 1 , 2 ] , "b" : null } `, "[1,\t2,\r\n3]", "[1,\v2]", "[1,\u00a02]",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":[`, 32) + strings.Repeat("]}", 32), strings.Repeat("[", 100_000),
}

func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	for _, doc := range documents {
		agree(t, []byte(doc))
	}
	if _, ok := scanAll([]byte(strings.Repeat("[", 65) + strings.Repeat("]", 65))); ok {
		t.Error("took depth 65")
	}
	if _, ok := scanAll([]byte(strings.Repeat("[", 64) + strings.Repeat("]", 64))); !ok {
		t.Error("refused depth 64")
	}
	// Small changes to good documents: where most faults of a scanner would be.
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []byte("{}[]\",:\\ue0123456789.-+ntfalsrb \t\n\x00\x1f\x7f\x80\xc3\xa4\xed\xff")
	for range 200_000 {
		doc := []byte(documents[rnd.IntN(len(documents)-1)])
		for range 1 + rnd.IntN(4) {
			at := rnd.IntN(len(doc) + 1)
			switch c := alphabet[rnd.IntN(len(alphabet))]; rnd.IntN(3) {
			case 0:
				doc = append(doc[:at], append([]byte{c}, doc[at:]...)...)
			case 1:
				if at < len(doc) {
					doc[at] = c
				}
			default:
				if at < len(doc) {
					doc = append(doc[:at], doc[at+1:]...)
				}
			}
		}
		agree(t, doc)
	}
}

// Every byte at every place of a string, against the plain loop that plainUntil stands for.
func TestPlainUntil(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				b := bytes.Repeat([]byte{'x'}, length)
				b[at] = byte(c)
				want := length
				if c < ' ' || c == '"' || c == '\\' {
					want = at
				}
				if got := plainUntil(b, 0); got != want {
					t.Fatalf("length %d, byte %#x at %d: %d, want %d", length, c, at, got, want)
				}
			}
		}
	}
}

func TestIntegers(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "-0": 0, "7": 7, "-7": -7, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64} {
		if got, ok := ParseInteger([]byte(s)); !ok || got != want {
			t.Errorf("%s: %d %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "-", "+1", "01", "-01", "1.0", "1e1", " 1", "1 ", "x", "0x1", "--1"} {
		if _, ok := ParseInteger([]byte(s)); ok {
			t.Errorf("took %q", s)
		}
	}
}

// Any document: the scanner and encoding/json agree on which documents are JSON, and on the meaning
// of a string.
func FuzzScanner(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) { agree(t, doc) })
}

// encoding/json puts U+FFFD in the place of half a surrogate pair. Here a string that is taken is
// the one that was sent.
func TestHalfASurrogatePairIsRefused(t *testing.T) {
	for _, doc := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n12345"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`} {
		s := Of([]byte(doc))
		if text := s.Text("x"); s.Err() == nil {
			t.Errorf("%s is taken for %q", doc, text)
		}
	}
}

// A fault that is not of the grammar leaves the rest of the document readable; one of the grammar
// does not.
func TestSkipGoesPastAValueThatIsRefused(t *testing.T) {
	s := Of([]byte(`[ {"a":{"b":"text"}} , 7 ]`))
	n := s.Open('[', "list")
	s.More(n, ']')
	from := s.Pos()
	s.Open('{', "element")
	s.More(0, '}')
	s.Key()
	s.Integer("a")
	if f, ok := s.Err().(*Fault); !ok || f.Grammar || f.Detail != "a: must be an integer" {
		t.Fatalf("%v", s.Err())
	}
	if !s.Skip(from) || !s.More(1, ']') || s.Integer("second") != 7 || s.More(2, ']') || s.Err() != nil {
		t.Fatalf("after it: %v", s.Err())
	}
	s.End()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}

	s = Of([]byte(`[{"a" 1},7]`))
	s.Open('[', "list")
	from = s.Pos()
	s.Open('{', "element")
	s.More(0, '}')
	s.Key()
	if f, ok := s.Err().(*Fault); !ok || !f.Grammar || s.Skip(from) || s.Err() == nil {
		t.Fatalf("%v", s.Err())
	}
}
