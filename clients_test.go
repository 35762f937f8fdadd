package carillon_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"carillon/test/testkit"
)

// TestPromisedClientsStay: what programs use of the clients is there: of Go's the exported names
// with their types, of the others classes, functions with their parameters in order, and methods.
// TestClientTypesAreOfTheDocument has the types that come from the API. docs/releasing.md says how
// a release adds its own.
func TestPromisedClientsStay(t *testing.T) {
	now := map[string]bool{}
	for _, folder := range []string{"client", "client/clienttest"} {
		goNames(t, now, folder)
	}
	pythonNames(t, now)
	typescriptNames(t, now)
	testkit.Promised(t, "docs/formats/names-of-clients", now, 600)
}

// goNames adds what a package exports.
func goNames(t *testing.T, out map[string]bool, folder string) {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil || files == nil {
		t.Fatal(folder, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		text := func(n ast.Node) string {
			var b bytes.Buffer
			_ = printer.Fprint(&b, set, n) // to memory
			return strings.Join(strings.Fields(b.String()), " ")
		}
		add := func(name, what string) { out[fmt.Sprintf("go %s.%s %s", filepath.Base(folder), name, what)] = true }
		for _, d := range syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
					add(name, signature(d.Type, text))
				}
			case *ast.GenDecl:
				goDeclared(d, add, text)
			}
		}
	}
}

// goDeclared adds types with their fields, constants and variables.
func goDeclared(d *ast.GenDecl, add func(name, what string), text func(ast.Node) string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if !name.IsExported() {
					continue
				}
				what := d.Tok.String()
				if d.Tok == token.CONST && i < len(s.Values) {
					what += " " + text(s.Values[i])
				}
				add(name.Name, what)
			}
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			var list *ast.FieldList
			what := ""
			switch typ := s.Type.(type) {
			case *ast.StructType:
				list, what = typ.Fields, "struct"
			case *ast.InterfaceType:
				list, what = typ.Methods, "interface"
			default:
				what = text(s.Type)
			}
			add(s.Name.Name, what)
			if list == nil {
				continue
			}
			for _, f := range list.List {
				if f.Names == nil {
					add(s.Name.Name, "has "+text(f.Type))
				}
				for _, name := range f.Names {
					if function, ok := f.Type.(*ast.FuncType); ok && what == "interface" {
						add(s.Name.Name+"."+name.Name, signature(function, text))
					} else if name.IsExported() {
						add(s.Name.Name+"."+name.Name, text(f.Type))
					}
				}
			}
		}
	}
}

// signature is a function's type without the names of its parameters.
func signature(f *ast.FuncType, text func(ast.Node) string) string {
	list := func(fields *ast.FieldList) string {
		var types []string
		if fields != nil {
			for _, f := range fields.List {
				for range max(1, len(f.Names)) {
					types = append(types, text(f.Type))
				}
			}
		}
		return "(" + strings.Join(types, ", ") + ")"
	}
	return "func" + list(f.TypeParams) + list(f.Params) + list(f.Results)
}

// pythonNames adds what the package has for others: classes with their fields and methods,
// functions, and their parameters: those before a star by their place.
func pythonNames(t *testing.T, out map[string]bool) {
	t.Helper()
	const folder = "clients/python/src/carillon/"
	_, list, _ := strings.Cut(read(t, folder+"__init__.py"), "__all__")
	public := map[string]bool{}
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(list, -1) {
		public[m[1]], out["python "+m[1]] = true, true
	}
	// A class, a function or method, a field, a field that an error's initializer sets, other code.
	line := regexp.MustCompile(`^(?:class (\w+)|( *)def (\w+)\(|    (?:    self\.)?(\w+)(?:: .*=|: | = )|(\w+))`)
	files, err := filepath.Glob(folder + "*.py")
	if err != nil || files == nil {
		t.Fatal(err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".py")
		if base == "types" || base == "__init__" {
			continue // of the document
		}
		text, owner, at := read(t, file), "", 0
		for l := range strings.Lines(text) {
			class, indent, function, field, other := "", "", "", "", ""
			if m := line.FindStringSubmatch(l); m != nil {
				class, indent, function, field, other = m[1], m[2], m[3], m[4], m[5]
			}
			known := func(name string) bool { return public[name] || base == "testing" && name[0] != '_' }
			switch {
			case class != "" && known(class):
				owner = class
				out["python "+owner] = true
			case class != "", other != "":
				owner = ""
			case function != "" && indent == "" && known(function):
				owner = ""
				pythonParameters(out, "python "+function, text[at+strings.Index(l, "(")+1:])
			case function != "" && indent == "":
				owner = ""
			case owner != "" && indent == "    " && (function[0] != '_' || function == "__init__"):
				pythonParameters(out, "python "+owner+"."+function, text[at+strings.Index(l, "(")+1:])
			case owner != "" && field != "" && field[0] != '_' && owner+"."+field != "Client.calls": // its own
				out["python "+owner+"."+field] = true
			}
			at += len(l)
		}
	}
}

// pythonParameters adds the parameters of a function; rest begins with them.
func pythonParameters(out map[string]bool, name, rest string) {
	out[name+"()"] = true
	var list []string
	depth, from := 0, 0
	for i, c := range rest {
		if strings.ContainsRune("([{", c) {
			depth++
		}
		if c == ',' && depth == 0 || c == ')' && depth == 0 {
			list = append(list, strings.TrimSpace(rest[from:i]))
			from = i + 1
		}
		if strings.ContainsRune(")]}", c) {
			if depth--; depth < 0 {
				break
			}
		}
	}
	place := 0
	for _, p := range list {
		word := regexp.MustCompile(`^\**\w+`).FindString(p)
		switch {
		case p == "*" || strings.HasPrefix(word, "*"):
			place = -1
		case word == "self" || word == "cls" || word == "" || word[0] == '_':
		case place < 0:
			out[name+" "+word+"="] = true
		default:
			out[fmt.Sprintf("%s %s at %d", name, word, place)] = true
			place++
		}
	}
}

// typescriptNames adds what the package exports, with the public members of classes and interfaces.
func typescriptNames(t *testing.T, out map[string]bool) {
	t.Helper()
	const folder = "clients/typescript/src/"
	public := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?s)export (?:type )?\{(.*?)\}`).FindAllStringSubmatch(read(t, folder+"index.ts"), -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimPrefix(strings.TrimSpace(name), "type "); name != "" {
				public[name], out["typescript "+name] = true, true
			}
		}
	}
	exported := regexp.MustCompile(`^export (?:abstract )?(?:async )?(class|interface|function|const|type) (\w+)`)
	member := regexp.MustCompile(`^  (?:static |async |readonly |get )*\*?(\w+\??)[(:<]`)
	files, err := filepath.Glob(folder + "*.ts")
	if err != nil || files == nil {
		t.Fatal(err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".ts")
		if base == "openapi" || base == "index" {
			continue // of the document
		}
		owner := ""
		for line := range strings.Lines(read(t, file)) {
			if m := exported.FindStringSubmatch(line); m != nil {
				owner = ""
				if !public[m[2]] && base != "types" && base != "testing" {
					continue
				}
				out["typescript "+m[2]] = true
				if m[1] != "function" && m[1] != "const" {
					owner = m[2]
				}
			} else if line[0] == '}' {
				owner = ""
			} else if m := member.FindStringSubmatch(line); m != nil && owner != "" {
				out["typescript "+owner+"."+m[1]] = true
			}
		}
	}
}
