package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLogOfStartAndStop: the log says which node started, and that it stopped.
func TestLogOfStartAndStop(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	n := start(t, dir, func(c *Config) {
		c.Name, c.Version, c.Logger = "n1", "7.8.9", slog.New(slog.NewTextHandler(&log, nil))
	})
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	for _, want := range []string{
		`msg="the node has started" version=7.8.9 name=n1 data=` + dir, " shards=4 timers_led=0 api_tls=off tokens=off peers_proven=off",
		`callbacks_go_to="public, private and loopback addresses`, "the node stops", "the node has stopped",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the log lacks %q, or has it twice:\n%s", want, text)
		}
	}
}
