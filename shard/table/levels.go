package table

import (
	"carillon/shard/feature"
	"carillon/timer"
)

// commandLevel returns the feature level that a client's change needs.
func commandLevel(c *timer.Command) feature.Level {
	if c.Once || c.Spec != nil && c.Spec.Trace != nil {
		return feature.LevelConventions
	}
	return feature.LevelFirst
}

// AtLevel returns a command without the fields of later levels. All of these fields are optional.
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
