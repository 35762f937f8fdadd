package shard

import (
	"errors"
	"iter"
	"slices"
	"testing"
)

// TestVetEndsTheStart: before a host starts on a log, Vet sees the meta group's commands that are
// not known to be committed. An error from Vet ends the start and unlocks the log.
func TestVetEndsTheStart(t *testing.T) {
	var saw []string
	var no error
	r := newHostHarness(t, func(c *Config) {
		c.Vet = func(tail iter.Seq[[]byte]) error {
			saw = nil
			for cmd := range tail {
				saw = append(saw, string(cmd))
			}
			return no
		}
	})
	r.metaOp("x")
	r.metaOp("y")
	r.kill()
	no = errors.New("no")
	if err := r.open(); !errors.Is(err, no) {
		t.Fatalf("%v", err)
	}
	if len(r.machine.lines) != 1 || !slices.Equal(saw, []string{"y"}) {
		t.Errorf("applied %q, and saw %q in the tail", r.machine.lines, saw)
	}
	r.kill()
	no = nil
	r.mustOpen()
	r.pass(tickInterval)
	if len(r.machine.lines) != 2 {
		t.Errorf("%q", r.machine.lines)
	}
}
