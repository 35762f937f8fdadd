//go:build !chaos

package node

import (
	"time"

	"carillon/shard"
)

// newClock is the machine's clock, and its wall clock as the parts beside the shards read it. A build for tests has one that can be set
// wrong: clock_chaos.go.
func newClock() (shard.Clock, func() time.Time) { return shard.NewSystemClock(), time.Now }
