package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// No redirect is followed, not even by an HTTP client that would: another host would get the token,
// and the request once more.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed: %s %s with %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/%1b", status)
		}))
		t.Cleanup(node.Close)
		given := &http.Client{}
		for _, h := range []*http.Client{nil, given} {
			c, err := New([]string{node.URL}, Options{Token: "crl_x", HTTP: h, Retries: -1})
			must(t, err)
			for name, call := range map[string]func() error{
				"get":     func() error { _, err := c.Get(context.Background(), "t", "x"); return err },
				"add":     func() error { _, err := c.Add(context.Background(), "t", Spec{ID: "x", Delay: Now}); return err },
				"cluster": func() error { _, err := c.Cluster(context.Background()); return err },
				"backup":  func() error { _, err := c.Backup(context.Background()); return err },
			} {
				p, refused := errors.AsType[*Problem](call())
				if !refused || p.Status != status || !strings.Contains(p.Error(), elsewhere.URL) || !strings.Contains(p.Error(), "is not followed") {
					t.Errorf("%d, %s: %v", status, name, p)
				}
			}
		}
		if given.CheckRedirect != nil {
			t.Error("the caller's HTTP client was changed")
		}
	}
}

// A token from a file or a variable may end with a line feed; nothing else that is no part of a
// token is sent.
func TestTokenIsTrimmed(t *testing.T) {
	node := newNode(t, reply{status: 200, body: `{}`})
	c, err := New([]string{node.URL}, Options{Token: " crl_abc\r\n"})
	must(t, err)
	if _, err := c.Cluster(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := node.seen(); len(got) != 1 || !strings.Contains(got[0], "[Authorization: Bearer crl_abc]") {
		t.Errorf("%q", got)
	}
	for _, token := range []string{"crl_a\ncrl_b", "crl a", "crl_\x00", "crl_ä"} {
		if _, err := New([]string{node.URL}, Options{Token: token}); err == nil || !strings.Contains(err.Error(), "token") || strings.Contains(err.Error(), token) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// One lease that is over shows in the error, not only among the results.
func TestLateReceiptIsAnError(t *testing.T) {
	node := newNode(t, reply{status: 200, body: `{"results":[{"receipt":"r","status":200},{"receipt":"s","status":410,"code":"over"}]}`})
	c, err := New([]string{node.URL}, Options{})
	must(t, err)
	results, err := c.Ack(context.Background(), "r", "s")
	if !errors.Is(err, ErrOver) || !strings.Contains(err.Error(), "1 of 2 leases are over") || len(results) != 2 || results[0].Err() != nil || results[1].Err() == nil {
		t.Errorf("%+v, %v", results, err)
	}
}
