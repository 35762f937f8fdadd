package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// restartable is a cluster of n1 and n2 whose processes are replaced when their name is written
// into the file.
func restartable(t *testing.T, file string, ready int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(ready)
			fmt.Fprint(w, `{"code":"unavailable","detail":"not ready: shard 3 has no leader"}`)
			return
		}
		restarts, _ := os.ReadFile(file)
		fmt.Fprint(w, `{"healthy":true,"nodes":[`)
		for i, name := range []string{"n1", "n2"} {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"name":%q,"http":%q,"state":"alive","starts":%d}`, name, r.Host, 4+strings.Count(string(restarts), name))
		}
		fmt.Fprint(w, `],"shards":[{"shard":1,"state":"ok"}]}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The command that restarts a node is run for each in turn. Its output is not the result.
func TestRollingRestartRunsACommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "restarts")
	url := restartable(t, file, 200)
	restart := "echo stopping {}; echo {} >> " + file
	got := carillon(t, "", nil, "ctl", "rolling-restart", "--url", url, "--run", restart)
	if got.code != exitOK || got.out != "restart n1 now\nn1 is back and ready\nrestart n2 now\nn2 is back and ready\nall are back, and the cluster is healthy\n" {
		t.Errorf("%+v", got)
	}
	if done, err := os.ReadFile(file); err != nil || string(done) != "n1\nn2\n" || !strings.Contains(got.err, "stopping n1\n") {
		t.Errorf("%q, %v, %+v", done, err, got)
	}
	got = carillon(t, "", nil, "ctl", "rolling-restart", "n2", "--json", "--url", url, "--run", restart)
	if got.code != exitOK || got.out != `{"node":"n2","step":"restart"}`+"\n"+`{"node":"n2","step":"back"}`+"\n"+`{"step":"done"}`+"\n" {
		t.Errorf("%+v", got)
	}
}

// A cluster's answer does not get a command of its own into the shell.
func TestRollingRestartRunsNoName(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "made")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"healthy":true,"nodes":[{"name":%q,"http":%q,"state":"alive","starts":1}],"shards":[{"shard":1,"state":"ok"}]}`, "n1; touch "+file, r.Host)
	}))
	defer server.Close()
	got := carillon(t, "", nil, "ctl", "rolling-restart", "--url", server.URL, "--wait", "1s", "--run", "echo {}")
	if got.code != exitFailure || !strings.Contains(got.err, "this is not a name of a node") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the name was run")
	}
}

// Every node is asked how it sees the cluster: the next one is not restarted while a single one
// does not hear the one before.
func TestRollingRestartAsksEveryNode(t *testing.T) {
	t.Parallel()
	lonely := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"nodes":[{"name":"n1","state":"suspect"},{"name":"n2","state":"alive"}],"shards":[{"shard":1,"state":"degraded"}]}`)
	}))
	defer lonely.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"healthy":true,"nodes":[{"name":"n1","http":%q,"state":"alive","starts":1},{"name":"n2","http":%q,"state":"alive","starts":1}],"shards":[{"shard":1,"state":"ok"}]}`,
			r.Host, lonely.Listener.Addr())
	}))
	defer first.Close()
	got := carillon(t, "", nil, "ctl", "rolling-restart", "--url", first.URL, "--wait", "100ms")
	if got.code != exitFailure || got.out != "" || !strings.Contains(got.err, "n2 sees: n1 is suspect") {
		t.Errorf("%+v", got)
	}
}

// It calls a cluster healthy only where each node does, and only when none changes its mind
// meanwhile.
func TestRollingRestartGoesByTheNodesWord(t *testing.T) {
	t.Parallel()
	const good = `{"healthy":true,"nodes":[{"name":"n1","http":"HTTP","state":"alive","starts":1}],"shards":[{"shard":1,"state":"ok"}]}`
	for name, tt := range map[string]struct {
		view func(asked int) string
		want string
	}{
		"not healthy":  {func(int) string { return strings.Replace(good, "true", "false", 1) }, "the cluster is not healthy"},
		"unfit":        {func(int) string { return strings.Replace(good, `"starts"`, `"unfit":"its clock is off","starts"`, 1) }, "n1 should not lead: its clock is off"},
		"off and on":   {func(asked int) string { return strings.Replace(good, "true", fmt.Sprint(asked%4 != 0), 1) }, "the cluster is not healthy"},
		"it is, first": {func(int) string { return good }, "n1 has not been restarted yet"},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				asked++
				fmt.Fprint(w, strings.Replace(tt.view(asked), "HTTP", r.Host, 1))
			}
		}))
		t.Cleanup(server.Close)
		got := carillon(t, "", nil, "ctl", "rolling-restart", "--url", server.URL, "--wait", "500ms")
		if got.code != exitFailure || !strings.Contains(got.err, tt.want) || strings.Contains(got.out, "healthy") {
			t.Errorf("%s: %+v, want %q", name, got, tt.want)
		}
	}
}

// It stops at the first node that does not come back as it should, and says how far it has come.
func TestRollingRestartStops(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "restarts")
	for _, tt := range []struct {
		args  string
		ready int
		code  int
		want  string
	}{
		{"--wait 100ms", 200, exitFailure, "n1 has not been restarted yet; restarted: none; not yet: n1, n2"},
		{"--wait 100ms", 503, exitFailure, "not ready: shard 3 has no leader"},
		{"--wait 20s --run=exit${IFS}7", 200, exitFailure, "--run for n1: exit status 7"},
		{"n3", 200, exitUsage, "there is no node n3; there are n1, n2"},
	} {
		got := carillon(t, "", nil, append([]string{"ctl", "rolling-restart", "--url", restartable(t, file, tt.ready)}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || !strings.Contains(got.err, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.args, got, tt.want)
		}
	}
}
