//go:build !canary

package shard

import "time"

// planted says whether a deliberate bug is in this build. In builds for use none is, and nothing of them is left in the code; see
// planted_canary.go, and package sim, which has to find each of them.
func planted(string) bool { return false }

func (t *Table) loseLeases() {}

func (l *lead) shutAll(time.Duration) {}

func blind() Permit { return nil }
