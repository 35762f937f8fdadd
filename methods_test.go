package carillon_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// TestMethodsBetweenNodesAreDistinct: a call between nodes names its method by a number, and
// several packages assign numbers. Two methods with one number would answer each other's calls.
func TestMethodsBetweenNodesAreDistinct(t *testing.T) {
	fset, folders := token.NewFileSet(), map[string][]*ast.File{}
	for _, pattern := range []string{"node/*.go", "node/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			syntax, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], syntax)
		}
	}
	owner := map[string]string{}
	for folder, files := range folders {
		check := types.Config{Error: func(error) {}, IgnoreFuncBodies: true} // imports are not resolved: constants are known without
		pkg, _ := check.Check(folder, fset, files, nil)
		for _, name := range pkg.Scope().Names() {
			c, ok := pkg.Scope().Lookup(name).(*types.Const)
			rest, is := strings.CutPrefix(name, "method")
			if !ok || !is || rest == "" || !unicode.IsUpper(rune(rest[0])) || c.Val().Kind() != constant.Int {
				continue
			}
			value, here := c.Val().ExactString(), folder+" "+name
			if other, taken := owner[value]; taken {
				t.Errorf("%s and %s are both %s", other, here, value)
			}
			owner[value] = here
		}
	}
	if len(owner) < 15 {
		t.Errorf("found only %d methods; the test looks in the wrong place", len(owner))
	}
}
