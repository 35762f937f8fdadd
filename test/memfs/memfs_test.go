package memfs

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"carillon/internal/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lostAll is the file system after a power cut that keeps only synced writes.
func lostAll(m *FS) *FS {
	return m.CrashClone(rand.New(rand.NewPCG(1, 1)), CrashOptions{})
}

func TestLosesWhatWasNotSynced(t *testing.T) {
	m := New()
	must(t, vfs.MakeDir(m, "a/b"))
	f, err := m.Create("a/b/x")
	must(t, err)
	_, err = f.Write([]byte("one"))
	must(t, err)
	must(t, f.Sync())
	if _, err := lostAll(m).Stat("a/b/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the name was never synced: %v", err)
	}
	must(t, m.SyncDir("a/b"))
	_, err = f.Write([]byte("two"))
	must(t, err)
	if b, err := vfs.ReadFile(lostAll(m), "a/b/x", nil, 99); err != nil || string(b) != "one" {
		t.Fatalf("%q, %v", b, err)
	}
	must(t, m.Rename("a/b/x", "a/y"))
	if _, err := lostAll(m).Stat("a/b/x"); err != nil {
		t.Fatalf("an unsynced rename lost the file: %v", err)
	}
	must(t, m.SyncDir("a"))
	c := lostAll(m)
	if _, err := c.Stat("a/b/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a synced rename left the old name: %v", err)
	}
	if b, err := vfs.ReadFile(c, "a/y", nil, 99); err != nil || string(b) != "one" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestTearsByBlock(t *testing.T) {
	for _, block := range []int{512, 4096} {
		m := New()
		must(t, vfs.MakeDir(m, "d"))
		f, err := m.Create("d/x")
		must(t, err)
		must(t, f.Truncate(16384))
		must(t, f.Sync())
		must(t, m.SyncDir("d"))
		_, err = f.WriteAt(bytes.Repeat([]byte{7}, 16384), 0)
		must(t, err)
		torn := 0
		for seed := range uint64(20) {
			c := m.CrashClone(rand.New(rand.NewPCG(seed, 1)), CrashOptions{KeepData: 50, BlockBytes: block})
			b, err := vfs.ReadFile(c, "d/x", nil, 1<<20)
			must(t, err)
			for at := 0; at < len(b); at += block {
				if !bytes.Equal(b[at:at+block], bytes.Repeat(b[at:at+1], block)) {
					t.Fatalf("block of %d at %d is torn", block, at)
				}
			}
			if bytes.IndexByte(b, 7) >= 0 && bytes.IndexByte(b, 0) >= 0 {
				torn++
			}
		}
		if torn < 10 {
			t.Fatalf("%d of 20 crashes tore the write", torn)
		}
	}
}

func TestFailedSyncDropsPages(t *testing.T) {
	m := New()
	must(t, vfs.MakeDir(m, "d"))
	f, err := m.Create("d/x")
	must(t, err)
	must(t, m.SyncDir("d"))
	_, err = f.Write([]byte("lost"))
	must(t, err)
	m.FailNth(OpSync, 1, syscall.EIO)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, f.Sync()) // succeeds, and writes nothing
	if b, _ := vfs.ReadFile(m, "d/x", nil, 99); string(b) != "lost" {
		t.Fatalf("the process sees %q", b)
	}
	if b, _ := vfs.ReadFile(lostAll(m), "d/x", nil, 99); string(b) == "lost" {
		t.Fatal("a second sync made durable what the first one lost")
	}
}

func TestFailedDirectorySyncDropsNames(t *testing.T) {
	m := New()
	must(t, vfs.MakeDir(m, "d"))
	must(t, vfs.WriteSynced(m, "d/x", []byte("x")))
	m.FailNth(OpSyncDir, 1, syscall.EIO)
	if err := m.SyncDir("d"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, m.SyncDir("d")) // succeeds, and writes nothing
	if _, err := m.Stat("d/x"); err != nil {
		t.Fatalf("the process does not see the name: %v", err)
	}
	if _, err := lostAll(m).Stat("d/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a second sync made durable what the first one lost: %v", err)
	}
	// Another change of the directory: all of it is to be written again.
	must(t, vfs.WriteSynced(m, "d/y", []byte("y")))
	must(t, m.SyncDir("d"))
	if _, err := lostAll(m).Stat("d/x"); err != nil {
		t.Fatalf("a sync after another change wrote the new name alone: %v", err)
	}
}

func TestKillEndsHandlesAndLocks(t *testing.T) {
	m := New()
	f, err := m.Create("x")
	must(t, err)
	_, err = m.Lock("l")
	must(t, err)
	if _, err := m.Lock("l"); !errors.Is(err, vfs.ErrLocked) {
		t.Fatal(err)
	}
	m.Kill()
	if _, err := f.Write([]byte("late")); !errors.Is(err, ErrKilled) {
		t.Fatalf("a killed process wrote: %v", err)
	}
	_, err = m.Lock("l")
	must(t, err)
}

// TestKillInFrontOfASync: unlike one that fails, a sync that a killed process did not come to
// leaves everything to the next one.
func TestKillInFrontOfASync(t *testing.T) {
	m := New()
	must(t, m.MkdirAll("d"))
	f, err := m.Create("d/x")
	must(t, err)
	_, err = f.Write([]byte("x"))
	must(t, err)
	m.SetHook(func(_ int, op Op, _ string) error {
		if op == OpSync || op == OpSyncDir {
			return ErrKilled
		}
		return nil
	})
	for _, sync := range []func() error{f.Sync, func() error { return m.SyncDir("d") }, func() error { return m.SyncDir(".") }} {
		if err := sync(); !errors.Is(err, ErrKilled) {
			t.Fatal(err)
		}
	}
	if _, err := lostAll(m).Stat("d"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("nothing was synced, and a power cut leaves the directory (%v)", err)
	}
	m.SetHook(nil)
	must(t, f.Sync())
	must(t, m.SyncDir("d"))
	must(t, m.SyncDir("."))
	if b, err := vfs.ReadFile(lostAll(m), "d/x", nil, 10); err != nil || string(b) != "x" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestCapacity(t *testing.T) {
	m := New()
	m.SetCapacity(10)
	f, err := m.Create("x")
	must(t, err)
	n, err := f.Write(make([]byte, 15))
	if n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	_, err = f.WriteAt([]byte{1}, 3) // in place
	must(t, err)
}
