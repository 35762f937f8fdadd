//go:build !race

package api

// slowdown is how many times slower the race detector makes the parts that tests measure.
const slowdown = 1
