package api

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/internal/audit"
)

// trail records the changes that an audit log is told of.
type trail struct {
	mu   sync.Mutex
	list []audit.Entry
}

func (tr *trail) record(c audit.Entry) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.list = append(tr.list, c)
}

// since returns the changes that came, each as "name verb object status ×count", and forgets them.
func (tr *trail) since() (lines []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, c := range tr.list {
		line := fmt.Sprintf("%s %s %s %d", c.Who, c.What, c.Object, c.Status)
		if c.Count != 0 {
			line += fmt.Sprintf(" ×%d", c.Count)
		}
		if c.Refused > 1 {
			line += fmt.Sprintf(" (%d refused)", c.Refused)
		}
		if refused := c.Status >= 400 && c.Status < 500 && c.Count == 0; refused != (c.Refused > 0) {
			line += fmt.Sprintf(" says that %d were refused", c.Refused)
		}
		if !strings.HasPrefix(c.From, "127.0.0.1:") {
			line += " from " + c.From
		}
		lines = append(lines, line)
	}
	tr.list = nil
	return lines
}

// Every change that is asked for is told to the audit log, with the token's name and the outcome;
// no read is, and no secret.
func TestChangesAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	line := fmt.Sprintf("- {name: shop, sha256: \"%x\", scopes: [add, cancel, read, topics, admin], topics: [\"orders\", \"p*\"]}\n- {name: reader, sha256: \"%x\", scopes: [read], topics: [\"*\"]}\n"+
		"- {name: operator, sha256: \"%x\", scopes: [cluster], topics: [\"*\"]}\n", sha256.Sum256([]byte("shop-token")), sha256.Sum256([]byte("reader-token")), sha256.Sum256([]byte("operator-token")))
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	var tr trail
	h := newHarness(t, func(c *Config) { c.Auth, c.Audit = auth, tr.record })
	const secret = "hunter2"
	add := `{"id":"a","delay":"1h","payload":{"p":"` + secret + `"},"callback":{"url":"http://127.0.0.1:9/` + secret + `","headers":{"Authorization":"` + secret + `"}}}`
	for _, tt := range []struct {
		token, method, target, body string
		want                        string // lines, "; " between
	}{
		{"shop", "PUT", orders, `{"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`, "shop topic.put topics/orders 201"},
		{"shop", "POST", timersPath, add, "shop timer.add topics/orders/timers/a 201"},
		{"shop", "POST", timersPath, add[:len(add)-5], "shop timer.add topics/orders 400"},
		{"shop", "PATCH", timersPath + "/a", `{"priority":1}`, "shop timer.patch topics/orders/timers/a 200"},
		{"shop", "PUT", timersPath + "/{k}b", `{"delay":"1h",` + cb + `}`, "shop timer.put topics/orders/timers/{k}b 201"},
		{"shop", "POST", timersPath + "/a/fire", "", "shop timer.fire topics/orders/timers/a 200"},
		{"shop", "POST", orders + "/cancel?dry_run=true", `{"all":true}`, ""},
		{"shop", "DELETE", timersPath + "/a", "", "shop timer.cancel topics/orders/timers/a 200"},
		{"shop", "DELETE", timersPath + "/none", "", "shop timer.cancel topics/orders/timers/none 404"},
		{"shop", "POST", orders + "/batch", `{"ops":[{"op":"add","id":"c","delay":"1h",` + cb + `},{"op":"cancel","id":"none"},{"op":"` + secret + `"},{"op":"add","id":"` + secret + ` /","delay":"1h"}]}`,
			"shop timer.add topics/orders/timers/c 201; shop timer.cancel topics/orders/timers/none 404; shop batch.unreadable topics/orders 400"},
		{"shop", "POST", orders + "/batch", `nonsense`, "shop batch topics/orders 400 (2 refused)"},
		{"shop", "POST", orders + "/reschedule", `{"filter":{"id_prefix":"c"},"shift":"1h"}`, "shop timers.reschedule topics/orders 200 ×1"},
		{"shop", "POST", orders + "/cancel", `{"all":true}`, "shop timers.cancel topics/orders 200 ×2"},
		{"shop", "POST", orders + "/dead/redrive", `{"ids":["x","y"]}`, "shop dead.redrive topics/orders 200"},
		{"shop", "POST", orders + "/dead/purge", `{"all":true}`, "shop dead.purge topics/orders 200"},
		{"shop", "POST", "/v1/ack", `{"receipts":["r1","r2"]}`, "shop lease.ack leases 410"}, // none is held
		{"shop", "POST", orders + "/pause", "", "shop topic.pause topics/orders 200"},
		{"shop", "POST", orders + "/resume", "", "shop topic.resume topics/orders 200"},
		{"shop", "POST", orders + "/pull", "", "shop timers.pull topics/orders 409"},
		{"shop", "PUT", "/v1/topics/p1", `{"delivery":"pull"}`, "shop topic.put topics/p1 201"},
		{"shop", "POST", "/v1/topics/p1/pull", "", ""}, // nothing was leased
		{"shop", "POST", "/v1/topics/p1/timers", `{"id":"j","delay_ms":0}`, "shop timer.add topics/p1/timers/j 201"},
		{"shop", "POST", "/v1/topics/p1/pull", `{"lease":"30s"}`, "shop timers.pull topics/p1 200 ×1"},
		{"shop", "POST", "/v1/extend", `{"receipts":["p1/j/1"],"lease":"30s"}`, "shop lease.extend leases 200 ×1"},
		{"shop", "POST", "/v1/ack", `{"receipts":["p1/j/1","r2"]}`, "shop lease.ack leases 200 ×1"},
		{"shop", "DELETE", "/v1/topics/p1?force=true", "", "shop topic.delete topics/p1 200 ×1"},
		{"operator", "POST", "/v1/cluster/nodes/n9/drain", "", "operator node.drain nodes/n9 404"},
		{"shop", "POST", "/v1/backup", "", "shop cluster.backup cluster 403"},
		{"operator", "PUT", "/v1/cluster/replicas", `{"replicas":3}`, "operator cluster.replicas cluster/replicas 202"},
		{"operator", "POST", "/v1/cluster/shards", `{"shards":4}`, "operator cluster.shards cluster/shards 202"},
		{"operator", "POST", "/v1/cluster/finalize", "", "operator cluster.finalize cluster 200"},
		{"operator", "POST", "/v1/clock", `{"advance":"1h"}`, "operator clock.move cluster 404"},
		{"shop", "POST", "/v1/topics/others/timers", add, "shop timer.add topics/others 404"},
		{"reader", "DELETE", timersPath + "/a", "", "reader timer.cancel topics/orders/timers/a 403"},
		{"reader", "GET", timersPath, "", ""}, {"reader", "GET", "/v1/topics", "", ""}, {"shop", "GET", "/nothing", "", ""}, {"shop", "POST", "/nothing", "", ""},
		{"reader", "GET", "/v1/destinations", "", "reader refused /v1/destinations 403"},
		{"stranger", "DELETE", timersPath + "/a", "", "- refused - 401"}, {"stranger", "POST", timersPath, add, "- refused - 401"},
	} {
		h.advance(time.Minute) // so that a refusal is the first of its minute
		h.do(tt.method, tt.target, tt.body, "Authorization: Bearer "+tt.token+"-token")
		if got := strings.Join(tr.since(), "; "); got != tt.want {
			t.Errorf("%s %s: recorded %q, want %q", tt.method, tt.target, got, tt.want)
		}
	}
	made := regexp.MustCompile(`^shop timer\.add topics/orders/timers/s[0-9a-f]{4}-[0-9a-v]{20} 201$`)
	h.do("POST", timersPath, `{"delay":"1h",`+cb+`}`, "Authorization: Bearer shop-token").want(201)
	if got := tr.since(); len(got) != 1 || !made.MatchString(got[0]) {
		t.Errorf("an add without an id: %q", got)
	}
	h.engine.beforeDo = func() { panic("!") }
	h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer shop-token").want(500)
	if got := tr.since(); !slices.Equal(got, []string{"shop timer.cancel topics/orders/timers/a 500"}) {
		t.Errorf("a panic: %q", got)
	}
	h.engine.beforeDo = nil
	h.advance(time.Minute)
	h.raw(-1, "POST "+timersPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer shop-token\r\nExpect: 100-continue\r\nContent-Length: 999999\r\nIf-Match: \"1\"\r\n\r\n")
	if got := tr.since(); len(got) != 1 || got[0] != "shop timer.add topics/orders 400" {
		t.Errorf("refused before its body: %q", got)
	}
}

// Where nobody is asked for a token nobody has a name; and every route that changes anything has a
// word for it.
func TestAuditWithoutTokens(t *testing.T) {
	var tr trail
	h := newHarness(t, func(c *Config) { c.Audit = tr.record })
	h.do("PUT", orders, `{}`).want(201)
	h.do("GET", orders, "").want(200)
	if got := tr.since(); !slices.Equal(got, []string{"- topic.put topics/orders 201"}) {
		t.Errorf("%q", got)
	}
	document, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{"batch": true}
	for _, list := range regexp.MustCompile("`([a-z_.]+\\.)([a-z|]+)`").FindAllStringSubmatch(string(document), -1) {
		for word := range strings.SplitSeq(list[2], "|") {
			documented[list[1]+word] = true
		}
	}
	for _, r := range routes {
		if (r.audit == "") != (r.method == "GET") {
			t.Errorf("%s %s is audited as %q", r.method, r.path, r.audit)
		}
		if r.audit != "" && !documented[r.audit] {
			t.Errorf("docs/operations.md does not have %s", r.audit)
		}
	}
}

// TestRepetitionsAreNotAudited: what changes nothing, though it is answered as a success, cannot
// push out of the audit log what others have changed.
func TestRepetitionsAreNotAudited(t *testing.T) {
	var tr trail
	h := newHarness(t, func(c *Config) { c.Audit = tr.record })
	h.do("PUT", orders, `{}`).want(201)
	add := `{"id":"a","at":"2030-01-01T00:00:00Z",` + cb + `}`
	op := `{"op":"add",` + add[1:]
	batch := `{"ops":[` + strings.Repeat(op+",", 999) + op + `]}`
	tr.since()
	for _, tt := range []struct{ method, target, body, want string }{
		{"POST", timersPath, add, "- timer.add topics/orders/timers/a 201"},
		{"POST", timersPath, add, ""},
		{"POST", orders + "/batch", batch, ""},
		{"POST", orders + "/batch", `{"ops":[` + op + `,{"op":"cancel","id":"a"},{"op":"cancel","id":"a"}]}`, "- timer.cancel topics/orders/timers/a 200"},
		{"DELETE", timersPath + "/a", "", ""},
	} {
		h.do(tt.method, tt.target, tt.body)
		if got := strings.Join(tr.since(), "; "); got != tt.want {
			t.Errorf("%s %s: recorded %.200q, want %q", tt.method, tt.target, got, tt.want)
		}
	}
}
