package node

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// series are the names in an expression that are ours to export. What a histogram is made of has a suffix.
var series = regexp.MustCompile(`\b((?:carillon|process|go)_[a-z0-9_]+)(?:\{([^}]*)\})?`)

var matcher = regexp.MustCompile(`^([a-z]+)(?:=|!=)"([^"]*)"$`)

// TestAlerts: docs/alerts.yaml is a file of rules, and each rule asks for series that a node exports, by labels and values that they have.
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
	text, err := os.ReadFile("../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	n := start(t, t.TempDir())
	rec := newReceiver(t, nil)
	n.must(201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"a","delay":"0s","callback":{"url":%q}}`, rec.URL)) // there is a destination now
	n.eventually("orders", "a", "done")
	exported := "\n" + n.must(200, "GET", "/metrics", "")
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
			for _, m := range series.FindAllStringSubmatch(r.Expr, -1) {
				checkSeries(t, r.Alert, exported, m[1], m[2])
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no rules")
	}
}

func checkSeries(t *testing.T, alert, exported, name, labels string) {
	t.Helper()
	if !strings.Contains(exported, "\n"+name+" ") && !strings.Contains(exported, "\n"+name+"{") {
		t.Errorf("%s: there is no %s", alert, name)
	}
	for label := range strings.SplitSeq(labels, ",") {
		if label == "" || strings.HasPrefix(label, "job=") {
			continue // who scrapes adds the job
		}
		m := matcher.FindStringSubmatch(label)
		if m == nil || !regexp.MustCompile(`\n`+name+`\{[^}]*\b`+m[1]+`="`+m[2]+`"`).MatchString(exported) {
			t.Errorf("%s: there is no %s{%s}", alert, name, label)
		}
	}
}
