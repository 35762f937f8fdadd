package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// hostile is an answer whose every text holds commands for a terminal.
func hostile() string {
	const code = `\u001b]0;owned\u0007\u001b[2J` + "\u009b31m\x7f" + `\r`
	timer := `{"topic":"T","id":"T","uid":"T","key":"T","version":1,"state":"T","reason":"T","due":"2030-01-01T00:00:00Z","payload":"T","content_type":"T","labels":["T"],` +
		`"last_error":"T","waits_for":"T","waits_on":"T","attempts":1,"receipt":"T","callback":{"url":"T","headers":{"T":"T"}},"attempt_log":[{"attempt":1,"started_ms":1,"error":"T"}],"T":"T"}`
	topic := `{"topic":"T","counts":{}}`
	node := `{"name":"T","http":"127.0.0.1:1","state":"T","version":"T","unfit":"T"}`
	text := `{"timers":[` + timer + `],"entries":[` + timer + `],"topics":[` + topic + `],"policy":{},"topic":"T","id":"T","state":"T","outcome":"T","name":"T",` +
		`"destinations":[{"destination":"T","state":"T","last_error":"T","nodes":["T"]}],"results":[{"receipt":"T","status":410,"code":"T"}],` +
		`"cluster_id":"T","version":"T","upgrade":{"feature_level":3,"lacking":["T"]},"nodes":[` + node + `],"shards":[{"shard":1,"leader":"T","state":"T","replicas":["T"]}],` +
		`"detail":"T","code":"T","title":"T","fingerprint":"T","secrets":["T"],"first":["T"]}`
	return strings.ReplaceAll(text, "T", code)
}

// No text of a node, or of a server that is taken for one, is a command to the terminal.
func TestNodesTextIsNoCommand(t *testing.T) {
	for _, answer := range []struct {
		name, body string
		status     int
	}{
		{"an answer", strings.ReplaceAll(hostile(), "2030-01-01\\r", "2030-01-01T"), 200}, {"a problem", hostile(), 409},
		{"no JSON", "\x1b[2J\u009b31m\x07 owned", 200}, {"no problem", "\x1b[2J\u009b31m\x07 owned", 500},
	} {
		body := strings.ReplaceAll(answer.body, "2030-01-01"+`\u001b]0;owned\u0007\u001b[2J`+"\u009b31m\x7f"+`\r`+"00:00:00Z", "2030-01-01T00:00:00Z")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(answer.status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		for _, command := range []string{
			"add t --delay 1s", "get t x", "patch t x --delay 1s", "cancel t x", "cancel t --all", "fire t x", "list t", "reschedule t --all --shift 1h",
			"topics list", "topics get t", "topics pause t", "topics delete t", "dead list t", "dead redrive t --all", "history t", "pull t", "ack r", "nack r",
			"destinations", "cluster --shards", "shard 1", "drain n1", "resume n1", "remove n1", "doctor", "upgrade status", "replicas 3", "shards 8 --dry-run", "export t",
		} {
			for _, json := range []string{"", " --json"} {
				if json != "" && command == "export t" {
					continue
				}
				got := inProcess(append([]string{"ctl", "--url", server.URL, "--timeout", "2s"}, strings.Fields(command+json)...)...)
				if got.out+got.err == "" {
					t.Errorf("%s of %s says nothing", command, answer.name)
				}
				data := command == "export t" && answer.status == 200 // of a file, and JSON by all means
				for _, r := range got.out + got.err {
					if r < ' ' && r != '\n' && r != '\t' || !data && r >= 0x7f && r < 0xa0 {
						t.Errorf("%s of %s: %q\n%q", command+json, answer.name, got.out, got.err)
						break
					}
				}
			}
		}
	}
}

// A redirect is not followed: its target never gets the token, and the error names it.
func TestCtlFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed: %s %s with %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for _, command := range []string{"get t x", "add t --delay 1s", "cluster", "backup -", "tail", "doctor"} {
		node := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/there", http.StatusTemporaryRedirect))
		got := carillon(t, "", []string{"CARILLON_TOKEN=crl_x\n"}, append([]string{"ctl", "--url", node.URL}, strings.Fields(command)...)...)
		node.Close()
		code, said := exitFailure, got.err
		if command == "doctor" { // to it that is a finding
			code, said = 2, got.out
		}
		if got.code != code || !strings.Contains(said, `307 Temporary Redirect to "`+elsewhere.URL+`/there", which is not followed`) {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// A token that ends with a line feed, as a file gives it, is sent without; another is refused with
// words for a person.
func TestCtlTokenOfAFile(t *testing.T) {
	t.Parallel()
	node := &fakeNode{replies: []reply{{status: 200, body: oneTimer}}}
	server := httptest.NewServer(node)
	defer server.Close()
	got := carillon(t, "", []string{"CARILLON_TOKEN= crl_secret\r\n"}, "ctl", "get", "t", "x", "--url", server.URL)
	if asked := strings.Join(node.requests(), "; "); got.code != exitOK || asked != "GET /v1/topics/t/timers/x [Authorization: Bearer crl_secret]" {
		t.Errorf("%+v; asked %s", got, asked)
	}
	got = carillon(t, "", []string{"CARILLON_TOKEN=crl_a\ncrl_b"}, "ctl", "get", "t", "x", "--url", server.URL)
	if got.code != exitUsage || !strings.Contains(got.err, "--token: client: the token has a space, a control character") || strings.Contains(got.err, "crl_") {
		t.Errorf("%+v", got)
	}
}

// The doctor names the node that does not answer, and not those of --url.
func TestDoctorNamesTheNodeThatIsDown(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	address := gone.Listener.Addr().String()
	gone.Close()
	view := strings.Replace(goodView, `"n2","state":"alive"`, `"n2","http":"`+address+`","state":"suspect"`, 1)
	url := oneNode(t, view, goodMetrics, 200)
	got := carillon(t, "", nil, "ctl", "doctor", "--url", url)
	if want := "no node answers at http://" + address; got.code != 2 || !strings.Contains(got.out, want) || strings.Contains(got.out, url) || strings.Contains(got.out, "--url") {
		t.Errorf("lacks %q, or names %s: %+v", want, url, got)
	}
}
