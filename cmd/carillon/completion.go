package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"carillon/cmd/carillon/terminal"
)

// completionCmd writes a script that has a shell complete commands and flags. The script is made of
// the grammar and asks nobody when it runs: a shell completes as fast without a node as with one.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCmd) Examples() string {
	return `source <(carillon completion bash)
carillon completion zsh > "${fpath[1]}/_carillon"
carillon completion fish > ~/.config/fish/completions/carillon.fish`
}

func (c *completionCmd) Run(term *terminal.Terminal, root commandNode) error {
	write := map[string]func(io.Writer, []commandNode){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell]
	var script strings.Builder
	write(&script, root.all())
	if _, err := io.WriteString(term.Out, script.String()); err != nil {
		return fmt.Errorf("print the completion: %w", err)
	}
	return nil
}

// commandNode is one command of the grammar: as much of it as a shell completes.
type commandNode struct {
	path  string // carillon ctl add
	help  string
	flags []commandFlag // those of the commands above it, too
	below []commandNode
	args  []string // the values of its argument; none: any
}

// words are those that may come next.
func (n commandNode) words() []string {
	words := slices.Clone(n.args)
	for _, child := range n.below {
		words = append(words, child.name())
	}
	return words
}

type commandFlag struct {
	name, help string
	values     []string // that it may have; none: any
	isBool     bool
	isFile     bool
}

// all is the node and all below it, in the order of help.
func (n commandNode) all() []commandNode {
	list := []commandNode{n}
	for _, child := range n.below {
		list = append(list, child.all()...)
	}
	return list
}

// name is the last word of the path.
func (n commandNode) name() string { return n.path[strings.LastIndexByte(n.path, ' ')+1:] }

// valueFlags are the flags that take a value, each once. A name that takes none in some command
// (--json) is not among them: the word after it may be a command.
func valueFlags(nodes []commandNode) (all, files []string, values map[string][]string) {
	values = map[string][]string{}
	seen := map[string]bool{}
	for _, n := range nodes {
		for _, f := range n.flags {
			seen[f.name] = seen[f.name] || f.isBool
		}
	}
	for _, n := range nodes {
		for _, f := range n.flags {
			if f.isBool || seen[f.name] {
				continue
			}
			seen[f.name] = true
			all = append(all, "--"+f.name)
			switch {
			case f.values != nil:
				values["--"+f.name] = f.values
			case f.isFile:
				files = append(files, "--"+f.name)
			}
		}
	}
	return all, files, values
}

func bashCompletion(w io.Writer, nodes []commandNode) {
	taking, files, values := valueFlags(nodes)
	fmt.Fprint(w, `# Completion of carillon for bash.
_carillon() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=carillon i
	# A shell may take --flag=value for three words.
	if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case "${COMP_WORDS[i-1]}" in `+strings.Join(taking, "|")+`) continue ;; esac
		case "$path ${COMP_WORDS[i]}" in
`)
	for _, n := range nodes[1:] {
		fmt.Fprintf(w, "\t\t%s) path=%s ;;\n", bashQuoted(n.path), bashQuoted(n.path))
	}
	fmt.Fprint(w, "\t\tesac\n\tdone\n\tcase \"$prev\" in\n")
	for _, flag := range taking {
		if of := values[flag]; of != nil {
			fmt.Fprintf(w, "\t%s) COMPREPLY=($(compgen -W %s -- \"$cur\")); return ;;\n", flag, bashQuoted(strings.Join(of, " ")))
		}
	}
	fmt.Fprintf(w, "\t%s) COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames 2>/dev/null; return ;;\n", strings.Join(files, "|"))
	fmt.Fprintf(w, "\t%s) return ;;\n\tesac\n\tcase \"$path\" in\n", strings.Join(taking, "|"))
	for _, n := range nodes {
		var flags []string
		for _, f := range n.flags {
			flags = append(flags, "--"+f.name)
		}
		fmt.Fprintf(w, "\t%s) set -- %s %s ;;\n", bashQuoted(n.path), bashQuoted(strings.Join(n.words(), " ")), bashQuoted(strings.Join(flags, " ")))
	}
	fmt.Fprint(w, `	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$2" -- "$cur"))
	else
		COMPREPLY=($(compgen -W "$1" -- "$cur"))
	fi
}
complete -o default -F _carillon carillon
`)
}

func bashQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func zshCompletion(w io.Writer, nodes []commandNode) {
	taking, files, values := valueFlags(nodes)
	fmt.Fprint(w, `#compdef carillon
# Completion of carillon for zsh.
_carillon() {
	local cmd=carillon i
	local -a subs flags
	for ((i = 2; i < CURRENT; i++)); do
		case "${words[i-1]}" in `+strings.Join(taking, "|")+`) continue ;; esac
		case "$cmd ${words[i]}" in
`)
	for _, n := range nodes[1:] {
		fmt.Fprintf(w, "\t\t%s) cmd=%s ;;\n", bashQuoted(n.path), bashQuoted(n.path))
	}
	fmt.Fprint(w, "\t\tesac\n\tdone\n\tcase \"${words[CURRENT-1]}\" in\n")
	for _, flag := range taking {
		if of := values[flag]; of != nil {
			fmt.Fprintf(w, "\t%s) compadd -- %s; return ;;\n", flag, strings.Join(of, " "))
		}
	}
	fmt.Fprintf(w, "\t%s) _files; return ;;\n\t%s) return ;;\n\tesac\n\tcase \"$cmd\" in\n", strings.Join(files, "|"), strings.Join(taking, "|"))
	for _, n := range nodes {
		fmt.Fprintf(w, "\t%s)\n\t\tsubs=(", bashQuoted(n.path))
		for _, child := range n.below {
			fmt.Fprint(w, " ", bashQuoted(child.name()+":"+child.help))
		}
		for _, arg := range n.args {
			fmt.Fprint(w, " ", bashQuoted(arg))
		}
		fmt.Fprint(w, ")\n\t\tflags=(")
		for _, f := range n.flags {
			fmt.Fprint(w, " ", bashQuoted("--"+f.name+":"+f.help))
		}
		fmt.Fprint(w, ") ;;\n")
	}
	fmt.Fprint(w, `	esac
	if [[ $PREFIX == -* ]]; then
		_describe -o flag flags
	elif (( $#subs )); then
		_describe command subs
	else
		_files
	fi
}
if [[ $funcstack[1] == _carillon ]]; then _carillon "$@"; else compdef _carillon carillon; fi
`)
}

func fishCompletion(w io.Writer, nodes []commandNode) {
	taking, _, _ := valueFlags(nodes)
	fmt.Fprint(w, `# Completion of carillon for fish.
function __carillon_at --description 'whether the words typed so far name this command'
	set -l cmd carillon
	set -l before
	for word in (commandline -opc)[2..-1]
		if contains -- "$before" `+strings.Join(taking, " ")+`
			set before
			continue
		end
		set before $word
		switch "$cmd $word"
			case`)
	for _, n := range nodes[1:] {
		fmt.Fprint(w, " ", bashQuoted(n.path))
	}
	fmt.Fprint(w, `
				set cmd "$cmd $word"
		end
	end
	test "$cmd" = "$argv[1]"
end
`)
	for _, n := range nodes {
		at := bashQuoted("__carillon_at " + `"` + n.path + `"`)
		if n.below != nil {
			fmt.Fprintf(w, "complete -c carillon -f -n %s\n", at)
		}
		for _, child := range n.below {
			fmt.Fprintf(w, "complete -c carillon -n %s -a %s -d %s\n", at, child.name(), bashQuoted(child.help))
		}
		if n.args != nil {
			fmt.Fprintf(w, "complete -c carillon -f -n %s -a %s\n", at, bashQuoted(strings.Join(n.args, " ")))
		}
		for _, f := range n.flags {
			fmt.Fprintf(w, "complete -c carillon -n %s -l %s -d %s", at, f.name, bashQuoted(f.help))
			switch {
			case f.values != nil:
				fmt.Fprintf(w, " -x -a %s", bashQuoted(strings.Join(f.values, " ")))
			case f.isFile:
				fmt.Fprint(w, " -r -F")
			case !f.isBool:
				fmt.Fprint(w, " -x")
			}
			fmt.Fprintln(w)
		}
	}
}
