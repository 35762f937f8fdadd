package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/node/task"
	"carillon/shard/halt"
)

// TestPortForOthersClosesLast: to the other nodes a closed port is the proof that this process has
// ended, and with it its calls. So calls that last longer than a stop waits for them are cut off
// before.
func TestPortForOthersClosesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{log: slog.New(slog.DiscardHandler), self: &member.Self{}, tasks: task.NewGoroutines(func() time.Duration { return 0 }), failure: make(chan error, 1)}
		s := newServices(t.Context(), p)
		calling := true
		s.start(s.calls, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // the values that the pool gives them
			calling = false
			return nil
		})
		s.start(s.outer, func(ctx context.Context) error {
			<-ctx.Done()
			if calling {
				t.Error("the port closes while a call goes on")
			}
			return nil
		})
		s.api.cancel()
		if err := s.await(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDiskAtTheEnd: a process that ends for want of room is started again, and says what to do.
// One that halts is not, also if there is no room for the record of its halt.
func TestFullDiskAtTheEnd(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/data/x", Err: syscall.ENOSPC}
	if err := advise(stayDown(full), "/data"); errors.Is(err, ErrStayDown) || !errors.Is(err, full) || !strings.Contains(err.Error(), "make room on this disk, but not by hand inside /data") {
		t.Errorf("a full disk: %v", err)
	}
	noInodes := fmt.Errorf("%w: %w", full, vfs.ErrNoInodes)
	if err := advise(stayDown(noInodes), "/data"); errors.Is(err, ErrStayDown) || !strings.Contains(err.Error(), "no inodes are left; remove files from this disk (df -i counts them), but not by hand inside /data") {
		t.Errorf("a disk without inodes: %v", err)
	}
	halted := errors.Join(&halt.Error{Reason: halt.LostEnd, Err: errors.New("it has lost its end")}, full)
	if err := advise(stayDown(halted), "/data"); !errors.Is(err, ErrStayDown) || strings.Contains(err.Error(), "make room") {
		t.Errorf("a halt on a full disk: %v", err)
	}
	readOnly := &fs.PathError{Op: "write", Path: "/data/x", Err: syscall.EROFS}
	if err := advise(stayDown(readOnly), "/data"); !errors.Is(err, ErrStayDown) || !strings.Contains(err.Error(), "read-only file system; if the disk has failed (dmesg), repair it; let the node write there") {
		t.Errorf("a read-only disk: %v", err)
	}
	if err := advise(stayDown(nil), "/data"); err != nil {
		t.Error(err)
	}
}

// TestAdviceAtAStart: files of another user, mostly of root that started the node once by hand, and
// ports that others have, come with what to do.
func TestAdviceAtAStart(t *testing.T) {
	bind := func(reason error) error {
		return fmt.Errorf("node: bind the API: %w", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", reason)})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{stayDown(&fs.PathError{Op: "open", Path: "/data/identity.json", Err: syscall.EACCES}), "permission denied; the user that runs the node must own /data and all in it: chown -R"},
		{&os.LinkError{Op: "rename", Old: "/data/a", New: "/data/b", Err: syscall.EPERM}, "operation not permitted; the user that runs the node must own /data"},
		{bind(syscall.EADDRINUSE), "address already in use; end the process that has it (ss -ltnp shows it), or give another address"},
		{bind(syscall.EADDRNOTAVAIL), "cannot assign requested address; give an address of this machine (ip address shows them)"},
		{bind(syscall.EACCES), "permission denied; a port below 1024 is for processes with CAP_NET_BIND_SERVICE: give another one"},
	} {
		if got := advise(c.err, "/data"); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) {
			t.Errorf("got %v, want %s", got, c.want)
		}
	}
}
