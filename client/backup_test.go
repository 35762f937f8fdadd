package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A backup comes as it is made, from the first node that takes a connection; a refusal is a
// Problem.
func TestBackup(t *testing.T) {
	refuse := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/backup" || r.Header.Get("Authorization") != "Bearer crl_x" {
			t.Errorf("%s %s, %v", r.Method, r.URL.Path, r.Header)
		}
		if refuse {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"code":"forbidden","status":403}`)
			return
		}
		_, _ = io.WriteString(w, "a backup")
	}))
	defer server.Close()
	c, err := New([]string{"http://127.0.0.1:1", server.URL}, Options{Token: "crl_x"})
	must(t, err)
	body, err := c.Backup(t.Context())
	must(t, err)
	if got, err := io.ReadAll(body); err != nil || string(got) != "a backup" {
		t.Errorf("%q, %v", got, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	refuse = true
	if _, err := c.Backup(t.Context()); !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v", err)
	}
}
