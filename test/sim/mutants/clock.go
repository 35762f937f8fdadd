package main

import "time"

// stopwatch starts a clock; the returned function reads the elapsed time.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
