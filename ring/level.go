package ring

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"carillon/shard/feature"
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
func (c *Command) level() feature.Level {
	switch c.Verb {
	case Ensure, Put:
		if p := c.Policy; p != nil && (p.CloudEvents || len(p.SigningKeys) > 0) {
			return feature.LevelConventions
		}
		return feature.LevelFirst
	case Pause, Resume, Close, Reopen, Delete, Turn, Turned,
		Found, Register, SetState, Remove, Fence, Place, Reconciled, SetSecret, Reseal, SetReplicas:
		return feature.LevelFirst
	case Finalize:
		return feature.LevelFinalize
	}
	return 0
}

// level is the highest that the node understands. A build that says none is of before there were
// any.
func (n *Node) level() feature.Level { return max(n.Level, feature.LevelFirst) }

// selfRising is the highest level that a cluster reaches without an operator after its founding:
// the builds of then raise it so when they apply the entries of a log.
const selfRising = feature.LevelFinalize - 1

// begin sets the level of a new cluster: the least of its founders'.
func (c *cluster) begin() { c.level = c.least() }

// agree raises the level to the least of all members, as far as that needs no operator. It never
// falls: data written at it stays.
func (c *cluster) agree() { c.level = max(c.level, min(c.least(), selfRising)) }

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

// mayFinalize says why the level may not rise to this one: it names the members that lack it.
func (c *cluster) mayFinalize(level feature.Level) error {
	if c.id == "" {
		return ErrNotFounded
	}
	if lacking := c.lacking(level); len(lacking) > 0 {
		return fmt.Errorf("%w: %s; upgrade each to the newer release, or remove it if it is gone for good", ErrLevel, describe(lacking, level))
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
	if len(list) > mostNamed {
		list, more = list[:mostNamed], fmt.Sprintf(" and %d more", len(list)-mostNamed)
	}
	return fmt.Sprintf("feature level %d is not understood by %s%s", level, strings.Join(list, ", "), more)
}

// mostNamed bounds the nodes that an error names.
const mostNamed = 8

// Upgrade is how far an upgrade of the cluster is.
type Upgrade struct {
	Level   feature.Level // agreed on
	Next    feature.Level // the highest that any member understands; Level: there is no upgrade
	Lacking []string      // the names of the members that do not understand Next
}

// Waits says whether nothing but an operator keeps the level from rising.
func (u *Upgrade) Waits() bool { return u.Next > u.Level && len(u.Lacking) == 0 }

// MayFinalize says why the level may not rise to this one; nil: it may, or is that high.
func (s *State) MayFinalize(level feature.Level) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.mayFinalize(level)
}

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

// tooOld says why a node may not come, or come back; nil: it may.
func (c *cluster) tooOld(n *Node) error {
	if n.level() >= c.level {
		return nil
	}
	return fmt.Errorf("%w: the cluster has agreed on feature level %d, the release %s on node %s has %d; start the newer release",
		ErrTooOld, c.level, n.Version, n.Name, n.level())
}

// Level is the feature level that the members have agreed on: nothing above it is proposed.
func (s *State) Level() feature.Level {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return max(s.cluster.level, feature.LevelFirst)
}

// Check implements shard.Machine: a command that cannot be read, or is above the level agreed on,
// is not proposed. Finalize raises that level: it needs members that can read it.
func (s *State) Check(data []byte) (feature.Level, error) {
	c, err := decodeCommand(data)
	if err != nil {
		return 0, fmt.Errorf("ring: %w", err)
	}
	if c.Verb == Finalize {
		return c.level(), s.MayFinalize(max(c.Level, c.level()))
	}
	if level, agreed := c.level(), s.Level(); level > agreed {
		return 0, fmt.Errorf("%w: %s needs feature level %d, they have agreed on %d", ErrLevel, c.Verb, level, agreed)
	}
	return c.level(), nil
}
