//go:build !chaos

package node

import "carillon/internal/clocks"

// newClocks are the machine's. A build for tests has some that can be set wrong: clock_chaos.go.
func newClocks() clocks.Source { return clocks.NewSystem() }
