package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is a deliberate bug, and the tests that must find it.
type mutant struct {
	file     string // that describes it, without .txt
	name     string
	protects string // the invariant, or the kind of bug, for which a test must find it
	what     string // the bug, in a sentence
	tests    []testLine
	expect   *regexp.Regexp // must match the output of each failed test; nil: anything does
	hunks    []hunk
}

func (m *mutant) String() string { return m.file + ".txt: " + m.name }

// testLine is a test that must fail: `./shard -run ^TestName$`. Further words are flags of the
// test's own.
type testLine struct {
	pkg, run string
	flags    []string
}

func (l testLine) String() string {
	return strings.Join(append([]string{l.pkg, "-run", l.run}, l.flags...), " ")
}

// load reads the mutants of a folder.
func load(dir string) ([]mutant, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var list []mutant
	var errs []error
	seen := map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more, err := parse(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		if err != nil {
			errs = append(errs, err)
		}
		for _, m := range more {
			if seen[m.name] {
				errs = append(errs, fmt.Errorf("%s: the name is there twice", &m))
			}
			seen[m.name] = true
		}
		list = append(list, more...)
	}
	if len(list) == 0 {
		errs = append(errs, fmt.Errorf("%s has no mutants", dir))
	}
	return list, errors.Join(errs...)
}

var errHead = errors.New("a mutant begins with lines `== name`, `protects: …`, `test: ./package -run regexp`, perhaps `expect: regexp`, " +
	"a sentence that says what is wrong in it, and an empty line")

// parse reads a file of mutants.
func parse(file, text string) ([]mutant, error) {
	var list []mutant
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		if lines[i] == "" {
			i++
			continue
		}
		name, ok := strings.CutPrefix(lines[i], "== ")
		end := i + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "== ") {
			end++
		}
		m := mutant{file: file, name: name}
		err := m.parse(lines[i+1:end], i+2)
		if !ok {
			err = errHead
		}
		if err != nil {
			return nil, fmt.Errorf("%s.txt:%d: %w", file, i+1, err)
		}
		list = append(list, m)
		i = end
	}
	return list, nil
}

// parse reads what stands below a mutant's name; first is the number of the first line.
func (m *mutant) parse(lines []string, first int) (err error) {
	head := slices.Index(lines, "")
	if head < 0 {
		return errHead
	}
	for _, line := range lines[:head] {
		if rest, ok := strings.CutPrefix(line, "protects: "); ok {
			m.protects = rest
		} else if rest, ok := strings.CutPrefix(line, "test: "); ok {
			words := strings.Fields(rest)
			if len(words) < 3 || !strings.HasPrefix(words[0], "./") || words[1] != "-run" {
				return errHead
			}
			if _, err := regexp.Compile(words[2]); err != nil {
				return fmt.Errorf("%w: %w", errHead, err)
			}
			m.tests = append(m.tests, testLine{words[0], words[2], words[3:]})
		} else if rest, ok := strings.CutPrefix(line, "expect: "); ok {
			if m.expect, err = regexp.Compile(rest); err != nil {
				return fmt.Errorf("%w: %w", errHead, err)
			}
		} else {
			m.what = strings.TrimSpace(m.what + " " + line)
		}
	}
	if len(m.tests) == 0 || m.protects == "" || !strings.HasSuffix(m.what, ".") {
		return errHead
	}
	m.hunks, err = parseHunks(lines[head:], first+head)
	return err
}

// parseHunks reads lines as a diff has them; an empty line is between two hunks. An empty line of
// context would not count.
func parseHunks(lines []string, first int) ([]hunk, error) {
	var list []hunk
	begins := true
	for i, line := range lines {
		if line == "" {
			begins = true
			continue
		}
		if begins {
			list, begins = append(list, hunk{line: first + i}), false
		}
		h, code := &list[len(list)-1], counts(line[1:])
		switch {
		case !strings.ContainsAny(line[:1], " -+"):
			return nil, fmt.Errorf("%w: line %d: %q", errHunk, first+i, line)
		case code == "":
			continue
		}
		if line[0] != '+' {
			h.old = append(h.old, code)
		}
		if line[0] != '-' {
			h.new = append(h.new, code)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: line %d: there is none", errHunk, first)
	}
	return list, nil
}
