// Command carillon is the whole of Carillon in one binary: the node (serve), a receiver to try it
// with (sink), the load tester, a client for people (ctl), and tools for the log and for tokens.
//
// The package holds flags, signals and output, nothing else: the work of a command lives in the
// packages below it. A command is one struct in a file of its own; its fields are its flags, and
// for serve also its environment variables and configuration keys (see settings.go). Commands
// return errors; only main exits.
package main

import (
	"os"
	"strings"

	"carillon/cmd/carillon/terminal"
)

func main() {
	os.Exit(run(os.Args[1:], &terminal.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

func run(args []string, term *terminal.Terminal) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"} // what many try first
	}
	trimEnvironment()
	command, err := parse(args, term)
	if err == nil {
		err = command.run(term)
	}
	code, quiet := exitCode(err)
	if quiet {
		return code
	}
	text := oneLine(err)
	if code == exitUsage {
		text += " (see: " + command.help + ")"
	}
	terminal.WriteWithin(flushTime, term.Err, "carillon: "+terminal.Printable(text)+"\n")
	return code
}

// oneLine joins the lines of a joined error, so that a fault is one line on stderr for any cause.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
