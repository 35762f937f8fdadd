package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// authFile writes an auth file of one line per entry, "name scopes topics", the token being name's
// own.
func authFile(t *testing.T, path string, entries ...string) {
	t.Helper()
	var b strings.Builder
	for _, e := range entries {
		f := strings.Fields(e)
		fmt.Fprintf(&b, "- {name: %s, sha256: \"%x\", scopes: [%s], topics: [%s]}\n", f[0], sha256.Sum256([]byte(f[0])), f[1], f[2])
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root add,cancel,read,topics,admin,cluster "*"`, `shop add,read,topics "orders.*","pay"`, `reader read "*"`, `canceller cancel "orders.*"`, `admin admin "orders.*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Metrics = func(ctx *fasthttp.RequestCtx, _ bool) error { ctx.SetBodyString("carillon_add_total 1\n"); return nil }
	})
	const a = "/v1/topics/orders.a"
	body := `{"id":"x","delay":"1h",` + cb + `}`
	ask := func(token, method, target, body string, status int) *reply {
		t.Helper()
		r := h.do(method, target, body, "Authorization: Bearer "+token)
		if r.status != status {
			t.Fatalf("%s: %s %s: %d, want %d: %s", token, method, target, r.status, status, r.body)
		}
		return r
	}
	// Open, and closed.
	h.do("GET", "/healthz", "").want(200)
	h.do("GET", "/readyz", "").want(200)
	for _, target := range []string{"/metrics", "/v1/topics", a, a + "/timers/x", "/nothing", "/v1/topics/a@b"} {
		if r := h.do("GET", target, "").problem(401, "unauthorized"); !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
			t.Fatal(r.header)
		}
	}
	for _, header := range []string{"Bearer nobody", "Bearer", "Bearer ", "Basic cm9vdA==", "root", "Bearer root ", "Bearer root root", "Bearer " + strings.Repeat("x", 1000), "Bearer root\r\nAuthorization: Bearer root"} {
		if header == "Bearer root " {
			continue // the white space around a value is not part of it
		}
		h.do("GET", a, "", "Authorization: "+header).problem(401, "unauthorized")
	}
	h.do("POST", a+"/timers", body).problem(401, "unauthorized")
	if h.engine.changes() != 0 {
		t.Fatal("something was changed")
	}
	h.do("PUT", a, `{}`, "Authorization: bearer root").want(201)

	// Scopes.
	ask("shop", "POST", a+"/timers", body, 201)
	ask("shop", "GET", a+"/timers/x", "", 200)
	ask("shop", "HEAD", a+"/timers/x", "", 200)
	ask("shop", "PATCH", a+"/timers/x", `{"priority":1}`, 200)
	ask("shop", "DELETE", a+"/timers/x", "", 403)
	ask("shop", "PUT", a, `{}`, 403)
	ask("shop", "POST", a+"/pause", "", 403)
	ask("shop", "POST", a+"/dead/purge", `{"all":true}`, 403)
	ask("shop", "GET", a+"/dead", "", 200)
	ask("reader", "POST", a+"/timers", body, 403)
	ask("reader", "POST", a+"/batch", `{"ops":[]}`, 403)
	ask("canceller", "GET", a+"/timers/x", "", 403)
	ask("canceller", "POST", a+"/batch", `{"ops":[{"op":"add","id":"y","delay":"1h",`+cb+`},{"op":"cancel","id":"x"}]}`, 200).
		has("results.0.status", "403", "results.1.status", "200")
	ask("shop", "POST", a+"/batch", `{"ops":[{"op":"cancel","id":"x"},{"op":"add","id":"y","delay":"1h",`+cb+`}]}`, 200).
		has("results.0.status", "403", "results.1.status", "201")
	ask("admin", "POST", a+"/pause", "", 200)
	ask("admin", "POST", a+"/timers", body, 403)
	ask("shop", "GET", "/metrics", "", 403)
	ask("reader", "GET", "/metrics", "", 200)
	ask("root", "GET", "/metrics", "", 200)
	ask("root", "POST", "/v1/backup", "", 200)
	ask("admin", "POST", "/v1/backup", "", 403) // it has topics that are not this token's
	ask("root", "GET", "/nothing", "", 404)
	ask("root", "POST", "/metrics", "", 405)

	// Topics: to a token, a topic of others is not there, and cannot be made.
	ask("root", "PUT", "/v1/topics/users", `{}`, 201)
	before := h.engine.changes()
	for _, topic := range []string{"users", "orders", "orders%2Ea%2F", "nothere", "payments", "xorders.a"} {
		status := 404
		if strings.Contains(topic, "%2F") {
			status = 400
		}
		ask("shop", "GET", "/v1/topics/"+topic, "", status)
		ask("shop", "POST", "/v1/topics/"+topic+"/timers", body, status)
		ask("shop", "DELETE", "/v1/topics/"+topic+"?force=true", "", status)
	}
	if h.engine.changes() != before {
		t.Fatal("something was changed")
	}
	ask("shop", "GET", "/v1/topics/orders%2Ea", "", 200)
	ask("shop", "POST", "/v1/topics/pay/timers", body, 201)
	ask("shop", "GET", "/v1/topics?limit=1", "", 200).has("topics.0.topic", `"orders.a"`, "topics.1", "")
	ask("shop", "GET", "/v1/topics", "", 200).has("topics.1.topic", `"pay"`, "topics.2", "", "next_cursor", "")

	// Reading the file again: a bad one changes nothing.
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if auth.Reload() == nil {
		t.Fatal("took nonsense")
	}
	ask("root", "GET", a, "", 200)
	authFile(t, path, `other read "*"`)
	if err := auth.Reload(); err != nil {
		t.Fatal(err)
	}
	ask("root", "GET", a, "", 401)
	ask("other", "GET", a, "", 200)
}

func TestNewTokenLine(t *testing.T) {
	rule := TokenRule{Name: "shop", Scopes: web.Scopes, Topics: []string{"*"}}
	token, line, err := NewToken(rule)
	if err != nil || !strings.HasPrefix(token, "crl_") || len(token) != 47 || strings.Contains(line, token) {
		t.Fatal(token, line, err)
	}
	list, err := parseAuth([]byte(line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := &Auth{}
	a.principals.Store(newPrincipals(list))
	if p := a.find([]byte(token)); p == nil || p.Name != "shop" || !p.May(web.ScopeAdmin) || !p.May(web.ScopeTopics) || !p.Sees("any.topic") || p.Making.Most != web.DefaultMaxTopics {
		t.Fatal(p)
	}
	if other, _, _ := NewToken(rule); other == token {
		t.Fatal("the same token twice")
	}
	rule.MaxTopics = 5
	if _, line, err = NewToken(rule); err != nil || !strings.Contains(line, "max_topics: 5") {
		t.Fatal(line, err)
	}
	for _, bad := range []TokenRule{{}, {Name: "a", Scopes: []string{"all"}, Topics: []string{"*"}}, {Name: "a", Scopes: []string{"add"}}, {Name: "a", Scopes: []string{"add"}, Topics: []string{"a b"}}} {
		if _, _, err := NewToken(bad); err == nil || strings.Contains(err.Error(), "line") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// All faults of an auth file are said, each with its line and the expected form, and without the
// contents of the file: it may be the wrong one.
func TestAuthFileRefused(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	good := `- {name: a, sha256: "` + sum + `", scopes: [read], topics: ["*"]}`
	if _, err := parseAuth([]byte(good)); err != nil {
		t.Fatal(err)
	}
	edit := func(old, text string) string { return "# tokens\n" + strings.Replace(good, old, text, 1) }
	for data, want := range map[string]string{
		"": "line 1: a list of tokens is expected, like - {name: shop,", "[]": "line 1: 1 to 10000 tokens", "{}": "line 1: a list of tokens", "hunter2": "line 1: a list of tokens",
		"- hunter2": "line 1: a token is expected as {name: …}", "root:x:0:0:hunter2:/root:/bin/bash\ndaemon:x:1:1\n": "line 1: a list of tokens",
		"- a: [hunter2\n": "is not YAML", "\t- hunter2": "is not YAML", "*hunter2": "is not YAML", "a: &hunter2 b": "line 1: a list of tokens",
		good + "\n---\n" + good:     "second document",
		edit("name: a", `name: ""`): "line 2: name: ", edit("name: a", "name: [hunter2]"): "line 2: name: ", edit("name: a, ", ""): "line 2: name: ",
		edit(sum, sum[1:]): "line 2: sha256: 64 hex digits", edit(sum, "zz"+sum[2:]): "line 2: sha256: ", edit(`sha256: "`+sum+`", `, ""): "line 2: sha256: ",
		edit("read", "hunter2"): "line 2: scopes: each one of add, cancel, read, topics, admin, cluster", edit("[read]", "[]"): "line 2: scopes: ", edit("[read]", "read"): "line 2: scopes: ",
		edit("[read]", "[[read]]"): "line 2: scopes: ", edit("scopes: [read], ", ""): "line 2: scopes: ",
		edit(`["*"]`, "[]"): "line 2: topics: ", edit(`"*"`, `"hunter 2"`): "line 2: topics: ", edit(`"*"`, `""`): "line 2: topics: ", edit(`, topics: ["*"]`, ""): "line 2: topics: ",
		edit("name:", "hunter2:"): "line 2: a token has these fields: name, sha256, scopes, topics, max_topics", edit("name: a", "name: a, name: b"): "line 2: name is given twice",
		edit("name: a", "name: a, max_topics: 0"): "line 2: max_topics: a number from 1 to 100000", edit("name: a", "name: a, max_topics: hunter2"): "line 2: max_topics: ",
		edit("name: a", "name: a, quota: hunter2"): "line 2: quota is expected as {per_second: …}", edit("name: a", "name: a, quota_reads: {per_second: hunter2}"): "line 2: quota_reads.per_second: ",
		edit("name: a", "name: a, quota_changes: {per_second: 1, burst: hunter2}"): "line 2: quota_changes.burst: ", edit("name: a", "name: a, quota: {hunter2: 1}"): "line 2: quota has these fields: per_second, burst",
		good + "\n" + good: "line 2: sha256: this token is on line 1, too",
	} {
		_, err := parseAuth([]byte(data))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", data, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "struct") || strings.Contains(err.Error(), "!!")) {
			t.Errorf("%q: the error shows the file or our insides: %v", data, err)
		}
	}
	if _, err := parseAuth([]byte(edit("name: a", "nome: a") + "\n" + strings.Replace(good, "read", "write", 1))); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not all is said at once: %v", err)
	}
	if _, err := LoadAuth("/nonexistent/auth.yaml"); err == nil {
		t.Error("took a file that is not there")
	}
}

// An auth file that others can write makes admins of them; it may be read by others: they learn no
// token.
func TestAuthFileOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `a read "*"`)
	for mode, fine := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o644: true, 0o660: false, 0o606: false, 0o666: false, 0o622: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadAuth(path); (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

// Adds make topics only for tokens that may, and so many.
func TestTopicsOfATokenAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	var lines string
	for _, e := range []string{`plain [add, cancel, read] ["*"] `, `maker [add, cancel, read, topics] ["m.*","m.x*"] , max_topics: 3`, `other [add, topics] ["o.*"] `, `root [admin] ["*"] `} {
		f := strings.SplitN(e, " ", 2)
		i := strings.Index(f[1], "] ")
		lines += fmt.Sprintf("- {name: %s, sha256: \"%x\", scopes: %s, topics: %s}\n", f[0], sha256.Sum256([]byte(f[0])), f[1][:i+1], strings.TrimSpace(f[1][i+2:]))
	}
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	add := func(token, topic string) *reply {
		t.Helper()
		return h.do("POST", "/v1/topics/"+topic+"/timers", `{"delay":"1h",`+cb+`}`, "Authorization: Bearer "+token)
	}
	if r := add("plain", "new").problem(404, web.UnknownTopic); !strings.Contains(r.body, "scope topics") {
		t.Error(r.body)
	}
	h.do("PUT", "/v1/topics/new/timers/a", `{"delay":"1h",`+cb+`}`, "Authorization: Bearer plain").problem(404, web.UnknownTopic)
	h.do("POST", "/v1/topics/new/pull", "", "Authorization: Bearer plain").problem(404, web.UnknownTopic)
	h.do("POST", "/v1/topics/new/batch", `{"ops":[{"op":"add","delay":"1h",`+cb+`}]}`, "Authorization: Bearer plain").want(200).has("results.0.status", "404")
	h.do("PUT", "/v1/topics/new", `{}`, "Authorization: Bearer root").want(201)
	add("plain", "new").want(201)

	h.do("PUT", "/v1/topics/m.made-by-hand", `{}`, "Authorization: Bearer root").want(201)
	add("maker", "m.x1").want(201)
	add("maker", "m.2").want(201)
	h.do("PUT", "/v1/topics/m.3/timers/a", `{"delay":"1h",`+cb+`}`, "Authorization: Bearer maker").want(201)
	if r := add("maker", "m.4").problem(429, "quota"); !strings.Contains(r.body, "max_topics") {
		t.Error(r.body)
	}
	h.do("POST", "/v1/topics/m.4/pull", "", "Authorization: Bearer maker").problem(404, web.UnknownTopic)
	add("maker", "m.made-by-hand").want(201)
	add("other", "o.1").want(201)
	add("maker", "m.2").want(201)
	h.do("DELETE", "/v1/topics/m.2?force=true", "", "Authorization: Bearer root").want(200)
	add("maker", "m.5").want(201)
	add("maker", "m.6").problem(429, "quota")
	if r := add("maker", "orders").problem(404, web.UnknownTopic); !strings.Contains(r.body, "there is no topic orders that this token reaches (its topics: m.*, m.x*)") {
		t.Error(r.body)
	}
}

func TestTopicPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"*", "a", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"*c", "abcd", false}, {"a*c", "ac", true}, {"a*c", "abbc", true}, {"a*b*c", "a1b2c", true},
		{"a*b*c", "a1c", false}, {"orders.*", "orders", false}, {"orders.*", "orders.", true}, {"aa*aa", "aaa", false}, {"*a*", "bab", true}, {"**", "x", true},
	} {
		if got := backend.Match(c.pattern, c.topic); got != c.want {
			t.Errorf("%s %s: %v", c.pattern, c.topic, got)
		}
	}
}
