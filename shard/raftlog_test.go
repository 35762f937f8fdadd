package shard

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
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

// TestWhoIsNoVoterYetIsNoWarning: a replica that is asked to stand before it knows that it is a voter
// is nothing for operators.
func TestWhoIsNoVoterYetIsNoWarning(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
		var out bytes.Buffer
		l := raftLogger{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})), &Host{}}
		node, err := raft.NewRawNode(&raft.Config{ID: 7, ElectionTick: 10, HeartbeatTick: 1, Storage: raft.NewMemoryStorage(), MaxSizePerMsg: 1, MaxInflightMsgs: 1, Logger: l})
		if err != nil {
			t.Fatal(err)
		}
		_ = node.Campaign()
		if text := out.String(); strings.Contains(text, "WARN") || strings.Contains(text, "unpromotable") != (level == slog.LevelDebug) {
			t.Errorf("at level %v: %q", level, text)
		}
	}
}

// TestLostMajorityIsLoggedOnce: a node that hears from no other one loses all its leaderships, with
// one warning a minute.
func TestLostMajorityIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r, c := withFakePeers(t, false, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	for minute := range 2 {
		c.mute = false
		r.pass(lostEvery)
		c.leads()
		r.pass(5 * time.Second)
		for _, g := range r.host.all() {
			if !g.leader {
				t.Fatalf("minute %d: group %d is not led here", minute, g.shard)
			}
		}
		c.mute = true
		r.pass(5 * time.Second)
		for _, g := range r.host.all() {
			if g.leader {
				t.Fatalf("minute %d: group %d is still led", minute, g.shard)
			}
		}
		if n := strings.Count(out.String(), "level=WARN"); n != minute+1 {
			t.Errorf("%d warnings after %d losses:\n%s", n, minute+1, out.String())
		}
	}
	r.abort()
}
