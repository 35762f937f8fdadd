package shard

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestRaftLogNamesNodes: raft's log lines name nodes, not replica IDs.
func TestRaftLogNamesNodes(t *testing.T) {
	var out bytes.Buffer
	h := &Host{cfg: Config{NodeName: func(node uint64) string {
		if node == 0xafd909a35 {
			return "n2"
		}
		return ""
	}}}
	l := raftLogger{slog.New(slog.NewTextHandler(&out, nil)), h}
	l.Warningf("%x stepped down at term %d, after %x", uint64(0xafd909a35000001), 1234567, uint64(0xbbbbbbbbb000002))
	if text := out.String(); !strings.Contains(text, `"n2 stepped down at term 1234567, after bbbbbbbbb000002"`) {
		t.Error(text)
	}
	if got := fmt.Sprint(h.nodeName(0xafd909a35), " ", h.nodeName(7), " ", (&Host{}).nodeName(7)); got != "n2 0000000007 0000000007" {
		t.Error(got)
	}
}
