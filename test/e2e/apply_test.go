package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApplyOnACluster: a file is in force on every node once apply has ended, whichever node it
// talked to; the second time there is nothing to do.
func TestApplyOnACluster(t *testing.T) {
	t.Parallel()
	c := found(t, loopbackMembers(t, 3))
	file := filepath.Join(t.TempDir(), "topics.yaml")
	apply := func(m *member, text, want string, flags ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, said := command(t, append([]string{"ctl", "--url", "http://" + m.http, "apply", "-f", file}, flags...)...)
		if code != 0 || out != want {
			t.Errorf("exit %d: %s%s, want\n%s", code, out, said, want)
		}
	}
	const text = "topics:\n  orders:\n    delivery: pull\n    retry: {max_attempts: 3}\n  old: {}\n"
	apply(c.all()[0], text, "create orders\ncreate old\n2 created, 0 changed, 0 left, 0 kept, 0 deleted\n")
	for _, m := range c.all() {
		poll(t, patience, m.name+" has them", func() bool {
			return m.client.do("GET", "/v1/topics/orders", "").status == 200 && m.client.do("GET", "/v1/topics/old", "").status == 200
		})
		apply(m, text, "leave orders\nleave old\n0 created, 0 changed, 2 left, 0 kept, 0 deleted\n")
	}
	less := strings.Replace(strings.Replace(text, "3", "5", 1), "  old: {}\n", "", 1)
	apply(c.all()[1], less, "change orders  retry.max_attempts 3 -> 5\ndelete old\n0 created, 1 changed, 0 left, 0 kept, 1 deleted\n", "--prune")
	for _, m := range c.all() {
		poll(t, patience, m.name+" has the change", func() bool {
			return strings.Contains(string(m.client.do("GET", "/v1/topics/orders", "").body), `"max_attempts":5`) && m.client.do("GET", "/v1/topics/old", "").status == 404
		})
	}
}
