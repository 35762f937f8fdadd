package audit

import (
	"strings"
	"testing"

	"carillon/test/sim/forged"
)

// TestTextsAreNoLines: what a client chose, in any field, is one string of one line.
func TestTextsAreNoLines(t *testing.T) {
	l, path := newLog(t, nil)
	var texts []string
	run(l, func() {
		for _, text := range forged.Texts() {
			l.Record(Entry{Who: text, What: text, Object: text, From: text, Status: 200})
			texts = append(texts, strings.ToValidUTF8(text, "\ufffd"))
		}
	})
	lines := read(t, path)
	if len(lines) != len(texts) {
		t.Fatalf("%d lines of %d entries", len(lines), len(texts))
	}
	for i, line := range lines {
		for _, got := range []string{line.Who, line.What, line.Object, line.From} {
			if strings.ToValidUTF8(got, "\ufffd") != got || strings.ReplaceAll(got, "\ufffd", "") != strings.ReplaceAll(texts[i], "\ufffd", "") || line.Status != 200 {
				t.Errorf("%q came back as %q", texts[i], got)
			}
		}
	}
}
