package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"carillon/test/testkit"
)

// TestSyncFails: a sync returns the kernel's error, with the file's name.
func TestSyncFails(t *testing.T) {
	r, w, err := os.Pipe() // which cannot be synced
	testkit.Must(t, err)
	defer r.Close()
	defer w.Close()
	for name, sync := range map[string]func() error{"data": osFile{w}.Datasync, "all": osFile{w}.Sync} {
		var path *fs.PathError
		if err := sync(); !errors.Is(err, syscall.EINVAL) || !errors.As(err, &path) || path.Path != w.Name() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (OS{}).SyncDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// TestOthersRunDuringASync: a goroutine that waits in the kernel leaves its processor to others at
// once, and comes back when the call has ended.
func TestOthersRunDuringASync(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// A listener's accept takes the place of a sync: it ends only if the other goroutine runs.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	defer syscall.Close(fd)
	testkit.Must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	testkit.Must(t, syscall.Listen(fd, 1))
	bound, err := syscall.Getsockname(fd)
	testkit.Must(t, err)
	dialled := make(chan error, 1)
	go func() {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port))
		if err == nil {
			defer c.Close()
		}
		dialled <- err
	}()
	if errno := waitFor(syscall.SYS_ACCEPT, uintptr(fd)); errno != 0 {
		t.Fatal(errno)
	}
	testkit.Must(t, <-dialled)
}
