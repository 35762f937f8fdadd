package carillon_test

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const promisedNames = "docs/formats/names"

var addNames = flag.Bool("names.add", false, "add to "+promisedNames+" what is new; for a release")

// TestPromisedNamesStay: what docs/compatibility.md promises for all of 1.x is there: the routes with
// their parameters and statuses, fields, error codes and metrics of each release. A release adds its
// own: `go test . -run TestPromisedNamesStay -names.add`.
func TestPromisedNamesStay(t *testing.T) {
	now := map[string]bool{}
	for _, m := range regexp.MustCompile(`carillon_[a-z_]+[a-z](\{[^}]*\})?`).FindAllString(read(t, "docs/metrics.md"), -1) {
		now["metric "+m] = true
	}
	for _, m := range regexp.MustCompile(`<a id="([a-z_]+)">`).FindAllStringSubmatch(read(t, "docs/errors.md"), -1) {
		now["code "+m[1]] = true
	}
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "docs/openapi.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	namesOf(now, "api", doc)
	was := strings.Split(strings.TrimSpace(read(t, promisedNames)), "\n")
	for _, name := range was {
		if !now[name] {
			t.Errorf("%q is promised for all of 1.x, and is gone", name)
		}
	}
	if len(was) < 1000 {
		t.Errorf("%s has %d names only", promisedNames, len(was))
	}
	if *addNames && !t.Failed() {
		for _, name := range was {
			now[name] = true
		}
		var list []string
		for name := range now {
			list = append(list, name)
		}
		slices.Sort(list)
		if err := os.WriteFile(promisedNames, []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
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
