package main

import (
	"errors"
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
	mutants, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChecker("../..", mutants)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check(mutants); err != nil {
		t.Error(err)
	}
}

func TestPatchGoesByItsTextAndNotByLineNumbers(t *testing.T) {
	const patch = "--- a/f.go\n+++ b/f.go\n@@ -1,3 +1,3 @@\n b\n-c\n+C\n d\n@@ -90,2 +90,3 @@\n g\n+G\n \n"
	for _, test := range []struct{ source, want, err string }{
		{"a\nb\nc\nd\ne\nf\ng\n\n", "a\nb\nC\nd\ne\nf\ng\nG\n\n", ""},
		{"b\nc\nd\ng\n\n", "b\nC\nd\ng\nG\n\n", ""},
		{"a\nb\nc\ne\ng\n\n", "", "no longer applies"},
		{"g\n\nb\nc\nd\n", "", "no longer applies"}, // hunks come in their order
		{"b\nc\nd\nb\nc\nd\ng\n\n", "", "2 places"},
	} {
		files, err := parsePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := files[0].apply([]byte(test.source))
		if string(got) != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q becomes %q, %v; want %q, %q", test.source, got, err, test.want, test.err)
		}
	}
}

func TestPatchThatCreatesAFile(t *testing.T) {
	files, err := parsePatch("--- /dev/null\n+++ b/p/f.go\n@@ -0,0 +1,2 @@\n+package p\n+// end\n")
	if err != nil || len(files) != 1 || !files[0].creates || files[0].name != "p/f.go" {
		t.Fatal(files, err)
	}
	if got, err := files[0].apply(nil); string(got) != "package p\n// end\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPatchThatIsNone(t *testing.T) {
	for _, text := range []string{
		"",
		"@@ -1 +1 @@\n-a\n+b\n",
		"--- a/f.go\n+++ f.go\n@@ -1 +1 @@\n-a\n+b\n",
		"--- a/f.go\n+++ b/../f.go\n@@ -1 +1 @@\n-a\n+b\n",
		"--- a/f.go\n+++ b/f.go\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n",
	} {
		if files, err := parsePatch(text); !errors.Is(err, errPatch) {
			t.Errorf("%q: %v, %v", text, files, err)
		}
	}
	for _, hunks := range []string{"", "@@ -1 +1 @@\n+b\n", "@@ -1 +1 @@\n a\n"} {
		files, err := parsePatch("--- a/f.go\n+++ b/f.go\n" + hunks)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := files[0].apply([]byte("a\n")); !errors.Is(err, errPatch) {
			t.Errorf("%q: %q, %v", hunks, got, err)
		}
	}
}

func TestHeaderOfAMutant(t *testing.T) {
	const diff = "--- a/p/f.go\n+++ b/p/f.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parseMutant("name", "Test: ./p -run ^TestX$\nTest: ./sim -run . -sim.seeds=9\nExpect: a b\n\nIt lies\nto all.\n\n"+diff)
	if err != nil || m.what != "It lies to all." || m.files[0].hunks[0].line != 10 || len(m.tests) != 2 || m.tests[1].String() != "./sim -run . -sim.seeds=9" || m.expect.String() != "a b" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parseMutant("name", "Test: ./p -run X\n\nIt lies.\n\ndiff --git a/p/f.go b/p/f.go\nindex 1..2 100644\n"+diff); err != nil || m.what != "It lies." || len(m.files) != 1 {
		t.Errorf("as git writes it: %+v, %v", m, err)
	}
	for _, head := range []string{
		"", "It lies.\n", "Test: ./p -run X\n", "Test: p -run X\nIt lies.\n", "Test: ./p X\nIt lies.\n", "Test: ./p -run (\nIt lies.\n",
		"Test: ./p -run X\nExpect: (\nIt lies.\n",
	} {
		if m, err := parseMutant("name", head+diff); !errors.Is(err, errHeader) {
			t.Errorf("%q: %+v, %v", head, m, err)
		}
	}
	if m, err := parseMutant("name", "Test: ./p -run X\nIt lies.\n"+strings.ReplaceAll(diff, "f.go", "f_test.go")); err == nil {
		t.Errorf("%+v, although it changes a test", m)
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
