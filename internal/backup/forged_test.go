package backup

import (
	"bytes"
	"slices"
	"testing"

	"carillon/internal/secret"
	"carillon/test/sim/forged"
)

// TestBackupInABackup: a state may hold records of a backup, and its end. It comes back as it was;
// a file that is cut behind such an end is refused.
func TestBackupInABackup(t *testing.T) {
	if _, err := NewReader(bytes.NewReader(forged.Backup())); err != nil {
		t.Fatalf("the form is not right: %v", err)
	}
	inner := write(t, nil, [][]byte{[]byte("another state")})
	var states [][]byte
	for _, form := range forged.Forms() {
		states = append(states, append(slices.Clone(form), inner...))
	}
	for _, keys := range []*secret.Keys{nil, testKeys(t, 1)} {
		file := write(t, keys, states)
		if back, err := read(file, keys); err != nil || !slices.EqualFunc(back, states, bytes.Equal) {
			t.Fatalf("%d states of %d, %v", len(back), len(states), err)
		}
		for at, next := 0, 0; next >= 0 && at < len(file); at += next {
			if at > 0 {
				if _, err := read(file[:at], keys); err == nil {
					t.Errorf("cut at %d, behind a client's end of a backup, it was read", at)
				}
			}
			if next = bytes.Index(file[at:], inner); next >= 0 {
				next += len(inner)
			}
		}
	}
}
