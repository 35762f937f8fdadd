//go:build unix

package limits

import "syscall"

// openFileLimit is how many files this process may have open; 0 is as many as it likes, or unknown.
func openFileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) // signed on some systems
}
