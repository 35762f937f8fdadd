package shard

import (
	"cmp"
	"fmt"
	"math"

	"carillon/internal/feature"
)

// level checks Level and sets the defaults of Level and Agreed.
func (c *Config) level() error {
	c.Level = cmp.Or(c.Level, feature.LevelOfBuild)
	if c.Level < feature.LevelFirst || c.Level > feature.LevelOfTests {
		return fmt.Errorf("shard: feature level %d is out of %d–%d", c.Level, feature.LevelFirst, feature.LevelOfTests)
	}
	if level := c.Level; c.Agreed == nil {
		c.Agreed = func() feature.Level { return level }
	}
	return nil
}

// mayRead returns an error if an entry needs a higher feature level than this host's.
func (h *Host) mayRead(data []byte) error {
	if level := feature.EntryLevel(data); level > h.cfg.Level {
		return fmt.Errorf("%w: it needs feature level %d, this node's release has %d; start the newer release again", feature.ErrNewer, level, h.cfg.Level)
	}
	return nil
}

func (h *Host) agreed() feature.Level { return min(h.cfg.Level, h.cfg.Agreed()) }

// stop ends a group whose log this build cannot continue: the next entry is of a newer release, or
// malformed. The replica neither votes nor acknowledges, and the others continue without it. Its
// files stay as they are, so that a build that can read them can continue from there. The node's
// other groups are not affected, not even at a start.
func (r *replica) stop(why error) {
	r.w.host.cfg.Logger.Error("a replica is stopped: this release cannot go on with its log. Nothing of it is lost: start the release that wrote it",
		"shard", uint32(r.shard), "why", why)
	r.stopped = why
	r.stepDown()
	r.refuseAll()
	if run := r.w.snapshot; run != nil && run.group == r {
		run.abort()
	}
	r.raft, r.wrong.why, r.snapshots.incoming = nil, nil, nil
	r.turn.wakeMs = math.MaxInt64
	r.publish()
}
