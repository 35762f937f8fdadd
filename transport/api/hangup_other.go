//go:build !linux

package api

// peerGone cannot tell here: a lease that nobody took runs out.
func peerGone(uintptr) bool { return false }
