//go:build canary

package sim

import (
	"testing"

	"carillon/shard"
	"carillon/wal"
)

// TestCrashMatrixFindsCanaries: what the matrix is there for, planted.
func TestCrashMatrixFindsCanaries(t *testing.T) {
	for _, name := range []string{"acknowledge-before-fsync", "no-directory-fsync"} {
		t.Run(name, func(t *testing.T) {
			shard.Planted, wal.Planted = name, name
			defer func() { shard.Planted, wal.Planted = "", "" }()
			m := newMatrix(13)
			r := m.run(t)
			if r.Err == nil && m.problem == "" {
				t.Errorf("not found by %d crashes", m.cuts)
			}
			t.Logf("found: %.300s %v", m.problem, r.Err)
		})
	}
}
