package carillon_test

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// documents are the names of all Markdown files of the tree, each of which is checked against it.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && skipped(name) {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) < 100 {
		t.Fatalf("%d documents; %v", len(names), err)
	}
	return names
}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Example)[A-Z][A-Za-z0-9_]*`)
	goFile   = regexp.MustCompile("`([a-z0-9_/]*[a-z0-9_]+\\.(?:go|sh|yml|md))`")
	link     = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	codeOnly = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Behind -run a text may name several tests by how they begin.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{"TestClock": true, "TestNode": true} // types of the clients
	for _, f := range sources(t) {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest && fn.Recv == nil {
				exists[fn.Name.Name] = true
			}
		}
	}
	beginning := func(name string) bool {
		for test := range exists {
			if strings.HasPrefix(test, name) {
				return true
			}
		}
		return false
	}
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, at := range testName.FindAllStringIndex(text, -1) {
			name := text[at[0]:at[1]]
			if !exists[name] && !(strings.HasSuffix(text[:at[0]], "-run ") && beginning(name)) {
				t.Errorf("%s names %s, which is no test", doc, name)
			}
		}
	}
}

// TestWhatRunsAloneIsOfNode: `make raced` leaves ALONE out of all its packages, and `make models`
// runs it in node. So each of its names is a test of node, and of no other package.
func TestWhatRunsAloneIsOfNode(t *testing.T) {
	alone := regexp.MustCompile(`(?m)^ALONE := \^Test\((.*)\)\$\$$`).FindStringSubmatch(read(t, "Makefile"))
	if alone == nil {
		t.Fatal("the Makefile has no ALONE")
	}
	folders := map[string][]string{}
	for _, f := range sources(t) {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest && fn.Recv == nil {
				folders[fn.Name.Name] = append(folders[fn.Name.Name], path.Dir(f.name))
			}
		}
	}
	for name := range strings.SplitSeq(alone[1], "|") {
		if at := folders["Test"+name]; !slices.Equal(at, []string{"node"}) {
			t.Errorf("Test%s of ALONE is in %q, want node alone", name, at)
		}
	}
}

// What the help of a target names as an option is empty, or a default, unless it is given: an
// assignment for another target would be taken for it.
func TestOptionsOfTheMakefileAreGivenAlone(t *testing.T) {
	text, options := read(t, "Makefile"), 0
	for _, help := range regexp.MustCompile(`(?m)^[a-z-]+:.*## .*`).FindAllString(text, -1) {
		for _, option := range regexp.MustCompile(`\b([A-Z]+)=`).FindAllStringSubmatch(help, -1) {
			options++
			if regexp.MustCompile(`(?m)^` + option[1] + ` *:?=`).MatchString(text) {
				t.Errorf("%s is an option of %q, and assigned", option[1], help)
			}
		}
	}
	if options < 5 {
		t.Errorf("%d options are named", options)
	}
}

// A file is named by its path, from the root or from the document, or by its base name where the
// text has given the folder.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	exists := map[string]bool{"notes.md": true} // made by make release
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && skipped(name) {
			return filepath.SkipDir
		}
		exists[path.Base(name)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, match := range goFile.FindAllStringSubmatch(text, -1) {
			name := match[1]
			_, fromRoot := os.Stat(name)
			_, fromHere := os.Stat(filepath.Join(filepath.Dir(doc), name))
			if fromRoot != nil && fromHere != nil && !exists[name] {
				t.Errorf("%s names %s, which is no file", doc, name)
			}
		}
	}
}

// Each link of each document leads to a file that exists and, in Markdown, to a heading that
// exists.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, doc := range documents(t) {
		for _, match := range link.FindAllStringSubmatch(codeOnly.ReplaceAllString(read(t, doc), ""), -1) {
			links++
			to := doc
			if match[1] != "" {
				to = filepath.Join(filepath.Dir(doc), match[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", doc, to, err)
			} else if match[2] != "" && filepath.Ext(to) == ".md" && !slices.Contains(headingIDs(read(t, to)), match[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", doc, to, match[2])
			}
		}
	}
	if links < 200 {
		t.Errorf("%d links", links)
	}
}

// TestPackagesLinkToTheRepository: a package's page leads to the repository's files by URLs, as it
// is read without them.
func TestPackagesLinkToTheRepository(t *testing.T) {
	const url = "https://example.com/carillon/blob/v1.0.0/"
	for _, page := range []string{"client/README.md", "clients/python/README.md", "clients/typescript/README.md", "deploy/helm/carillon/README.md", "CHANGELOG.md"} {
		text, err := exec.Command("scripts/links.sh", url, page).Output()
		if err != nil {
			t.Fatal(err)
		}
		if left := link.FindString(string(text)); left != "" {
			t.Errorf("%s: %s leads nowhere outside the repository", page, left)
		}
		made := regexp.MustCompile(`\]\(`+url+`([^)#]*)`).FindAllStringSubmatch(string(text), -1)
		if len(made) != len(link.FindAllString(read(t, page), -1)) {
			t.Errorf("%s: %d links, unlike before", page, len(made))
		}
		for _, m := range made {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// headingIDs names the headings of a document as the usual hosts of repositories do.
func headingIDs(text string) (ids []string) {
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		id := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, match[1])
		unique := id
		for n := 1; slices.Contains(ids, unique); n++ {
			unique = fmt.Sprintf("%s-%d", id, n)
		}
		ids = append(ids, unique)
	}
	return ids
}

// An item of a list begins a line: where a paragraph was filled over it, it is text.
func TestListsAreLists(t *testing.T) {
	swallowed := regexp.MustCompile(`\S - \*\*`)
	for _, doc := range documents(t) {
		if at := swallowed.FindString(read(t, doc)); at != "" {
			t.Errorf("%s has an item of a list within a line: %q", doc, at)
		}
	}
}

// Each alert leads to a page with what to do.
func TestAlertsAreExplained(t *testing.T) {
	page := read(t, "docs/metrics.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, "deploy/alerts.yaml"), -1)
	for _, alert := range alerts {
		if !strings.Contains(page, alert[1]) {
			t.Errorf("docs/metrics.md has no row for the alert %s", alert[1])
		}
	}
	if len(alerts) < 20 {
		t.Errorf("found %d alerts", len(alerts))
	}
}

// TestMetricsAreListed: docs/metrics.md has each metric that a node exports, and a node has each
// metric of the page, with its labels.
func TestMetricsAreListed(t *testing.T) {
	page, found, code := read(t, "docs/metrics.md"), 0, ""
	name := regexp.MustCompile(`"(carillon_[a-z_]+[a-z])"`)
	for _, dir := range []string{"node", "transport", "shard", "cmd"} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text := read(t, file)
			code += text
			for _, m := range name.FindAllStringSubmatch(text, -1) {
				if found++; !strings.Contains(page, m[1]) {
					t.Errorf("docs/metrics.md lacks %s of %s", m[1], file)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 50 {
		t.Errorf("only %d metrics were found in the code", found)
	}
	label := regexp.MustCompile(`[a-z]+`)
	for _, m := range regexp.MustCompile(`(carillon_[a-z_]+[a-z])(?:\{([^}=]*)[^}]*\})?`).FindAllStringSubmatch(page, -1) {
		_, behind, exported := strings.Cut(code, `"`+m[1]+`"`)
		if !exported {
			t.Errorf("docs/metrics.md has %s, which no node exports", m[1])
			continue
		}
		for _, l := range label.FindAllString(m[2], -1) {
			if !strings.Contains(behind[:min(len(behind), 700)], `"`+l+`"`) {
				t.Errorf("docs/metrics.md has %s with the label %s, which it does not have", m[1], l)
			}
		}
	}
}

// TestFrozenFilesStay: what a release has written stays as it is, and each such file is listed. A
// later format gets files of its own: `sha256sum FILE >>docs/formats/SHA256SUMS`.
func TestFrozenFilesStay(t *testing.T) {
	sums := map[string]string{}
	for line := range strings.Lines(read(t, "docs/formats/SHA256SUMS")) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[file] = sum
	}
	seen := 0
	for _, dir := range []string{"internal", "node", "ring", "shard", "transport", "wal"} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.Contains(file, "testdata/golden/") && !strings.Contains(file, "testdata/release/") {
				return err
			}
			seen++
			if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, file)))); sums[file] != sum {
				t.Errorf("%s is not as it was frozen: %s, docs/formats/SHA256SUMS has %q", file, sum, sums[file])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen != len(sums) {
		t.Errorf("%d files are frozen, %d are there", len(sums), seen)
	}
}

// The architecture is read in one sitting.
func TestArchitectureStaysShort(t *testing.T) {
	if lines := strings.Count(read(t, "docs/ARCHITECTURE.md"), "\n"); lines > 200 {
		t.Errorf("docs/ARCHITECTURE.md has %d lines, more than 200", lines)
	}
}
