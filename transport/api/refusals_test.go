package api

import (
	"crypto/sha256"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"carillon/internal/audit"
)

// A token that is refused again and again makes an entry a minute and status, with their number:
// it cannot fill the audit log.
func TestRefusalsDoNotFillTheAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `reader read "*"`, `shop add,cancel,read,topics "orders"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	var tr trail
	h := newHarness(t, func(c *Config) { c.Auth, c.Audit = auth, tr.record })
	flood := func(n int) {
		for range n {
			h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer reader").want(403)
			h.do("GET", "/v1/destinations", "", "Authorization: Bearer reader").want(403)
			h.do("DELETE", "/v1/topics/others/timers/a", "", "Authorization: Bearer shop").want(404)
			h.do("DELETE", timersPath+"/a", "").want(401)
			h.do("POST", timersPath, `{"delay":"1h"`, "Authorization: Bearer shop").want(400)
			h.do("POST", orders+"/batch", `{"ops":[{"op":"x"},{"op":"y"}]}`, "Authorization: Bearer shop").want(200)
		}
	}
	flood(100)
	if got := tr.since(); !slices.Equal(got, []string{
		"reader timer.cancel topics/orders/timers/a 403", "shop timer.cancel topics/others/timers/a 404",
		"- refused - 401", "shop timer.add topics/orders 400",
	}) {
		t.Errorf("%q", got)
	}
	h.advance(time.Minute - time.Millisecond)
	h.server.refusals.flush(false)
	if got := tr.since(); got != nil {
		t.Errorf("within the minute: %q", got)
	}
	h.advance(time.Millisecond)
	flood(1)
	if got := tr.since(); !slices.Equal(got, []string{
		"reader timer.cancel topics/orders/timers/a 403 (200 refused)", "shop timer.cancel topics/others/timers/a 404 (100 refused)",
		"- refused - 401 (100 refused)", "shop timer.add topics/orders 400 (300 refused)",
	}) {
		t.Errorf("the next minute: %q", got)
	}
	// What comes after nothing more is recorded, too, and no memory is kept.
	h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer reader").want(403)
	h.advance(time.Minute)
	h.server.refusals.flush(false)
	got := tr.since()
	slices.Sort(got)
	if !slices.Equal(got, []string{"reader refused - 403 (2 refused) from -", "shop refused - 400 (2 refused) from -"}) {
		t.Errorf("at the minute's end: %q", got)
	}
	if n := len(h.server.refusals.first); n != 0 {
		t.Errorf("%d are kept", n)
	}
	// A clock that was set back does not silence the log.
	h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer reader").want(403)
	h.advance(-time.Hour)
	h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer reader").want(403)
	if got := tr.since(); len(got) != 2 {
		t.Errorf("after a step of the clock: %q", got)
	}
	h.do("DELETE", timersPath+"/a", "", "Authorization: Bearer reader").want(403)
	h.stop()
	if err := <-h.done; err != nil {
		t.Fatal(err)
	}
	h.done <- nil
	if got := tr.since(); !slices.Equal(got, []string{"reader refused - 403 from -"}) {
		t.Errorf("at the server's end: %q", got)
	}
}

// Memory is bounded by the tokens and the statuses, however many requests there are.
func TestRefusalsAreBounded(t *testing.T) {
	n := 0
	r := refusals{record: func(audit.Entry) { n++ }, now: func() time.Time { return noon }}
	for i := range 100_000 {
		r.add(sha256.Sum256([]byte{byte(i % 10)}), audit.Entry{Status: 400 + i/10%4})
	}
	if n != 40 || len(r.first) != 40 {
		t.Errorf("%d entries, %d kept", n, len(r.first))
	}
}
