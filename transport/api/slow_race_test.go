//go:build race

package api

// slowdown is how many times slower the race detector makes what tests measure.
const slowdown = 10
