package shard

import (
	"fmt"
	"testing"
	"time"

	"carillon/shard/table"
)

func TestOwner(t *testing.T) {
	a, b := table.NewIncarnation(7, 1), table.NewIncarnation(7, 2)
	if a == b || a.Node() != 7 || b.Node() != 7 || b.Start() != 2 || table.NewIncarnation(8, 1).Node() != 8 {
		t.Error("owners of nodes 7 and 8")
	}
}

// TestNotReady: a host is ready if every shard has fired its canary recently.
func TestNotReady(t *testing.T) {
	r := newHostHarness(t, func(c *Config) { c.Shards = 2 })
	r.pass(time.Second)
	if err := r.host.NotReady(); err != nil {
		t.Errorf("after a second: %v", err)
	}
	r.pass(time.Minute)
	if err := r.host.NotReady(); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	r.freeze = true
	r.pass(canaryLate + canaryEach)
	late, ok := r.host.NotReady().(*CanaryError)
	if !ok || late.Shard != 1 || late.Late < canaryLate || late.Error() != fmt.Sprintf("shard 1 fired its canary timer %s ago", late.Late.Round(time.Second)) {
		t.Errorf("while the disk hangs: %v", r.host.NotReady())
	}
	r.freeze = false
	r.pass(canaryEach + time.Second)
	if err := r.host.NotReady(); err != nil {
		t.Errorf("after it: %v", err)
	}
	if n := len(r.observer.latenessMs); n != 0 {
		t.Errorf("%d canaries count as timers", n)
	}
}
