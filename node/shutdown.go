package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"carillon/internal/vfs"
	"carillon/shard"
	"carillon/shard/halt"
)

// handOverTime is how long a stopping node tries to give its leaderships away.
const handOverTime = 5 * time.Second

// await waits for the end (a signal such as SIGTERM, or a part that has failed) and brings it
// about: leaderships go, intake stops, calls in flight end and are reported, the shards stop, calls
// that last longer are cut off, then the rest ends. A process whose log has failed does not wait
// for anybody.
func (s *services) await() error {
	var reason error
	select {
	case <-s.api.ctx.Done():
	case reason = <-s.p.failure:
		s.api.cancel()
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	select {
	case <-stopped:
	case <-s.failed:
		// Nothing that is still under way can be kept, and a slow client must not hold the process:
		// the rest is abandoned.
		select {
		case <-stopped:
		case <-time.After(failureGrace):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(s.errs, reason)...)
}

func (s *services) stop() {
	s.p.self.Stop()
	c := s.p.core.Load()
	if c != nil {
		defer c.logStopped()()
		ctx, cancel := context.WithTimeout(s.untilFailed(s.host.ctx), handOverTime)
		c.member.HandOver(ctx)
		cancel()
	}
	s.api.work.Wait() // intake has stopped, requests are answered
	if c != nil {
		ctx, cancel := context.WithTimeout(s.outer.ctx, drainTime)
		// Calls in flight end, and their outcomes are in the log, or with the new leaders.
		c.host.Drain(ctx)
		cancel()
	}
	s.host.cancel()
	s.host.work.Wait()
	s.calls.cancel() // the calls that last longer are cut off
	s.calls.work.Wait()
	// The port for other nodes closes last: to them that is the proof that this process has ended.
	s.outer.cancel()
	s.outer.work.Wait()
	s.p.snapshots.close()
	s.p.tasks.Wait()
}

// untilFailed is a context that ends also when the log fails.
func (s *services) untilFailed(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.failed:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx
}

// logStopped logs that the node stops and, when the returned function is called, how it ended. A
// node that has not read its log logs nothing: the error of its start is the only line.
func (c *core) logStopped() (ended func()) {
	if !c.started() {
		return func() {}
	}
	begun := time.Now()
	c.p.log.Info("the node stops: it hands its shards over and finishes the calls in flight")
	return func() { c.p.log.Info("the node has stopped", "took", time.Since(begun).Round(time.Millisecond)) }
}

// ErrStayDown is in the error of a node that no restart repairs: its disk failed, its directory is
// damaged or not to be used, or another process has its identity. A supervisor should leave it down
// until an operator has looked.
var ErrStayDown = errors.New("node: it must stay down until an operator has looked")

// stayDown marks an error so. A full disk and a directory that another process holds pass by
// themselves; of a memory that has changed by itself the disk has what is right. A node that halts
// stays down, also if its disk has no room for the record of that.
func stayDown(err error) error {
	_, halted := errors.AsType[*halt.Error](err)
	passes := vfs.IsFull(err) || errors.Is(err, vfs.ErrLocked) || errors.Is(err, ErrRemoved) || errors.Is(err, shard.ErrMemoryFault)
	if err == nil || passes && !halted {
		return err
	}
	return stayDownError{err}
}

// advise adds to the error of a disk that is full or read-only, of files of another user, and of an
// address that cannot be had, what to do about it. Unlike vfs.IsFull it does not mean too many open
// files.
func advise(err error, dir string) error {
	_, ofNetwork := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; end the process that has it (ss -ltnp shows it), or give another address", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w; give an address of this machine (ip address shows them)", err)
	case errors.Is(err, fs.ErrPermission) && ofNetwork:
		return fmt.Errorf("%w; a port below 1024 is for processes with CAP_NET_BIND_SERVICE: give another one", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; the user that runs the node must own %s and all in it: chown -R", err, dir)
	}
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; if the disk has failed (dmesg), repair it; let the node write there (its mount, ReadWritePaths= of a unit, the volume of a container), and start it", err)
	}
	if full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT); !full || errors.Is(err, ErrStayDown) {
		return err
	}
	room := "make room on this disk"
	if errors.Is(err, vfs.ErrNoInodes) {
		room = "remove files from this disk (df -i counts them)"
	}
	return fmt.Errorf("%w; %s, but not by hand inside %s: the next start tries again", err, room, dir)
}

type stayDownError struct{ error }

func (e stayDownError) Unwrap() error { return e.error }

// Is makes it an ErrStayDown.
func (stayDownError) Is(target error) bool { return target == ErrStayDown }
