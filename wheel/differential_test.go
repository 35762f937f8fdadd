package wheel

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

const scriptHandles = 48 // few, so that operations meet the same timers again

// script is a byte string read as operations; any bytes are a valid script.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) handle() Handle { return Handle(s.byte()%scriptHandles) + 1 }

// tick takes two or three bytes: the distance from now by order of magnitude, and
// sometimes the edges: slot starts of every level, the past, the end of all ticks.
func (s *script) tick(now Tick) Tick {
	kind := s.byte()
	shift, mantissa := int(kind%64)*2/3, Tick(s.byte())
	switch kind / 64 {
	case 0, 1:
		return saturate(now, mantissa<<shift)
	case 2: // around the start of a slot
		start := saturate(now, mantissa<<shift) >> shift << shift
		return start + Tick(s.byte()%3) - 1
	default:
		return s.edge(now, mantissa)
	}
}

func (s *script) edge(now, mantissa Tick) Tick {
	span := Tick(1) << spanBits
	switch s.byte() % 5 {
	case 0:
		return now - mantissa
	case 1:
		return math.MaxInt64 - mantissa%2
	case 2:
		return saturate(now|(span-1), mantissa%3-1)
	case 3:
		return saturate(now, span*(mantissa%4)+mantissa%3-1)
	default:
		return -mantissa
	}
}

// saturate adds without overflow; it keeps below 2^62, as
// millions of far cascades would follow a step to the end of all ticks.
func saturate(a, b Tick) Tick {
	return min(a, 1<<61) + min(b, 1<<61)
}

// horizon bounds steps of time: a few spans of 2^42 ms.
const horizon = 8 << spanBits

func (s *script) run(tw *differential) {
	for steps := 0; len(*s) > 0 && steps < 400; steps++ {
		s.step(tw)
		if steps%16 == 0 {
			tw.check()
		}
	}
	tw.check()
}

func (s *script) step(tw *differential) {
	now := tw.wheel.Now()
	switch s.byte() % 10 {
	case 0, 1, 2, 3:
		h := s.handle()
		tw.put(h, s.tick(now))
	case 4:
		tw.remove(s.handle())
	case 5, 6:
		to := min(s.tick(now), horizon)
		tw.advance(to, int(s.byte()%16))
	case 7:
		to := min(s.tick(now), horizon)
		for !tw.advance(to, 1+int(s.byte()%64)) {
		}
	case 8: // advance to the tick that Next returns
		if next, ok := tw.wheel.Next(); ok && next < horizon {
			tw.advance(next, int(s.byte()%8))
		}
	default:
		if n := int(s.byte() % 16); n < 8 {
			tw.pop(n)
		} else {
			tw.popLast(n - 8)
		}
	}
}

func cases(full int) int {
	if testing.Short() {
		return full / 20
	}
	return full
}

func TestSeededAgainstHeap(t *testing.T) {
	t.Parallel()
	for seed := range cases(24_000) {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], uint64(seed))
		source := rand.NewChaCha8(key)
		text := make(script, 40+source.Uint64()%160)
		for i := range text {
			text[i] = byte(source.Uint64())
		}
		tw := newTwin(t, Tick(source.Uint64()>>(21+source.Uint64()%43)))
		tw.logf("seed %d", seed)
		text.run(tw)
		if seed%8 == 0 {
			drainNear(tw)
		}
	}
}

// drainNear takes out the timers within the horizon, in order.
func drainNear(tw *differential) {
	for h, e := range tw.byName {
		if e.when > horizon {
			tw.remove(h)
		}
	}
	tw.drain()
	if tw.wheel.Len() != 0 {
		tw.failf("Len = %d after everything was taken out", tw.wheel.Len())
	}
}

func TestPropertiesAgainstHeap(t *testing.T) {
	t.Parallel()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue && !testing.Short() {
		if err := flag.Set(f.Name, "1000"); err != nil {
			t.Fatal(err)
		}
	}
	handle := rapid.Map(rapid.IntRange(1, scriptHandles), func(i int) Handle { return Handle(i) })
	distance := rapid.Custom(func(t *rapid.T) Tick {
		shift := rapid.IntRange(0, 44).Draw(t, "shift")
		return Tick(rapid.Int64Range(-1, 1<<shift).Draw(t, "distance"))
	})
	rapid.Check(t, func(t *rapid.T) {
		tw := newTwin(t, Tick(rapid.Int64Range(0, 1<<43).Draw(t, "now")))
		t.Repeat(map[string]func(*rapid.T){
			"put":    func(t *rapid.T) { tw.put(handle.Draw(t, "h"), tw.wheel.Now()+distance.Draw(t, "in")) },
			"remove": func(t *rapid.T) { tw.remove(handle.Draw(t, "h")) },
			"advance": func(t *rapid.T) {
				tw.advance(tw.wheel.Now()+distance.Draw(t, "by"), rapid.IntRange(0, 20).Draw(t, "budget"))
			},
			"pop":     func(t *rapid.T) { tw.pop(rapid.IntRange(0, 9).Draw(t, "n")) },
			"popLast": func(t *rapid.T) { tw.popLast(rapid.IntRange(0, 9).Draw(t, "n")) },
			"":        func(*rapid.T) { tw.check() },
		})
	})
}

func FuzzWheel(f *testing.F) {
	f.Fuzz(func(t *testing.T, now int64, text []byte) {
		if len(text) > 2_000 {
			return
		}
		s := script(text)
		s.run(newTwin(t, Tick(now>>20)))
	})
}
