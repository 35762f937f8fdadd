package ring

import (
	"errors"
	"fmt"

	"carillon/shard"
)

// Why a node or a command is refused for its feature level.
var (
	ErrTooOld = errors.New("the node's release is too old for this cluster")
	ErrLevel  = errors.New("not all nodes of the cluster run a release that knows this yet")
)

// level is the feature level from which on a command may be proposed; 0: this build knows no such
// command. A verb or a field of a command, a node, a row or a policy that comes later has the
// level of the release that it comes with: before that is agreed on, the command is refused, or
// goes without the field.
func (c *Command) level() shard.Level {
	switch c.Verb {
	case Ensure, Put:
		if c.Policy != nil && c.Policy.CloudEvents {
			return shard.LevelConventions
		}
		return shard.LevelFirst
	case Pause, Resume, Close, Reopen, Delete, Turn, Turned,
		Found, Register, SetState, Remove, Place, Reconciled, SetSecret, Reseal, SetReplicas:
		return shard.LevelFirst
	}
	return 0
}

// level is the highest that the node understands. A build that says none is of before there were
// any.
func (n *Node) level() shard.Level { return max(n.Level, shard.LevelFirst) }

// agree raises the level to the least of all that are members. It never falls: what was written at
// it is there.
func (c *cluster) agree() {
	least := shard.Level(0)
	for i := range c.present {
		if l := c.present[i].level(); least == 0 || l < least {
			least = l
		}
	}
	c.level = max(c.level, least)
}

// tooOld says why a node may not come, or come back; nil: it may.
func (c *cluster) tooOld(n *Node) error {
	if n.level() >= c.level {
		return nil
	}
	return fmt.Errorf("%w: the cluster has agreed on feature level %d, the release %s on node %s has %d; start the newer release",
		ErrTooOld, c.level, n.Version, n.Name, n.level())
}

// Level is the feature level that the members have agreed on: nothing above it is proposed.
func (s *State) Level() shard.Level {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(s.cluster.level, shard.LevelFirst)
}

// Check implements shard.Machine: a command that cannot be read, or is above the level agreed on,
// is not proposed.
func (s *State) Check(data []byte) (shard.Level, error) {
	c, err := decodeCommand(data)
	if err != nil {
		return 0, fmt.Errorf("ring: %w", err)
	}
	if level, agreed := c.level(), s.Level(); level > agreed {
		return 0, fmt.Errorf("%w: %s needs feature level %d, they have agreed on %d", ErrLevel, c.Verb, level, agreed)
	}
	return c.level(), nil
}
