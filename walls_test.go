package carillon_test

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// The limits of a room: a type or a folder over them hides several under one name.
const (
	maxMethods = 60
	maxFields  = 30
	maxFiles   = 30
)

// plainMethods is how many methods a type of plain data has at most. Such a type has exported
// fields alone: a configuration, or the two sides of a JSON object. Each field stands by itself, so
// their number is no measure, and the limit of fields does not count there.
const plainMethods = 5

// wall is the size of one type, of its methods and of its fields.
type wall struct{ methods, fields int }

// TestTypesAndFoldersStayWithinTheirWalls: no type has more methods or fields, and no folder more
// files, than a reader can hold at once. An embedded type counts as one field.
func TestTypesAndFoldersStayWithinTheirWalls(t *testing.T) {
	sizes, plain, files := map[string]wall{}, map[string]bool{}, map[string]int{}
	for _, f := range sources(t) {
		if f.isTest || strings.HasPrefix(f.name, "test/") {
			continue
		}
		folder := path.Dir(f.name)
		files[folder]++
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					name := folder + "." + receiver(d.Recv.List[0].Type)
					s := sizes[name]
					s.methods++
					sizes[name] = s
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						name := folder + "." + typ.Name.Name
						s := sizes[name]
						s.methods, s.fields, plain[name] = s.methods+signatures(typ.Type), fields(typ.Type), exported(typ.Type)
						sizes[name] = s
					}
				}
			}
		}
	}
	if len(sizes) < 500 {
		t.Fatalf("found only %d types; the test looks in the wrong place", len(sizes))
	}
	for name, s := range sizes {
		if plain[name] && s.methods <= plainMethods {
			s.fields = 0
		}
		if s.methods > maxMethods || s.fields > maxFields {
			t.Errorf("%s has %d methods and %d fields; at most %d and %d: take a part of it out", name, s.methods, s.fields, maxMethods, maxFields)
		}
	}
	for folder, n := range files {
		if n > maxFiles {
			t.Errorf("%s has %d files; at most %d", folder, n, maxFiles)
		}
	}
}

// receiver returns the name of a method's type, without pointer and parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return e.(*ast.Ident).Name
}

// signatures counts the methods that an interface asks for.
func signatures(e ast.Expr) int {
	if i, ok := e.(*ast.InterfaceType); ok {
		return i.Methods.NumFields()
	}
	return 0
}

func fields(e ast.Expr) int {
	if s, ok := e.(*ast.StructType); ok {
		return s.Fields.NumFields()
	}
	return 0
}

// exported reports whether e is a struct without a field of its own package's.
func exported(e ast.Expr) bool {
	s, ok := e.(*ast.StructType)
	if !ok {
		return false
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			if !name.IsExported() {
				return false
			}
		}
	}
	return true
}
