//go:build !linux

package callback

// peekStale does not know here: a closed connection is found by the call that uses it.
func peekStale(uintptr) bool { return false }

// fateOf does not know here.
func fateOf(uintptr, int64) fate { return maybeRead }
