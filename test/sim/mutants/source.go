package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// hunk replaces some lines of the product by others. Lines of context are in both.
type hunk struct {
	line     int // of its file, for messages
	old, new []string
}

var errHunk = errors.New("not a change of code")

// sources are the files of the product. A hunk is looked for in all of them: code that moves, to
// another file or package, takes its mutants along.
type sources struct {
	files map[string]*source // by their names from the root of the module, with slashes
	index map[string][]place // of each line that counts
}

// source is a file, and those of its lines that count: without blank lines and comments, and
// without indentation. What changes in those does not touch a mutant.
type source struct {
	name  string
	text  []string // all lines
	lines []string // those that count
	at    []int    // where they are in the text
}

type place struct {
	file *source
	line int // of those that count
}

func newSources() *sources {
	return &sources{map[string]*source{}, map[string][]place{}}
}

// readSources reads the files that go list names, below the root of the module.
func readSources(root string, names []string) (*sources, error) {
	s := newSources()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		s.add(name, string(text))
	}
	return s, nil
}

func (s *sources) add(name, text string) {
	f := &source{name: name, text: strings.Split(text, "\n")}
	for i, line := range f.text {
		if line = counts(line); line != "" {
			s.index[line] = append(s.index[line], place{f, len(f.lines)})
			f.lines, f.at = append(f.lines, line), append(f.at, i)
		}
	}
	s.files[name] = f
}

// counts is a line without indentation, or nothing where it is blank or a comment.
func counts(line string) string {
	if line = strings.TrimSpace(line); strings.HasPrefix(line, "//") {
		return ""
	}
	return line
}

// find looks for the one place of a hunk. A hunk that could mean two places may plant another bug
// than the one that is described.
func (s *sources) find(h hunk) (found place, err error) {
	if len(h.old) == 0 {
		return place{}, fmt.Errorf("%w: line %d: it begins nowhere", errHunk, h.line)
	}
	if slices.Equal(h.old, h.new) {
		return place{}, fmt.Errorf("%w: line %d: it changes nothing", errHunk, h.line)
	}
	var places []string
	for _, p := range s.index[h.old[0]] {
		if end := p.line + len(h.old); end <= len(p.file.lines) && slices.Equal(p.file.lines[p.line:end], h.old) {
			found = p
			places = append(places, fmt.Sprintf("%s:%d", p.file.name, p.file.at[p.line]+1))
		}
	}
	switch len(places) {
	case 0:
		return place{}, fmt.Errorf("line %d is nowhere in the code any more: correct it, or delete the mutant", h.line)
	case 1:
		return found, nil
	}
	slices.Sort(places)
	return place{}, fmt.Errorf("line %d fits in %s: give it more context", h.line, strings.Join(places, " and "))
}

// mutate gives the changed files, by their names.
func (s *sources) mutate(m *mutant) (map[string][]byte, error) {
	type change struct {
		first, last int // of the text
		new         []string
	}
	changes := map[*source][]change{}
	for _, h := range m.hunks {
		p, err := s.find(h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		changes[p.file] = append(changes[p.file], change{p.file.at[p.line], p.file.at[p.line+len(h.old)-1], h.new})
	}
	changed := map[string][]byte{}
	for f, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return a.first - b.first })
		var out []string
		next := 0
		for _, c := range list {
			if c.first < next {
				return nil, fmt.Errorf("%s: %w: two of its changes overlap", m, errHunk)
			}
			out = append(append(out, f.text[next:c.first]...), c.new...)
			next = c.last + 1
		}
		changed[f.name] = []byte(strings.Join(append(out, f.text[next:]...), "\n"))
	}
	return changed, nil
}

// clientPackage is in a module of its own, so that ./... passes it over.
const clientPackage = "carillon/client"

// productFiles are the Go files that mutants may change: all but tests and what tests by itself.
func productFiles(root string) ([]string, error) {
	out, err := goCommand(root, nil, "list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`, "./...", clientPackage).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", said(err))
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		name, err := filepath.Rel(root, strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		name = filepath.ToSlash(name)
		if folder, _, _ := strings.Cut(path.Dir(name), "/"); folder != "test" {
			names = append(names, name)
		}
	}
	return names, nil
}
