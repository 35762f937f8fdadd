package wal

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"
)

func lostAll(m *MemFS) *MemFS {
	return m.CrashClone(rand.New(rand.NewPCG(1, 1)), CrashOptions{})
}

func TestMemFSLosesWhatWasNotSynced(t *testing.T) {
	m := NewMemFS()
	must(t, makeDir(m, "a/b"))
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
	if b, err := readFile(lostAll(m), "a/b/x", nil, 99); err != nil || string(b) != "one" {
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
	if b, err := readFile(c, "a/y", nil, 99); err != nil || string(b) != "one" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestMemFSTearsByBlock(t *testing.T) {
	for _, block := range []int{512, 4096} {
		m := NewMemFS()
		must(t, makeDir(m, "d"))
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
			b, err := readFile(c, "d/x", nil, 1<<20)
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

func TestMemFSFailedSyncDropsPages(t *testing.T) {
	m := NewMemFS()
	must(t, makeDir(m, "d"))
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
	if b, _ := readFile(m, "d/x", nil, 99); string(b) != "lost" {
		t.Fatalf("the process sees %q", b)
	}
	if b, _ := readFile(lostAll(m), "d/x", nil, 99); string(b) == "lost" {
		t.Fatal("a second sync made durable what the first one lost")
	}
}

func TestMemFSKillEndsHandlesAndLocks(t *testing.T) {
	m := NewMemFS()
	f, err := m.Create("x")
	must(t, err)
	_, err = m.Lock("l")
	must(t, err)
	if _, err := m.Lock("l"); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	m.Kill()
	if _, err := f.Write([]byte("late")); !errors.Is(err, errKilled) {
		t.Fatalf("a killed process wrote: %v", err)
	}
	_, err = m.Lock("l")
	must(t, err)
}

func TestMemFSCapacity(t *testing.T) {
	m := NewMemFS()
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

func TestWriteFileAtomic(t *testing.T) {
	m := NewMemFS()
	must(t, makeDir(m, "d"))
	must(t, WriteFileAtomic(m, "d/x", []byte("old")))
	r, busy := rand.New(rand.NewPCG(2, 2)), false
	m.SetHook(func(int, Op, string) error {
		if !busy {
			busy = true
			for range 10 {
				c := m.CrashClone(r, CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 50})
				if b, err := readFile(c, "d/x", nil, 99); err != nil || string(b) != "old" && string(b) != "new" {
					t.Errorf("%q, %v", b, err)
				}
			}
			busy = false
		}
		return nil
	})
	must(t, WriteFileAtomic(m, "d/x", []byte("new")))
	m.SetHook(nil)
	if b, err := readFile(lostAll(m), "d/x", nil, 99); err != nil || string(b) != "new" {
		t.Fatalf("%q, %v", b, err)
	}
}
