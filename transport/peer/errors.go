package peer

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotSent: the far side's handler certainly never saw it. A retry is safe.
	ErrNotSent = errors.New("peer: not sent")
	// ErrUnknown: it was sent or may have been, and no answer came.
	ErrUnknown = errors.New("peer: outcome unknown")
	// ErrRefused: one of the two sides does not admit the other. It comes with ErrNotSent.
	ErrRefused = errors.New("peer: refused")
	// ErrLater may be in an error of Config.Admit: it passes by itself, so nobody needs to read of
	// it.
	ErrLater = errors.New("not yet")
	// ErrSelf: the address leads back to this very process. It comes with ErrRefused.
	ErrSelf = errors.New("peer: that is this node itself")
)

var (
	errStopped   = errors.New("the transport is not running")
	errNoAddress = errors.New("no address is known")
	errForgotten = errors.New("the node was forgotten")
	errQueueFull = errors.New("the queue is full")
	errCallsFull = errors.New("too many calls in flight")
	errTooLarge  = errors.New("larger than a frame may be")
	errReplaced  = errors.New("replaced by a newer connection")
	errProtocol  = errors.New("unexpected frame")
)

// RemoteError is the error that the far side's handler returned.
type RemoteError struct {
	Code byte // of an error with PeerCode() byte, else 0
	Text string
}

func (e *RemoteError) Error() string { return e.Text }

// maxTextBytes bounds an error's text on the wire.
const maxTextBytes = 1024

// remoteError is how a handler's error travels.
func remoteError(err error) *RemoteError {
	e := &RemoteError{Text: printable(err.Error())}
	var coded interface{ PeerCode() byte }
	if errors.As(err, &coded) {
		e.Code = coded.PeerCode()
	}
	return e
}

func notSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }
func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }

// printable bounds a text from or for the other side and keeps it on one line.
func printable(s string) string {
	if len(s) > maxTextBytes {
		s = s[:maxTextBytes]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
