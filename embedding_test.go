package carillon_test

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
	"testing"
)

// maxWide is how many methods a reader finds under one type's name at most: its own, and those of
// the types that it embeds.
//
// walls_test.go counts the own methods only. A part that is embedded has its own file and its own
// tests and does not know the whole, so it is read alone; forwarding to it by hand would add
// methods and hide none. But a type must not get within the walls by that alone. So here they
// count.
const maxWide = 60

// wide lists the types that are over it, with what they may have. A number here may only go down.
// What a Table embeds writes one state in one entry, and most parts embed those below them. The
// requests of node/route, the parts of a scheduler and the resources of an API request embed what
// all of a kind read.
var wide = map[string]int{
	"node/member.Member":        119,
	"node/member.observer":      66,
	"node/route.Router":         72,
	"node/route.Topics":         95,
	"node/route.bulkRun":        78,
	"node/route.countFanOut":    77,
	"node/route.gathering":      75,
	"node/route.historySearch":  80,
	"node/route.listing":        80,
	"node/route.opsRequest":     80,
	"node/route.pull":           78,
	"shard.Host":                122,
	"shard.schedulerEnv":        75,
	"shard/scheduler.keyQueues": 68,
	"shard/table.Table":         223,
	"shard/table.timers":        78,
	"shard/table.timetable":     100,
	"shard/table.updater":       135,
	"transport/api.request":     80,
}

// TestEmbeddingHidesNoMethods: a type does not get within its walls by embedding its parts. Of a
// type of another folder the exported methods count.
func TestEmbeddingHidesNoMethods(t *testing.T) {
	own, embeds := map[string]map[string]bool{}, map[string][]string{}
	add := func(typ, method string) {
		if own[typ] == nil {
			own[typ] = map[string]bool{}
		}
		own[typ][method] = true
	}
	for _, f := range sources(t) {
		if f.isTest || strings.HasPrefix(f.name, "test/") {
			continue
		}
		folder, imports := path.Dir(f.name), map[string]string{}
		for _, i := range f.syntax.Imports {
			if name, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(name, module) {
				imports[path.Base(name)] = strings.TrimPrefix(name, module)
			}
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					add(folder+"."+receiver(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						name := folder + "." + typ.Name.Name
						for _, field := range membersOf(typ.Type) {
							if _, isMethod := field.Type.(*ast.FuncType); isMethod {
								add(name, field.Names[0].Name)
							} else if len(field.Names) == 0 {
								embeds[name] = append(embeds[name], typeName(folder, imports, field.Type))
							}
						}
					}
				}
			}
		}
	}
	for name := range embeds {
		methods := map[string]bool{}
		collect(methods, map[string]bool{}, own, embeds, name, path.Dir(name))
		n, listed := len(methods), wide[name]
		if n > max(maxWide, listed) {
			t.Errorf("%s has %d methods, with those of the types that it embeds; at most %d: name a part instead of embedding it", name, n, max(maxWide, listed))
		}
		if listed > 0 && n <= maxWide {
			t.Errorf("%s is within the limit; take it off the list", name)
		}
	}
	for name := range wide {
		if embeds[name] == nil {
			t.Errorf("%s embeds nothing; take it off the list", name)
		}
	}
}

// collect adds the methods that a type has in a folder.
func collect(methods, seen map[string]bool, own map[string]map[string]bool, embeds map[string][]string, name, folder string) {
	if seen[name] {
		return
	}
	seen[name] = true
	for m := range own[name] {
		if ast.IsExported(m) || path.Dir(name) == folder {
			methods[m] = true
		}
	}
	for _, part := range embeds[name] {
		collect(methods, seen, own, embeds, part, folder)
	}
}

// membersOf returns the fields of a struct, or what an interface asks for.
func membersOf(e ast.Expr) []*ast.Field {
	switch e := e.(type) {
	case *ast.StructType:
		return e.Fields.List
	case *ast.InterfaceType:
		return e.Methods.List
	}
	return nil
}

// typeName returns folder and name of a type; only the name for one of a library.
func typeName(folder string, imports map[string]string, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return folder + "." + e.Name
	case *ast.SelectorExpr:
		return imports[e.X.(*ast.Ident).Name] + "." + e.Sel.Name
	case *ast.StarExpr:
		return typeName(folder, imports, e.X)
	case *ast.IndexExpr:
		return typeName(folder, imports, e.X)
	case *ast.IndexListExpr:
		return typeName(folder, imports, e.X)
	}
	return ""
}
