package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/topics"
	"carillon/transport/api/web"
)

// rowsOf reads the cells of the table below a heading of a page. The first cell is a name in
// backquotes.
func rowsOf(t *testing.T, page, below string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), below+"\n")
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); strings.HasPrefix(line, "| `") {
			name := strings.Trim(cells[0], "`")
			if rows[name] != nil {
				t.Errorf("%s has %s twice", page, name)
			}
			rows[name] = cells[1:]
		}
	}
	return rows
}

// flat puts the fields of nested objects under one name each, such as retry.jitter.
func flat(prefix string, value any, into map[string]string) {
	if members, ok := value.(map[string]any); ok {
		for name, member := range members {
			flat(prefix+"."+name, member, into)
		}
		return
	}
	text, _ := json.Marshal(value)
	into[strings.TrimPrefix(prefix, ".")] = string(text)
}

// TestTopicsPage: docs/topics.md has every field of a policy, with the default that the code has,
// and an example that the API takes.
func TestTopicsPage(t *testing.T) {
	rows := rowsOf(t, "topics.md", "## Fields")
	want := map[string]string{}
	for _, name := range topics.PolicyFieldNames {
		within := map[string][]string{
			"callback": spec.CallbackFieldNames, "retry": spec.RetryFieldNames, "breaker": topics.BreakerFieldNames, "window": topics.WindowFieldNames, "batch": topics.BatchFieldNames, "rate": {"per_second", "burst"}, "per_key": topics.PerKeyFieldNames,
		}[name]
		for _, member := range within {
			want[name+"."+member] = "none"
		}
		if within == nil {
			want[name] = "none"
		}
	}
	policy := timer.DefaultPolicy()
	var shown any
	if err := json.Unmarshal(topics.AppendPolicy(nil, &policy), &shown); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	flat("", shown, defaults)
	for name, value := range defaults {
		want[name] = "`" + value + "`"
	}
	examples := map[string]any{}
	for name, value := range want {
		cells := rows[name]
		if len(cells) != 4 {
			t.Errorf("docs/topics.md: %s needs a row of five cells, has %q", name, cells)
			continue
		}
		if cells[0] != value {
			t.Errorf("docs/topics.md: the default of %s is %s, not %s", name, value, cells[0])
		}
		at, field := examples, name
		if outer, inner, nested := strings.Cut(name, "."); nested {
			if at[outer] == nil {
				at[outer] = map[string]any{}
			}
			at, field = at[outer].(map[string]any), inner
		}
		at[field] = json.RawMessage(strings.Trim(cells[3], "`"))
	}
	for name := range rows {
		if want[name] == "" {
			t.Errorf("docs/topics.md has %s, which is no field of a policy", name)
		}
	}
	batch := map[string]any{"batch": examples["batch"]} // it does not go with some of the others
	delete(examples, "batch")
	for _, one := range []map[string]any{examples, batch} {
		body, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t)
		for _, topic := range []string{"events", "failed"} { // of on_done and on_dead
			h.do("PUT", "/v1/topics/"+topic, `{}`).want(201)
		}
		if r := h.do("PUT", "/v1/topics/page", string(body)); r.status != 201 {
			t.Errorf("the examples of docs/topics.md, %s: %d %s", body, r.status, r.body)
		}
	}
}

// problemCodes finds the codes that the functions of this folder and those below answer with, and
// the statuses that are written beside them.
func problemCodes(t *testing.T) map[string][]int {
	t.Helper()
	files, err := filepath.Glob("*.go")
	below, err2 := filepath.Glob("*/*.go")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	files = append(files, below...)
	names, codes := map[string]string{}, map[string][]int{}
	var parsed []*ast.File
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
				if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					names[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
				}
			}
			return true
		})
	}
	add := func(status int, code ast.Expr) {
		text := ""
		switch e := code.(type) {
		case *ast.BasicLit:
			text, _ = strconv.Unquote(e.Value)
		case *ast.Ident:
			text = names[e.Name]
		case *ast.SelectorExpr:
			text = names[e.Sel.Name]
		}
		if text != "" && !slices.Contains(codes[text], status) {
			codes[text] = append(codes[text], status)
		}
	}
	nameOf := func(e ast.Expr) string { // without its package
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name
		case *ast.SelectorExpr:
			return e.Sel.Name
		}
		return ""
	}
	number := func(e ast.Expr) int {
		lit, ok := e.(*ast.BasicLit)
		if !ok {
			return 0
		}
		n, _ := strconv.Atoi(lit.Value)
		return n
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				fn := nameOf(n.Fun)
				switch {
				case len(n.Args) < 2:
				case fn == "Fail" || fn == "Failf":
					if status := number(n.Args[0]); status != 0 {
						add(status, n.Args[1])
					}
				case fn == "Bad" || fn == "Badf":
					add(400, n.Args[0])
				}
			case *ast.ValueSpec:
				if n.Names[0].Name == "titles" {
					for _, e := range n.Values[0].(*ast.CompositeLit).Elts {
						add(0, e.(*ast.KeyValueExpr).Key)
					}
				}
			case *ast.CompositeLit:
				if nameOf(n.Type) != "Problem" {
					return true
				}
				status, code := 0, ast.Expr(nil)
				for _, e := range n.Elts {
					pair, _ := e.(*ast.KeyValueExpr)
					if pair == nil {
						continue
					}
					switch pair.Key.(*ast.Ident).Name {
					case "Status":
						status = number(pair.Value)
					case "Code":
						code = pair.Value
					}
				}
				if status != 0 && code != nil {
					add(status, code)
				}
			}
			return true
		})
	}
	return codes
}

// TestErrorsPage: docs/errors.md has each code that the API answers with, and its statuses.
func TestErrorsPage(t *testing.T) {
	rows, codes := rowsOf(t, "errors.md", "## Codes"), problemCodes(t)
	if len(codes) < 30 {
		t.Fatalf("found the codes %v alone", slices.Sorted(maps.Keys(codes)))
	}
	for code, statuses := range codes {
		if len(rows[code]) != 3 {
			t.Errorf("docs/errors.md: %s needs a row of four cells, has %q", code, rows[code])
			continue
		}
		if anchor := `<a id="` + code + `"></a>`; !strings.HasPrefix(rows[code][1], anchor) {
			t.Errorf("docs/errors.md: %s lacks its anchor %s", code, anchor)
		}
		for _, status := range statuses {
			if status != 0 && !slices.Contains(strings.Split(rows[code][0], ", "), strconv.Itoa(status)) {
				t.Errorf("docs/errors.md: %s is answered with %d, not only with %s", code, status, rows[code][0])
			}
		}
	}
	for code := range rows {
		if codes[code] == nil {
			t.Errorf("docs/errors.md has %s, which is no code of the API", code)
		}
	}
}

// TestTypeOfAProblemIsItsPage: the type of an error, followed as it stands, is a text about its
// code, also for somebody without a token.
func TestTypeOfAProblemIsItsPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root read "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	r := h.do("GET", "/v1/topics", "").problem(401, "unauthorized")
	var problem struct{ Type string }
	if err := json.Unmarshal([]byte(r.body), &problem); err != nil {
		t.Fatal(err)
	}
	want := "unauthorized (401)\n\nWhy: no valid token\n\nWhat to do: `Authorization: Bearer TOKEN`; tokens (docs/operations.md#tokens)\n"
	if page := h.do("GET", problem.Type, "").want(200); page.body != want {
		t.Errorf("%s: %q", problem.Type, page.body)
	}
	for code := range problemCodes(t) {
		page := h.do("GET", web.ErrorPath+code, "").want(200)
		if kind := page.header.Get("Content-Type"); kind != "text/plain; charset=utf-8" || !strings.HasPrefix(page.body, code+" (") {
			t.Errorf("%s: %s: %q", code, kind, page.body)
		}
	}
	h.do("HEAD", web.ErrorPath+"exists", "").want(200)
	h.do("POST", web.ErrorPath+"exists", "").problem(405, "method_not_allowed")
	h.do("GET", web.ErrorPath+"nothing", "").problem(401, "unauthorized")
}
