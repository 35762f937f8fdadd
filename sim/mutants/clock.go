package main

import "time"

// stopwatch begins now; what it gives says how long that was ago.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
