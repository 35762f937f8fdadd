package terminal

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// No byte that a terminal takes for a command gets through, in one piece or byte by byte.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n": "plain\ttext\n", "äöü €😀": "äöü €😀", "": "",
		"\x1b[2J\x1b]0;title\a": "·[2J·]0;title·", "a\rb\bc\x7f\x00": "a·b·c··",
		"c1: \u009b31m\u0085": "c1: ·31m·", "raw: \x9b31m\xff": "raw: ·31m·",
		"paid \u202e05 RUE\u202c \u2066x\u2069": "paid ·05 RUE· ·x·", "👩\u200d🔧": "👩\u200d🔧", // bidirectional overrides; a joiner is none
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
		for _, size := range []int{1, 2, 3, 100} {
			var out bytes.Buffer
			safe := (&Terminal{Out: &out, Err: &out}).Safe()
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := safe.Out.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if out.String() != want {
				t.Errorf("%q by %d: %q", text, size, out.String())
			}
		}
	}
}

// Data for a program stays as it is.
func TestDataIsRaw(t *testing.T) {
	var out, errs bytes.Buffer
	safe := (&Terminal{Out: &out, Err: &errs}).Safe()
	fmt.Fprint(safe.Data(), "\x1b[1m")
	fmt.Fprint(safe.Err, "\x1b[1m")
	_, _ = io.WriteString(safe.Raw().Err, "\x1b[0m")
	if out.String() != "\x1b[1m" || errs.String() != "·[1m\x1b[0m" {
		t.Errorf("%q %q", out.String(), errs.String())
	}
	if plain := (&Terminal{Out: &out}); plain.Raw() != plain || plain.Data() != io.Writer(&out) {
		t.Error("a terminal that is not safe is its own")
	}
}
