package carillon_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are checked against the tree: tests and files that they name must exist.
var documents = []string{"README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/where-to-look.md", "docs/operations.md", "docs/security.md", "docs/callbacks.md", "docs/testing.md", "docs/found-bugs.md",
	"docs/tutorial.md", "docs/sizing.md", "docs/upgrades.md", "docs/guides/README.md", "docs/guides/receivers/README.md", "deploy/README.md"}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Example)[A-Z][A-Za-z0-9_]*`)
	goFile   = regexp.MustCompile("`([a-z0-9_/]*[a-z0-9_]+\\.(?:go|sh|yml|md))`")
	link     = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocumentsNameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	for _, f := range sources(t) {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest && fn.Recv == nil {
				exists[fn.Name.Name] = true
			}
		}
	}
	for _, doc := range documents {
		for _, name := range testName.FindAllString(read(t, doc), -1) {
			if !exists[name] {
				t.Errorf("%s names %s, which is no test", doc, name)
			}
		}
	}
}

// A file is named by its path, or by its base name where the text has given the folder.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	exists := map[string]bool{}
	for _, f := range sources(t) {
		exists[f.name], exists[path.Base(f.name)] = true, true
	}
	for _, doc := range documents {
		text := read(t, doc)
		for _, match := range goFile.FindAllStringSubmatch(text, -1) {
			name := match[1]
			if _, err := os.Stat(name); err != nil && !exists[name] {
				t.Errorf("%s names %s, which is no file", doc, name)
			}
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), match[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, match[1], err)
			}
		}
	}
}

// The architecture is read in one sitting.
func TestArchitectureStaysShort(t *testing.T) {
	if lines := strings.Count(read(t, "docs/ARCHITECTURE.md"), "\n"); lines > 200 {
		t.Errorf("docs/ARCHITECTURE.md has %d lines, more than 200", lines)
	}
}
