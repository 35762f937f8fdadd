package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A run in which nothing succeeded measured nothing: it fails, and prints the server's error. What is
// answered 404 is no success where no timer was added.
func TestLoadtestWithoutSuccess(t *testing.T) {
	for mode, status := range map[string]int{"add": 401, "mixed": 404} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"code":"unauthorized","detail":"no such token"}`))
		}))
		t.Cleanup(server.Close)
		got := carillon(t, "", nil, "loadtest", mode, "-n", "30", "-c", "1", "-q", "--url", server.URL)
		if got.code != exitFailure || !strings.Contains(got.err, "no operation succeeded") || !strings.Contains(got.err, "no such token") {
			t.Errorf("%s: exit %d\n%s\n%s", mode, got.code, got.err, got.out)
		}
	}
}

// A zero is no way to ask for a default.
func TestLoadtestTakesNoZero(t *testing.T) {
	for _, flag := range []string{"--connections", "--payload", "--topics", "--seed", "--timeout", "--drain", "--grace", "--cancel-share", "--timers"} {
		got := carillon(t, "", nil, "loadtest", "add", flag, "0", "--url", "http://127.0.0.1:1")
		if got.code != exitUsage || !strings.Contains(got.err, flag+": must be more than 0") {
			t.Errorf("exit %d: %s", got.code, got.err)
		}
	}
}

func TestLoadtestWithoutBatchExits2(t *testing.T) {
	for _, args := range []string{"add --batch 0", "fire --batch 0", "mixed --batch=-1", "churn --batch 1001"} {
		got := carillon(t, "", nil, append([]string{"loadtest"}, strings.Fields(args+" --url http://127.0.0.1:1")...)...)
		if got.code != exitUsage || !strings.Contains(got.err, "batch") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

func TestLoadtestForNoTimeExits2(t *testing.T) {
	for _, d := range []string{"0s", "0", "-1s"} {
		got := carillon(t, "", nil, "loadtest", "add", "-d", d, "--url", "http://127.0.0.1:1")
		if got.code != exitUsage || !strings.Contains(got.err, "duration") {
			t.Errorf("-d %s: %+v", d, got)
		}
	}
}
