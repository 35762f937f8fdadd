package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// printedCertificates runs the commands for certificates from docs/keys.md in a new
// directory.
func printedCertificates(t *testing.T) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl here")
	}
	text, err := os.ReadFile("../../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "**Certificates**")
	_, rest, ok := strings.Cut(rest, "```sh\n")
	if !ok {
		t.Fatal("docs/keys.md does not print how to make certificates")
	}
	script, _, _ := strings.Cut(rest, "```")
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestClusterWithCertificates: nodes form a cluster with certificates made by the documented
// commands. A node with another node's certificate, or under another node's name, exits with the
// reason.
func TestClusterWithCertificates(t *testing.T) {
	t.Parallel()
	needCluster(t)
	certs := printedCertificates(t)
	of := func(name string) []string {
		at := filepath.Join(certs, name)
		return []string{"--peer-cert", at + ".pem", "--peer-key", at + ".key", "--peer-ca", filepath.Join(certs, "ca.pem"), "--bootstrap-expect", "3"}
	}
	c := &cluster{members: loopbackMembers(t, 3)}
	for i, m := range c.members {
		m.name = []string{"n1", "n2", "n3"}[i]
	}
	for _, m := range c.members {
		c.start(t, m, append(of(m.name), "--shards", "16", "--replicas", "3")...)
	}
	c.awaitHealthy(t)
	last := c.members[2]
	last.process().stop(t)

	ends := func(why string, flags []string) {
		t.Helper()
		c.start(t, last, flags...)
		p := last.process()
		select {
		case <-p.exited:
		case <-time.After(readyLimit):
			t.Fatalf("it goes on, want an end with %q", why)
		}
		if p.code != 1 || !strings.Contains(p.stderr.String(), why) {
			t.Errorf("it ended with %d: %s; want %q", p.code, p.stderr.String(), why)
		}
	}
	ends("DNS:n3", of("n2"))
	last.name = "n2"
	ends("knows this node as n3", of("n2"))

	last.name = "n3"
	c.start(t, last, of("n3")...)
	c.awaitHealthy(t)
}
