//go:build !linux

package clocks

import "time"

// bootClock is the monotonic clock on systems without a known boot clock: a suspend then looks like
// a step.
func bootClock(mono func() time.Duration) time.Duration { return mono() }

// BootID identifies this boot of the machine; "" if it is not known.
func BootID() string { return "" }
