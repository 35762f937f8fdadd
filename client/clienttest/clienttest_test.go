package clienttest

import (
	"errors"
	"fmt"
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
	if took := time.Since(began); took > time.Second {
		t.Errorf("a year took %v", took)
	}
	if len(calls) != 12 || calls[2] != "2026-03-01T08:00:00Z" || calls[3] != "2026-04-01T07:00:00Z" {
		t.Errorf("%q", calls)
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

// TestNoNode: a test without a binary, or whose node does not start, fails with the reason.
func TestNoNode(t *testing.T) {
	fails := func(o Options) (text string) {
		f := &failing{TB: t}
		defer func() {
			if v := recover(); v != f {
				t.Fatalf("it did not fail: %v", v)
			}
			text = f.text
		}()
		Start(f, o)
		return ""
	}
	t.Run("no binary", func(t *testing.T) {
		t.Setenv(BinaryEnv, "")
		t.Setenv("PATH", "")
		if text := fails(Options{}); !strings.Contains(text, BinaryEnv) {
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
