package api

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"carillon/transport/api/web"
)

// Pages of origins that are listed may ask, and no others; a browser that asks first whether they
// may is told so.
func TestCORSOrigins(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Origins = []string{"https://ops.example", "http://localhost:3000"} })
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`).want(201)
	const allow = "Access-Control-Allow-Origin"
	for _, origin := range []string{"https://ops.example", "http://localhost:3000"} {
		from := []string{"Origin: " + origin, "Sec-Fetch-Site: cross-site"}
		r := h.do("POST", timersPath, `{"id":"a","delay":"1h"}`, from...)
		if r.status/100 != 2 || r.header.Get(allow) != origin || r.header.Get("Vary") != "Origin" || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "ETag") {
			t.Errorf("%s: %d %v", origin, r.status, r.header)
		}
		// A page reads refusals, too.
		if r := h.do("GET", timersPath+"/none", "", from...); r.status != 404 || r.header.Get(allow) != origin {
			t.Errorf("%s: %d %v", origin, r.status, r.header)
		}
		r = h.do("OPTIONS", timersPath+"/a", "", "Origin: "+origin, "Sec-Fetch-Site: cross-site", "Access-Control-Request-Method: PATCH", "Access-Control-Request-Headers: authorization")
		if r.status != 204 || r.body != "" || r.header.Get(allow) != origin || r.header.Get("Access-Control-Allow-Methods") != "GET, HEAD, PUT, PATCH, DELETE" ||
			!strings.Contains(r.header.Get("Access-Control-Allow-Headers"), "Authorization") || r.header.Get("Access-Control-Max-Age") == "" {
			t.Errorf("%s: %d %v", origin, r.status, r.header)
		}
		if r.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("the API has no cookies that a page could be given")
		}
		h.do("OPTIONS", timersPath+"/a", "", "Origin: "+origin).want(405) // it asks for nothing
		h.do("OPTIONS", "/nothing", "", "Origin: "+origin, "Access-Control-Request-Method: GET").want(404)
	}
	for _, origin := range []string{"https://evil.example", "http://ops.example", "https://ops.example:8443", "https://ops.example.evil", "null", "https://OPS.example", ""} {
		for _, call := range [][2]string{{"GET", timersPath}, {"OPTIONS", timersPath}} {
			if r := h.do(call[0], call[1], "", "Origin: "+origin, "Access-Control-Request-Method: GET"); r.status != 403 || r.header.Get(allow) != "" {
				t.Errorf("%s of %q: %d %v", call[0], origin, r.status, r.header)
			}
		}
	}
	two := h.do("GET", timersPath, "", "Origin: https://ops.example", "Origin: https://evil.example")
	if two.status != 403 || two.header.Get(allow) != "" {
		t.Errorf("two origins: %d %v", two.status, two.header)
	}
	// An image, say: it has no Origin.
	h.do("GET", timersPath, "", "Sec-Fetch-Site: cross-site").want(403)
	if r := h.do("GET", timersPath, ""); r.status != 200 || len(corsOf(r.header)) > 0 {
		t.Errorf("%d %v", r.status, r.header)
	}
}

func corsOf(h http.Header) (names []string) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			names = append(names, name)
		}
	}
	return names
}

// Without a list nothing is new: no page of another origin, and no such header.
func TestCORSIsOff(t *testing.T) {
	h := newHarness(t)
	r := h.do("OPTIONS", orders, "", "Origin: https://ops.example", "Access-Control-Request-Method: GET")
	if r.status != 403 || len(corsOf(r.header)) > 0 {
		t.Errorf("%d %v", r.status, r.header)
	}
	if r := h.do("GET", "/healthz", "", "Origin: https://ops.example"); r.status != 200 || len(corsOf(r.header)) > 0 {
		t.Errorf("%d %v", r.status, r.header)
	}
}

// The question of a preflight has no token; the request that follows needs one.
func TestCORSWithTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `page read "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Origins = auth, []string{"https://ops.example"} })
	h.do("OPTIONS", "/v1/topics", "", "Origin: https://ops.example", "Access-Control-Request-Method: GET").want(204)
	if r := h.do("GET", "/v1/topics", "", "Origin: https://ops.example").want(401); r.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%v", r.header)
	}
	h.do("GET", "/v1/topics", "", "Origin: https://ops.example", "Authorization: Bearer page").want(200)
}

func TestCheckOrigin(t *testing.T) {
	for text, good := range map[string]bool{
		"https://ops.example": true, "http://localhost:3000": true, "http://10.1.2.3": true, "http://[::1]:8080": true,
		"": false, "*": false, "null": false, "ops.example": false, "https://ops.example/": false, "https://ops.example/a": false, "https://Ops.example": false,
		"ftp://ops.example": false, "https://": false, "https://*.example": false, "https://a@ops.example": false, "https://ops.example:0": false, "https://ops.example.": false,
		"https://..": false,
	} {
		if err := CheckOrigin(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := New(Config{Settings: web.Settings{Engine: newFakeEngine(nil)}, Origins: []string{"*"}}); err == nil {
		t.Error("took an origin that is none")
	}
}
