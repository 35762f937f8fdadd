package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNoInodesLeft: a file system that has room for bytes, and for no further file, is told from
// one that has no room for bytes.
func TestNoInodesLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	last := func(options string) error {
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
			t.Skip("a tmpfs cannot be mounted: ", err)
		}
		defer func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}()
		for n := 0; ; n++ {
			f, err := OS{}.Create(filepath.Join(dir, fmt.Sprint(n)))
			if err == nil {
				_, err = f.Write(make([]byte, 4096))
				err = errors.Join(err, f.Close())
			}
			if err == nil {
				continue
			}
			if made := (OS{}).MkdirAll(filepath.Join(dir, "d")); errors.Is(made, ErrNoInodes) != errors.Is(err, ErrNoInodes) {
				t.Errorf("%s: a directory is refused as %v, a file as %v", options, made, err)
			}
			return err
		}
	}
	if err := last("size=4m,nr_inodes=9"); !IsFull(err) || !errors.Is(err, ErrNoInodes) {
		t.Errorf("without inodes: %v", err)
	}
	if err := last("size=32k,nr_inodes=12"); !IsFull(err) || errors.Is(err, ErrNoInodes) {
		t.Errorf("without room: %v", err)
	}
}
