package node

import (
	"os"
	"path/filepath"
	"testing"

	"carillon/internal/clocks"
	"carillon/internal/vfs"
	"carillon/test/testkit"
)

// The file says how the clocks stand within one boot of the machine, and nothing when it is damaged
// or of another.
func TestSavedClock(t *testing.T) {
	dir := t.TempDir()
	p := &process{cfg: Config{DataDir: dir}, fsys: vfs.OS{}, bootID: "this", clock: clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})}
	p.saveClock()
	want := p.clock.State().Saved
	got := readSavedClock(p.fsys, dir, "this")
	if got == nil || got.OffsetUs-want.OffsetUs > 1000 || want.OffsetUs-got.OffsetUs > 1000 {
		t.Fatalf("%+v, want %+v", got, want)
	}
	name := filepath.Join(dir, clockFile)
	before, err := os.Stat(name)
	testkit.Must(t, err)
	p.saveClock()
	if after, err := os.Stat(name); err != nil || !os.SameFile(before, after) {
		t.Error("it was written again though it is the same")
	}
	if readSavedClock(p.fsys, dir, "another") != nil {
		t.Error("it counts after another boot of the machine")
	}
	data, err := os.ReadFile(name)
	testkit.Must(t, err)
	for at := range data {
		bad := append([]byte(nil), data...)
		bad[at] ^= 1
		testkit.Must(t, os.WriteFile(name, bad, 0o600))
		if s := readSavedClock(p.fsys, dir, "this"); s != nil && *s != *got {
			t.Fatalf("a flipped bit at %d is believed: %+v", at, s)
		}
	}
}
