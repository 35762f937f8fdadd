package clienttest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"carillon/client"
)

// needBinary skips where there is none; TestClientTest of test/e2e runs these tests with one.
func needBinary(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("carillon"); err != nil && os.Getenv(BinaryEnv) == "" {
		t.Skip("there is no binary: set " + BinaryEnv)
	}
}

// TestAYear: reminders for a year, in order, each at nine o'clock where the member lives.
func TestAYear(t *testing.T) {
	needBinary(t)
	var calls []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Header.Get("Carillon-Test-Clock"))
	}))
	defer receiver.Close()
	node := Start(t, Options{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Flags: []string{"--shards=1"}})
	ctx := t.Context()
	_, err := node.Client().Add(ctx, "reminders", client.Spec{
		ID: "member-9", Repeat: &client.Repeat{Cron: "0 9 1 * *", Zone: "Europe/Berlin"}, Callback: &client.Callback{URL: receiver.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if moved := node.Advance(365 * 24 * time.Hour); moved.Calls != 12 || moved.Left != 0 || !moved.Now.Equal(node.Now()) {
		t.Errorf("%+v", moved)
	}
	took := time.Since(began)
	if len(calls) != 12 || calls[2] != "2026-03-01T08:00:00Z" || calls[3] != "2026-04-01T07:00:00Z" {
		t.Errorf("%q", calls)
	}
	for years := 1; took > time.Second; years++ { // a busy machine has its quiet moments, too
		if years == 10 {
			t.Fatalf("a year took %v", took)
		}
		began = time.Now()
		node.Advance(365 * 24 * time.Hour)
		took = time.Since(began)
	}
	if _, err := (client.TestClock{Client: node.Client()}).AdvanceTo(ctx, node.Now().Add(-time.Second)); !errors.Is(err, client.ErrClockPast) {
		t.Error(err)
	}
	view, err := node.Client().Cluster(ctx)
	if err != nil || !view.TestClock {
		t.Errorf("%+v %v", view, err)
	}
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

// failure is the reason for which a test fails.
func failure(t *testing.T, do func(testing.TB)) (text string) {
	t.Helper()
	f := &failing{TB: t}
	defer func() {
		if v := recover(); v != f {
			t.Fatalf("it did not fail: %v", v)
		}
		text = f.text
	}()
	do(f)
	return ""
}

// TestClockThatStandsStill: a clock that stops on its way is moved again. It fails if that moves
// nothing, as when each call adds a timer that is due at once: it would never end.
func TestClockThatStandsStill(t *testing.T) {
	answers := make(chan string, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, <-answers)
	}))
	defer server.Close()
	c, err := client.New([]string{server.URL}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := func(t testing.TB, list ...string) client.ClockMoved {
		for _, answer := range list {
			answers <- answer
		}
		n := &Node{t: t, client: c, clock: client.TestClock{Client: c}}
		return n.To(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	}
	const (
		first  = `{"now":"2026-01-01T00:00:00Z","calls":100000,"stopped":true}`
		second = `{"now":"2026-01-02T00:00:00Z","calls":100000,"stopped":true}`
		last   = `{"now":"2026-02-01T00:00:00Z","calls":7}`
	)
	if moved := to(t, first, second, last); moved.Calls != 200_007 {
		t.Errorf("%+v", moved)
	}
	text := failure(t, func(f testing.TB) { to(f, first, second, second, last) })
	if !strings.Contains(text, "2026-01-02T00:00:00Z") || !strings.Contains(text, "300000 calls") {
		t.Error(text)
	}
}

// TestNoNode: a test without a binary, or whose node does not start, fails with the reason.
func TestNoNode(t *testing.T) {
	fails := func(o ...Options) string { return failure(t, func(f testing.TB) { Start(f, o...) }) }
	t.Run("no binary", func(t *testing.T) {
		t.Setenv(BinaryEnv, "")
		t.Setenv("PATH", "")
		if text := failure(t, func(f testing.TB) { Start(f) }); !strings.Contains(text, BinaryEnv) {
			t.Error(text)
		}
	})
	t.Run("two options", func(t *testing.T) {
		if text := fails(Options{}, Options{}); !strings.Contains(text, "at most one Options") {
			t.Error(text)
		}
	})
	t.Run("it does not start", func(t *testing.T) {
		needBinary(t)
		if text := fails(Options{Flags: []string{"--join=127.0.0.1:1"}}); !strings.Contains(text, "test-clock") {
			t.Error(text)
		}
	})
}

// TestAddWhoseAnswerIsLost: the client makes no second of it.
func TestAddWhoseAnswerIsLost(t *testing.T) {
	needBinary(t)
	node := Start(t, Options{Flags: []string{"--shards=1"}})
	callback := client.Callback{URL: "http://127.0.0.1:9/"}
	if _, err := node.Client().PutTopic(t.Context(), "digest", client.Policy{Callback: &callback, Merge: client.MergeCollect}); err != nil {
		t.Fatal(err)
	}
	wire := &lossy{}
	c, err := client.New([]string{node.URL}, client.Options{HTTP: &http.Client{Transport: wire}})
	if err != nil {
		t.Fatal(err)
	}
	at := node.Now().Add(time.Hour)
	for _, tt := range []struct {
		topic, id string
		add       client.Spec
		payload   string
		good      bool
	}{
		{"digest", "day", client.Spec{ID: "day", At: at, Payload: 1}, "[1]", false},
		{"digest", "part", client.Spec{ID: "part", Delay: time.Hour, Payload: 1, Part: "p"}, "[1]", true},
		{"digest", "idem-k", client.Spec{IdempotencyKey: "k", Delay: time.Hour, Payload: 1}, "1", true},
		{"digest", "own", client.Spec{ID: "own", At: at, Payload: 1, Merge: client.MergeReject}, "1", true},
		{"mail", "first", client.Spec{ID: "first", At: at, Payload: 1, Callback: &callback}, "1", true},
	} {
		wire.lost = false
		if _, err := c.Add(t.Context(), tt.topic, tt.add); (err == nil) != tt.good || !wire.lost {
			t.Errorf("%s: %v", tt.id, err)
		}
		if timer, err := node.Client().Get(t.Context(), tt.topic, tt.id); err != nil || string(timer.Payload) != tt.payload {
			t.Errorf("%s: %+v, %v", tt.id, timer, err)
		}
	}
}

// lossy loses the answer to the first POST.
type lossy struct{ lost bool }

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || l.lost || r.Method != http.MethodPost {
		return answer, err
	}
	l.lost = true
	_ = answer.Body.Close()
	return nil, io.ErrUnexpectedEOF
}
