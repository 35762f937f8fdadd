package client

import (
	"math/rand/v2"
	"time"
)

// now is the clock against which signatures and leases are judged.
func now() time.Time { return time.Now() }

// newChance is another sequence for each client.
func newChance() *rand.Rand { return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) }
