package api

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carillon/transport/api/web"
)

func TestQuota(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	write := func(quota string) {
		t.Helper()
		line := func(name, more string) string {
			return fmt.Sprintf("- {name: %s, sha256: \"%x\", scopes: [add, cancel, read, topics], topics: [\"*\"]%s}\n", name, sha256.Sum256([]byte(name)), more)
		}
		if err := os.WriteFile(path, []byte(line("shop", ", quota: "+quota)+line("free", "")+line("calm", ", quota_changes: {per_second: 0.5, burst: 4}, quota_reads: {per_second: 0.5, burst: 2}")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{per_second: 0.5, burst: 3}")
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_800_000_000_000)
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Clock = func() time.Time { return now }
	})
	ask := func(token, method, target, body string) *reply {
		t.Helper()
		return h.do(method, target, body, "Authorization: Bearer "+token)
	}
	add := `{"delay":"1h",` + cb + `}`
	ask("shop", "POST", timersPath, add).want(201)
	ask("shop", "POST", timersPath, `{"delay":"x"}`).problem(400, web.BadTime) // a refusal costs nothing
	ask("shop", "PUT", timersPath+"/a", add).want(201)
	ask("shop", "POST", timersPath, add).want(201)
	r := ask("shop", "POST", timersPath, add).problem(429, "quota")
	if r.header.Get("Retry-After") != "2" || !strings.Contains(r.body, `"retryable":true`) {
		t.Errorf("Retry-After %s: %s", r.header.Get("Retry-After"), r.body)
	}
	before := h.engine.changes()
	ask("shop", "PUT", timersPath+"/b", add).problem(429, "quota")
	if h.engine.changes() != before {
		t.Error("something was changed")
	}
	// Anything but an add, and anybody else, goes on.
	ask("shop", "PATCH", timersPath+"/a", `{"priority":1}`).want(200)
	ask("shop", "GET", timersPath+"/a", "").want(200)
	ask("free", "POST", timersPath, add).want(201)

	now = now.Add(4 * time.Second) // two more
	op := `{"op":"add","delay":"1h",` + cb + `}`
	r = ask("shop", "POST", "/v1/topics/orders/batch", `{"ops":[`+op+`,{"op":"patch","id":"a","priority":2},`+op+`,`+op+`]}`).want(200)
	for i, want := range []string{"201", "200", "201", "429"} {
		if got := pick(r.json(), fmt.Sprintf("results.%d.status", i)); got != want {
			t.Errorf("operation %d: %s, want %s: %s", i, got, want, r.body)
		}
	}

	// The file is read again: the same quota goes on, another begins anew, a bad one is refused.
	if err := auth.Reload(); err != nil {
		t.Fatal(err)
	}
	ask("shop", "POST", timersPath, add).problem(429, "quota")
	for _, bad := range []string{"{per_second: 0}", "{burst: 3}", "{per_second: -1}", "{per_second: .nan}", "{per_second: 1, burst: -1}", "{per_second: 1, more: 1}", "7"} {
		write(bad)
		if err := auth.Reload(); err == nil {
			t.Errorf("quota %s was taken", bad)
		}
	}
	ask("shop", "POST", timersPath, add).problem(429, "quota")
	write("{per_second: 2.5}")
	if err := auth.Reload(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ask("shop", "POST", timersPath, add).want(201)
	}
	ask("shop", "POST", timersPath, add).problem(429, "quota")
}

// Changes and reads have quotas of their own; ends of leases have none.
func TestQuotasOfChangesAndReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	line := fmt.Sprintf("- {name: calm, sha256: \"%x\", scopes: [add, cancel, read, topics, admin], topics: [\"*\"], quota_changes: {per_second: 0.5, burst: 4}, quota_reads: {per_second: 0.25, burst: 2}}\n",
		sha256.Sum256([]byte("calm")))
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_800_000_000_000)
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Clock = func() time.Time { return now }
	})
	ask := func(method, target, body string) *reply {
		t.Helper()
		return h.do(method, target, body, "Authorization: Bearer calm")
	}
	for i := range 8 {
		ask("PUT", fmt.Sprintf("%s/t%d", timersPath, i), `{"delay":"1h",`+cb+`}`).want(201)
	}
	for _, change := range [][3]string{{"PATCH", timersPath + "/t0", `{"priority":1}`}, {"POST", timersPath + "/t1/fire", ""}, {"DELETE", timersPath + "/t2", ""}, {"POST", orders + "/cancel", `{"filter":{"id_prefix":"t3"}}`}} {
		ask(change[0], change[1], change[2]).want(200)
	}
	for _, change := range [][3]string{
		{"PATCH", timersPath + "/t4", `{"priority":1}`}, {"POST", timersPath + "/t4/fire", ""}, {"DELETE", timersPath + "/t4", ""}, {"POST", orders + "/cancel", `{"all":true}`},
		{"POST", orders + "/reschedule", `{"all":true,"shift":"1h"}`}, {"POST", orders + "/dead/purge", `{"all":true}`}, {"POST", orders + "/dead/redrive", `{"all":true}`}, {"POST", orders + "/pull", ""},
	} {
		if r := ask(change[0], change[1], change[2]).problem(429, "quota"); r.header.Get("Retry-After") != "2" {
			t.Errorf("%s %s: Retry-After %s", change[0], change[1], r.header.Get("Retry-After"))
		}
	}
	ask("POST", orders+"/batch", `{"ops":[{"op":"cancel","id":"t4"},{"op":"add","delay":"1h",`+cb+`}]}`).want(200).has("results.0.status", "429", "results.1.status", "201")
	ask("POST", "/v1/ack", `{"receipts":["x"]}`).want(200)
	ask("GET", timersPath+"/t4", "").want(200)
	ask("GET", timersPath, "").want(200)
	for _, target := range []string{timersPath, timersPath + "/t4", "/v1/topics", "/v1/cluster", orders + "/history"} {
		ask("GET", target, "").problem(429, "quota")
	}
	ask("GET", "/healthz", "").want(200)
	ask("PUT", timersPath+"/more", `{"delay":"1h",`+cb+`}`).want(201) // adds go on
	now = now.Add(5 * time.Second)
	ask("GET", timersPath+"/t4", "").want(200)
	ask("DELETE", timersPath+"/t4", "").want(200)
}

// A client that waits for leave to send its body makes one request: that counts once, and keeps its
// connection.
func TestExpectedBodiesCountOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	line := fmt.Sprintf("- {name: calm, sha256: \"%x\", scopes: [cancel, admin], topics: [\"*\"], quota_changes: {per_second: 0.5, burst: 1}}\n", sha256.Sum256([]byte("calm")))
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int64
	h := newHarness(t, func(c *Config) {
		c.Auth = auth
		c.Observe = func(int, int, time.Duration) { answered.Add(1) }
	})
	h.do("PUT", orders, "{}", "Authorization: Bearer calm").want(201)
	before := answered.Load()
	body := `{"all":true}` + strings.Repeat(" ", prefetched)
	conn, br := h.expectant("POST " + orders + "/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer calm\r\n" + lengthLine(len(body)))
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 200 || res.Close {
		t.Errorf("%v, %v", res, err)
	}
	if n := answered.Load() - before; n != 1 {
		t.Errorf("counted as %d requests", n)
	}
}
