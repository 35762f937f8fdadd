package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTopicAdminIsNoClusterAdmin: a token that administers its topics changes nothing of the
// cluster and sees nothing of others' topics; the operator's does.
func TestTopicAdminIsNoClusterAdmin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	var lines strings.Builder
	token := func(args ...string) []string {
		t.Helper()
		code, out, errOut := command(t, append([]string{"token"}, args...)...)
		secret, line, ok := strings.Cut(out, "\n")
		if code != 0 || !ok {
			t.Fatal(code, errOut)
		}
		lines.WriteString(line)
		return []string{"Authorization", "Bearer " + secret}
	}
	shop := token("--name", "shop", "--scopes", "add,cancel,read,topics,admin", "--topics", "shop.*")
	operator := token("--name", "operator", "--scopes", "add,cancel,read,topics,admin,cluster")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	node := serve(t, t.TempDir(), "--shards", "4", "--auth-file", file, "--name", "n1")
	c := newClient(node)
	c.must(t, 201, "PUT", "/v1/topics/others", `{}`, operator...)
	c.must(t, 201, "PUT", "/v1/topics/shop.a", `{}`, shop...)
	for _, call := range [][3]string{
		{"PUT", "/v1/cluster/replicas", `{"replicas":5}`}, {"POST", "/v1/cluster/shards", `{"shards":8}`}, {"POST", "/v1/cluster/finalize", ""},
		{"POST", "/v1/cluster/nodes/n1/drain", ""}, {"POST", "/v1/cluster/nodes/n1/resume", ""}, {"DELETE", "/v1/cluster/nodes/n1?force=true", ""},
		{"POST", "/v1/backup", ""}, {"GET", "/v1/destinations", ""}, {"GET", "/v1/cluster/stats", ""},
	} {
		if a := c.must(t, 403, call[0], call[1], call[2], shop...); !strings.Contains(string(a.body), "this needs the scope cluster") {
			t.Errorf("%s %s: %s", call[0], call[1], a.body)
		}
	}
	c.must(t, 403, "GET", "/metrics", "", shop...)
	if a := c.must(t, 200, "GET", "/v1/topics", "", shop...); strings.Contains(string(a.body), "others") {
		t.Errorf("%s", a.body)
	}
	if a := c.must(t, 200, "GET", "/metrics", "", operator...); !strings.Contains(string(a.body), `topic="others"`) || !strings.Contains(string(a.body), `carillon_http_refused_total{code="403"} 10`) {
		t.Error("the operator's metrics lack a topic, or the refusals")
	}
	c.must(t, 202, "PUT", "/v1/cluster/replicas", `{"replicas":3}`, operator...)
	c.must(t, 200, "GET", "/v1/destinations", "", operator...)
}
