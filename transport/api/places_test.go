package api

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carillon/transport/api/web"
)

func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.by) > p.taken {
		panic("more tokens than places")
	}
	return p.taken
}

func TestPlaces(t *testing.T) {
	p := newPlaces("things", 4)
	of := func(name string, scopes web.Scope) *web.Principal {
		return &web.Principal{Sum: sha256.Sum256([]byte(name)), Scopes: scopes}
	}
	a, b, c := of("a", web.ScopeRead), of("b", web.ScopeAdmin), of("c", web.ScopeAdd)
	operator, other := of("operator", web.ScopeCluster), of("other", web.ScopeCluster|web.ScopeRead)
	take := func(who *web.Principal, status int, words ...string) {
		t.Helper()
		_, refused := p.Take(who)
		got := 0
		if refused != nil {
			got = refused.Status
		}
		if got != status {
			t.Fatalf("%d, want %d", got, status)
		}
		for _, want := range words {
			if !strings.Contains(refused.Detail, want) {
				t.Errorf("%q lacks %q", refused.Detail, want)
			}
		}
	}
	take(a, 0)
	take(a, 0)
	take(a, 429, "this token has 2 things", "half of the 4")
	take(b, 0)
	take(b, 0)
	take(b, 429)
	take(c, 503, "4 things")
	take(nil, 503)
	take(operator, 0)
	take(operator, 503)
	take(other, 0)
	p.Give(a.Sum)
	p.Give(b.Sum)
	take(c, 503) // the operators' are counted, too
	p.Give(operator.Sum)
	take(c, 0)
	take(operator, 0)
	for _, who := range []*web.Principal{a, b, c, operator, other} {
		p.Give(who.Sum)
	}
	if p.count() != 0 || len(p.by) != 0 {
		t.Fatalf("%d are left, %v", p.taken, p.by)
	}
	for range 4 { // without tokens one client may have all
		take(nil, 0)
	}
	take(nil, 503)
	for range 4 {
		p.Give([sha256.Size]byte{})
	}
	if p.count() != 0 || len(p.by) != 0 || newPlaces("", 0).most != 1 {
		t.Errorf("%+v", p)
	}
}

// One token may have half of the bulk changes, streams of events and long polls; another one finds
// a place, and when two have taken them all the operator still does.
func TestOneTokenTakesHalfOfTheNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `a add,cancel,read,admin "*"`, `b add,cancel,read,admin "*"`, `c add,cancel,read,admin "*"`, `operator add,cancel,read,admin,cluster "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth, c.Limits.Connections = auth, 400 })
	h.do("PUT", orders, `{"delivery":"pull"}`, "Authorization: Bearer a").want(201)
	for _, tt := range []struct {
		places               *places
		method, target, body string
	}{
		{h.server.bulks, "POST", orders + "/cancel", `{"all":true}`},
		{h.server.bulks, "POST", orders + "/reschedule", `{"all":true,"shift":"1h"}`},
		{h.server.bulks, "POST", orders + "/dead/redrive", `{"all":true}`},
		{h.server.streams, "GET", "/v1/events", ""},
		{h.server.polls, "POST", orders + "/pull", `{"wait":"60s"}`},
	} {
		who := func(name string) *web.Principal { return auth.find([]byte(name)) }
		fill := func(name string) (taken int) {
			for {
				if _, refused := tt.places.Take(who(name)); refused != nil {
					return taken
				}
				taken++
			}
		}
		what := tt.method + " " + tt.target
		ask := func(name string) *reply { return h.do(tt.method, tt.target, tt.body, "Authorization: Bearer "+name) }
		if n := fill("a"); n != tt.places.most/2 {
			t.Errorf("%s: one token takes %d of %d", what, n, tt.places.most)
		}
		if r := ask("a").problem(429, web.QuotaUsed); !strings.Contains(r.body, "half") {
			t.Errorf("%s: %s", what, r.body)
		}
		fill("b")
		ask("c").problem(503, web.Overloaded)
		// The operator's is taken and given back again.
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		full := tt.places.count()
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer operator\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", tt.method, tt.target, len(tt.body), tt.body)
		if strings.HasSuffix(tt.target, "/pull") {
			h.await(what+": the operator waits", func() bool { return tt.places.count() == full+1 })
		} else {
			_ = conn.SetDeadline(time.Now().Add(patience))
			head := make([]byte, 12)
			if _, err := conn.Read(head); err != nil || string(head) != "HTTP/1.1 200" {
				t.Errorf("%s: the operator gets %q, %v", what, head, err)
			}
		}
		conn.Close()
		h.await(what+": the operator's place is given back", func() bool { return tt.places.count() == full })
		for name, n := range map[string]int{"a": tt.places.most / 2, "b": full - tt.places.most/2} {
			for range n {
				tt.places.Give(who(name).Sum)
			}
		}
		if tt.places.count() != 0 || len(tt.places.by) != 0 {
			t.Fatalf("%s: %+v", what, tt.places)
		}
	}
}
