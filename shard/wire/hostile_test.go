package wire

import (
	"bytes"
	"math"
	"runtime"
	"testing"

	"carillon/timer"
)

// TestWireMemory: lengths and counts in a message allocate no more memory than its size justifies.
func TestWireMemory(t *testing.T) {
	smallest := func(n int, op ...byte) []byte {
		b := []byte{version, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n >> 14)}
		return append(b, bytes.Repeat(op, n)...)
	}
	const commandWithSpec, commandWithPatch = 1 << 3, 1 << 4 // of docs/formats/commands.md
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	cases := map[string][]byte{
		"count of ops":     append([]byte{version}, huge...),
		"smallest cancels": smallest(10_000, 1, 0, 5, byte(timer.Cancel), 0, 1, 0, 0),
		"smallest adds":    smallest(10_000, 1, 0, 7, byte(timer.Add), commandWithSpec, 1, 0, 0, 0, 0),
		"smallest patches": smallest(10_000, 1, 0, 8, byte(timer.Modify), commandWithPatch, 1, 0, 0, 0, 0, 0),
		"too many ops":     smallest(maxOps+1, 1, 0, 5, byte(timer.Cancel), 0, 1, 0, 0),
		"huge command":     append([]byte{version, 1, 1, 0}, huge...),
		"timers":           append([]byte{version, faultNone, 0, 1, 1, 1, 'a'}, huge...),
		"shards":           append([]byte{version, faultNone}, huge...),
		"marks":            append([]byte{version, faultNone, 0, 0, 0, 0}, huge...),
		"progress":         append([]byte{version, faultNone, 1, 1, 0}, huge...),
		"query":            append([]byte{version, 1, 1, 0, 0, 0, 0, 0, 0, 0}, huge...),
	}
	for name, b := range cases {
		took, most := uint64(math.MaxUint64), uint64(64*len(b)+64<<10)
		for range 3 { // TotalAlloc counts other goroutines too: the least of three tries is taken
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, s := range samples() {
				_ = s.read(b)
			}
			runtime.ReadMemStats(&after)
			took = min(took, after.TotalAlloc-before.TotalAlloc)
		}
		if took > most {
			t.Errorf("%s: %d bytes of input took %d, at most %d", name, len(b), took, most)
		}
	}
	if ops, err := DecodeOps(cases["smallest adds"]); err != nil || len(ops) != 10_000 {
		t.Errorf("smallest adds: %d, %v", len(ops), err)
	}
}

// FuzzWire: no input makes a decoder panic, and a decoded message survives another round trip.
func FuzzWire(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.message)
	}
	f.Add(AppendFailure(nil, timer.NotLeaderError{Leader: 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := func(name string, first []byte, second func([]byte) ([]byte, error)) {
			if got, err := second(first); err != nil || !bytes.Equal(got, first) {
				t.Fatalf("%s %x\nagain %x: %v", name, first, got, err)
			}
		}
		if ops, err := DecodeOps(b); err == nil {
			again("ops", AppendOps(nil, ops), func(b []byte) ([]byte, error) {
				ops, err := DecodeOps(b)
				return AppendOps(nil, ops), err
			})
		}
		if timer, err := DecodeTimer(b); err == nil {
			again("timer", AppendTimer(nil, timer), func(b []byte) ([]byte, error) {
				timer, err := DecodeTimer(b)
				return AppendTimer(nil, timer), err
			})
		}
		if ids, page, err := DecodePage(b); err == nil {
			again("page", AppendPage(nil, ids, page, &timer.Query{}), func(b []byte) ([]byte, error) {
				ids, page, err := DecodePage(b)
				return AppendPage(nil, ids, page, &timer.Query{}), err
			})
		}
		if ids, q, err := DecodeQuery(b); err == nil {
			again("query", AppendQuery(nil, ids, q), func(b []byte) ([]byte, error) {
				ids, q, err := DecodeQuery(b)
				if err != nil {
					return nil, err
				}
				return AppendQuery(nil, ids, q), nil
			})
		}
		if steps, q, err := DecodeWalk(b); err == nil {
			again("walk", AppendWalk(nil, steps, q), func(b []byte) ([]byte, error) {
				steps, q, err := DecodeWalk(b)
				if err != nil {
					return nil, err
				}
				return AppendWalk(nil, steps, q), nil
			})
		}
		for n := 1; n < 3; n++ {
			steps := make([]timer.Step, n)
			if err := DecodeSteps(b, steps); err == nil {
				again("steps", AppendSteps(nil, steps), func(b []byte) ([]byte, error) {
					err := DecodeSteps(b, steps)
					return AppendSteps(nil, steps), err
				})
			}
		}
		if ids, c, err := DecodeCounts(b); err == nil {
			again("counts", AppendCounts(nil, ids, c), func(b []byte) ([]byte, error) {
				ids, c, err := DecodeCounts(b)
				return AppendCounts(nil, ids, c), err
			})
		}
		if list, err := DecodeCandidates(b); err == nil {
			again("offers", AppendCandidates(nil, list), func(b []byte) ([]byte, error) {
				list, err := DecodeCandidates(b)
				return AppendCandidates(nil, list), err
			})
		}
		if list, err := DecodePulled(b); err == nil {
			again("taken", AppendPulled(nil, list), func(b []byte) ([]byte, error) {
				list, err := DecodePulled(b)
				return AppendPulled(nil, list), err
			})
		}
		if topic, ms, shares, err := DecodePullRequest(b); err == nil {
			again("take", AppendPullRequest(nil, topic, ms, shares), func(b []byte) ([]byte, error) {
				topic, ms, shares, err := DecodePullRequest(b)
				return AppendPullRequest(nil, topic, ms, shares), err
			})
		}
		_, _, _ = DecodeCandidatesRequest(b)
		_, _ = DecodeAwaited(b)
		_, _, _, _ = DecodeTimerRequest(b)
		_, _ = DecodeCountsRequest(b)
		_, _, _, _ = DecodeHistory(b)
		_, _ = DecodeHistoryQuery(b)
		ops := []timer.Op{{Command: &timer.Command{Kind: timer.Add, ID: "a", Spec: &timer.Spec{}}}, {Brief: true, Command: &timer.Command{Kind: timer.Cancel, ID: "a"}}}
		if err := DecodeAnswers(b, ops); err == nil {
			again("answers", AppendAnswers(nil, ops), func(b []byte) ([]byte, error) {
				ops := bare(ops)
				err := DecodeAnswers(b, ops)
				return AppendAnswers(nil, ops), err
			})
		}
	})
}
