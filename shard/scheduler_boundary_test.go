package shard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// schedulerFiles are the scheduler. They know the table, the batch and their surroundings; nothing of raft, of the
// log, of workers, and no clock.
var schedulerFiles = []string{
	"active_lease.go", "compact.go", "consumer_lease.go", "dispatch.go", "due_queues.go", "inherited_leases.go", "key_queue.go",
	"lease.go", "limit.go", "pull_candidates.go", "ready_queues.go", "refresh.go", "retry.go", "scheduler.go",
	"scheduler_propose.go", "scheduler_report.go", "scheduler_series.go", "scheduler_stats.go", "topic_limits.go", "waits.go",
}

// TestSchedulerKeepsToItsSurroundings: the scheduler's files name no type of the host's and import what a state
// machine may; the host's files call the scheduler's methods alone.
func TestSchedulerKeepsToItsSurroundings(t *testing.T) {
	imports := []string{`"carillon/clocks"`, `"carillon/shard/table"`, `"carillon/timer"`, `"carillon/timer/recurrence"`, `"carillon/wheel"`,
		`"cmp"`, `"fmt"`, `"maps"`, `"math"`, `"math/rand/v2"`, `"reflect"`, `"slices"`, `"sync"`, `"time"`}
	hosts := map[string]bool{"group": true, "worker": true, "Host": true, "op": true, "item": true, "proposal": true}
	ours := map[string]bool{}
	for _, name := range schedulerFiles {
		ours[name] = true
	}
	files, inside := parsePackage(t), map[string]bool{}
	for name, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || !ours[name] {
				continue
			}
			for _, s := range g.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == "scheduler" {
					for _, field := range s.Type.(*ast.StructType).Fields.List {
						for _, n := range field.Names {
							inside[n.Name] = true
						}
					}
				}
			}
		}
	}
	if len(inside) == 0 {
		t.Fatal("no struct scheduler was found")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && !ours[name] && typeName(fn.Recv.List[0].Type) == "scheduler" {
				t.Errorf("%s: method %s is outside the scheduler's files", name, fn.Name.Name)
			}
		}
		if ours[name] {
			for _, i := range f.Imports {
				if !slices.Contains(imports, i.Path.Value) {
					t.Errorf("%s imports %s", name, i.Path.Value)
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StarExpr:
				if ours[name] && hosts[typeName(n.X)] {
					t.Errorf("%s names *%s", name, typeName(n.X))
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.SelectorExpr)
				if !ours[name] && name != "scheduler_env.go" && ok && x.Sel.Name == "scheduler" && inside[n.Sel.Name] {
					t.Errorf("%s reaches into the scheduler's field %s", name, n.Sel.Name)
				}
			case *ast.AssignStmt:
				for _, r := range n.Rhs {
					if s, ok := r.(*ast.SelectorExpr); ok && !ours[name] && s.Sel.Name == "scheduler" {
						t.Errorf("%s gives the scheduler another name", name)
					}
				}
			}
			return true
		})
	}
	for name := range ours {
		if files[name] == nil {
			t.Errorf("%s is not there", name)
		}
	}
}

// parsePackage reads the package's files but tests.
func parsePackage(t *testing.T) map[string]*ast.File {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files, fset := map[string]*ast.File{}, token.NewFileSet()
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(fset, name, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// typeName is that of a receiver or of what a pointer is to; "" if it is not a plain name.
func typeName(x ast.Expr) string {
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
