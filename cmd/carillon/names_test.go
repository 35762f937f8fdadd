package main

import (
	"fmt"
	"testing"

	"github.com/alecthomas/kong"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
)

// TestPromisedCommandsStay: each command with its arguments and flags, each environment variable
// and each key of the configuration file that a release had is there. docs/releasing.md says how a
// release adds its own.
func TestPromisedCommandsStay(t *testing.T) {
	parser, err := newParser(new(cli), &terminal.Terminal{})
	testkit.Must(t, err)
	now := map[string]bool{}
	commandNames(now, parser.Model.Node)
	for _, s := range settings(parser.Model) {
		now["config "+s.key] = true
	}
	testkit.Promised(t, "../../docs/formats/names-of-commands", now, 300)
}

// commandNames adds a command and all below it. A flag that takes a value has = behind its name; an
// argument has no name on the command line, and its place is what counts.
func commandNames(out map[string]bool, n *kong.Node) {
	path := n.FullPath()
	for _, name := range append(n.Aliases, path) {
		out[name] = true
	}
	for i, arg := range n.Positional {
		place := fmt.Sprintf("%s argument %d", path, i+1)
		out[place] = true
		if arg.IsCumulative() {
			out[place+" and more"] = true
		}
		if arg.Enum != "" {
			for value := range arg.EnumMap() {
				out[place+" "+value] = true
			}
		}
	}
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		equals := "="
		if f.IsBool() || f.IsCounter() {
			equals = ""
		}
		for _, name := range append(f.Aliases, f.Name) {
			out[path+" --"+name+equals] = true
		}
		if f.Short != 0 {
			out[fmt.Sprintf("%s -%c", path, f.Short)] = true
		}
		if f.Tag.Negatable != "" {
			out[path+" --no-"+f.Name] = true
		}
		if f.Enum != "" {
			for value := range f.EnumMap() {
				out[path+" --"+f.Name+"="+value] = true
			}
		}
		for _, variable := range f.Envs {
			out["variable "+variable] = true
		}
	}
	for _, child := range n.Children {
		if !child.Hidden {
			commandNames(out, child)
		}
	}
}
