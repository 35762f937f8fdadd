package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	// napTime is how long the goroutine of keepMonitorAwake waits at a time. Where preemption by
	// signals is off, a collection may have to wait as long for it.
	napTime = 10 * time.Millisecond

	// lookInterval is how long it runs, or pauses, before it looks again whether it is worth it.
	lookInterval = time.Second
	// The monitor costs less than this goroutine, which makes 200 changes of threads a second, in a
	// process that makes fewer than busyFrom by itself. An idle node makes 320, one of three 890;
	// with this goroutine 480 and 650.
	busyFrom = 700 // changes of threads a second
	idleFrom = 550 // … with this goroutine
)

// keepMonitorAwake keeps the monitor of Go's scheduler at its slow pace until the context ends.
//
// The monitor sleeps while the process has nothing to run. The next system call wakes it, and it
// then looks at all processors every 20 µs for a millisecond or more. A node's work comes in pieces
// shorter than that, hundreds a second, so that the monitor took a quarter of its processor time
// (docs/adr/0044). While one processor has something to run, the monitor does not sleep, and in the
// end it looks every 10 ms. So one processor, made for this, runs a goroutine that waits in the
// kernel without the scheduler's knowledge, unless the process is idle.
func keepMonitorAwake(ctx context.Context) (stop func()) {
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + 1)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause := time.NewTimer(0)
		<-pause.C
		for busy := true; ctx.Err() == nil; {
			began, changes := time.Now(), threadChanges()
			if busy {
				for ctx.Err() == nil && time.Since(began) < lookInterval {
					nap(napTime)
				}
			} else {
				pause.Reset(lookInterval)
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
			}
			busy = isBusy(busy, float64(threadChanges()-changes)/time.Since(began).Seconds())
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

// isBusy reports whether a process with so many changes of threads a second is worth a monitor that
// is kept awake; was: it is kept awake now.
func isBusy(was bool, changes float64) bool {
	if was {
		return changes >= idleFrom
	}
	return changes >= busyFrom
}

// threadChanges counts how often the threads of this process have waited.
func threadChanges() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no way to fail
	return u.Nvcsw
}
