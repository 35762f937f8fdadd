package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"carillon/test/testkit"
)

// shownOnly are the examples that this test cannot run: why.
var shownOnly = map[string]string{
	"backup": "the second goes to another machine", "tail": "it has no end", "rolling-restart": "it restarts the nodes of a cluster", "drain": "it needs another node", "resume": "it needs another node",
	"remove": "it needs another node", "upgrade": "there is none", "doctor": "it names the nodes of a cluster", "cluster": "it names another node", "pull": "it needs a topic that is pulled",
	"ack": "it needs a receipt", "nack": "it needs a receipt", "extend": "it needs a receipt",
}

// TestExamplesOfCtlAreSafe runs what the help of each command of ctl shows, in the order of the
// help, against a node with a topic that is in use. Each is understood, and none takes away what
// the topic's pending timers and receivers need.
func TestExamplesOfCtlAreSafe(t *testing.T) {
	_, url := serve(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"orders.json": `{"callback":{"url":"https://shop.example/hooks"}}`, "member.json": `{"member":1}`,
		"topics.yaml": `topics: {orders: {callback: {url: "https://shop.example/hooks"}}}`} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const policy = `{"callback":{"url":"https://shop.example/hooks","headers":{"X-Shop":"7"}},"secrets":["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"],"retry":{"max_attempts":3},"stop_on":[]}`
	if r := carillon(t, policy, nil, "ctl", "--url", url, "topics", "put", "orders", "--policy", "-"); r.code != 0 {
		t.Fatal(r)
	}
	add := carillon(t, "", nil, "ctl", "--url", url, "add", "orders", "--id", "pending", "--delay", "100h")
	if add.code != 0 {
		t.Fatal(add)
	}
	example := exampleRunner(t, dir, url)
	ran := 0
	for _, line := range ctlExamples() {
		verb := strings.Fields(line)[2]
		if shownOnly[verb] != "" {
			continue
		}
		ran++
		code, out := example(line)
		if code == exitUsage {
			t.Errorf("%s: is not understood: %s", line, out)
		}
		var topic struct {
			Policy struct {
				Callback struct{ URL string }
				Secrets  []string
			}
		}
		got := inProcess("ctl", "--url", url, "--json", "topics", "get", "orders")
		if err := json.Unmarshal([]byte(got.out), &topic); err != nil || topic.Policy.Callback.URL == "" || len(topic.Policy.Secrets) == 0 {
			t.Fatalf("%s: did harm: %v, %s%s", line, err, got.out, got.err)
		}
		if r := inProcess("ctl", "--url", url, "get", "orders", "pending"); r.code != 0 || strings.Contains(r.out, "no_callback") {
			t.Fatalf("%s: did harm: %s%s", line, r.out, r.err)
		}
	}
	if ran < 20 {
		t.Errorf("%d examples were run", ran)
	}
}

// ctlExamples are all lines of examples of ctl and its commands.
func ctlExamples() (lines []string) {
	for _, command := range grammar().all() {
		if !strings.HasPrefix(command.Path+" ", "carillon ctl ") {
			continue
		}
		_, examples := helpOf(command.Path)
		for line := range strings.Lines(examples) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "carillon ctl ") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// An entry whose command has another name would be shown by none.
func TestHelpIsOfCommands(t *testing.T) {
	paths := map[string]bool{}
	for _, command := range grammar().all() {
		paths[command.Path] = true
	}
	for _, entry := range strings.Split(helpText, "\n# ")[1:] {
		if path, _, _ := strings.Cut(entry, "\n"); !paths[path] {
			t.Errorf("help.txt has help of %q, which is no command", path)
		}
	}
}

// exampleRunner runs a line in a shell that has this program as carillon and a node's URL.
func exampleRunner(t *testing.T, dir, url string) func(line string) (code int, out string) {
	t.Helper()
	self := command(t, nil)
	script := fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", self.Path)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "carillon"), []byte(script), 0o700))
	return func(line string) (int, string) {
		if at := strings.Index(line, "   "); at > 0 {
			line = line[:at] // the rest says what it does
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(self.Env, "PATH="+dir+":"+os.Getenv("PATH"), "CARILLON_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
}
