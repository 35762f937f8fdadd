package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
)

// grammar is made once: that takes long.
var grammar = sync.OnceValue(func() commandNode {
	parser, err := newParser(new(cli), &terminal.Terminal{})
	if err != nil {
		panic(err)
	}
	return commandTree(parser.Model.Node)
})

func completionScript(t *testing.T, shell string) string {
	t.Helper()
	var out bytes.Buffer
	command := completionCmd{Shell: shell}
	testkit.Must(t, command.Run(&terminal.Terminal{Out: &out}, grammar()))
	path := filepath.Join(t.TempDir(), "carillon."+shell)
	testkit.Must(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

// ask runs a shell that completes a line, and gives the words that it offers.
func ask(t *testing.T, shell string, args ...string) []string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skipf("%s is not installed", shell)
	}
	cmd := exec.Command(shell, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", shell, err, out)
	}
	var words []string
	for line := range strings.Lines(string(out)) {
		// Fish prints a description after each word.
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		words = append(words, word)
	}
	return words
}

var completions = []struct {
	line     string // the last word is being typed
	has, not []string
}{
	{"carillon ", []string{"serve", "ctl", "completion"}, []string{"cluster"}},
	{"carillon ctl ", []string{"add", "cluster", "topics"}, []string{"serve", "pause"}},
	{"carillon ctl --url http://ctl ", []string{"add"}, nil},
	{"carillon ctl --json dead ", []string{"redrive"}, []string{"add"}},
	{"carillon ctl topics ", []string{"pause"}, []string{"add"}},
	{"carillon ctl add --pay", []string{"--payload"}, []string{"--shards"}},
	{"carillon serve --shar", []string{"--shards"}, nil},
	{"carillon completion ", []string{"bash", "fish"}, []string{"serve"}},
	{"carillon serve --log-format ", []string{"text", "json"}, []string{"--shards"}},
}

func checkCompletion(t *testing.T, line string, got, has, not []string) {
	t.Helper()
	for _, word := range has {
		if !slices.Contains(got, word) {
			t.Errorf("%q offers %q, without %s", line, got, word)
		}
	}
	for _, word := range not {
		if slices.Contains(got, word) {
			t.Errorf("%q offers %s", line, word)
		}
	}
}

func TestBashCompletes(t *testing.T) {
	script := completionScript(t, "bash")
	for _, c := range completions {
		words := strings.Split(c.line, " ")
		quoted := make([]string, len(words))
		for i, w := range words {
			quoted[i] = shellQuoted(w)
		}
		got := ask(t, "bash", "-c", `source "$1"; COMP_WORDS=(`+strings.Join(quoted, " ")+`); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _carillon; printf '%s\n' "${COMPREPLY[@]}"`, "bash", script)
		checkCompletion(t, c.line, got, c.has, c.not)
	}
}

func TestFishCompletes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a shell for each line")
	}
	script := completionScript(t, "fish")
	for _, c := range completions {
		got := ask(t, "fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, script, c.line)
		checkCompletion(t, c.line, got, c.has, c.not)
	}
}

// The completion of zsh needs a terminal to be asked; its functions are replaced by ones that print
// their arguments.
func TestZshCompletes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a shell for each line")
	}
	script := completionScript(t, "zsh")
	const harness = `
compdef() { :; }
compadd() { shift; print -l -- $@; }
_files() { print FILES; }
_describe() { local list=${@[-1]}; print -l -- ${${(P)list}%%:*}; }
source "$1"
shift
words=("$@") CURRENT=$# PREFIX=${@[-1]}
_carillon`
	for _, c := range completions {
		args := append([]string{"-f", "-c", harness, "zsh", script}, strings.Split(c.line, " ")...)
		got := ask(t, "zsh", args...)
		if strings.HasSuffix(c.line, "-") || strings.Contains(c.line, " --pay") || strings.Contains(c.line, " --shar") {
			c.not = nil // zsh filters its candidates by the typed text
		}
		checkCompletion(t, c.line, got, c.has, c.not)
	}
}

// Each command and flag that help shows is in each script.
func TestCompletionsHaveAllCommands(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text := testkit.File(t, completionScript(t, shell))
		for _, word := range []string{"redrive", "completion", "history-bytes", "no-auto-create-topics", "max-calls"} {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s: there is no %s", shell, word)
			}
		}
	}
	if got := carillon(t, "", nil, "completion", "zsh"); got.code != exitOK || got.err != "" || !strings.HasPrefix(got.out, "#compdef carillon\n") {
		t.Errorf("zsh: %+v", got)
	}
	if got := carillon(t, "", nil, "completion", "csh"); got.code != exitUsage || !strings.Contains(got.err, "csh") {
		t.Errorf("csh: %+v", got)
	}
}
