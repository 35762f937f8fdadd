//go:build !race

package ring

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"carillon/test/testkit/growth"
	"carillon/timer"
)

// TestPlanOfManyNodes: a plan is made every second on one node, on the goroutine of its controller.
func TestPlanOfManyNodes(t *testing.T) {
	growth.Check(t, growth.Dimension{Name: "nodes", N: 12, Longest: func(t testing.TB, n int) time.Duration {
		s := NewState(nil, nil)
		c := FoundCommand("c", 128, 3, nodes(n))
		s.Apply(0, c.Encode())
		f := Observations{NowMs: time.Hour.Milliseconds(), Nodes: map[uint64]NodeFacts{}}
		for _, node := range s.Nodes() {
			f.Nodes[node.ID] = NodeFacts{Alive: true}
		}
		return growth.LongestStep(t, func() bool {
			if len(plan(s.View(), f)) != 0 {
				t.Fatal("not at rest")
			}
			return false
		}, func() {})
	}})
}

// processorTime is that of a call, without garbage: the clock would count other work of the machine,
// too.
func processorTime(t *testing.T, do func()) time.Duration {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := growth.ThreadTime(t)
	do()
	return growth.ThreadTime(t) - begin
}

// TestSnapshotInSlices: a snapshot of 100,000 topics is cut and written in slices, each of which
// takes a small part of the time that the whole takes, shows the state as it was when it was cut,
// and is read without the state that it replaces.
func TestSnapshotInSlices(t *testing.T) {
	topics := timer.MaxTopics
	if testing.Short() {
		topics /= 5
	}
	s := manyTopics(t, topics)
	want := s.Hash()
	var took []time.Duration
	var saving timer.Saving
	begun := processorTime(t, func() { saving = s.BeginSave() })
	var pieces int
	var sum time.Duration
	var all bytes.Buffer
	for done := false; !done; pieces++ {
		var b []byte
		took = append(took, processorTime(t, func() { b, done = saving.Next(nil, 256<<10) }))
		sum += took[pieces]
		all.Write(b)
		if pieces%10 == 0 {
			name := fmt.Sprintf("topic-%06d", pieces*97)
			pause := Command{Verb: Pause, Name: name}
			s.applied(2, pause.Encode())
		}
	}
	slices.Sort(took)
	usual := took[pieces*3/4] // the rest has to do with caches that other work of the machine uses
	t.Logf("%d bytes in %d slices of %s, the longest %s, all of them %s", all.Len(), pieces, usual, took[pieces-1], sum)
	if pieces < topics/1000 || usual > sum/(time.Duration(topics)/1000) || begun > sum/10 {
		t.Errorf("begun in %s, then %d slices of %s: the whole takes %s", begun, pieces, usual, sum)
	}
	if !saving.Sound() || saving.Hash() != want {
		t.Error("what was written is not the state as it was")
	}
	other := NewState(nil, nil)
	state, hash, err := other.Read(io.Reader(&all))
	if err != nil || hash != want {
		t.Fatalf("hash %016x, want %016x: %v", hash, want, err)
	}
	if took := processorTime(t, func() { other.Replace(state) }); took > sum/10 {
		t.Errorf("to replace the state takes %s, to write it %s", took, sum)
	}
	if other.Hash() != want || other.Audit() != nil {
		t.Errorf("the state that was read: hash %016x, want %016x, %v", other.Hash(), want, other.Audit())
	}
}

// TestHashTakesTheSameTime: the hash of 100,000 topics takes no longer than that of ten.
func TestHashTakesTheSameTime(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	few, many := manyTopics(t, 10), manyTopics(t, timer.MaxTopics)
	took := func(s *State) time.Duration {
		return processorTime(t, func() {
			for range 1000 {
				s.Hash()
			}
		})
	}
	a, b := took(few), took(many)
	t.Logf("1000 hashes: %s of 10 topics, %s of %d", a, b, timer.MaxTopics)
	if b > 5*a+20*time.Millisecond {
		t.Errorf("1000 hashes take %s of 10 topics, %s of %d", a, b, timer.MaxTopics)
	}
}

// TestLimitsOfManyTopics: schedulers wait for the lock under which the limits are kept. A change of
// one of 100,000 topics costs no walk over the others.
func TestLimitsOfManyTopics(t *testing.T) {
	s := manyTopics(t, timer.MaxTopics)
	p := timer.DefaultPolicy()
	change := func(name string) time.Duration {
		return processorTime(t, func() {
			s.Topics.apply(1, &Command{Verb: Put, Name: name, Policy: &p})
			s.Limited()
		})
	}
	var took []time.Duration
	for i := range 21 {
		p.Concurrency = i / 11
		took = append(took, change(fmt.Sprintf("topic-%06d", i*97)))
	}
	slices.Sort(took)
	if took[10] > 2*time.Millisecond {
		t.Errorf("a change and the limits after it take %s, in the middle of %d", took[10], len(took))
	}
	if n := len(s.Limited()); n != 10 {
		t.Errorf("%d limits, want 10", n)
	}
}
