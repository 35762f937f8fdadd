package api

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"carillon/transport/api/web"
)

// status sends a request without a body on a connection of its own, with this Host and more
// headers.
func (h *harness) status(method, target, host string, headers ...string) int {
	h.t.Helper()
	head := method + " " + target + " HTTP/1.1\r\n"
	if host != "" {
		head += "Host: " + host + "\r\n"
	}
	for _, line := range headers {
		head += line + "\r\n"
	}
	got := h.raw(1, head+"\r\n")
	if len(got.statuses) != 1 {
		h.t.Fatalf("%s %s of %q: no answer", method, target, host)
	}
	return got.statuses[0]
}

// A node answers clients that call it by a name of its own: else a page could have its own name
// point here, and read and change a node that this machine alone can reach.
func TestHostMustBeTheNodes(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.Hosts = []string{"timers.example", "proxy.example:8443", "10.1.2.3", "[2001:db8::7]"}
	})
	_, port, _ := net.SplitHostPort(h.addr)
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:" + port: 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "localhost": 200, "LOCALHOST:" + port: 200, "localhost.": 200,
		"[::1]": 200, "[::1]:" + port: 200, "[::ffff:127.0.0.1]": 200,
		"timers.example": 200, "Timers.Example:" + port: 200, "proxy.example": 200, "10.1.2.3": 200, "[2001:db8::7]:80": 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "10.1.2.4": 421, "0.0.0.0": 421,
		"[::]": 421, "[2001:db8::8]": 421, "2130706433": 421, "127.1": 421, "x": 421, "timers.example.evil": 421,
		"a@b": 400, "localhost@evil.example": 400, "localhost/": 400, "localhost:": 400, "localhost:0": 400, "localhost:99999": 400, "localhost:+80": 400,
		"::1": 400, "[::1": 400, "[::1]x": 400, "[127.0.0.1]": 400, "local host": 400, ",localhost": 400, "localhost,evil": 400, "ü": 400, "%6cocalhost": 400,
		strings.Repeat("a", 300): 400,
	} {
		if got := h.status("GET", "/v1/topics", host); got != want {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
		if got := h.status("GET", "/healthz", host); got != want {
			t.Errorf("Host %q: health %d, want %d", host, got, want)
		}
	}
	for text, want := range map[string]int{
		"GET /healthz HTTP/1.1\r\n\r\n":                                                      400,
		"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n":                                             400,
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n":                400,
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n":             400,
		"GET /healthz HTTP/1.0\r\n\r\n":                                                      200,
		"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n":                                421,
		"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                421,
		"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n":                421,
		"GET http://localhost:1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                 200,
		"GET http://a@localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                 400,
		"GET ftp://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                    400,
		"GET file:///healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                            400,
		"GET localhost:80/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                       400,
		"GET HTTPS://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                  200,
		"GET http:///healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":                            400,
		"POST /v1/topics/a/pause HTTP/1.1\r\nHost: evil.example\r\nOrigin: null\r\n\r\n":     421,
		"DELETE /v1/topics/a?force=true HTTP/1.1\r\nHost: evil.example:" + port + "\r\n\r\n": 421,
	} {
		if got := h.raw(1, text); len(got.statuses) != 1 || got.statuses[0] != want {
			t.Errorf("%q: %v, want %d", text, got.statuses, want)
		}
	}
}

// A host that was good for one request of a connection says nothing of another.
func TestHostOfEachRequestIsLookedAt(t *testing.T) {
	h := newHarness(t)
	good, bad := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	if got := h.raw(5, good+bad+good, bad+good); fmt.Sprint(got.statuses) != "[200 421 200 421 200]" {
		t.Fatal(got.statuses)
	}
}

// The requests of a page of another origin are refused, but for those that anybody may make; with
// tokens and without.
func TestForeignPagesAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	token, line, err := NewToken(TokenRule{Name: "page", Scopes: web.Scopes, Topics: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, guarded := range map[string]bool{"open": false, "with tokens": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(c *Config) {
				c.Hosts = []string{"timers.example", "proxy.example:8443"}
				if guarded {
					c.Auth = auth
				}
			})
			own := "http://" + h.addr
			for _, tt := range []struct {
				headers string
				foreign bool
			}{
				{"", false}, {"Origin: " + own, false}, {"Sec-Fetch-Site: same-origin", false}, {"Sec-Fetch-Site: none", false},
				{"Origin: " + own + "|Sec-Fetch-Site: same-origin", false}, {"Origin: http://timers.example", false}, {"Origin: https://timers.example", false},
				{"Origin: https://timers.example:443", false}, {"Origin: https://proxy.example:8443", false},
				{"Origin: https://proxy.example", true}, {"Origin: http://timers.example:81", true},
				{"Origin: http://127.0.0.1:1", true}, {"Origin: http://127.0.0.1", true}, {"Origin: http://localhost:3000", true}, {"Origin: https://evil.example", true},
				{"Origin: null", true}, {"Origin:", true}, {"Origin: " + own + ".evil", true}, {"Origin: ftp://" + h.addr, true}, {"Origin: " + own + "|Origin: null", true},
				{"Sec-Fetch-Site: cross-site", true}, {"Sec-Fetch-Site: same-site", true}, {"Sec-Fetch-Site: ", true}, {"Sec-Fetch-Site: Same-Origin", true},
				{"sec-fetch-site: cross-site", true}, {"Origin: " + own + "|Sec-Fetch-Site: cross-site", true},
				{"Sec-Fetch-Site: same-origin|Sec-Fetch-Site: cross-site", true},
			} {
				headers := []string{"Authorization: Bearer " + token}
				if tt.headers != "" {
					headers = append(headers, strings.Split(tt.headers, "|")...)
				}
				for _, request := range [][2]string{{"POST", "/v1/topics/a/pause"}, {"DELETE", "/v1/topics/a"}, {"GET", "/v1/topics"}, {"GET", "/nothing"}, {"OPTIONS", "/healthz"}, {"GET", "/healthz"}} {
					got := h.status(request[0], request[1], h.addr, headers...)
					refused := got == 403
					if want := tt.foreign && request != [2]string{"GET", "/healthz"}; refused != want {
						t.Errorf("%s %s with %q: %d, refused should be %v", request[0], request[1], tt.headers, got, want)
					}
				}
			}
		})
	}
	if _, err := New(Config{Settings: web.Settings{Engine: newFakeEngine(nil)}, Hosts: []string{"a b"}}); err == nil {
		t.Error("took a host that is none")
	}
}
