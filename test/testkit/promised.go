package testkit

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	addNames      = flag.Bool("names.add", false, "add the names that are new to the lists of promised names; for a release")
	completeNames = flag.Bool("names.complete", false, "fail where a name is in no list of promised names; before a release")
)

// Promised fails if a name of the list in file is not there any more. With -names.add it adds those
// that are new, with -names.complete it fails if there are any. A list of fewer than least names
// was not made of all there is.
func Promised(t *testing.T, file string, now map[string]bool, least int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	if len(now) < least {
		t.Errorf("%d names for %s, at least %d are expected", len(now), file, least)
	}
	for _, name := range was {
		if !now[name] {
			t.Errorf("%q is promised for all of 1.x in %s, and is gone", name, file)
		}
	}
	if *completeNames {
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if !slices.Contains(was, name) {
				t.Errorf("%q is not in %s: -names.add adds it", name, file)
			}
		}
	}
	if !*addNames || t.Failed() {
		return
	}
	list := append(was, slices.Collect(maps.Keys(now))...)
	slices.Sort(list)
	if err := os.WriteFile(file, []byte(strings.Join(slices.Compact(list), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
