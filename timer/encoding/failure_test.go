package encoding

import (
	"reflect"
	"strings"
	"testing"

	"carillon/timer"
)

// TestFailures: an error text and an answer are read as they were written; without an answer it is
// a plain text.
func TestFailures(t *testing.T) {
	long := strings.Repeat("é", 3000)
	for _, a := range []*timer.Answer{
		nil, {Body: "no"}, {Type: "text/html"}, {Location: "/there"}, {Body: "\xff\x00", Type: "a/b", Location: "/"},
		{Body: long[:timer.MaxAnswerBody], Type: long[:timer.MaxAnswerType], Location: long[:timer.MaxAnswerLocation]},
	} {
		for _, text := range []string{"", "status 500", long[:MaxErr]} {
			b := AppendError(nil, text, a)
			r := Reader{Rest: b}
			got, answer := r.Failure()
			if r.Close() != nil || got != text || !reflect.DeepEqual(answer, a) {
				t.Fatalf("%d bytes and %+v: %q, %+v, %v", len(text), a, got, answer, r.Err())
			}
			if a == nil && string(b) != string(AppendBlock(nil, text)) {
				t.Errorf("%q without an answer is %x", text, b)
			}
			for n := range b {
				r := Reader{Rest: b[:n]}
				if _, _ = r.Failure(); r.Fault == "" {
					t.Fatalf("%d of %d bytes are read", n, len(b))
				}
			}
		}
	}
	if b := AppendError(nil, "x", &timer.Answer{}); string(b) != string(AppendBlock(nil, "x")) {
		t.Errorf("an empty answer: %x", b)
	}
	cut, err := DecodeAnswer(AppendAnswer(nil, &timer.Answer{Body: long, Type: "x" + long, Location: "x" + long}))
	if err != nil || len(cut.Body) != timer.MaxAnswerBody || len(cut.Type) != timer.MaxAnswerType-1 || len(cut.Location) != timer.MaxAnswerLocation-1 {
		t.Errorf("too long an answer: %+v, %v", cut, err)
	}
	for _, b := range [][]byte{{1, 'a'}, {0, 0, 0}, {1, 'a', 0, 0, 9}} {
		if a, err := DecodeAnswer(b); err == nil {
			t.Errorf("%x is read as %+v", b, a)
		}
	}
	tooLong := Reader{Rest: AppendBlock(nil, strings.Repeat("x", MaxErr+1))}
	if _, _ = tooLong.Failure(); tooLong.Fault == "" {
		t.Error("too long an error text is read")
	}
}
