package testkit

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewriteWire = flag.Bool("wire.rewrite", false, "write the golden file of the messages between nodes again, as this build has them")

// Message is one that nodes send each other, as this build writes it, and its reader; nil: a test
// of its own reads it.
type Message struct {
	Bytes []byte
	Read  func([]byte) error
}

// WireOfReleases fails unless this build reads each message as each release so far wrote it, and
// writes it as the last release did. testdata/golden/wire-level-N has those of feature level N. A
// build that writes one otherwise needs a feature level for that, and adds its own file beside the
// others, with -wire.rewrite.
func WireOfReleases(t *testing.T, level int, messages map[string]Message) {
	t.Helper()
	newest := filepath.Join("testdata", "golden", fmt.Sprintf("wire-level-%d", level))
	if *rewriteWire {
		var out strings.Builder
		for _, name := range slices.Sorted(maps.Keys(messages)) {
			fmt.Fprintf(&out, "%s\t%x\n", name, messages[name].Bytes)
		}
		if err := os.MkdirAll(filepath.Dir(newest), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(newest, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/golden/wire-level-*")
	if err != nil || !slices.Contains(files, newest) {
		t.Fatalf("%s is not there: %v, %v", newest, files, err)
	}
	for _, file := range files {
		seen := compareWire(t, file, messages, file == newest)
		if file == newest && seen != len(messages) {
			t.Errorf("%s has %d messages of %d", file, seen, len(messages))
		}
	}
}

// compareWire reads the messages of a file, and counts them. same: they are written so, too.
func compareWire(t *testing.T, file string, messages map[string]Message, same bool) (seen int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		was, err := hex.DecodeString(digits)
		m, known := messages[name]
		if err != nil || !known {
			t.Errorf("%s: %q: %v; a message that is not sent any more is read as long as releases send it", file, name, err)
			continue
		}
		seen++
		if m.Read != nil {
			if err := m.Read(was); err != nil {
				t.Errorf("%s: %s is not read: %v", file, name, err)
			}
		}
		if same && !bytes.Equal(was, m.Bytes) {
			t.Errorf("%s: %s is written as\n%x, it was\n%x", file, name, m.Bytes, was)
		}
	}
	return seen
}
