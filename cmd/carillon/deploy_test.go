package main

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"carillon/test/testkit"
)

const deployDir = "../../deploy/"

// TestDeployFilesParse: each file in deploy/ that has a grammar follows it, without a key that is
// there twice.
func TestDeployFilesParse(t *testing.T) {
	count := 0
	err := filepath.WalkDir(deployDir, func(name string, entry os.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && entry.Name() == "templates" {
			return filepath.SkipDir // YAML once they are rendered: see TestHelmChartIsTheManifest
		}
		if err != nil || entry.IsDir() {
			return err
		}
		switch filepath.Ext(name) {
		case ".yaml", ".json": // of which JSON is a part
			count++
			documents(t, name)
		}
		return nil
	})
	if err != nil || count < 8 {
		t.Error(count, err)
	}
}

func documents(t *testing.T, name string) (all []map[string]any) {
	t.Helper()
	f, err := os.Open(name)
	testkit.Must(t, err)
	defer f.Close()
	for dec := yaml.NewDecoder(f); ; {
		var doc map[string]any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, doc)
	}
}

// at walks down a document: by the keys of mappings, and by 0 to the first of a list.
func at(t *testing.T, doc any, path ...string) any {
	t.Helper()
	for _, key := range path {
		switch node := doc.(type) {
		case map[string]any:
			doc = node[key]
		case []any:
			doc = node[0]
		default:
			t.Fatalf("there is no %v", path)
		}
	}
	return doc
}

func texts(list any) (all []string) {
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// nodeCommands are the command lines by which the files in deploy/ start a node.
func nodeCommands(t *testing.T) map[string][]string {
	t.Helper()
	unit := testkit.File(t, deployDir+"systemd/carillon.service")
	m := regexp.MustCompile(`(?m)^ExecStart=carillon (.*)$`).FindSubmatch(unit)
	if m == nil {
		t.Fatal("the unit starts nothing")
	}
	compose := documents(t, deployDir+"docker/compose.yaml")[0]
	all := map[string][]string{
		"unit":       strings.Fields(string(m[1])),
		"compose":    texts(at(t, compose, "x-node", "command")),
		"kubernetes": texts(at(t, statefulSet(t), "spec", "template", "spec", "containers", "0", "args")),
	}
	return all
}

func statefulSet(t *testing.T) map[string]any {
	t.Helper()
	for _, doc := range documents(t, deployDir+"kubernetes/carillon.yaml") {
		if doc["kind"] == "StatefulSet" {
			return doc
		}
	}
	t.Fatal("there is no StatefulSet")
	return nil
}

// serveParser is the part of the command line that starts a node, with these flags.
func serveParser(t *testing.T, args ...string) (table []setting, value func(flag string) any) {
	t.Helper()
	return parserOf(t, new(struct {
		Serve serveCmd `cmd:""`
	}), args...)
}

// TestDeployedCommandsAreUnderstood: the files in deploy/ start a node with a valid command line,
// and their variables are settings.
func TestDeployedCommandsAreUnderstood(t *testing.T) {
	known := map[string]bool{"CARILLON_CONFIG": true}
	table, _ := serveParser(t)
	for _, s := range table {
		known[s.env] = true
	}
	config := filepath.Join(t.TempDir(), "carillon.yaml")
	text := testkit.File(t, deployDir+"debian/carillon.yaml")
	// The part that it shows for a cluster is to be a configuration, too.
	shown := regexp.MustCompile(`(?m)^# ([a-z_]+: )`).ReplaceAllString(string(text), "$1")
	shown = strings.Replace(shown, "http: 127.0.0.1:7700\n", "", 1)
	for _, content := range []string{string(text), shown} {
		testkit.Must(t, os.WriteFile(config, []byte(content), 0o600))
		if _, err := readConfigFile(config, table); err != nil {
			t.Error(err)
		}
	}
	for name, args := range nodeCommands(t) {
		line := strings.NewReplacer("$(POD_NAME)", "carillon-0", "$(POD_NAMESPACE)", "timers", "/etc/carillon/carillon.yaml", config).Replace(strings.Join(args, " "))
		t.Run(name, func(t *testing.T) { serveParser(t, strings.Fields(line)[1:]...) })
	}
	for _, name := range []string{"docker/compose.yaml", "docker/Dockerfile", "kubernetes/carillon.yaml", "systemd/carillon.service"} {
		text := testkit.File(t, deployDir+name)
		for _, v := range regexp.MustCompile(`\bCARILLON_[A-Z_]+`).FindAllString(string(text), -1) {
			if !known[v] {
				t.Errorf("%s sets %s, which is no setting", name, v)
			}
		}
	}
}

// TestDeployedPortsAgree: a service leads to the ports that the nodes open, and files that found a
// cluster name as many nodes as there are.
func TestDeployedPortsAgree(t *testing.T) {
	set := statefulSet(t)
	ports := map[any]any{}
	for _, p := range at(t, set, "spec", "template", "spec", "containers", "0", "ports").([]any) {
		ports[at(t, p, "name")] = at(t, p, "containerPort")
	}
	dockerfile := testkit.File(t, deployDir+"docker/Dockerfile")
	image := map[string]string{} // its settings
	for _, m := range regexp.MustCompile(`(CARILLON_[A-Z]+)=(\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		image[m[1]] = m[2]
	}
	_, value := serveParser(t, strings.Fields(strings.ReplaceAll(strings.Join(nodeCommands(t)["kubernetes"][1:], " "), "$(POD_NAME)", "carillon-0"))...)
	for name, address := range map[string]string{"http": image["CARILLON_HTTP"], "peer": value("peer").(string), "gossip": value("gossip").(string), "gossip-udp": value("gossip").(string)} {
		opened, err := netip.ParseAddrPort(address)
		if err != nil || ports[name] != int(opened.Port()) {
			t.Errorf("port %s is %v, the node opens %s", name, ports[name], address)
		}
	}
	for _, doc := range documents(t, deployDir+"kubernetes/carillon.yaml") {
		if doc["kind"] != "Service" {
			continue
		}
		for _, p := range at(t, doc, "spec", "ports").([]any) {
			if ports[at(t, p, "targetPort")] != at(t, p, "port") {
				t.Errorf("%v: port %v leads nowhere", at(t, doc, "metadata", "name"), p)
			}
		}
	}
	if n := at(t, set, "spec", "replicas"); n != value("bootstrap-expect") || n != len(value("join").([]string)) {
		t.Errorf("%v replicas, --bootstrap-expect %v, --join %v", n, value("bootstrap-expect"), value("join"))
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		route := at(t, set, "spec", "template", "spec", "containers", "0", probe, "httpGet", "path")
		if want := map[string]string{"readinessProbe": "/readyz"}[probe]; route != want && (want != "" || route != "/healthz") {
			t.Errorf("%s asks for %v", probe, route)
		}
	}
}

// TestSupervisorsOfNodes: a program that stops a node waits longer than the 30 s that it gives to
// calls in flight. The unit starts a node again whatever ended it, but where that cannot help; a
// fault of the program must not look like a wrong flag then.
func TestSupervisorsOfNodes(t *testing.T) {
	unit := testkit.File(t, deployDir+"systemd/carillon.service")
	for _, line := range []string{"TimeoutStopSec=45\n", "Restart=always\n", "RestartPreventExitStatus=2 3\n", "Environment=GOTRACEBACK=crash\n", "LimitNOFILE=65536\n"} {
		if !strings.Contains(string(unit), "\n"+line) {
			t.Errorf("the unit has no %s", line)
		}
	}
	if v := at(t, documents(t, deployDir+"docker/compose.yaml")[0], "x-node", "stop_grace_period"); v != "45s" {
		t.Errorf("compose waits for %v", v)
	}
	if v := at(t, statefulSet(t), "spec", "template", "spec", "terminationGracePeriodSeconds"); v != 45 {
		t.Errorf("kubernetes waits for %v", v)
	}
}

// TestPackageIsConfigured: a first installation makes the user and gives it the settings. An
// upgrade changes nothing of that: the operator may have removed the file, or have given it other
// modes. A node that goes on with the old release is spoken of where one runs, and nowhere else: dpkg
// names a release, too, of a package that was removed and is installed again.
func TestPackageIsConfigured(t *testing.T) {
	dir := t.TempDir()
	running := filepath.Join(dir, "running")
	for _, name := range []string{"getent", "useradd", "chown", "chmod", "systemctl"} {
		stub := `#!/bin/sh
echo "$(basename $0) $*" >>"$(dirname $0)/called"
case "$(basename $0) $1" in "getent "*) exit 2 ;; "systemctl is-active") [ -e ` + running + ` ] ;; esac
` // no user is there
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(stub), 0o700))
	}
	for _, c := range []struct{ before, runs, changes, says string }{
		{"", "", "useradd chown chmod chmod", "edit /etc/carillon/carillon.yaml"},
		{"0.9.0", "", "useradd", "edit /etc/carillon/carillon.yaml"},
		{"0.9.0", "yes", "useradd", "goes on with 0.9.0 until"},
	} {
		if c.runs != "" {
			testkit.Must(t, os.WriteFile(running, nil, 0o600))
		}
		cmd := exec.Command("sh", deployDir+"debian/postinst", "configure", c.before)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), c.says) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("after %q: %v: %s", c.before, err, out)
		}
		called := testkit.File(t, filepath.Join(dir, "called"))
		var changes []string
		for line := range strings.Lines(string(called)) {
			if name, _, _ := strings.Cut(line, " "); name != "getent" && name != "systemctl" {
				changes = append(changes, name)
			}
		}
		if got := strings.Join(changes, " "); got != c.changes {
			t.Errorf("after %q: %s, want %s", c.before, got, c.changes)
		}
		_ = os.Remove(filepath.Join(dir, "called"))
	}
}
