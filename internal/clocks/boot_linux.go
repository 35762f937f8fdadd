package clocks

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the machine's boot clock, or mono if the kernel has none.
func bootClock(mono func() time.Duration) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return mono()
	}
	return time.Duration(t.Nano())
}

// BootID identifies this boot of the machine; "" if it is not known.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
}
