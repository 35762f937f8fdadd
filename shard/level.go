package shard

import (
	"errors"
	"fmt"

	"carillon/timer"
)

// Level is a feature level: it numbers what replicas must all understand before one of them
// proposes it. A build understands all levels up to its own. The members of a cluster agree on the
// highest that each of them understands when it is founded, and on a higher one when an operator
// finalizes an upgrade (the meta group's state has it). Nothing above that is proposed.
//
// Whatever changes what an entry or a snapshot may hold, or what applying an entry does, takes a
// new level.
type Level uint32

// The levels, and what each adds.
const (
	// LevelFirst is what the first build with levels understood, and those before it.
	LevelFirst Level = 1
	// LevelCompare adds the comparison of replicas' states: item 23 of shards' entries, version 2
	// of the meta group's, version 2 of the hash of a shard's state.
	LevelCompare Level = 2
	// LevelConventions adds the format of a topic's calls and their asymmetric signing keys,
	// the trace of a timer, and adds whose id stands for them alone.
	LevelConventions Level = 3
	// LevelFinalize adds the meta group's command that raises the level. Levels up to the one
	// before rise by themselves, as they did in the builds that had no such command.
	LevelFinalize Level = 4

	// LevelOfBuild is this build's.
	LevelOfBuild = LevelFinalize
)

// ErrNewer is the root of what a replica stops with that meets an entry or a snapshot which it
// does not understand.
var ErrNewer = errors.New("a newer release wrote it")

// level sets the defaults of what has to do with levels.
func (c *Config) level() error {
	if c.Level == 0 {
		c.Level = LevelOfBuild
	}
	if c.Level < LevelFirst || c.Level > LevelOfBuild {
		return fmt.Errorf("shard: feature level %d is out of %d–%d", c.Level, LevelFirst, LevelOfBuild)
	}
	if level := c.Level; c.Agreed == nil {
		c.Agreed = func() Level { return level }
	}
	return nil
}

// entryLevel is the level of an entry: its first byte is the least level that can read it.
func entryLevel(data []byte) Level {
	if len(data) == 0 {
		return LevelFirst
	}
	return Level(data[0])
}

// mayRead says why a host that understands levels up to its own cannot read an entry; nil: it can.
func (h *Host) mayRead(data []byte) error {
	if level := entryLevel(data); level > h.cfg.Level {
		return fmt.Errorf("%w: it needs feature level %d, this node's release has %d; start the newer release again", ErrNewer, level, h.cfg.Level)
	}
	return nil
}

// agreed is the level that may be proposed.
func (h *Host) agreed() Level { return min(h.cfg.Level, h.cfg.Agreed()) }

// hashVersionOf is the version of the hash that snapshots carry at a level.
func hashVersionOf(level Level) byte {
	if level < LevelCompare {
		return hashOfList
	}
	return hashOfSums
}

// commandLevel is the level of a client's change.
func commandLevel(c *timer.Command) Level {
	if c.Once || c.Spec != nil && c.Spec.Trace != nil {
		return LevelConventions
	}
	return LevelFirst
}

// AtLevel is a command without the fields of later levels, all of which it can do without.
func AtLevel(c *timer.Command, level Level) *timer.Command {
	if level >= commandLevel(c) {
		return c
	}
	out := *c
	out.Once = false
	if c.Spec != nil {
		spec := *c.Spec
		spec.Trace = nil
		out.Spec = &spec
	}
	return &out
}
