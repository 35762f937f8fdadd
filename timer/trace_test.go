package timer

import (
	"strings"
	"testing"
)

// TestParseTrace: only the specification's form is taken, unchanged. A bad tracestate loses only
// the state.
func TestParseTrace(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for parent, want := range map[string]string{
		"00-" + id + "-" + span + "-01":    "00-" + id + "-" + span + "-01",
		"00-" + id + "-" + span + "-00":    "00-" + id + "-" + span + "-00",
		"00-" + id + "-" + span + "-ff":    "00-" + id + "-" + span + "-03", // other flags mean nothing yet
		"01-" + id + "-" + span + "-01":    "00-" + id + "-" + span + "-01", // of a version to come
		"01-" + id + "-" + span + "-01-xy": "00-" + id + "-" + span + "-01",
	} {
		if got := ParseTrace(parent, "a=b"); got == nil || got.Parent(got.Span) != want || got.State != "a=b" {
			t.Errorf("%s: %+v, want %s", parent, got, want)
		}
	}
	for _, parent := range []string{
		"", "00", "ff-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01-", "00-" + id + "-" + span + "-1", "01-" + id + "-" + span + "-01x",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + id + "-" + strings.Repeat("0", 16) + "-01", "00-" + strings.ToUpper(id) + "-" + span + "-01",
		"00-" + id[1:] + "g-" + span + "-01", "00_" + id + "_" + span + "_01", "00-" + id + "-" + span + "-0g", " 0-" + id + "-" + span + "-01", "0x-" + id + "-" + span + "-01",
	} {
		if got := ParseTrace(parent, ""); got != nil {
			t.Errorf("%q: %+v", parent, got)
		}
	}
	for _, state := range []string{strings.Repeat("x", MaxTraceState+1), "a=b\n", "a=\x00", "a=é", "a=b\tc"} {
		if got := ParseTrace("00-"+id+"-"+span+"-01", state); got == nil || got.State != "" {
			t.Errorf("%q: %+v", state, got)
		}
	}
}
