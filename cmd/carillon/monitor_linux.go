package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// napFor is how long the goroutine of keepMonitorAwake waits at a time. Where preemption by signals
// is off, a collection may have to wait as long for it.
const napFor = 10 * time.Millisecond

// keepMonitorAwake keeps the monitor of Go's scheduler at its slow pace until the context ends.
//
// The monitor sleeps while the process has nothing to run. The next system call wakes it, and it
// then looks at all processors every 20 µs for a millisecond or more. A node's work comes in pieces
// shorter than that, hundreds a second, so that the monitor took a quarter of its processor time
// (docs/adr/0044). While one processor has something to run, the monitor does not sleep, and in the
// end it looks every 10 ms. So one processor, made for this, runs a goroutine that waits in the
// kernel without the scheduler's knowledge.
func keepMonitorAwake(ctx context.Context) (stop func()) {
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + 1)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			nap(napFor)
		}
	}()
	return func() {
		cancel()
		<-done
		runtime.GOMAXPROCS(before)
	}
}

// nap waits in the kernel. A signal ends it early, which is how a collection stops this goroutine.
//
//go:noinline
func nap(d time.Duration) {
	wait := syscall.NsecToTimespec(d.Nanoseconds())
	_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&wait)), 0, 0)
}
