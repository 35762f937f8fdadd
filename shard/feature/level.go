package feature

import "errors"

// Level is a feature level. It numbers the formats and commands that all replicas must understand
// before one of them proposes them. A build understands all levels up to its own. A cluster starts
// at the highest level that all its members understand. It moves to a higher one when an operator
// finalizes an upgrade; the meta group's state stores the level. Nothing above that level is
// proposed.
//
// A change of the content of entries or snapshots, or of the effect of an entry, needs a new level.
type Level uint32

// The levels and their additions.
const (
	// LevelFirst is the level of the first build with levels, and of those before it.
	LevelFirst Level = 1
	// LevelCompare adds the comparison of replicas' states: item 23 of shards' entries, version 2
	// of the meta group's, version 2 of the hash of a shard's state.
	LevelCompare Level = 2
	// LevelConventions adds the format of a topic's calls and their asymmetric signing keys, the
	// trace of a timer, and adds that use their id only once (Once).
	LevelConventions Level = 3
	// LevelFinalize adds the meta group's command that raises the level. Lower levels are raised
	// automatically, as in builds without this command.
	LevelFinalize Level = 4

	// LevelOfBuild is the level of this build.
	LevelOfBuild = LevelFinalize
)

// ErrNewer is wrapped by the error with which a replica stops at an entry or snapshot that it does
// not understand.
var ErrNewer = errors.New("a newer release wrote it")

// EntryLevel returns the lowest level that can read an entry. It is the entry's first byte.
func EntryLevel(data []byte) Level {
	if len(data) == 0 {
		return LevelFirst
	}
	return Level(data[0])
}
