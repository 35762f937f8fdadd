package main

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
)

// samples has three values of each setting, none of them its default. A setting without samples
// fails the test.
var samples = map[string][3]string{
	"data":               {"from-file", "from-env", "from-flag"},
	"http":               {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"http-host":          {"a.example", "b.example", "c.example,d.example:443"},
	"cors-origin":        {"https://a.example", "https://b.example", "https://c.example,http://localhost:3000"},
	"peer":               {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"gossip":             {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"advertise":          {"from-file", "from-env", "from-flag"},
	"name":               {"from-file", "from-env", "from-flag"},
	"zone":               {"from-file", "from-env", "from-flag"},
	"join":               {"n1:7702,n2:7702", "n2:7702", "n3:7702,n4:7702"},
	"bootstrap-expect":   {"3", "5", "7"},
	"replicas":           {"1", "2", "5"},
	"shards":             {"1", "2", "3"},
	"max-calls":          {"100", "200", "300"},
	"history-bytes":      {"100000000", "200000000", "300000000"},
	"auto-create-topics": {"false", "false", "false"},
	"topic-idle":         {"1d", "2w", "1w2d"},
	"memory-limit":       {"300MiB", "400MiB", "8GiB"},
	"console":            {"false", "false", "false"},
	"max-connections":    {"100", "200", "300"},
	"feature-level":      {"3", "2", "1"},
	"gossip-key":         {"from-file", "from-env", "from-flag"},
	"secrets-key":        {"from-file", "from-env", "from-flag"},
	"peer-cert":          {"from-file", "from-env", "from-flag"},
	"peer-key":           {"from-file", "from-env", "from-flag"},
	"peer-ca":            {"from-file", "from-env", "from-flag"},
	"auth-file":          {"from-file", "from-env", "from-flag"},
	"http-cert":          {"from-file", "from-env", "from-flag"},
	"http-key":           {"from-file", "from-env", "from-flag"},
	"http-client-ca":     {"from-file", "from-env", "from-flag"},
	"insecure-no-auth":   {"true", "true", "true"},
	"audit-log":          {"from-file", "from-env", "off"},
	"callback-allow":     {"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16,10.4.0.0/16"},
	"admin":              {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"backup-to":          {"s3://a/file", "s3://a/env", "s3://a/flag"},
	"backup-every":       {"1 * * * *", "2 * * * *", "3 * * * *"},
	"backup-keep":        {"1", "2", "3"},
	"otlp-endpoint":      {"http://file:4318", "http://env:4318", "http://flag:4318"},
	"trace-sample":       {"0.1", "0.2", "0"},
	"test-clock":         {"2026-01-01T00:00:00Z", "2027-01-01T00:00:00+01:00", "2028-01-01T00:00:00.5Z"},
	"log-level":          {"debug", "warn", "error"},
	"log-format":         {"json", "json", "json"},
}

func parserFor(t *testing.T, args ...string) (table []setting, value func(flag string) any) {
	t.Helper()
	return parserOf(t, new(cli), args...)
}

// parserOf is parserFor for a part of the grammar: all of it takes long to build.
func parserOf(t *testing.T, grammar any, args ...string) (table []setting, value func(flag string) any) {
	t.Helper()
	parser, err := newParser(grammar, &terminal.Terminal{Out: new(bytes.Buffer), Err: new(bytes.Buffer)})
	testkit.Must(t, err)
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		t.Fatalf("serve %v: %v", args, err)
	}
	return settings(parser.Model), func(name string) any {
		for _, flag := range serveFlags(parser.Model) {
			if flag.Name == name {
				return flag.Target.Interface()
			}
		}
		t.Fatalf("no flag --%s", name)
		return nil
	}
}

// Every setting is a flag, a variable and a key, and they go before each other in this order.
func TestFlagBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	table, _ := parserFor(t)
	parsed := func(t *testing.T, args ...string) func(flag string) any {
		_, value := parserOf(t, new(struct {
			Serve serveCmd `cmd:""`
		}), args...)
		return value
	}
	byDefault := parsed(t)
	var want [3]func(flag string) any
	for i := range want {
		var args []string
		for flag, sample := range samples {
			args = append(args, "--"+flag+"="+sample[i])
		}
		want[i] = parsed(t, args...)
	}
	for _, s := range table {
		t.Run(s.flag, func(t *testing.T) {
			sample, ok := samples[s.flag]
			if !ok {
				t.Fatalf("--%s has no samples in this test", s.flag)
			}
			path := filepath.Join(t.TempDir(), "carillon.yaml")
			testkit.Must(t, os.WriteFile(path, fmt.Appendf(nil, "%s: %s\n", s.key, sample[0]), 0o600))
			file := "--config=" + path
			check := func(what string, sample int, args ...string) {
				t.Helper()
				if got, want := parsed(t, args...)(s.flag), want[sample](s.flag); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %v, want %v", what, got, want)
				}
			}
			if reflect.DeepEqual(byDefault(s.flag), want[0](s.flag)) {
				t.Fatal("the sample is the default")
			}
			check("file", 0, file)
			t.Setenv(s.env, sample[1])
			check("environment over file", 1, file)
			check("environment", 1)
			check("flag over both", 2, file, "--"+s.flag+"="+sample[2])
		})
	}
}

// A value of the file that is not used is named, unless the one that is used is the same.
func TestValuesOfTheFileThatAreNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.yaml")
	text := "data: /srv/timers\nhttp: 127.0.0.1:1\nname: n1\ncallback_allow: [10.0.0.0/8]\nshards: 8\nconsole: false\n"
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	t.Setenv("CARILLON_HTTP", "127.0.0.1:2")
	t.Setenv("CARILLON_NAME", "n1")
	t.Setenv("CARILLON_CONSOLE", "no")
	t.Setenv("CARILLON_ZONE", "a")
	var grammar struct {
		Serve serveCmd `cmd:""`
	}
	parserOf(t, &grammar, "--config="+path, "--data=/var/lib/carillon", "--callback-allow=10.0.0.0/8")
	want := []unusedKey{{"data", "--data"}, {"http", "CARILLON_HTTP"}}
	if got := grammar.Serve.unused; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// ~ is the home directory in serve --data, as in restore --data.
func TestDataInTheHomeDirectory(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	for given, want := range map[string]string{"~/timers": filepath.Join(me.HomeDir, "timers"), "timers/~": "timers/~", "./timers": "./timers"} {
		if _, value := parserFor(t, "--data="+given); value("data") != want {
			t.Errorf("%s: got %v, want %s", given, value("data"), want)
		}
	}
}

// TestFilesAreWholePaths: a relative one is of the working directory, also in a configuration file
// elsewhere, and an error shows which that is. None stays none.
func TestFilesAreWholePaths(t *testing.T) {
	here, err := os.Getwd()
	testkit.Must(t, err)
	config := filepath.Join(t.TempDir(), "carillon.yaml")
	testkit.Must(t, os.WriteFile(config, []byte("auth_file: tokens.yaml\n"), 0o600))
	_, value := parserFor(t, "--config="+config, "--http-cert=", "--secrets-key=/etc/secrets.key")
	for flag, want := range map[string]string{"auth-file": filepath.Join(here, "tokens.yaml"), "http-cert": "", "peer-ca": "", "secrets-key": "/etc/secrets.key"} {
		if value(flag) != want {
			t.Errorf("%s: got %v, want %s", flag, value(flag), want)
		}
	}
	if got := carillon(t, "", nil, "serve", "--config", config, "--data", t.TempDir()); got.code != exitUsage || !strings.Contains(got.err, "open /") {
		t.Errorf("%+v", got)
	}
}

// An empty variable is none, whatever the setting: the file's value counts, or else the default. So
// are those of ctl.
func TestEmptyVariableIsNone(t *testing.T) {
	table, _ := parserFor(t)
	var lines strings.Builder
	for _, s := range table {
		fmt.Fprintf(&lines, "%s: %s\n", s.key, samples[s.flag][0])
	}
	path := filepath.Join(t.TempDir(), "carillon.yaml")
	testkit.Must(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	_, byDefault := parserFor(t)
	_, fromFile := parserFor(t, "--config="+path)
	for _, s := range table {
		t.Setenv(s.env, "\n")
	}
	t.Setenv("CARILLON_CONFIG", "")
	t.Setenv("CARILLON_TOKEN", "")
	trimEnvironment()
	_, plain := parserFor(t)
	_, configured := parserFor(t, "--config="+path)
	for _, s := range table {
		if got, want := plain(s.flag), byDefault(s.flag); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is empty: got %v, want %v", s.env, got, want)
		}
		if got, want := configured(s.flag), fromFile(s.flag); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is empty: got %v, want the file's %v", s.env, got, want)
		}
	}
	if _, set := os.LookupEnv("CARILLON_TOKEN"); set {
		t.Error("CARILLON_TOKEN is empty, and stayed")
	}
}

// The boolean's samples cannot differ, so its order has a test of its own.
func TestEnvironmentTurnsOffWhatTheFileTurnsOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.yaml")
	testkit.Must(t, os.WriteFile(path, []byte("insecure_no_auth: true\n"), 0o600))
	t.Setenv("CARILLON_INSECURE_NO_AUTH", "false")
	t.Setenv("CARILLON_CONFIG", path)
	if _, value := parserFor(t); value("insecure-no-auth") != false {
		t.Error("the file went before the environment")
	}
}

const (
	tableStart = "<!-- settings: start -->\n"
	tableEnd   = "<!-- settings: end -->\n"
)

// docs/operations.md lists the settings as they are. UPDATE_DOCS=1 writes it.
func TestOperationsListsEverySetting(t *testing.T) {
	table, _ := parserFor(t)
	var want strings.Builder
	want.WriteString("| flag | meaning (default) |\n|---|---|\n")
	for _, s := range table {
		fmt.Fprintf(&want, "| `--%s` | %s |\n", s.flag, s.meaning)
		key := strings.ReplaceAll(s.flag, "-", "_") // as the page says above the table
		if s.key != key || s.env != "CARILLON_"+strings.ToUpper(key) {
			t.Errorf("--%s is %s in the environment and %s in the file", s.flag, s.env, s.key)
		}
	}
	path := filepath.Join("..", "..", "docs", "operations.md")
	text := testkit.File(t, path)
	before, rest, ok := strings.Cut(string(text), tableStart)
	got, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no settings table between its marks", path)
	}
	if got == want.String() {
		return
	}
	if os.Getenv("UPDATE_DOCS") == "" {
		t.Fatalf("%s is behind the settings (UPDATE_DOCS=1 go test ./cmd/carillon writes it); it should say:\n%s", path, want.String())
	}
	testkit.Must(t, os.WriteFile(path, []byte(before+tableStart+want.String()+tableEnd+after), 0o644))
}
