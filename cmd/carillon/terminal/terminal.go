// Package terminal is shared by the commands: input and outputs, usage errors, exit codes, and the
// signals that end a command.
package terminal

import (
	"fmt"
	"io"
)

// Terminal has a command's input and outputs. Results go to Out; everything for a person goes
// to Err.
type Terminal struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer

	raw *Terminal // below one that Safe has made
}

// UsageError is a fault in how the command was called, found after parsing.
type UsageError struct{ reason string }

func (e UsageError) Error() string { return e.reason }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// QuietExit ends a command, that has already printed all there is, with an exit code.
type QuietExit int

func (q QuietExit) Error() string { return fmt.Sprintf("exit %d", int(q)) }
