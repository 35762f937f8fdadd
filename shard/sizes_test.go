package shard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestSizesOfTypes: no type of this package has more methods or fields than one head holds. Config
// is exempt: its fields are options, independent of each other.
func TestSizesOfTypes(t *testing.T) {
	const mostMethods, mostFields = 60, 30
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods, fields := map[string]int{}, map[string]int{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					of := n.Recv.List[0].Type
					if star, ok := of.(*ast.StarExpr); ok {
						of = star.X
					}
					if id, ok := of.(*ast.Ident); ok {
						methods[id.Name]++
					}
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						fields[n.Name.Name] += max(1, len(f.Names))
					}
				}
			}
			return true
		})
	}
	delete(fields, "Config")
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, more than %d", name, n, mostMethods)
		}
	}
	for name, n := range fields {
		if n > mostFields {
			t.Errorf("%s has %d fields, more than %d", name, n, mostFields)
		}
	}
	for _, name := range []string{"group", "worker", "Host", "timerShard"} {
		t.Logf("%s: %d methods, %d fields", name, methods[name], fields[name])
	}
	if methods["Host"] == 0 || fields["group"] == 0 {
		t.Error("the test looks in the wrong place")
	}
}
