// Package socket asks the kernel what it knows of a connection to a receiver: before a call is
// written to it whether it is stale, and after it has ended whether the receiver has read the call.
// It never blocks. Where the system is not Linux, it knows nothing.
package socket

// Fate is what has become of the bytes of a request.
type Fate int

const (
	MaybeRead Fate = iota // also: not known
	Undecided             // the other end has closed, and may yet confirm or refuse them
	NeverRead
)
