package api

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"carillon/transport/api/internal/http1"
	"carillon/transport/api/web"

	yaml "go.yaml.in/yaml/v3"
)

// openAPI is as much of docs/openapi.yaml as the tests look at.
type openAPI struct {
	Paths      map[string]map[string]any `yaml:"paths"`
	Components map[string]map[string]any `yaml:"components"`
}

var document = sync.OnceValues(func() (doc openAPI, err error) {
	data, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		return doc, err
	}
	return doc, yaml.Unmarshal(data, &doc)
})

// operation is the documented operation of a route, nil when there is none.
func (o openAPI) operation(method, path string) map[string]any {
	op, _ := o.Paths[path][strings.ToLower(method)].(map[string]any)
	return op
}

// The document and the route table name the same operations, and each operation the same parameters
// and body.
func TestDocumentIsTheRouteTable(t *testing.T) {
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	routed := map[string]bool{}
	for i := range routes {
		r := &routes[i]
		routed[strings.ToLower(r.method)+" "+r.path] = true
		op := doc.operation(r.method, r.path)
		if op == nil {
			t.Errorf("%s %s is not documented", r.method, r.path)
			continue
		}
		var query []string
		conditional, named, traced := false, false, 0
		params, _ := op["parameters"].([]any)
		for _, p := range params {
			name := strings.TrimPrefix(p.(map[string]any)["$ref"].(string), "#/components/parameters/")
			switch {
			case strings.HasPrefix(name, "If"):
				conditional = true
				continue
			case name == "IdempotencyKey":
				named = true
				continue
			case name == "Prefer":
				continue
			case name == "TraceParent", name == "TraceState":
				traced++
				continue
			}
			query = append(query, documentedParams[name])
		}
		if !slices.Equal(query, r.query) || conditional != (r.conditional || r.versioned) {
			t.Errorf("%s %s: documented query %v, conditional %v; routed %v, %v", r.method, r.path, query, conditional, r.query, r.conditional)
		}
		if makes := r.path == "/v1/topics/{topic}/batch" || r.named || r.method == "PUT" && strings.HasSuffix(r.path, "/{id}"); makes != (traced == 2) || !makes && traced > 0 {
			t.Errorf("%s %s makes timers: %v, but %d headers of traces are documented", r.method, r.path, makes, traced)
		}
		if named != r.named {
			t.Errorf("%s %s: documented with an Idempotency-Key: %v", r.method, r.path, named)
		}
		body, hasBody := op["requestBody"].(map[string]any)
		if hasBody != (r.body != noBody) || hasBody && body["required"] != (r.body != emptyBody && r.body != maybeBody) {
			t.Errorf("%s %s: the documented body is not the route's", r.method, r.path)
		}
		if got := documentedScope(op["security"]); got != r.scope {
			t.Errorf("%s %s: documented with the scopes %v", r.method, r.path, got.Names())
		}
	}
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" && !routed[method+" "+path] {
				t.Errorf("%s %s is documented but not routed", method, path)
			}
		}
	}
}

// documentedScope reads an operation's security: the roles are scopes of which one is needed; an
// empty list is for everybody.
func documentedScope(security any) (s web.Scope) {
	list, given := security.([]any)
	if given && len(list) == 0 {
		return web.ScopeOpen
	}
	for _, one := range list {
		roles, _ := one.(map[string]any)["token"].([]any)
		for _, role := range roles {
			s |= web.ScopeNames[role.(string)]
		}
	}
	return s
}

var documentedParams = map[string]string{
	"TopicPrefix": "prefix", "DestinationState": "state", "Counts": "counts", "OfTimer": "id", "OverState": "state", "Limit": "limit", "Cursor": "cursor", "State": "state", "DueFrom": "due_from", "DueTo": "due_to", "From": "from", "To": "to",
	"Label": "label", "EventTopic": "topic", "EventKind": "kind", "Until": "until", "Buckets": "buckets", "IdPrefix": "id_prefix", "Payload": "payload", "Reason": "reason", "Force": "force", "ForcePolicy": "force", "ForceRemove": "force", "AcceptLoss": "accept_loss", "Brief": "brief", "DryRun": "dry_run", "DryRunOne": "dry_run", "DryRunTopic": "dry_run", "DryRunShards": "dry_run", "Next": "next",
}

// The table of operations.md, section Tokens, has each call under the scope that it needs.
func TestScopesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| scope | calls |\n")
	if !found {
		t.Fatal("docs/operations.md has no table of scopes and calls")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	words := map[web.Scope]string{
		web.ScopeOpen: "none", web.ScopeRead: "`read`", web.ScopeAdd: "`add`", web.ScopeCancel: "`cancel`", web.ScopeAdmin: "`admin`", web.ScopeCluster: "`cluster`",
		web.ScopeChange:  "`add` or `cancel`, for each of its operations",
		web.ScopeMetrics: "`cluster`; `read` with the topics `[\"*\"]`, without what names topics or receivers",
	}
	named := 0
	for i := range routes {
		r := &routes[i]
		call, row := "`"+r.method+" "+r.path+"`", "| "+words[r.scope]+" |"
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, row) && strings.Contains(line, call) {
				named++
				row = ""
			}
		}
		if row != "" {
			t.Errorf("docs/operations.md, table of scopes and calls: the row %q lacks %s", row, call)
		}
	}
	if calls := strings.Count(table, " /"); calls != named {
		t.Errorf("docs/operations.md, table of scopes and calls: %d calls, %d of them routed", calls, named)
	}
}

// Every reference points at something.
func TestDocumentReferences(t *testing.T) {
	data, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		for _, part := range bytes.Split(line, []byte(`$ref: "#/`))[1:] {
			ref, _, _ := bytes.Cut(part, []byte{'"'})
			node := any(tree)
			for name := range strings.SplitSeq(string(ref), "/") {
				m, _ := node.(map[string]any)
				if node = m[name]; node == nil {
					t.Errorf("%s points at nothing", ref)
					break
				}
			}
		}
	}
}

// checkDocumented asks that an answer that a test saw is one that the document has. Called for
// every answer of every test: a status or a header that nobody wrote down cannot go unnoticed.
func checkDocumented(t testing.TB, method, target string, status int, header http.Header) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	path, _, ok := http1.SplitTarget([]byte(target))
	if !ok {
		return
	}
	segments, _, fault := http1.SplitPath(path, nil, nil, maxSegments)
	if fault != nil {
		return
	}
	pat := newRouter(routes).find(segments)
	if pat == nil {
		return
	}
	if method == "HEAD" {
		method = "GET"
	}
	op := doc.operation(method, "/"+strings.Join(pat.segments, "/"))
	if op == nil {
		return // 405
	}
	answer := doc.response(op["responses"].(map[string]any)[fmt.Sprint(status)])
	if answer == nil {
		t.Errorf("%s /%s answered %d, which is not documented", method, strings.Join(pat.segments, "/"), status)
		return
	}
	documented, _ := answer["headers"].(map[string]any)
	for _, name := range []string{"ETag", "Location", "Preference-Applied", "Carillon-Leader", "Retry-After"} {
		if _, ok := documented[name]; !ok && header.Get(name) != "" {
			t.Errorf("%s /%s answered %d with %s, which is not documented", method, strings.Join(pat.segments, "/"), status, name)
		}
	}
}

// response is an answer as the document has it, or one of those that many operations share.
func (o openAPI) response(v any) map[string]any {
	answer, _ := v.(map[string]any)
	if ref, ok := answer["$ref"].(string); ok {
		answer, _ = o.Components["responses"][strings.TrimPrefix(ref, "#/components/responses/")].(map[string]any)
	}
	return answer
}
