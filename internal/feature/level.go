package feature

import "errors"

// Level is a feature level. It numbers the formats and commands that all replicas must understand
// before one of them proposes them. A build understands all levels up to its own. A cluster starts
// at the highest level that all its members understand. It moves to a higher one when an operator
// finalizes an upgrade; the meta group's state stores the level. Nothing above that level is
// proposed.
//
// A change of the content of entries or snapshots, or of the effect of an entry, needs a new level.
// It is made only where the agreed level is at least the new one.
type Level uint32

const (
	// LevelFirst is the level of the first release.
	LevelFirst Level = 1
	// LevelOfBuild is the level of this build.
	LevelOfBuild = LevelFirst
	// LevelOfTests is the level of a next release that only tests have. It changes no format: its
	// entries differ by their level alone.
	LevelOfTests = LevelOfBuild + 1
)

// ErrNewer is wrapped by the error with which a replica stops at an entry or snapshot that it does
// not understand.
var ErrNewer = errors.New("a newer release wrote it")

// EntryLevel returns the level that was agreed when an entry was proposed: its first byte.
func EntryLevel(data []byte) Level {
	if len(data) == 0 {
		return LevelFirst
	}
	return Level(data[0])
}
