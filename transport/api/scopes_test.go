package api

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// routeScopes has the scopes of each route, of which a token needs one. It is kept apart from the
// table that the server goes by, and a route that is not here fails the test.
var routeScopes = map[string]string{
	"GET /healthz": "", "GET /readyz": "",

	"GET /metrics": "cluster read", "GET /v1/destinations": "cluster", "GET /v1/cluster/stats": "cluster",
	"POST /v1/backup": "cluster", "POST /v1/clock": "cluster", "PUT /v1/cluster/replicas": "cluster", "POST /v1/cluster/shards": "cluster", "POST /v1/cluster/finalize": "cluster",
	"POST /v1/cluster/nodes/{name}/drain": "cluster", "POST /v1/cluster/nodes/{name}/resume": "cluster",
	"DELETE /v1/cluster/nodes/{name}": "cluster",

	"GET /v1/cluster": "read", "GET /v1/clock": "read", "GET /v1/cluster/shards/{n}": "read", "GET /v1/events": "read", "GET /v1/due": "read",
	"GET /v1/timers": "read", "GET /v1/topics": "read", "GET /v1/topics/{topic}": "read", "GET /v1/topics/{topic}/timers": "read",
	"GET /v1/topics/{topic}/timers/{id}": "read", "GET /v1/topics/{topic}/dead": "read", "GET /v1/topics/{topic}/history": "read",

	"PUT /v1/topics/{topic}": "admin", "PATCH /v1/topics/{topic}": "admin", "DELETE /v1/topics/{topic}": "admin",
	"POST /v1/topics/{topic}/pause": "admin", "POST /v1/topics/{topic}/resume": "admin",
	"POST /v1/topics/{topic}/secrets/rotate": "admin", "POST /v1/topics/{topic}/secrets/finish": "admin",
	"POST /v1/topics/{topic}/signing-keys/rotate": "admin", "POST /v1/topics/{topic}/signing-keys/finish": "admin",
	"POST /v1/topics/{topic}/dead/redrive": "admin", "POST /v1/topics/{topic}/dead/purge": "admin",

	"POST /v1/topics/{topic}/timers": "add", "PUT /v1/topics/{topic}/timers/{id}": "add", "PATCH /v1/topics/{topic}/timers/{id}": "add",
	"POST /v1/topics/{topic}/timers/{id}/pause": "add", "POST /v1/topics/{topic}/timers/{id}/resume": "add",
	"POST /v1/topics/{topic}/pause-timers": "add", "POST /v1/topics/{topic}/resume-timers": "add",
	"POST /v1/topics/{topic}/timers/{id}/fire": "add", "POST /v1/topics/{topic}/reschedule": "add",
	"POST /v1/topics/{topic}/pull": "add", "POST /v1/ack": "add", "POST /v1/nack": "add", "POST /v1/extend": "add",
	"DELETE /v1/topics/{topic}/timers/{id}": "cancel", "POST /v1/topics/{topic}/cancel": "cancel",
	"POST /v1/topics/{topic}/batch": "add cancel",
}

// target is a route's path with something in place of its parameters.
func (r *route) target(topic string) string {
	return strings.NewReplacer("{topic}", topic, "{id}", "a", "{name}", "n1", "{n}", "1").Replace(r.path)
}

// Every route against a token of each scope alone, and of all but that one: the scopes of the table
// decide, and a refusal names the one that lacks.
func TestEveryRouteAsksForItsScope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	var entries []string
	for _, s := range web.Scopes {
		others := slices.DeleteFunc(slices.Clone(web.Scopes), func(other string) bool { return other == s })
		entries = append(entries, s+" "+s+` "*"`, "not-"+s+" "+strings.Join(others, ",")+` "*"`)
	}
	tenant := slices.DeleteFunc(slices.Clone(web.Scopes), func(s string) bool { return s == "cluster" })
	authFile(t, path, append(entries, "tenant "+strings.Join(tenant, ",")+` "shop.*"`)...)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Metrics = func(ctx *fasthttp.RequestCtx, _ bool) error { ctx.SetBodyString("up 1\n"); return nil }
	})
	// ask makes the call, with a body that no route takes: where the token may call it, the answer
	// is about that. No route reads its body before it knows whether the token may send it.
	ask := func(token string, r *route, topic string) *reply {
		if r.path == "/v1/events" {
			return h.do("HEAD", r.target(topic), "", "Authorization: Bearer "+token)
		}
		body := ""
		if r.body != noBody {
			body = `{"nonsense":0}`
		}
		return h.do(r.method, r.target(topic), body, "Authorization: Bearer "+token)
	}
	walked := map[string]bool{}
	for i := range routes {
		r := &routes[i]
		name := r.method + " " + r.path
		text, there := routeScopes[name]
		if !there {
			t.Errorf("%s is not in the table of scopes", name)
			continue
		}
		walked[name] = true
		needed := strings.Fields(text)
		for _, s := range web.Scopes {
			for _, token := range []string{s, "not-" + s} {
				only := token == s
				may := len(needed) == 0 || slices.Contains(needed, s) == only || !only && len(needed) > 1
				got := ask(token, r, "orders")
				if refused := got.status == 403 || got.status == 401; refused == may {
					t.Errorf("%s with the token %s: %d %s", name, token, got.status, got.body)
				}
				if !may && r.path != "/v1/events" { // HEAD has no body
					if want := "this needs the scope " + strings.Join(r.scope.Names(), " or "); !strings.Contains(got.body, want) {
						t.Errorf("%s with the token %s does not say %q: %s", name, token, want, got.body)
					}
				}
			}
		}
		// A tenant reaches its own topics, those of others are not there, and nothing spans them.
		topical := strings.Contains(r.path, "{topic}")
		spans := slices.Contains(needed, "cluster")
		if got := ask("tenant", r, "orders"); topical && got.status != 404 || spans && got.status != 403 {
			t.Errorf("%s by a tenant: %d %s", name, got.status, got.body)
		}
		if got := ask("tenant", r, "shop.a"); topical && got.status == 403 {
			t.Errorf("%s by a tenant, of its topic: %d %s", name, got.status, got.body)
		}
	}
	for name := range maps.Keys(routeScopes) {
		if !walked[name] {
			t.Errorf("%s is in the table of scopes, and no route", name)
		}
	}
}

// A route that was given no scope is refused to every token.
func TestRouteWithoutScopeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, "root "+strings.Join(web.Scopes, ",")+` "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	h.server.router = newRouter([]route{{method: "GET", path: "/v1/cluster", handle: (*request).healthz}})
	const target = "/v1/cluster"
	h.do("GET", target, "").problem(401, web.Unauthorized)
	h.do("GET", target, "", "Authorization: Bearer root").problem(403, web.Forbidden)
	// One open method does not open the others of its path.
	h.server.router = newRouter([]route{
		{method: "GET", path: target, scope: web.ScopeOpen, handle: (*request).healthz},
		{method: "POST", path: target, scope: web.ScopeCluster, handle: (*request).healthz, body: emptyBody},
	})
	h.do("POST", target, "").problem(401, web.Unauthorized)
}

// The cluster's scope is of every topic, or the file is refused.
func TestClusterScopeNeedsEveryTopic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	for topics, fine := range map[string]bool{`"*"`: true, `"orders","*"`: true, `"orders.*"`: false, `"*.orders"`: false, `"a*"`: false} {
		authFile(t, path, `boss read,cluster `+topics)
		if _, err := LoadAuth(path); (err == nil) != fine || err != nil && !strings.Contains(err.Error(), `line 1: topics: the scope cluster is of every topic; it needs topics: ["*"]`) {
			t.Errorf("%s: %v", topics, err)
		}
	}
	if _, _, err := NewToken(TokenRule{Name: "a", Scopes: []string{"cluster"}, Topics: []string{"orders.*"}}); err == nil || !strings.Contains(err.Error(), "scope cluster") {
		t.Error(err)
	}
}

// The cluster's state has the token's scopes, and a stream of events has breakers with the scope
// cluster alone.
func TestScopesAreShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `reader read,add "*"`, `boss read,cluster "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	h.do("GET", clusterPath, "", "Authorization: Bearer reader").want(200).has("scopes.0", `"add"`, "scopes.1", `"read"`, "scopes.2", "")
	newHarness(t).do("GET", clusterPath, "").want(200).has("scopes", "")
	if r := h.do("GET", "/v1/events?kind=breaker", "", "Authorization: Bearer reader").problem(403, web.Forbidden); !strings.Contains(r.body, "scope cluster") {
		t.Error(r.body)
	}
	for n, tt := range []struct{ token, kinds string }{{"reader", "fired node shards"}, {"boss", "fired breaker node shards"}} {
		l := h.listen(t, "/v1/events?kind=fired,breaker,node,shards", tt.token)
		l.next()
		if got := strings.Join(h.engine.stream(n).watch.Kinds, " "); got != tt.kinds {
			t.Errorf("%s hears of %s", tt.token, got)
		}
		l.close()
	}
}
