package carillon_test

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"carillon/test/testkit"
)

// TestPromisedNamesStay: what docs/compatibility.md promises for all of 1.x is there: the routes
// with their parameters and statuses, fields, error codes, metrics, exit codes, variables of others
// that count, keys of files and of JSON that a command prints, values of the chart and paths of the
// package. TestPromisedCommandsStay of cmd/carillon has the command line. docs/releasing.md says
// how a release adds its own.
func TestPromisedNamesStay(t *testing.T) {
	now := map[string]bool{}
	add := func(kind, file, pattern string) {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1)
		for _, m := range found {
			now[kind+" "+m[1]] = true
		}
		if found == nil {
			t.Errorf("%s has no %s", file, kind)
		}
	}
	add("metric", "docs/metrics.md", `(carillon_[a-z_]+[a-z](?:\{[^}]*\})?)`)
	add("code", "docs/errors.md", `<a id="([a-z_]+)">`)
	add("serve", "docs/operations.md", `(?m)^\| (exit \d) \|`)
	for _, m := range regexp.MustCompile("`(ctl [a-z]+)`((?: exits)? \\d[^`.]*)").FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		for _, code := range regexp.MustCompile(`\d`).FindAllString(m[2], -1) {
			now[m[1]+" exit "+code] = true
		}
	}
	add("variable", "docs/operations.md", `\b(OTEL_[A-Z_]*[A-Z])\b`)
	add("variable", "docs/backup.md", `\b(AWS_[A-Z0-9_]*[A-Z0-9])\b`)
	add("file of topics", "cmd/carillon/ctl/apply_file.go", `root\.key\.Value != "(\w+)"`)
	add("file of the package", "deploy/debian/nfpm.yaml", `dst: ([^ ,]+)`)
	add("unit", "deploy/systemd/carillon.service", `(?m)^((?:User|StateDirectory|ExecStart)=.*)$`)
	add("volume of the chart", "deploy/helm/carillon/templates/statefulset.yaml", `(?m)- (\{name: \w+, mountPath: [^ ,}]+)`)
	for _, list := range regexp.MustCompile(`\[\]string\{("(?:name|per_second)".*)\}`).FindAllStringSubmatch(read(t, "transport/api/auth_file.go"), -1) {
		for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(list[1], -1) {
			now["auth file "+m[1]] = true
		}
	}
	for kind, file := range map[string]string{"api": "docs/openapi.yaml", "value of the chart": "deploy/helm/carillon/values.schema.json"} {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(read(t, file)), &doc); err != nil {
			t.Fatal(err)
		}
		if kind == "api" {
			namesOf(now, kind, doc)
		} else {
			namesOf(now, kind, doc["properties"])
		}
	}
	for kind, pattern := range map[string]string{"json of ctl": "cmd/carillon/ctl/*.go", "json of loadtest": "loadtest/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || files == nil {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range regexp.MustCompile(`json:"(\w+)|\bo\.(?:set|text|number|raw)\("(\w+)"`).FindAllStringSubmatch(read(t, file), -1) {
				now[kind+" "+m[1]+m[2]] = true
			}
		}
	}
	testkit.Promised(t, "docs/formats/names", now, 1000)
}

// TestClientsHaveAllCodes: the clients whose languages have constants for the codes of refusals have
// each of those that docs/errors.md describes, and no other.
func TestClientsHaveAllCodes(t *testing.T) {
	codesIn := func(file, region, code string) (codes []string) {
		text := regexp.MustCompile(region).FindString(read(t, file))
		for _, m := range regexp.MustCompile(code).FindAllStringSubmatch(text, -1) {
			codes = append(codes, m[1])
		}
		slices.Sort(codes)
		return codes
	}
	want := codesIn("docs/errors.md", `(?s).*`, `<a id="([a-z_]+)">`)
	for file, region := range map[string]string{
		"client/errors.go":                 `(?s)\n// The codes of the API\..*?\n\)`,
		"clients/typescript/src/errors.ts": `(?s)export type Code =.*?;`,
	} {
		if got := codesIn(file, region, `"([a-z_]+)"`); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s has the codes %q, want %q", file, got, want)
		}
	}
}

// namesOf adds where the OpenAPI document has routes, parameters, statuses, fields and values.
func namesOf(out map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, part := range v {
			switch key {
			case "description", "summary", "example", "examples", "tags", "info", "externalDocs", "operationId",
				"required", "default", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties":
				continue // texts, and bounds that may become wider
			case "type", "$ref":
				out[at+" "+key+" "+toText(part)] = true
				if list, ok := part.([]any); ok { // any of these
					for _, name := range list {
						out[at+" "+key+" "+toText(name)] = true
					}
				}
				continue
			case "enum":
				if list, ok := part.([]any); ok {
					for _, value := range list {
						out[at+" "+strings.TrimSpace(toText(value))] = true
					}
				}
				continue
			case "parameters":
				if list, ok := part.([]any); ok {
					for _, p := range list {
						if p, ok := p.(map[string]any); ok {
							out[at+" ?"+toText(p["name"])+toText(p["$ref"])] = true
						}
					}
					continue
				}
			}
			namesOf(out, at+"."+key, part)
		}
	case []any:
		for _, part := range v {
			namesOf(out, at, part)
		}
	default:
		out[at] = true
	}
}

func toText(v any) string {
	text, _ := v.(string)
	return text
}

// otherReceivers are the top folders in which methods have receivers yet that are letters of
// former names. One leaves the list once its types are within the rule.
var otherReceivers = []string{"test", "wheel"}

// TestReceiversAreLettersOfTheirTypes: a receiver has the first letters of a word of its type's
// name, or letters of it from there on in their order: l, al or lease of an activeLease, rt of a
// router. All methods of a type have the same one.
func TestReceiversAreLettersOfTheirTypes(t *testing.T) {
	names := map[string]string{}
	for _, f := range sources(t) {
		folder := path.Dir(f.name)
		if top, _, _ := strings.Cut(folder, "/"); slices.Contains(otherReceivers, top) {
			continue
		}
		for _, d := range f.syntax.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			name, typ := method.Recv.List[0].Names[0].Name, receiver(method.Recv.List[0].Type)
			if !abbreviates(name, typ) {
				t.Errorf("%s: the receiver %s of %s is not of letters of %s", f.name, name, method.Name.Name, typ)
			}
			if other := names[folder+"."+typ]; other != "" && other != name {
				t.Errorf("%s: %s has the receivers %s and %s", f.name, typ, other, name)
			}
			names[folder+"."+typ] = name
		}
	}
	if len(names) < 200 {
		t.Errorf("found only %d types; the test looks in the wrong place", len(names))
	}
}

// abbreviates reports whether short has letters of long in their order, from the beginning of one
// of its words on.
func abbreviates(short, long string) bool {
	for i, r := range long {
		if i > 0 && !unicode.IsUpper(r) || !strings.EqualFold(string(r), short[:1]) {
			continue
		}
		rest := strings.ToLower(long[i:])
		for short := strings.ToLower(short); ; short = short[1:] {
			if short == "" {
				return true
			}
			at := strings.IndexByte(rest, short[0])
			if at < 0 {
				break
			}
			rest = rest[at+1:]
		}
	}
	return false
}
