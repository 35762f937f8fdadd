package web

import (
	"encoding/json"
	"strings"
	"testing"

	"carillon/transport/api/internal/strictjson"
)

func TestStringsRoundTrip(t *testing.T) {
	for _, s := range []string{"", "a", "\"\\/\b\f\n\r\t", "\x00\x1f\x7f", "äöü€😀", "<>&\u2028", strings.Repeat("x\"", 40)} {
		b := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil || back != s {
			t.Errorf("%q: %s: %q %v", s, b, back, err)
		}
		r := strictjson.Of(b)
		if got := r.Text("x"); r.Err() != nil || got != s {
			t.Errorf("%q: %s: %q %v", s, b, got, r.Err())
		}
	}
	for in, want := range map[string]string{"a\xffb": `"a\ufffdb"`, "\xed\xa0\x80": `"\ufffd\ufffd\ufffd"`, "\xc3": `"\ufffd"`, "\ufffd": `"` + "\ufffd" + `"`} {
		if got := string(AppendString(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
