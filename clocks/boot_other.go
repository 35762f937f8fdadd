//go:build !linux

package clocks

import "time"

// bootClock is the monotonic clock where we know no boot clock: a suspend then looks like a step.
func bootClock(mono func() time.Duration) time.Duration { return mono() }

// BootID names this boot of the machine; "" where that is not known.
func BootID() string { return "" }
