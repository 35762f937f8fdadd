package main

import (
	"errors"

	"carillon/cmd/carillon/terminal"
	"carillon/node"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command was understood and failed
	exitUsage   = 2 // flags, environment or configuration are wrong; nothing was done
	// Serve: the storage failed, or its contents must not be used, as those of a node that was
	// removed; no restart repairs that. The 3 of ctl cancel is another: see ctl/timer.go.
	exitDown = 3
)

// exitCode is how the process ends after a command that ended so. quiet: nothing is printed, as
// after a success, or because the command has said all.
func exitCode(err error) (code int, quiet bool) {
	if err == nil {
		return exitOK, true
	}
	if quiet, ok := errors.AsType[terminal.QuietExit](err); ok {
		return int(quiet), true
	}
	if errors.Is(err, node.ErrStayDown) || errors.Is(err, node.ErrRemoved) {
		return exitDown, false
	}
	if _, ok := errors.AsType[terminal.UsageError](err); ok {
		return exitUsage, false
	}
	return exitFailure, false
}

// removedInService reports that the cluster removed a node that served: that is no failure. A later
// start finds the same again, and is one that no restart repairs.
func removedInService(err error, served bool) bool { return errors.Is(err, node.ErrRemoved) && served }
