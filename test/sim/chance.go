package sim

import (
	"math/rand/v2"
	"time"
)

// chance is a random stream. All randomness of a run comes from such streams.
type chance struct{ *rand.Rand }

func newChance(seed, stream uint64) chance { return chance{rand.New(rand.NewPCG(seed, stream))} }

// hit is true with probability p; never if p is 0 or less.
func (c chance) hit(p float64) bool { return p > 0 && c.Float64() < p }

func (c chance) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(c.Int64N(int64(hi-lo)))
}

// seldom draws the rate of a fault: 0 in half of the runs, otherwise between 0 and most.
func (c chance) seldom(most float64) float64 {
	on, rate := c.IntN(2) == 1, c.Float64()
	if !on {
		return 0
	}
	return rate * most
}

// entropy is a chance as an io.Reader, for raft.
type entropy struct{ chance }

func (b entropy) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b.Uint32())
	}
	return len(p), nil
}
