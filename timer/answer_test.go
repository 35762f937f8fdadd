package timer

import (
	"strings"
	"testing"
)

// TestShownError: a last error ends with the beginning of a text answer, on one line.
func TestShownError(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		x := Timer{LastError: "status 500", LastAnswer: &Answer{Body: body}}
		if got := x.ShownError(); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
	f("card declined", "status 500: card declined")
	f(" \r\n card\n\n\tdeclined \n", "status 500: card declined")
	f("a\x1b[31m\x00b\u202e", "status 500: a?[31m?b?")
	f(" \n", "status 500")
	f("", "status 500")
	f("\xff", "status 500") // not text
	f(strings.Repeat("é", 121), "status 500: "+strings.Repeat("é", 120))
	f(strings.Repeat("é", 120), "status 500: "+strings.Repeat("é", 120))
	if got := (&Timer{LastError: "timeout"}).ShownError(); got != "timeout" {
		t.Errorf("without an answer: %q", got)
	}
}
