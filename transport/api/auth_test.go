package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// authFile writes an auth file of one line per entry, "name scopes topics", the token being name's own.
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
	authFile(t, path, `root add,cancel,read,admin "*"`, `shop add,read "orders.*","pay"`, `reader read "*"`, `canceller cancel "orders.*"`, `admin admin "orders.*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Metrics = func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("carillon_add_total 1\n") }
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
	ask("root", "GET", "/nothing", "", 404)
	ask("root", "POST", "/metrics", "", 405)

	// Topics: what is not yours is not there, and does not come to be.
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
	token, line := NewToken("shop")
	if !strings.HasPrefix(token, "crl_") || len(token) != 47 || strings.Contains(line, token) {
		t.Fatal(token, line)
	}
	list, err := parseAuth([]byte(line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := &Auth{}
	a.principals.Store(&list)
	if p := a.find([]byte(token)); p == nil || p.name != "shop" || !p.may(scopeAdmin) || !p.sees("any.topic") {
		t.Fatal(p)
	}
	if other, _ := NewToken("shop"); other == token {
		t.Fatal("the same token twice")
	}
}

func TestAuthFileRefused(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	good := `- {name: a, sha256: "` + sum + `", scopes: [read], topics: ["*"]}`
	if _, err := parseAuth([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "[]", "{}", "x", "- x",
		strings.Replace(good, "name: a", `name: ""`, 1), strings.Replace(good, sum, sum[1:], 1), strings.Replace(good, sum, "zz"+sum[2:], 1), strings.Replace(good, "read", "write", 1),
		strings.Replace(good, "[read]", "[]", 1), strings.Replace(good, `["*"]`, "[]", 1), strings.Replace(good, `"*"`, `"a b"`, 1), strings.Replace(good, `"*"`, `""`, 1), strings.Replace(good, "name", "nome", 1), good + "\n  extra: 1",
	} {
		if _, err := parseAuth([]byte(data)); err == nil {
			t.Errorf("took %s", data)
		}
	}
	if _, err := LoadAuth("/nonexistent/auth.yaml"); err == nil {
		t.Error("took a file that is not there")
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
		if got := match(c.pattern, c.topic); got != c.want {
			t.Errorf("%s %s: %v", c.pattern, c.topic, got)
		}
	}
}
