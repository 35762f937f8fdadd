package feature

import "errors"

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

// EntryLevel is the level of an entry: its first byte is the least level that can read it.
func EntryLevel(data []byte) Level {
	if len(data) == 0 {
		return LevelFirst
	}
	return Level(data[0])
}
