package wire

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

	"carillon/internal/feature"
)

var rewriteWire = flag.Bool("wire.rewrite", false, "write the golden file of this build's messages anew")

// TestWireOfReleases: this build reads each message between hosts as each release so far wrote it,
// and writes it as the last release did. A build that writes it otherwise needs a feature level for
// that, and adds its own file beside the others: go test ./shard/wire -run TestWireOfReleases
// -wire.rewrite.
func TestWireOfReleases(t *testing.T) {
	newest := filepath.Join("testdata", "golden", fmt.Sprintf("wire-level-%d", feature.LevelOfBuild))
	samples := samples()
	if *rewriteWire {
		var out strings.Builder
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			fmt.Fprintf(&out, "%s\t%x\n", name, samples[name].message)
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
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for line := range strings.Lines(string(text)) {
			name, digits, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			message, err := hex.DecodeString(digits)
			s, known := samples[name]
			if err != nil || !known {
				t.Errorf("%s: %q: %v; a message that is not sent any more is read as long as releases send it", file, name, err)
				continue
			}
			seen++
			if err := s.read(message); err != nil {
				t.Errorf("%s: %s is not read: %v", file, name, err)
			}
			if file == newest && !bytes.Equal(message, s.message) {
				t.Errorf("%s: %s is written as\n%x, it was\n%x", file, name, s.message, message)
			}
		}
		if file == newest && seen != len(samples) {
			t.Errorf("%s has %d messages of %d", file, seen, len(samples))
		}
	}
}
