//go:build race

package sim

func init() { underRace = true }
