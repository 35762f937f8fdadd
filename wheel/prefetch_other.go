//go:build !amd64 && !arm64

package wheel

// prefetch is only ever a gain in speed; there is none for this processor.
func prefetch(*node) {}
