// Package socket makes the system calls of a TCP connection without telling Go's scheduler of them.
//
// A connection of package net is non-blocking, so that a read or write of it never waits in the kernel: what would wait ends
// with EAGAIN, and the goroutine waits for the poller. Yet each call is announced to the scheduler as one that may wait, and on
// loopback, where a write does the receiver's work, too, it often lasts the 20 µs after which the scheduler's monitor takes the
// processor away from the thread and wakes another. At tens of thousands of calls a second the monitor never sleeps, threads
// hand processors to each other all the time, and a tenth of the processor time is gone. Calls made raw cost none of that.
//
// That is on Linux; on other systems the calls are the usual ones.
package socket
