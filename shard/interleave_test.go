package shard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
	"carillon/test/memfs"
	"carillon/timer"
)

// scripts returns the number of random scripts a test runs: CARILLON_SCRIPTS, or a fifth of the
// usual number in short mode.
func scripts(t *testing.T, usual int) int {
	if n, err := strconv.Atoi(os.Getenv("CARILLON_SCRIPTS")); err == nil && n > 0 {
		return n
	}
	if testing.Short() {
		return usual / 5
	}
	return usual
}

// known is a script's record of one timer: its requests and their answers.
type known struct {
	shard     timer.ShardID
	topic     timer.TopicID
	id        string
	written   map[string]bool // every payload ever sent
	fired     bool            // a fire was sent: any due time is possible
	created   bool            // acknowledged
	prevented bool            // the cancel was acknowledged
	dropped   bool            // its topic was force-closed
	cancelled bool            // a cancel was sent
	// It was merged, or repeats: attempts restart, and it may continue after an end.
	renewed bool
	most    int // attempts
	starts  int
}

// script runs random operations against one host and checks the invariants I1–I6 and I17.
type script struct {
	*hostHarness
	rand    *rand.Rand
	timers  []*known
	byID    map[string]*known
	pending []*pendingOf
	sent    map[string]bool // the sequence number and attempt of each call made
	crashes int
	serial  bool // most topics are serial, and IDs have one of a few keys
}

type pendingOf struct {
	*pending
	of *known
}

func newScript(t *testing.T, seed uint64, serial bool) *script {
	s := &script{serial: serial, rand: rand.New(rand.NewPCG(seed, 99)), byID: map[string]*known{}, sent: map[string]bool{}}
	shards := 1 + s.rand.IntN(2)
	small := s.rand.IntN(2) == 0
	s.hostHarness = makeHarness(t, memfs.New(), func(c *Config) {
		c.Shards, c.Workers = shards, shards
		if small {
			smallLog(c)
		}
	})
	s.bubble = true
	for id := timer.TopicID(1); id <= 3; id++ {
		s.setTopic(id, false)
	}
	s.calls.onStart = s.watch
	s.mustOpen()
	return s
}

func (s *script) setTopic(id timer.TopicID, paused bool) {
	s.topic(id, func(p *timer.Topic) {
		p.Paused = paused
		p.Policy.Callback.URL = fmt.Sprintf("http://receiver-%d/", s.rand.IntN(3))
		p.Policy.MinBackoffMs, p.Policy.MaxBackoffMs, p.Policy.MaxAttempts = 50, 200, 3
		p.Policy.Serial = s.serial && (id == 1 || s.rand.IntN(4) > 0) // topic 1 always is
	})
}

// watch checks every call that starts.
func (s *script) watch(c *fakeCall) {
	s.harvest()
	k := s.byID[c.Job.ID]
	payload := string(c.Job.Payload)
	s.checkLine(c)
	switch {
	case k.prevented:
		s.t.Fatalf("I5: %s starts after its cancel was answered prevented", k.id)
	case !k.written[payload]:
		s.t.Fatalf("I2: %s is delivered with %q, which nobody wrote", k.id, payload)
	case !k.fired && !k.renewed && payload != k.payload(c.Job.DueMs):
		s.t.Fatalf("I6: %s is delivered with %q at due time %d", k.id, payload, c.Job.DueMs)
	case c.Job.Attempts > k.most:
		s.t.Fatalf("I17: %s makes attempt %d of %d", k.id, c.Job.Attempts, k.most)
	}
	if c.unsent {
		return
	}
	key := s.attemptOf(c)
	if s.sent[key] {
		s.t.Fatalf("I3: %s: attempt %d is made twice", k.id, c.Job.Attempts)
	}
	s.sent[key] = true
	k.starts++
}

// attemptOf identifies an attempt. A merge makes another timer with the same sequence number.
func (s *script) attemptOf(c *fakeCall) string {
	version := uint32(0)
	if s.byID[c.Job.ID].renewed {
		version = c.Job.Version
	}
	return fmt.Sprint(c.Shard, c.Job.Seq, " ", c.Job.Attempts, " ", version)
}

func (k *known) payload(dueMs int64) string { return fmt.Sprintf(`{"id":%q,"due":%d}`, k.id, dueMs) }

// spec makes a spec with its due time in the payload.
func (s *script) spec(k *known) *timer.Spec {
	due := s.clock.wallMs - 500 + s.rand.Int64N(2500)
	p := k.payload(due)
	k.written[p] = true
	spec := &timer.Spec{DueMs: due, Payload: []byte(p), PayloadKind: timer.JSONPayload, Priority: uint8(s.rand.IntN(3))}
	if s.rand.IntN(4) == 0 {
		spec.HasExpiry, spec.ExpiresAfterMs = true, s.rand.Int64N(2000)
	}
	if s.rand.IntN(3) == 0 {
		spec.Callback.URL = fmt.Sprintf("http://receiver-%d/", s.rand.IntN(3))
	}
	k.most = 3
	if s.rand.IntN(4) == 0 {
		spec.Retry.MaxAttempts, k.most = 1, max(k.most, 1)
	}
	return spec
}

func (s *script) send(k *known, cmd timer.Command) {
	cmd.Topic, cmd.ID = k.topic, k.id
	if p, err := s.submit(k.shard, cmd); err == nil {
		s.pending = append(s.pending, &pendingOf{p, k})
	}
}

// harvest collects the answers that have arrived.
func (s *script) harvest() {
	keep := s.pending[:0]
	for _, p := range s.pending {
		if !p.answered() {
			keep = append(keep, p)
			continue
		}
		if p.op.err != nil {
			continue
		}
		switch p.op.result.Code {
		case timer.Created:
			p.of.created = true
		case timer.Prevented:
			p.of.prevented = true
		}
	}
	s.pending = keep
}

func (s *script) any() *known {
	if len(s.timers) == 0 {
		return nil
	}
	return s.timers[max(0, len(s.timers)-1-s.rand.IntN(8))] // the latest timers are the most active
}

// act performs one random operation.
func (s *script) act() {
	k := s.any()
	n := s.rand.IntN(100)
	switch {
	case n < 16 || k == nil:
		k = &known{shard: timer.ShardID(1 + s.rand.IntN(len(s.host.all())-1)), topic: timer.TopicID(1 + s.rand.IntN(3)),
			id: fmt.Sprint("t", len(s.timers)), written: map[string]bool{}}
		if s.serial {
			k.id = fmt.Sprintf("{k%d}%s", s.rand.IntN(3), k.id)
		}
		s.timers = append(s.timers, k)
		s.byID[k.id] = k
		spec := s.spec(k)
		if s.rand.IntN(5) == 0 {
			k.renewed = true
			spec.Repeat = &timer.Repeat{EveryMs: 200 + s.rand.Int64N(500), Count: 1 + s.rand.Int64N(4), CatchUp: timer.CatchUp(s.rand.IntN(3)), Overlap: s.rand.IntN(2) == 0}
		}
		s.send(k, timer.Command{Kind: timer.Add, Spec: spec})
	case n < 21 && !k.cancelled: // after a cancel this would be another timer
		k.renewed = true
		s.send(k, timer.Command{Kind: timer.Add, Spec: s.spec(k), Content: s.rand.Uint64(), Merge: timer.Merge(1 + s.rand.IntN(3))})
	case n < 26:
		s.send(k, timer.Command{Kind: timer.Modify, Patch: &timer.Patch{Spec: *s.spec(k), Due: true, Payload: true}})
	case n < 36:
		k.cancelled = true
		s.send(k, timer.Command{Kind: timer.Cancel})
	case n < 40:
		k.fired = true
		s.send(k, timer.Command{Kind: timer.Fire})
	case n < 55:
		s.turn()
	case n < 70:
		s.step(time.Duration(1+s.rand.IntN(40)) * time.Millisecond)
	case n < 76:
		s.freeze = false
		s.pass(time.Duration(s.rand.IntN(300)) * time.Millisecond)
	case n < 86:
		s.endCall()
	case n < 97:
		s.disturb()
	default:
		s.crash()
	}
	s.harvest()
}

func (s *script) endCall() {
	if len(s.calls.running) == 0 {
		return
	}
	c := s.calls.running[s.rand.IntN(len(s.calls.running))]
	switch s.rand.IntN(6) {
	case 0:
		c.answer(410)
	case 1:
		delete(s.sent, s.attemptOf(c))
		s.byID[c.Job.ID].starts--
		c.end(delivery.Outcome{NotSent: true})
	case 2, 3:
		c.answer(200)
	default:
		c.answer(500)
	}
}

// disturb changes gates, topics, clocks or the disk's speed.
func (s *script) disturb() {
	to := s.calls.dest(fmt.Sprintf("http://receiver-%d/", s.rand.IntN(3)))
	switch s.rand.IntN(8) {
	case 0:
		to.slots = s.rand.IntN(3)
	case 1:
		to.retryIn = time.Duration(s.rand.IntN(2)*s.rand.IntN(500)) * time.Millisecond
	case 2, 3:
		s.setTopic(timer.TopicID(1+s.rand.IntN(3)), s.rand.IntN(2) == 0)
		s.host.TopicsChanged()
	case 4:
		s.clock.wallMs += s.rand.Int64N(4000) - 2000
	case 5:
		s.freeze = !s.freeze
	case 6:
		g := s.host.all()[1+s.rand.IntN(len(s.host.all())-1)]
		if g.w.snapshot == nil && g.applied > foundingIndex {
			g.w.beginSnapshot(g)
			synctest.Wait()
		}
	case 7:
		if s.rand.IntN(3) == 0 {
			s.closeTopic()
		}
	}
}

// closeTopic force-closes topic 3.
func (s *script) closeTopic() {
	for _, k := range s.timers {
		k.dropped = k.dropped || k.topic == 3
	}
	for id := 1; id < len(s.host.all()); id++ {
		if p, err := s.submit(timer.ShardID(id), timer.Command{Kind: timer.CloseTopic, Topic: 3, Force: true}); err == nil {
			s.pending = append(s.pending, &pendingOf{p, &known{}})
		}
	}
}

// crash ends the process by a kill, or by a power cut that keeps a random part of the unsynced
// data.
func (s *script) crash() {
	s.harvest()
	s.pending = nil
	s.crashes++
	s.abort()
	if s.rand.IntN(3) == 0 {
		s.fs.Kill()
	} else {
		keep := func() int { return 50 * s.rand.IntN(3) }
		s.fs = s.fs.CrashClone(s.rand, memfs.CrashOptions{KeepData: keep(), KeepSize: keep(), KeepNames: keep(),
			BlockBytes: 512 << (3 * s.rand.IntN(2)), Garbage: s.rand.IntN(2) == 0})
	}
	s.freeze = false
	s.step(time.Duration(s.rand.IntN(500)) * time.Millisecond)
	s.mustOpen()
	s.checkKept()
}

// checkKept checks I1: every acknowledged timer exists.
func (s *script) checkKept() {
	for _, k := range s.timers {
		v := shardOf(s.host.group(k.shard)).table.Read(k.topic, k.id)
		switch {
		case k.dropped || !k.created:
		case v == nil:
			s.t.Fatalf("I1: %s was acknowledged and is gone", k.id)
		case k.prevented && v.State != timer.Cancelled:
			s.t.Fatalf("I5: %s was cancelled, as acknowledged, and is in state %d", k.id, v.State)
		}
	}
}

// finish opens all gates and lets every timer end. Nothing may be left over.
func (s *script) finish() {
	s.freeze = false
	for _, d := range s.calls.dests {
		d.slots, d.retryIn = 0, 0
	}
	for id := timer.TopicID(1); id <= 3; id++ {
		s.setTopic(id, false)
	}
	for _, c := range append([]*fakeCall(nil), s.calls.running...) {
		c.answer(200)
	}
	s.calls.auto = 200
	s.topicsChanged()
	for _, d := range s.calls.dests { // grant the waiting slots
		for len(d.queue) > 0 {
			w := d.queue[0]
			d.queue = d.queue[1:]
			w.Granted(s.calls.permit(d, "granted at the end"))
		}
	}
	s.pass(8 * time.Second)
	s.harvest()
	if len(s.pending) > 0 {
		s.t.Fatalf("%d commands have no answer: the first is %+v", len(s.pending), s.pending[0].cmd)
	}
	s.checkKept()
	for _, k := range s.timers {
		v := shardOf(s.host.group(k.shard)).table.Read(k.topic, k.id)
		if v == nil {
			continue
		}
		if !v.State.Over() {
			s.t.Fatalf("I14: %s is still in state %d, due %d ms ago, next %d: %+v", k.id, v.State, s.clock.wallMs-v.DueMs, s.clock.wallMs-v.NextMs, v)
		}
		if !k.renewed && k.starts > v.Attempts {
			s.t.Fatalf("I17: %s was called %d times and counts %d attempts", k.id, k.starts, v.Attempts)
		}
	}
	s.audit()
	for _, g := range s.host.all()[1:] {
		for h, f := range shardOf(g).scheduler.View.Inspect().Leases {
			s.t.Fatalf("handle %d: a lease never ended: %+v", h, f)
		}
	}
	for _, w := range s.host.workers {
		if n := w.queued.Load(); n != 0 {
			s.t.Fatalf("%d operations are counted as waiting", n)
		}
	}
}

// TestI5Interleavings runs random scripts of changes, calls, gates, clocks and crashes.
func TestI5Interleavings(t *testing.T) { runScripts(t, false) }

func runScripts(t *testing.T, serial bool) {
	count, steps := scripts(t, 20), 200
	for seed := range uint64(count) {
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t, seed, serial)
				defer func() {
					s.abort()
					if t.Failed() {
						t.Logf("seed %d", seed)
					}
				}()
				for range steps {
					s.act()
				}
				s.finish()
			})
		})
		if !ok {
			t.Fatalf("seed %d: %s", seed, strings.TrimSpace("CARILLON_SCRIPTS sets how many are run"))
		}
	}
}
