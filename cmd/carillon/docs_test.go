package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shellBlock  = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```$")
	inlineCode  = regexp.MustCompile("`(carillon [^`…]+)`")
	expansion   = regexp.MustCompile(`\$\(\([^)]*\)\)|\$\{[^}]*\}|\$[A-Za-z_]+`)
	placeholder = regexp.MustCompile(`\b(?:ADDRESS|HOST:PORT)\b`)
)

// TestDocumentedCommandsAreUnderstood: each command of ours that the documents print, in a block for a shell or in a line of text, is one:
// its flags and arguments are those that it takes.
func TestDocumentedCommandsAreUnderstood(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/guides/*.md", "docs/guides/*/*.md", "deploy/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	parser, err := newParser(new(cli), &terminal{})
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
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
				_, err := parser.Parse(command[1:])
				if err != nil { // perhaps for what it remembers of the last command
					_, err = parse(command[1:], &terminal{})
				}
				if err := understood(err); err != "" {
					t.Errorf("%s: %s: %s", filepath.Base(page), line, err)
				}
			}
		}
	}
	if len(checked) < 80 {
		t.Errorf("found %d commands", len(checked))
	}
}

// understood says what is wrong with a command line, by what the parser says of it. A command whose rest is left out ("carillon ctl replicas") is a command all the same.
func understood(err error) string {
	if err == nil || strings.Contains(err.Error(), "expected \"<") || strings.Contains(err.Error(), "expected one of") ||
		strings.Contains(err.Error(), "missing positional") {
		return ""
	}
	for _, needs := range []string{"say what the token may do", "needs a time", "nothing to change", "all of the topic", "--all", "--policy", "no such file"} {
		if strings.Contains(err.Error(), needs) {
			return "" // named in a text without what it needs, or with a file that is not here
		}
	}
	return err.Error()
}

// shellCommands cuts a script into commands of words, as far as the documents need it: quotes, backslashes and comments are seen, what a
// variable holds is not known and stands as 1.
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
