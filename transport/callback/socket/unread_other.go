//go:build !linux

package socket

// FateOf does not know here.
func FateOf(uintptr, int64) Fate { return MaybeRead }
