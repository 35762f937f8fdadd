//go:build canary

package peer

// Planted names the deliberate bug of this build; empty: none.
var Planted string

func planted(name string) bool { return Planted == name }
