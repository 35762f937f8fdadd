package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carillon/test/freeport"
)

// A machine's zone files, $ZONEINFO and $TZ do not matter: here they say that Berlin is Tokyo, and
// have names that IANA does not.
func TestZonesOfTheMachineAreNotUsed(t *testing.T) {
	t.Parallel()
	tokyo, err := os.ReadFile("/usr/share/zoneinfo/Asia/Tokyo")
	if err != nil {
		t.Skip("this machine has no zone files to lie with: ", err)
	}
	dir := t.TempDir()
	names := []string{"Europe/Berlin", "posix/Europe/Berlin", "right/Europe/Berlin", "localtime", "posixrules", "Company/Office"}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), tokyo, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := freeport.Address(t)
	p := begin(t, append([]string{binary}, serveArgs(t.TempDir(), address)...), "ZONEINFO="+dir, "TZDIR="+dir, "TZ=:Company/Office")
	p.awaitReady(t)
	c := newClient(p)
	for _, name := range names[1:] {
		for _, when := range []string{`"repeat":{"cron":"0 8 * * *","zone":"` + name + `"}`, `"at_local":"2027-03-28T09:00:00","zone":"` + name + `"`} {
			if a := c.do("POST", "/v1/topics/reports/timers", `{"callback":{"url":"http://127.0.0.1:9/"},`+when+`}`); a.status != 400 {
				t.Errorf("%s: %d %s", when, a.status, a.body)
			}
		}
	}
	// The same day and night of both days of the change, asked of a dry run and of the timer.
	add := `{"id":"a","callback":{"url":"http://127.0.0.1:9/"},"at":"2030-03-30T00:00:00Z","repeat":{"cron":"30 2 * * *","zone":"Europe/Berlin"}}`
	want := "2030-03-30T01:30:00.000Z 2030-03-31T01:30:00.000Z 2030-04-01T00:30:00.000Z"
	for _, ask := range [][3]string{{"POST", "/v1/topics/reports/timers?dry_run=true", add}, {"POST", "/v1/topics/reports/timers", add}, {"GET", "/v1/topics/reports/timers/a?next=5", ""}} {
		a := c.do(ask[0], ask[1], ask[2])
		var timer struct {
			Due  string   `json:"due"`
			Next []string `json:"next"`
		}
		if err := json.Unmarshal(a.body, &timer); err != nil || a.status >= 300 {
			t.Fatalf("%v: %d %s", ask, a.status, a.body)
		}
		if timer.Due != "2030-03-30T01:30:00.000Z" || timer.Next != nil && !strings.HasPrefix(strings.Join(timer.Next, " "), want) {
			t.Errorf("%v: due %s, next %v", ask, timer.Due, timer.Next)
		}
	}
	if a := c.do("GET", "/v1/cluster", ""); !strings.Contains(string(a.body), `"tzdata":"20`) {
		t.Errorf("no version of the zones in %s", a.body)
	}
}

// Putting a series again whose first time is past makes no call of its own; seconds given for
// milliseconds make none either.
func TestPutOfASeriesAgain(t *testing.T) {
	t.Parallel()
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	first := time.Now().Add(-90 * time.Minute).UTC().Format(time.RFC3339)
	put := func(payload string) {
		t.Helper()
		body := `{"at":"` + first + `","payload":` + payload + `,"callback":{"url":"` + rcv.url() + `"},"repeat":{"every":"1h"}}`
		if a := c.do("PUT", "/v1/topics/reports/timers/a", body); a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	put("1")
	poll(t, patience, "the call for what was missed", func() bool { return rcv.count() == 1 })
	due := ""
	poll(t, patience, "the series is scheduled again", func() bool {
		var timer struct{ State, Due string }
		_ = json.Unmarshal(c.do("GET", "/v1/topics/reports/timers/a", "").body, &timer)
		due = timer.Due
		return timer.State == "scheduled"
	})
	for _, payload := range []string{"1", "2", "3"} {
		put(payload)
	}
	if a := c.do("POST", "/v1/topics/reports/timers", `{"at_ms":1780315200,"callback":{"url":"`+rcv.url()+`"}}`); a.status != 400 {
		t.Errorf("seconds: %d %s", a.status, a.body)
	}
	// A timer that is due after all of them has been called: so would they have been.
	if a := c.do("POST", "/v1/topics/reports/timers", `{"delay":"300ms","callback":{"url":"`+rcv.url()+`"}}`); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	poll(t, patience, "the last call", func() bool { return rcv.count() >= 2 })
	var timer struct{ Due string }
	_ = json.Unmarshal(c.do("GET", "/v1/topics/reports/timers/a", "").body, &timer)
	if rcv.count() != 2 || timer.Due != due {
		t.Errorf("%d calls, want 2; due %s, was %s", rcv.count(), timer.Due, due)
	}
}
