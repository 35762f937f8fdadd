//go:build race

package main

// The race detector makes type checking ten times as long, and finds nothing in it.
func init() { underRace = true }
