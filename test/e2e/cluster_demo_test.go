package e2e

import (
	"strings"
	"testing"
)

// TestDemo runs the demo: three nodes, one of which is killed.
func TestDemo(t *testing.T) {
	t.Parallel()
	needCluster(t)
	code, stdout, stderr := command(t, "demo", "--duration", "8s")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s\n%s", code, stderr, stdout)
	}
	_, table, _ := strings.Cut(stdout, "\n\n")
	t.Logf("\n%s", table)
	if !strings.Contains(table, "lost") || !strings.Contains(stdout, "kill -9 of n") {
		t.Errorf("it shows no kill, or no result:\n%s", stdout)
	}
}
