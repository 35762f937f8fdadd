package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tokenFile writes an auth file with one token that has all scopes.
func tokenFile(t testing.TB, name string) (file, token string) {
	t.Helper()
	code, out, errOut := command(t, "token", "--name", name, "--scopes", "add,cancel,read,topics,admin,cluster")
	token, line, ok := strings.Cut(out, "\n")
	if code != 0 || !ok {
		t.Fatal(code, errOut)
	}
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, token
}

// TestAuditLogSaysWhoChangedWhat: a node with tokens keeps an audit log by default. The log
// survives a kill and contains no secrets.
func TestAuditLogSaysWhoChangedWhat(t *testing.T) {
	t.Parallel()
	tokens, token := tokenFile(t, "shop")
	dir := t.TempDir()
	node := serve(t, dir, "--shards", "4", "--auth-file", tokens, "--callback-allow", "127.0.0.0/8")
	c := newClient(node)
	auth := []string{"Authorization", "Bearer " + token}
	const add = `{"id":"a","delay":"1h","payload":"hunter2","callback":{"url":"http://127.0.0.1:9/","headers":{"Authorization":"hunter2"}}}`
	c.must(t, 401, "POST", "/v1/topics/orders/timers", add)
	c.must(t, 201, "POST", "/v1/topics/orders/timers", add, auth...)
	c.must(t, 200, "GET", "/v1/topics/orders/timers/a", "", auth...)
	c.must(t, 200, "DELETE", "/v1/topics/orders/timers/a", "", auth...)
	log := filepath.Join(dir, "audit.log")
	lines := func() (what []string) {
		data, err := os.ReadFile(log)
		if err != nil {
			return nil
		}
		if text := string(data); strings.Contains(text, token) || strings.Contains(text, "hunter2") {
			t.Fatalf("the log has a secret: %s", text)
		}
		for line := range strings.Lines(string(data)) {
			var e struct {
				Time                    time.Time
				Who, What, Object, From string
				Status                  int
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Who != "shop" && e.Status != 401 || time.Since(e.Time) > time.Minute || !strings.HasPrefix(e.From, "127.0.0.1:") {
				t.Errorf("%s: %v", line, err)
			}
			what = append(what, e.What+" "+e.Object)
		}
		return what
	}
	want := "refused -,timer.add topics/orders/timers/a,timer.cancel topics/orders/timers/a"
	poll(t, patience, "the refusal and both changes are in the log", func() bool { return strings.Join(lines(), ",") == want })
	node.kill()
	node = serve(t, dir, "--shards", "4", "--auth-file", tokens, "--callback-allow", "127.0.0.0/8")
	c.use(node)
	c.must(t, 200, "POST", "/v1/topics/orders/pause", "", auth...)
	node.stop(t)
	if got := strings.Join(lines(), ","); got != want+",topic.pause topics/orders" {
		t.Errorf("after a kill and a stop: %s", got)
	}
}

// TestRefusalsCannotFillTheAuditLog: a token that may only read, and tries to change, leaves an entry
// and a number, however often it does.
func TestRefusalsCannotFillTheAuditLog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	code, out, errOut := command(t, "token", "--name", "reader", "--scopes", "read", "--topics", "shop.*")
	token, line, ok := strings.Cut(out, "\n")
	if code != 0 || !ok {
		t.Fatal(code, errOut)
	}
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	node := serve(t, dir, "--shards", "4", "--auth-file", file)
	c := newClient(node)
	const tries = 1000
	for range tries {
		if a := c.must(t, 403, "POST", "/v1/cluster/finalize", "", "Authorization", "Bearer "+token); !strings.Contains(string(a.body), "this needs the scope cluster; the token has read") {
			t.Fatalf("%s", a.body)
		}
	}
	node.stop(t)
	data, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	sum, entries := 0, 0
	for text := range strings.Lines(string(data)) {
		var e struct{ Status, Refused int }
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Status != 403 {
			t.Errorf("%s: %v", text, err)
		}
		sum, entries = sum+e.Refused, entries+1
	}
	if sum != tries || entries > 4 { // a slow machine may take two minutes
		t.Errorf("%d entries of %d refusals, want %d:\n%s", entries, sum, tries, data)
	}
}

// TestAuditLogThatCannotBeWritten: changes still succeed, and the node reports that they are not
// recorded.
func TestAuditLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	place := t.TempDir() // a directory, where a file should be
	node := serve(t, t.TempDir(), "--shards", "4", "--audit-log", place)
	c := newClient(node)
	c.must(t, 201, "POST", "/v1/topics/orders/timers", `{"id":"a","delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}`)
	poll(t, patience, "the log says so", func() bool { return strings.Contains(node.stderr.String(), "audit log cannot be written") })
	poll(t, patience, "and so do the metrics", func() bool { return node.gauge(t, "carillon_audit_lost_total") == "1" })
	c.must(t, 201, "POST", "/v1/topics/orders/timers", `{"id":"b","delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}`)
	node.stop(t)
}
