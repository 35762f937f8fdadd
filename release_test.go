package carillon_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReleaseRefusesAtOnce: what cannot be released is refused by its name before anything is
// built; with a version and a path that can be, the script then looks for its tools.
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

// TestTextsHoldAtARelease: what a release carries does not say that there is none.
func TestTextsHoldAtARelease(t *testing.T) {
	before := regexp.MustCompile(`(?i)not on (npm|pypi)|no proxy has|(nothing|not) (has been |is )?published|no release yet`)
	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/upgrades.md", "client/README.md", "client/doc.go", "clients/python/README.md", "clients/typescript/README.md", "deploy/helm/carillon/README.md"} {
		if words := before.FindString(strings.Join(strings.Fields(read(t, page)), " ")); words != "" {
			t.Errorf("%s says %q", page, words)
		}
	}
}

// TestClusterPageGrowsItsShards: the number of shards that docs/cluster.md grows to is a doubling
// of those that its examples found a cluster with.
func TestClusterPageGrowsItsShards(t *testing.T) {
	page := read(t, "docs/cluster.md")
	founded := regexp.MustCompile(`--shards (\d+)`).FindAllStringSubmatch(page, -1)
	grown := regexp.MustCompile(`ctl shards (\d+)`).FindAllStringSubmatch(page, -1)
	if len(founded) < 2 || len(grown) < 2 {
		t.Fatalf("found with %v, grown to %v", founded, grown)
	}
	for _, f := range founded {
		for _, g := range grown {
			from, _ := strconv.Atoi(f[1])
			to, _ := strconv.Atoi(g[1])
			if to <= from || to%from != 0 || to/from&(to/from-1) != 0 {
				t.Errorf("%d shards do not grow to %d", from, to)
			}
		}
	}
}

// TestRunsHaveCommands: each row of docs/test-runs.md names the command that repeats it.
func TestRunsHaveCommands(t *testing.T) {
	row, rows := regexp.MustCompile(`^\| \d+ \| .*`), 0
	for line := range strings.Lines(read(t, "docs/test-runs.md")) {
		if !row.MatchString(line) {
			continue
		}
		rows++
		if !regexp.MustCompile("`[^`]*\\b(make (chaos|soak|mutants)\\b|scripts/|Test[A-Z]\\w*|SEEDS=)[^`]*`").MatchString(line) {
			t.Errorf("no command: %s", line)
		}
	}
	if rows < 10 {
		t.Errorf("found %d rows", rows)
	}
}

// TestSizingHasTheMeasuredFigures: what docs/sizing.md reckons with is in docs/benchmarks.md.
func TestSizingHasTheMeasuredFigures(t *testing.T) {
	measured := read(t, "docs/benchmarks.md")
	for row, count := range map[string]int{"a restart, until ready": 1, "processor time of an add": 2} {
		_, line, _ := strings.Cut(read(t, "docs/sizing.md"), "| "+row+" |")
		line, _, _ = strings.Cut(line, "\n")
		figures := regexp.MustCompile(`[\d.–]+ (s|µs)\b`).FindAllString(line, -1)
		if len(figures) != count {
			t.Errorf("%s: %q", row, figures)
		}
		for _, figure := range figures {
			for number := range strings.SplitSeq(strings.TrimRight(figure, "µs "), "–") {
				if unit := figure[strings.Index(figure, " "):]; !strings.Contains(measured, " "+number+unit) {
					t.Errorf("%s: %s%s is not in docs/benchmarks.md", row, number, unit)
				}
			}
		}
	}
}

// TestReadmeHasTheMeasuredFigures: the table of the README has no figure that the pages of
// measurements, which it links to, do not have.
func TestReadmeHasTheMeasuredFigures(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "README.md"), "## How fast")
	table, _, _ = strings.Cut(table, "\n## ")
	number := regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	measured := map[string]bool{}
	for _, figure := range number.FindAllString(read(t, "docs/benchmarks.md")+read(t, "docs/lateness.md"), -1) {
		measured[strings.TrimRight(figure, ",")] = true
	}
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		for _, figure := range number.FindAllString(line, -1) {
			if figure = strings.TrimRight(figure, ","); !measured[figure] {
				t.Errorf("%s is not measured: %s", figure, line)
			}
		}
	}
	if rows < 8 {
		t.Errorf("%d rows", rows)
	}
}
