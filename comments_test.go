package carillon_test

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

var qualified = regexp.MustCompile(`(?:^|[\s(])([a-z][a-z0-9]*)\.([A-Z][A-Za-z0-9]*)`)

// TestCommentsNameWhatExists: what a comment calls pkg.Name is a name of that package, if one of
// this module is called so.
func TestCommentsNameWhatExists(t *testing.T) {
	names := map[string]map[string]bool{}
	for _, f := range sources(t) {
		pkg := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if names[pkg] == nil {
			names[pkg] = map[string]bool{}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[pkg][n.Name.Name] = true
			case *ast.TypeSpec:
				names[pkg][n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[pkg][name.Name] = true
				}
			}
			return true
		})
	}
	found := 0
	for _, f := range sources(t) {
		others := map[string]bool{} // packages of others, by the name that the file has for them
		for _, spec := range f.syntax.Imports {
			if imported := strings.Trim(spec.Path.Value, `"`); !strings.HasPrefix(imported, module) {
				others[path.Base(imported)] = true
			}
		}
		for _, group := range f.syntax.Comments {
			for _, m := range qualified.FindAllStringSubmatch(group.Text(), -1) {
				switch known := names[m[1]]; {
				case known == nil || others[m[1]]:
				case !known[m[2]]:
					t.Errorf("%s: %s.%s is not there", f.fset.Position(group.Pos()), m[1], m[2])
				default:
					found++
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d names; the test looks in the wrong place", found)
	}
}
