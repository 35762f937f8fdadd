package loadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"carillon/client"
)

// TestReceiversAreMany: each is an address of its own, and all that should answer are at the port
// where the run listens.
func TestReceiversAreMany(t *testing.T) {
	f := func(do string, number int64, url, timeout string) {
		t.Helper()
		v := &receivers{count: 100_000, do: do, port: 7780}
		var add struct {
			Callback struct{ URL, Timeout string }
			Retry    struct {
				MaxAttempts int `json:"max_attempts"`
			}
		}
		text := v.appendCallback([]byte(`{"at_ms":1`), number)
		if err := json.Unmarshal(append(text, '}'), &add); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if add.Callback.URL != url || add.Callback.Timeout != timeout || (timeout != "") != (add.Retry.MaxAttempts == 1) {
			t.Errorf("%s %d: %s, want %s with time-out %q", do, number, text, url, timeout)
		}
	}
	f(doAnswer, 0, "http://127.16.0.0:7780/", "")
	f(doAnswer, 99_999, "http://127.17.134.159:7780/", "")
	f(doAnswer, 100_000, "http://127.16.0.0:7780/", "")
	f(doRefuse, 257, "http://127.16.1.1:1/", "500ms")
	f(doHang, 5, "http://127.16.0.5:7780/", "500ms")
	f(doSlow, 5, "http://127.16.0.5:7780/", "")
	f(doHalf, 0, "http://127.16.0.0:7780/", "")
	f(doHalf, 1, "http://127.16.0.1:1/", "500ms")
	f(doHalf, 3, "http://127.16.0.3:7780/", "500ms")
	f(doHalf, 5, "http://127.16.0.5:7780/", "")
	seen := map[string]bool{}
	v := &receivers{count: maxReceivers, do: doAnswer, port: 1}
	some := 0
	for number := int64(0); number < maxReceivers; number += 37 {
		seen[string(v.appendCallback(nil, number))] = true
		some++
	}
	if len(seen) != some {
		t.Errorf("%d addresses for %d receivers", len(seen), some)
	}
	last := netip.MustParseAddr("127.31.255.255")
	if text := string(v.appendCallback(nil, maxReceivers-1)); text != `,"callback":{"url":"http://`+last.String()+`:1/"}` {
		t.Errorf("the last receiver is at %s, want %s", text, last)
	}
}

// TestReceiversAskedForWrongly: many receivers have a meaning for timers of one instant alone.
func TestReceiversAskedForWrongly(t *testing.T) {
	f := func(c Config, ok bool) {
		t.Helper()
		if err := c.withDefaults().validate(); (err == nil) != ok {
			t.Errorf("%+v: %v, valid should be %v", c, err, ok)
		}
	}
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: 10}, true)
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: 10, ReceiversDo: doHalf}, true)
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: 10, ReceiversDo: "dance"}, false)
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: -1}, false)
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: maxReceivers + 1}, false)
	f(Config{Mode: ModeFire, Receivers: 10}, false)
	f(Config{Mode: ModeMixed, Receivers: 10}, false)
	f(Config{Mode: ModeFire, SameInstant: true, Receivers: 10, Sink: "http://127.0.0.1:1"}, false)
	if c := (Config{Mode: ModeFire, SameInstant: true, Receivers: 500}).withDefaults(); c.Timers != 500 {
		t.Errorf("%d timers for 500 receivers, want one for each", c.Timers)
	}
}

// TestEarlierTimersAreNotAwaited: timers that an earlier run has kept in the topic are not due, and
// a run does not wait for them.
func TestEarlierTimersAreNotAwaited(t *testing.T) {
	scheduled, dead := 5, 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"counts":{"scheduled":%d,"leased":0,"dead":%d}}`, scheduled, dead)
	}))
	defer server.Close()
	config := Config{URL: []string{server.URL}, Mode: ModeFire, SameInstant: true, Receivers: 3}.withDefaults()
	api, err := client.New(config.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	r := &run{config: config, names: newNames(config, "run"), api: api, receivers: &receivers{count: 3}, tally: newTally(0)}
	r.countEarlier(t.Context())
	scheduled = 8
	if n := r.stillDue(t.Context()); n != 3 {
		t.Errorf("of 3 timers beside 5 earlier ones %d are due", n)
	}
	scheduled = 5
	if n := r.stillDue(t.Context()); n != 0 {
		t.Errorf("%d timers are awaited that an earlier run has kept", n)
	}
	dead = 5
	if r.stillDue(t.Context()); r.tally.dead.Load() != 3 {
		t.Errorf("%d dead letters, want the 3 of this run", r.tally.dead.Load())
	}
}
