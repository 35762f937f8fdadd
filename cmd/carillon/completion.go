package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"carillon/cmd/carillon/terminal"
)

// completionCmd writes a script that has a shell complete commands and flags. The script is made of
// the grammar and asks nobody when it runs: a shell completes as fast without a node as with one.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

//go:embed completion
var completionFiles embed.FS

var completionScripts = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join, "quote": shellQuoted}).
	ParseFS(completionFiles, "completion/*.tmpl"))

func (c *completionCmd) Run(term *terminal.Terminal, root commandNode) error {
	var script strings.Builder
	err := completionScripts.ExecuteTemplate(&script, c.Shell+".tmpl", newCompletion(root.all()))
	if err == nil {
		_, err = io.WriteString(term.Out, script.String())
	}
	if err != nil {
		return fmt.Errorf("print the completion: %w", err)
	}
	return nil
}

// commandNode is one command of the grammar: as much of it as a shell completes.
type commandNode struct {
	Path  string // carillon ctl add
	Help  string
	Flags []commandFlag // those of the commands above it, too
	Below []commandNode
	Args  []string // the values of its argument; none: any
}

type commandFlag struct {
	Name, Help string
	Values     []string // that it may have; none: any
	IsBool     bool
	IsFile     bool
}

// Name is the last word of the path.
func (n commandNode) Name() string { return n.Path[strings.LastIndexByte(n.Path, ' ')+1:] }

// Words are those that may come next, but for flags.
func (n commandNode) Words() []string {
	words := slices.Clone(n.Args)
	for _, child := range n.Below {
		words = append(words, child.Name())
	}
	return words
}

// FlagWords are the flags as they are typed.
func (n commandNode) FlagWords() (words []string) {
	for _, f := range n.Flags {
		words = append(words, "--"+f.Name)
	}
	return words
}

// all is the node and all below it, in the order of help.
func (n commandNode) all() []commandNode {
	list := []commandNode{n}
	for _, child := range n.Below {
		list = append(list, child.all()...)
	}
	return list
}

// completion is what the scripts are made of.
type completion struct {
	Commands []commandNode
	// The flags that take a value, each once; of these the ones that take a file, or one of some
	// values. A name that takes none in some command (--json) is not among them: the word after it
	// may be a command.
	Taking, Files []string
	Chosen        []commandFlag
}

func newCompletion(commands []commandNode) completion {
	c := completion{Commands: commands}
	seen := map[string]bool{}
	for _, n := range commands {
		for _, f := range n.Flags {
			seen[f.Name] = seen[f.Name] || f.IsBool
		}
	}
	for _, n := range commands {
		for _, f := range n.Flags {
			if seen[f.Name] {
				continue
			}
			seen[f.Name] = true
			c.Taking = append(c.Taking, "--"+f.Name)
			switch {
			case f.Values != nil:
				c.Chosen = append(c.Chosen, f)
			case f.IsFile:
				c.Files = append(c.Files, "--"+f.Name)
			}
		}
	}
	return c
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
