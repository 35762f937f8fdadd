package table

import (
	"carillon/shard/feature"
	"carillon/timer"
)

// commandLevel is the level of a client's change.
func commandLevel(c *timer.Command) feature.Level {
	if c.Once || c.Spec != nil && c.Spec.Trace != nil {
		return feature.LevelConventions
	}
	return feature.LevelFirst
}

// AtLevel is a command without the fields of later levels, all of which it can do without.
func AtLevel(c *timer.Command, level feature.Level) *timer.Command {
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
