package shard

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"carillon/test/memfs"
	"carillon/timer"
)

// mixedHarness is the only voter of shard 1, and has a replica of shard 2 beside two absent ones.
// So it keeps two frames in flight.
func mixedHarness(t *testing.T) *hostHarness {
	t.Helper()
	r := makeHarness(t, memfs.New(), func(cfg *Config) { cfg.Shards = 2 })
	row := Assignment{Group: 2, Epoch: 1, Settled: true}
	for node := uint64(7); node <= 9; node++ {
		row.Members = append(row.Members, Member{Node: node, Replica: ReplicaID(node, 1)})
	}
	r.rows = append(soleRows(2, 7), row)
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	r.pass(tickInterval)
	if !r.host.group(1).serving {
		t.Fatal("shard 1 does not serve")
	}
	return r
}

// pipelineAdd submits a timer to shard 1 and runs one turn, without a step of the log.
func pipelineAdd(r *hostHarness, n int) *pending {
	r.t.Helper()
	spec := &timer.Spec{DueMs: r.clock.wallMs + 3_600_000, Payload: []byte("1"), PayloadKind: timer.JSONPayload}
	p, err := r.submit(1, timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint("t", n), Spec: spec})
	if err != nil {
		r.t.Fatal(err)
	}
	r.turn()
	return p
}

// TestFramesOnTheirWay: where a host is the only voter, commands that arrive while a frame is being
// written are batched into one more. With other voters a second frame is in flight meanwhile.
func TestFramesOnTheirWay(t *testing.T) {
	for _, c := range []struct {
		alone bool
		want  int
	}{{true, maxFramesAlone}, {false, maxFrames}} {
		r := newHostHarness(t, nil)
		if !c.alone {
			r = mixedHarness(t)
		}
		r.pass(tickInterval)
		w := r.host.workers[0]
		if w.alone != c.alone {
			t.Fatalf("alone is %v, want %v", w.alone, c.alone)
		}
		frames := r.observer.frames
		r.freeze = true
		var sent []*pending
		for n := range 6 {
			sent = append(sent, pipelineAdd(r, n))
		}
		if got := len(w.out.inflight); got != c.want {
			t.Errorf("alone %v: %d frames on their way, want %d", c.alone, got, c.want)
		}
		for i, p := range sent {
			if p.answered() {
				t.Errorf("alone %v: add %d is answered and not on disk", c.alone, i)
			}
		}
		r.freeze = false
		r.runIdle()
		for i, p := range sent {
			if !p.answered() || p.op.err != nil || p.op.result.Code != timer.Created {
				t.Errorf("alone %v: add %d has no good answer", c.alone, i)
			}
		}
		if got := r.observer.frames - frames; got != c.want+1 {
			t.Errorf("alone %v: six adds took %d frames, want %d", c.alone, got, c.want+1)
		}
	}
}

// TestOtherVotersAreCompany: a host with peers is not the only voter, as a leader or as a follower.
func TestOtherVotersAreCompany(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	r.pass(tickInterval)
	if r.host.workers[0].alone {
		t.Error("a follower thinks that it is the only voter")
	}
	c.leads()
	r.pass(tickInterval)
	if r.host.workers[0].alone {
		t.Error("a leader with followers thinks that it is the only voter")
	}
}

// TestLateAnswersAlone is TestLateAnswers with only one frame in flight: the outcome of its
// commands stays unknown, and the rest is refused in time.
func TestLateAnswersAlone(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", time.Second)
	r.pass(970 * time.Millisecond)
	r.freeze = true
	r.step(15 * time.Millisecond)
	written := pipelineAdd(r, 1) // with the lease of a
	h, _ := r.table().Lookup(1, "a")
	if f := r.scheduler().View.Inspect().Leases[h]; !f.Pending {
		t.Fatalf("flight %+v", f)
	}
	behindLease := r.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "a"})
	r.pass(1400 * time.Millisecond)
	if behindLease.answered() || written.answered() {
		t.Error("answered too soon")
	}
	r.pass(200 * time.Millisecond)
	if !behindLease.answered() || !errors.Is(behindLease.op.err, timer.ErrOverloaded) {
		t.Errorf("what waits: %v", behindLease.op.err)
	}
	r.pass(commitGrace)
	if !written.answered() || !errors.Is(written.op.err, timer.ErrUnknown) {
		t.Errorf("what is proposed: %v", written.op.err)
	}
	r.freeze = false
	r.pass(time.Second)
	r.one().answer(200)
	r.runIdle()
	r.wantState("a", "done 1")
	r.wantState("t1", "scheduled 0") // its outcome was unknown: it did take effect
	r.audit()
}
