package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is a deliberate bug, and the tests that must find it.
type mutant struct {
	name   string // of the file, without .patch
	what   string // the bug, in a sentence
	tests  []testLine
	expect *regexp.Regexp // must match the output of each failed test; nil: anything does
	files  []filePatch
}

// testLine is a test that must fail: `./shard -run ^TestName$`. Further words are flags of the
// test's own.
type testLine struct {
	pkg, run string
	flags    []string
}

func (l testLine) String() string {
	return strings.Join(append([]string{l.pkg, "-run", l.run}, l.flags...), " ")
}

// load reads the patches of a folder.
func load(dir string) ([]mutant, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var list []mutant
	var errs []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(strings.TrimSuffix(filepath.Base(name), ".patch"), string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no patches", dir)
	}
	return list, errors.Join(errs...)
}

var diffBegins = regexp.MustCompile(`(?m)^(diff --git |--- )`)

var errHeader = errors.New("a patch begins with lines `Test: ./package -run regexp`, perhaps a line `Expect: regexp`, " +
	"and says in a sentence what is wrong in it")

// parseMutant reads the lines before the diff, and the diff.
func parseMutant(name, text string) (m mutant, err error) {
	m.name = name
	diff := diffBegins.FindStringIndex(text)
	if diff == nil {
		return m, fmt.Errorf("%w: it changes no file", errPatch)
	}
	at := diff[0]
	for _, line := range strings.Split(text[:at], "\n") {
		if rest, ok := strings.CutPrefix(line, "Test: "); ok {
			words := strings.Fields(rest)
			if len(words) < 3 || !strings.HasPrefix(words[0], "./") || words[1] != "-run" {
				return m, errHeader
			}
			if _, err := regexp.Compile(words[2]); err != nil {
				return m, fmt.Errorf("%w: %w", errHeader, err)
			}
			m.tests = append(m.tests, testLine{words[0], words[2], words[3:]})
		} else if rest, ok := strings.CutPrefix(line, "Expect: "); ok {
			if m.expect, err = regexp.Compile(rest); err != nil {
				return m, fmt.Errorf("%w: %w", errHeader, err)
			}
		} else {
			m.what = strings.TrimSpace(m.what + " " + line)
		}
	}
	if len(m.tests) == 0 || !strings.HasSuffix(m.what, ".") {
		return m, errHeader
	}
	head := strings.Repeat("\n", strings.Count(text[:at], "\n")) // messages count the whole file's lines
	if m.files, err = parsePatch(head + text[at:]); err != nil {
		return m, err
	}
	for _, f := range m.files {
		if !strings.HasSuffix(f.name, ".go") || strings.HasSuffix(f.name, "_test.go") {
			return m, fmt.Errorf("%s: a mutant changes what is tested, in Go, not the test", f.name)
		}
	}
	return m, nil
}

// mutate gives the changed files, by their names from the root of the module.
func (m *mutant) mutate(root string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, f := range m.files {
		source, err := os.ReadFile(filepath.Join(root, f.name))
		if f.creates != errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: %s: the patch creates a file that is there, or changes one that is not", m.name, f.name)
		}
		if err != nil && !f.creates {
			return nil, err
		}
		if changed[f.name] != nil {
			return nil, fmt.Errorf("%s: %s: %w: it is there twice", m.name, f.name, errPatch)
		}
		if changed[f.name], err = f.apply(source); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return changed, nil
}
