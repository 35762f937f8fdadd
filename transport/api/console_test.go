package api

import (
	"path/filepath"
	"strings"
	"testing"

	"carillon/transport/api/web"
	"carillon/transport/console"
)

// TestConsoleIsServed: the page needs no token, also where all else does, and comes with the
// headers that confine its browser.
func TestConsoleIsServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root read "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Console = auth, console.New() })
	for target, kind := range map[string]string{"/": "text/html; charset=utf-8", "/console/app.css": "text/css; charset=utf-8", "/console/js/app.js": "text/javascript; charset=utf-8"} {
		r := h.do("GET", target, "").want(200)
		if got := r.header.Get("Content-Type"); got != kind || len(r.body) < 100 {
			t.Errorf("%s: %s, %d bytes", target, got, len(r.body))
		}
		for _, pair := range console.Headers {
			if got := r.header.Get(pair[0]); got != pair[1] {
				t.Errorf("%s: %s: %q", target, pair[0], got)
			}
		}
		if r := h.do("GET", target, "", "If-None-Match: "+r.header.Get("ETag")).want(304); r.body != "" {
			t.Errorf("%s: %q", target, r.body)
		}
		h.do("HEAD", target, "").want(200)
	}
	if r := h.do("GET", "/", ""); strings.Contains(r.header.Get("Content-Security-Policy"), "unsafe") || r.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(r.header)
	}
	h.do("POST", "/", "").problem(405, "method_not_allowed")
	h.do("GET", "/?token=x", "").problem(400, web.BadRequest)
	for _, target := range []string{"/console", "/console/", "/console/nothing.js", "/console/js", "/console/../v1/topics", "/index.html"} {
		if r := h.do("GET", target, ""); r.status != 401 && r.status != 400 {
			t.Errorf("%s: %d", target, r.status)
		}
	}
	h.do("GET", "/v1/topics", "").problem(401, "unauthorized")

	off := newHarness(t)
	off.do("GET", "/", "").problem(404, web.NotFound)
	off.do("GET", "/console/app.css", "").problem(404, web.NotFound)
}
