package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigFileIsStrict(t *testing.T) {
	known, _ := parserFor(t)
	tests := []struct {
		name, text string
		want       []string // each in the error; "" is no error
	}{
		{"empty", "", nil},
		{"comments only", "# nothing\n", nil},
		{"null", "~\n", nil},
		{"plain", "shards: 4\ncallback_allow: [10.0.0.0/8, 192.168.0.0/16]\n", nil},
		{"unknown key", "shards: 4\nshrads: 4\n", []string{`f.yaml:2: unknown key "shrads"`, "known keys: data, http"}},
		{"flag spelling", "log-level: info\n", []string{`f.yaml:1: unknown key "log-level", did you mean log_level?`}},
		{"case", "Shards: 4\n", []string{`unknown key "Shards", did you mean shards?`}},
		{"config in config", "config: other.yaml\n", []string{`unknown key "config"`}},
		{"merge key", "<<: {shards: 4}\n", []string{`unknown key "<<"`}},
		{"twice", "shards: 4\nname: a\nshards: 5\n", []string{`f.yaml:3: key "shards" is already on line 1`}},
		{"wrong type", "\nshards: many\n", []string{"f.yaml:2: shards: expected"}},
		{"not of the list", "log_level: loud\n", []string{"f.yaml:1: log_level: must be one of"}},
		{"a map for a value", "admin: {a: b}\n", []string{"f.yaml:1: admin: expected a plain value"}},
		{"an alias", "name: &n a\ndata: *n\n", []string{"f.yaml:2: data: expected a plain value"}},
		{"no value", "name:\n", []string{"f.yaml:1: name: no value"}},
		{"bad network in a list", "callback_allow:\n- 10.0.0.0/8\n- here\n", []string{`f.yaml:2: callback_allow: "here" is not a network, such as 10.0.0.0/8`}},
		{"a list as on the command line, with spaces", "callback_allow: 10.0.0.0/8, 192.168.0.0/16\n", nil},
		{"list", "- shards\n", []string{"f.yaml:1: expected lines of key: value"}},
		{"syntax", "shards: [\n", []string{"f.yaml: yaml:"}},
		{"second document", "shards: 4\n---\nshards: 5\n", []string{"second document"}},
		{"all faults at once", "a: 1\nshards: x\n", []string{`unknown key "a"`, "f.yaml:2: shards"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readConfigFile(path, known)
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("got error %v, want %q", err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}
