package ring

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"carillon/internal/feature"
	"carillon/timer"
)

// ErrTooOld refuses a node for its feature level.
var ErrTooOld = errors.New("the node's release is too old for this cluster")

// level is the highest that the node understands, the first for a node that reports none.
func (n *Node) level() feature.Level { return max(n.Level, feature.LevelFirst) }

// least is the level that all members understand.
func (c *cluster) least() feature.Level {
	least := feature.Level(0)
	for i := range c.present {
		if l := c.present[i].level(); least == 0 || l < least {
			least = l
		}
	}
	return least
}

// finalize ends an upgrade: data that needs the level may be written from now on, and a release
// that does not understand it may not come back. Repeated it changes nothing.
func (c *cluster) finalize(_ int64, cmd *Command) Reply {
	if err := c.mayFinalize(cmd.Level); err != nil {
		return Reply{Err: err}
	}
	if cmd.Level > c.level {
		c.level = cmd.Level
		c.version++
	}
	return Reply{}
}

// mayFinalize is why the level may not rise to this one. It names the members that lack it.
func (c *cluster) mayFinalize(level feature.Level) error {
	if c.id == "" {
		return ErrNotFounded
	}
	if lacking := c.lacking(level); len(lacking) > 0 {
		return fmt.Errorf("%w: %s; upgrade each to the newer release, or remove it if it is gone for good", timer.ErrFeatureLevel, describe(lacking, level))
	}
	return nil
}

// lacking are the members that do not understand a level.
func (c *cluster) lacking(level feature.Level) (out []Node) {
	for i := range c.present {
		if c.present[i].level() < level {
			out = append(out, c.present[i])
		}
	}
	return out
}

func describe(lacking []Node, level feature.Level) string {
	var list []string
	for i := range lacking {
		list = append(list, fmt.Sprintf("%s (release %s, level %d)", lacking[i].Name, lacking[i].Version, lacking[i].level()))
	}
	slices.Sort(list)
	more := ""
	if len(list) > maxNamed {
		list, more = list[:maxNamed], fmt.Sprintf(" and %d more", len(list)-maxNamed)
	}
	return fmt.Sprintf("feature level %d is not understood by %s%s", level, strings.Join(list, ", "), more)
}

// maxNamed bounds the nodes that an error names.
const maxNamed = 8

// Upgrade is how far an upgrade of the cluster is.
type Upgrade struct {
	Level   feature.Level // agreed on
	Next    feature.Level // the highest that any member understands; Level: there is no upgrade
	Lacking []string      // the names of the members that do not understand Next
}

// Waits reports whether only the operator's decision keeps the level from rising.
func (u *Upgrade) Waits() bool { return u.Next > u.Level && len(u.Lacking) == 0 }

// Upgrade is how far an upgrade is, as this copy of the state has it.
func (s *State) Upgrade() Upgrade {
	level := s.Level()
	s.mu.RLock()
	defer s.mu.RUnlock()
	u := Upgrade{Level: level, Next: level}
	for i := range s.cluster.present {
		u.Next = max(u.Next, s.cluster.present[i].level())
	}
	for _, n := range s.cluster.lacking(u.Next) {
		u.Lacking = append(u.Lacking, n.Name)
	}
	slices.Sort(u.Lacking)
	return u
}

// Level is the feature level that the members have agreed on: nothing above it is proposed.
func (s *State) Level() feature.Level {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(s.cluster.level, feature.LevelFirst)
}

// Check implements shard.Machine: a command that cannot be read is not proposed, nor the
// finalization of a level that a member cannot read.
func (s *State) Check(data []byte) error {
	c, err := decodeCommand(data)
	if err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	if c.Verb == Finalize {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.cluster.mayFinalize(c.Level)
	}
	return nil
}
