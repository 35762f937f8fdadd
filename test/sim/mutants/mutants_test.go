package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var underRace bool

// TestEveryMutantAppliesAndCompiles: a mutant that no longer applies proves nothing, so it fails
// here at once, and not only where the minutes are spent in which it must be found.
func TestEveryMutantAppliesAndCompiles(t *testing.T) {
	if underRace {
		t.Skip("make ci runs it without the race detector")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	names, err := productFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSources(root, names)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChecker(root, s, mutants)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check(mutants); err != nil {
		t.Error(err)
	}
}

// kinds are those of bugs of which there must be mutants besides those of the invariants.
var kinds = []string{"cost per turn", "a false word", "users' bytes look like ours", "a reason", "surroundings", "an example"}

// TestMutantsAreFewAndOfEachKind: each mutant holds up the moving of code, and costs a build.
func TestMutantsAreFewAndOfEachKind(t *testing.T) {
	mutants, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) > 120 {
		t.Errorf("%d mutants: 120 are enough", len(mutants))
	}
	protected := map[string]int{}
	for _, m := range mutants {
		protected[m.protects]++
	}
	wanted := slices.Clone(kinds)
	for i := range 21 {
		wanted = append(wanted, fmt.Sprintf("I%d", i+1))
	}
	for _, what := range wanted {
		if protected[what] == 0 {
			t.Errorf("no mutant protects %q", what)
		}
	}
	ofKinds := 0
	for _, kind := range kinds {
		ofKinds += protected[kind]
	}
	if ofKinds < 20 {
		t.Errorf("%d mutants of the kinds, want 20", ofKinds)
	}
}

// TestTableInTheDocument: docs/testing.md shows the mutants as they are.
func TestTableInTheDocument(t *testing.T) {
	mutants, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := withTable(string(text), mutants); err != nil || got != string(text) {
		t.Errorf("docs/testing.md has another table of mutants: go run ./test/sim/mutants -table writes it; %v", err)
	}
}

// mutated gives the files that a mutant of some hunks changes.
func mutated(t *testing.T, hunks string, files map[string]string) (map[string][]byte, error) {
	t.Helper()
	list, err := parseHunks(strings.Split(hunks, "\n"), 1)
	if err != nil {
		t.Fatal(err)
	}
	s := newSources()
	for name, text := range files {
		s.add(name, text)
	}
	return s.mutate(&mutant{hunks: list})
}

func TestMutantGoesByTheTextOfTheCode(t *testing.T) {
	const hunks = " b\n-c\n+C\n d\n\n g\n+G"
	for _, test := range []struct{ source, want, err string }{
		{"a\nb\nc\nd\ne\nf\ng\n\n", "a\nb\nC\nd\ne\nf\ng\nG\n\n", ""},
		{"a\n\tb\n\t\t// why\n\n\tc\n\td\ng", "a\nb\nC\nd\ng\nG", ""}, // comments, blank lines and indentation do not count
		{"g\n\nb\nc\nd\n", "g\nG\n\nb\nC\nd\n", ""},                   // nor does the order
		{"a\nb\nc\ne\ng\n\n", "", "nowhere"},
		{"b\nc\nd\nb\nc\nd\ng\n\n", "", "fits in f.go:1 and f.go:4"},
	} {
		got, err := mutated(t, hunks, map[string]string{"f.go": test.source})
		if string(got["f.go"]) != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q becomes %q, %v; want %q, %q", test.source, got, err, test.want, test.err)
		}
	}
}

func TestMutantFollowsTheCodeToAnotherFile(t *testing.T) {
	got, err := mutated(t, "-c\n+C\n\n-g\n+G", map[string]string{"a/f.go": "a\nb\ng", "b/h.go": "c"})
	if err != nil || len(got) != 2 || string(got["a/f.go"]) != "a\nb\nG" || string(got["b/h.go"]) != "C" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := mutated(t, "-c\n+C", map[string]string{"a/f.go": "c", "b/h.go": "c"}); err == nil || !strings.Contains(err.Error(), "a/f.go:1 and b/h.go:1") {
		t.Error(err)
	}
}

func TestChangeThatIsNone(t *testing.T) {
	for _, hunks := range []string{"+b", " a", "-a\n+\ta", "-a\n+b\n\n-a\n+c"} {
		if got, err := mutated(t, hunks, map[string]string{"f.go": "a\nz"}); !errors.Is(err, errHunk) {
			t.Errorf("%q: %q, %v", hunks, got, err)
		}
	}
	for _, hunks := range []string{"", "a", "@@ -1 +1 @@"} {
		if list, err := parseHunks(strings.Split(hunks, "\n"), 1); !errors.Is(err, errHunk) {
			t.Errorf("%q: %v, %v", hunks, list, err)
		}
	}
}

func TestHeadOfAMutant(t *testing.T) {
	const change = "\n\n-a\n+b\n"
	list, err := parse("file", "== one\nprotects: I1\ntest: ./p -run ^TestX$\ntest: ./test/sim -run . -sim.seeds=9\nexpect: a b\nIt lies\nto all."+change+"\n== two\nprotects: a word\ntest: ./p -run X\nIt lies."+change)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	m := &list[0]
	if m.String() != "file.txt: one" || m.protects != "I1" || m.what != "It lies to all." || m.hunks[0].line != 9 || len(m.tests) != 2 ||
		m.tests[1].String() != "./test/sim -run . -sim.seeds=9" || m.expect.String() != "a b" {
		t.Errorf("%+v", m)
	}
	if m := &list[1]; m.name != "two" || m.protects != "a word" || m.hunks[0].line != 17 {
		t.Errorf("%+v", m)
	}
	for _, head := range []string{
		"", "== x\nIt lies.", "== x\nprotects: I1\ntest: ./p -run X", "== x\ntest: ./p -run X\nIt lies.", "== x\nprotects: I1\ntest: p -run X\nIt lies.",
		"== x\nprotects: I1\ntest: ./p X\nIt lies.", "== x\nprotects: I1\ntest: ./p -run (\nIt lies.", "== x\nprotects: I1\ntest: ./p -run X\nexpect: (\nIt lies.",
		"x\nprotects: I1\ntest: ./p -run X\nIt lies.",
	} {
		if list, err := parse("file", head+change); !errors.Is(err, errHead) {
			t.Errorf("%q: %+v, %v", head, list, err)
		}
	}
}

func TestMessageOfAFailedTest(t *testing.T) {
	for _, test := range []struct{ out, want string }{
		{"=== RUN\n    a_test.go:1: seed 7, after 3s simulated: lost\n  replay: x\n", "seed 7, after 3s simulated: lost"},
		{"    a_test.go:1: a note\n    a_test.go:2: it is wrong\n--- FAIL: TestX\n", "a_test.go:2: it is wrong"},
		{"    a_test.go:1: a note\npanic: oh\n\ngoroutine 1:\n", "panic: oh"},
		{"FAIL\n", "FAIL"},
	} {
		if got := message(test.out); got != test.want {
			t.Errorf("%q: %q, want %q", test.out, got, test.want)
		}
	}
}
