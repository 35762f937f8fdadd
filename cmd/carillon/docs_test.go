package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
)

var (
	shellBlock  = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```$")
	inlineCode  = regexp.MustCompile("`(carillon [^`…]+)`")
	expansion   = regexp.MustCompile(`\$\(\([^)]*\)\)|\$\{[^}]*\}|\$[A-Za-z_]+`)
	placeholder = regexp.MustCompile(`\b(?:ADDRESS|HOST:PORT)\b`)
)

// TestDocumentedCommandsAreUnderstood: each command of ours that the documents print, in a block
// for a shell or in a line of text, is one, and has the flags that it is given.
func TestDocumentedCommandsAreUnderstood(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/guides/*.md", "docs/guides/*/*.md", "deploy/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		testkit.Must(t, err)
		pages = append(pages, found...)
	}
	checked := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		testkit.Must(t, err)
		var scripts []string
		for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			scripts = append(scripts, m[1])
		}
		for _, m := range inlineCode.FindAllStringSubmatch(string(text), -1) {
			scripts = append(scripts, m[1])
		}
		for _, script := range scripts {
			for _, command := range shellCommands(script) {
				if filepath.Base(command[0]) != "carillon" || len(command) < 2 || command[1] == "COMMAND" || strings.HasSuffix(strings.Join(command, " "), "--help") {
					continue
				}
				line := strings.Join(command, " ")
				if checked[line] {
					continue
				}
				checked[line] = true
				if err := misunderstood(grammar(), command[1:]); err != "" {
					t.Errorf("%s: %s: %s", filepath.Base(page), line, err)
				}
			}
		}
	}
	if len(checked) < 80 {
		t.Errorf("found %d commands", len(checked))
	}
}

// misunderstood names the fault of the words behind a command, "" if nothing is: each names a
// command below it while it has any, and flags are those of the command. How many arguments it
// takes is not looked at: a text may leave them out.
func misunderstood(n commandNode, words []string) string {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			name, value, hasValue := strings.Cut(name, "=")
			at := slices.IndexFunc(n.Flags, func(f commandFlag) bool { return f.Name == name })
			if at < 0 {
				return n.Path + " has no flag --" + name
			}
			if f := n.Flags[at]; !f.IsBool {
				if !hasValue && len(words) > 0 {
					value, words = words[0], words[1:]
				}
				if f.Values != nil && !slices.Contains(f.Values, value) {
					return "--" + name + " takes no " + value
				}
			}
			continue
		}
		if n.Below == nil {
			continue
		}
		at := slices.IndexFunc(n.Below, func(child commandNode) bool { return child.Name() == word })
		if at < 0 {
			return n.Path + " has no command " + word
		}
		n = n.Below[at]
	}
	return ""
}

// shellCommands cuts a script into commands of words, enough for the documents: quotes,
// backslashes and comments are seen, the value of a variable is not known and stands as 1.
func shellCommands(script string) (all [][]string) {
	script = strings.ReplaceAll(strings.ReplaceAll(script, "\\\n", " "), "$founders", "127.0.0.1:7702")
	script = placeholder.ReplaceAllString(expansion.ReplaceAllString(script, "1"), "127.0.0.1:7702")
	var words []string
	word, inWord, quote := "", false, rune(0)
	endWord := func() {
		if inWord && (len(words) > 0 || !strings.Contains(word, "=") && word != "do" && word != "until" && word != "if" && word != "sudo") {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	comment := false
	for _, r := range script + "\n" {
		switch {
		case comment:
			comment = r != '\n'
			if !comment {
				endCommand()
			}
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word += string(r)
			}
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			comment = true
		case strings.ContainsRune("|;&()\n", r):
			endCommand()
		case r == '>' || r == '<':
			if word == "2" {
				word, inWord = "", false
			}
			endCommand()
			words = []string{"redirected"}
		case r == ' ' || r == '\t':
			endWord()
		default:
			word, inWord = word+string(r), true
		}
	}
	return all
}
