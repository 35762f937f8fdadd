package vfs_test

import (
	"math/rand/v2"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWriteFileAtomic: a power cut at any operation leaves the old or the new content, whole.
func TestWriteFileAtomic(t *testing.T) {
	m := memfs.New()
	must(t, vfs.MakeDir(m, "d"))
	must(t, vfs.WriteFileAtomic(m, "d/x", []byte("old")))
	r, busy := rand.New(rand.NewPCG(2, 2)), false
	m.SetHook(func(int, memfs.Op, string) error {
		if !busy {
			busy = true
			for range 10 {
				c := m.CrashClone(r, memfs.CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 50})
				if b, err := vfs.ReadFile(c, "d/x", nil, 99); err != nil || string(b) != "old" && string(b) != "new" {
					t.Errorf("%q, %v", b, err)
				}
			}
			busy = false
		}
		return nil
	})
	must(t, vfs.WriteFileAtomic(m, "d/x", []byte("new")))
	m.SetHook(nil)
	if b, err := vfs.ReadFile(m.CrashClone(r, memfs.CrashOptions{}), "d/x", nil, 99); err != nil || string(b) != "new" {
		t.Fatalf("%q, %v", b, err)
	}
}
