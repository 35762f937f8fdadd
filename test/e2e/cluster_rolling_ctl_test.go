package e2e

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestClusterRollingRestartByCtl: carillon ctl rolling-restart asks for the restart of one node
// after the other, and waits until each is back before it names the next.
func TestClusterRollingRestartByCtl(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	var urls []string
	byName := map[string]*member{}
	for _, m := range c.all() {
		urls = append(urls, "http://"+m.http)
		byName[m.name] = m
	}
	command := exec.Command(binary, "ctl", "rolling-restart", "--url", strings.Join(urls, ","), "--wait", "2m")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	var restarted []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
		name, asked := strings.CutSuffix(strings.TrimPrefix(lines.Text(), "restart "), " now")
		if !asked {
			continue
		}
		// One node has seen this; on a slow machine another may see it a moment later.
		c.awaitHealthy(t)
		restarted = append(restarted, name)
		byName[name].process().stop(t)
		c.start(t, byName[name])
	}
	_, _ = io.Copy(io.Discard, out)
	if err := command.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
	if got := strings.Join(restarted, " "); got != "na nb nc" {
		t.Errorf("restarted: %s", got)
	}
	for _, m := range c.all() { // it has said so of every node
		if v, err := m.view(); err != nil || v.ails(c.all()) != "" {
			t.Errorf("%s sees: %s, %v", m.name, v.ails(c.all()), err)
		}
	}
}
