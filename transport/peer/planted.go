//go:build !canary

package peer

// planted says whether a deliberate bug is in this build. In builds for use none is, and nothing of them is left in the code; see
// planted_canary.go, and package sim, which has to find each of them.
func planted(string) bool { return false }
