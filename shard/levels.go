package shard

import (
	"fmt"

	"carillon/internal/feature"
)

// level checks Level and sets the defaults of Level and Agreed.
func (c *Config) level() error {
	if c.Level == 0 {
		c.Level = feature.LevelOfBuild
	}
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

// agreed returns the highest feature level that this host may propose.
func (h *Host) agreed() feature.Level { return min(h.cfg.Level, h.cfg.Agreed()) }
