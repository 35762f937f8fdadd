package node

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"carillon/test/testkit"
)

// series are the names in an expression that are ours to export. The series of a histogram have a
// suffix.
var series = regexp.MustCompile(`\b((?:carillon|process|go)_[a-z0-9_]+)(?:\{([^}]*)\})?`)

var (
	matcher  = regexp.MustCompile(`^([a-z]+)(=|!=|=~|!~)"([^"]*)"$`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	query    = regexp.MustCompile(`\bquery "((?:\\.|[^"\\])*)"`) // in a summary
)

// TestAlerts: deploy/alerts.yaml is a file of rules, and each rule asks for series that a node
// exports, by labels and values that they have.
func TestAlerts(t *testing.T) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text := testkit.File(t, "../deploy/alerts.yaml")
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	dec.KnownFields(true)
	testkit.Must(t, dec.Decode(&file))
	certs := newCertificates(t, time.Now().Add(time.Hour))
	certs.issue("peer", time.Now().Add(time.Hour))
	n := start(t, t.TempDir(), certs.betweenNodes)
	rec := newReceiver(t, nil)
	// There is a destination now.
	n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"a","delay":"0s","callback":{"url":%q}}`, rec.URL))
	n.eventually("orders", "a", "done")
	exported := "\n" + n.must(200, "GET", "/metrics", "")
	// CarillonShardWithoutLeader counts on it.
	for _, line := range []string{"\ncarillon_raft_leaders 5\n", "\ncarillon_shards 4\n"} {
		if !strings.Contains(exported, line) {
			t.Errorf("a node alone does not export %q", line)
		}
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: is there twice, or has no name, severity or summary", r.Alert)
			}
			seen[r.Alert] = true
			for _, pair := range []string{"()", "[]", "{}"} {
				if strings.Count(r.Expr, pair[:1]) != strings.Count(r.Expr, pair[1:]) {
					t.Errorf("%s: %s do not pair", r.Alert, pair)
				}
			}
			checkExpr(t, r.Alert, exported, r.Expr)
			for _, m := range query.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				checkExpr(t, r.Alert, exported, strings.ReplaceAll(m[1], `\"`, `"`))
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no rules")
	}
	checkDashboard(t, exported)
}

// checkDashboard: each panel of the dashboard asks for series that a node exports.
func checkDashboard(t *testing.T, exported string) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID          int
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	text := testkit.File(t, "../deploy/grafana/carillon.json")
	testkit.Must(t, yaml.Unmarshal(text, &board))
	ids, asked := map[int]bool{}, 0
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("panel %d %q: its number is not its own, or it has no title, or asks for nothing", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			asked += checkExpr(t, "panel "+p.Title, exported, target.Expr)
		}
	}
	if asked < 20 {
		t.Errorf("the dashboard asks for %d series", asked)
	}
}

// checkExpr looks at each series that an expression asks for, and at the labels that it groups by.
func checkExpr(t *testing.T, where, exported, expr string) (asked int) {
	t.Helper()
	for _, m := range series.FindAllStringSubmatch(expr, -1) {
		asked++
		checkSeries(t, where, exported, m[1], m[2])
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			// The scraper adds the instance.
			if label != "instance" && !regexp.MustCompile(`[{,]`+label+`="`).MatchString(exported) {
				t.Errorf("%s: nothing has a label %s", where, label)
			}
		}
	}
	return asked
}

func checkSeries(t *testing.T, alert, exported, name, labels string) {
	t.Helper()
	if !strings.Contains(exported, "\n"+name+" ") && !strings.Contains(exported, "\n"+name+"{") {
		t.Errorf("%s: there is no %s", alert, name)
	}
	for label := range strings.SplitSeq(labels, ",") {
		if label == "" || strings.HasPrefix(label, "job=") {
			continue // the scraper adds the job
		}
		m := matcher.FindStringSubmatch(label)
		value := ""
		// The events that such a pattern matches may not have happened here.
		if m != nil && !strings.HasSuffix(m[2], "~") {
			value = m[3] + `"`
		}
		if m == nil || !regexp.MustCompile(`\n`+name+`\{[^}]*\b`+m[1]+`="`+value).MatchString(exported) {
			t.Errorf("%s: there is no %s{%s}", alert, name, label)
		}
	}
}
