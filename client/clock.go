package client

import (
	"math/rand/v2"
	"time"
)

// What is read from outside: the clock against which signatures are judged, and chance, so that many clients do not come back at once.

func now() time.Time { return time.Now() }

// jittered is between half of d and one and a half.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }
