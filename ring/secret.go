package ring

import (
	"errors"
	"slices"
)

// SecretBytes is the length of the cluster's secret.
const SecretBytes = 32

// ErrBadSecret refuses one that could be guessed.
var ErrBadSecret = errors.New("the cluster's secret must be 32 bytes")

// SecretCommand gives the cluster its secret, from which receipts are made; see State.Secret.
func SecretCommand(secret [SecretBytes]byte) Command {
	return Command{Verb: SetSecret, Secret: secret[:]}
}

// Secret is the cluster's secret: the same on all nodes, and for ever once it is there. nil before the controller has had it made.
func (s *State) Secret() []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cluster.secret
}

// setSecret keeps the first secret: receipts that were made with it must hold.
func (c *cluster) setSecret(_ int64, cmd *Command) Reply {
	switch {
	case c.id == "":
		return Reply{Err: ErrNotFounded}
	case len(cmd.Secret) != SecretBytes:
		return Reply{Err: ErrBadSecret}
	case c.secret == nil:
		c.secret = slices.Clone(cmd.Secret)
		c.version++
	}
	return Reply{}
}
