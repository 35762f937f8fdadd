//go:build !linux

package api

// peerGone does not know here: a lease that nobody took runs out.
func peerGone(uintptr) bool { return false }
