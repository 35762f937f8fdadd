package carillon_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestReleaseRefusesAtOnce: what cannot be released is refused by its name before anything is built;
// with a version and a path that can be, the script goes on to look for its tools.
func TestReleaseRefusesAtOnce(t *testing.T) {
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("SKIPPED: no commit is checked out")
	}
	const goesOn = "CYCLONEDX does not name a program"
	for setting, want := range map[string]string{
		"": goesOn, "RELEASE=v1.0.0-rc.1": goesOn, "MODULE=carillon.dev": goesOn, "MODULE=code.example.org/Team/Carillon": goesOn,
		"RELEASE=v0.0.99": "no section [0.0.99]", "RELEASE=v1.0.0-rc.10": "no section [1.0.0-rc.10]", "RELEASE=1.0.0": "not '1.0.0'", "RELEASE=v2.0.0": "from 2 on",
		"MODULE=carillon": "MODULE=carillon cannot be", "MODULE=carillon/timers": "begins with a host's name", "MODULE=example.com/carillon/v2": "ends in a version",
	} {
		cmd := exec.Command("scripts/release.sh")
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); name != "RELEASE" && name != "MODULE" && name != "CYCLONEDX" {
				cmd.Env = append(cmd.Env, variable)
			}
		}
		cmd.Env = append(cmd.Env, setting)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, and %q lacks %q", setting, err, out, want)
		}
		if want != goesOn && strings.Contains(string(out), goesOn) {
			t.Errorf("%q: went on: %s", setting, out)
		}
	}
}
