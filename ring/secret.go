package ring

import (
	"errors"
	"slices"

	"carillon/internal/secret"
)

// SecretBytes is the length of the cluster's secret.
const SecretBytes = 32

// ErrBadSecret refuses one that could be guessed.
var ErrBadSecret = errors.New("the cluster's secret must be 32 bytes, or sealed")

// SecretCommand gives the cluster its secret, from which receipts are made, sealed if there are
// keys; see State.Secret.
func SecretCommand(plain [SecretBytes]byte, keys *secret.Keys) Command {
	kept := plain[:]
	if keys != nil {
		kept = []byte(keys.SealBytes(secret.Cluster, string(kept)))
	}
	return Command{Verb: SetSecret, Secret: kept}
}

// OpenSecret gives the 32 bytes of the secret that State.Secret holds.
func OpenSecret(kept []byte, keys *secret.Keys) ([]byte, error) {
	if len(kept) == SecretBytes {
		return kept, nil
	}
	plain, err := keys.Open(secret.Cluster, string(kept))
	if err == nil && len(plain) != SecretBytes {
		err = ErrBadSecret
	}
	return []byte(plain), err
}

// goodSecret says whether the cluster may keep it. 32 bytes are taken for the secret itself: an
// envelope is longer.
func goodSecret(kept []byte) bool {
	return len(kept) == SecretBytes || len(kept) <= maxSealedSecret && secret.Sealed(string(kept))
}

// maxSealedSecret is above any envelope of 32 bytes.
const maxSealedSecret = 256

// Secret is the cluster's secret, as it is kept (see OpenSecret): the same on all nodes, and for
// ever once it is there, but that it can be sealed anew. nil before the controller has had it made.
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
	case !goodSecret(cmd.Secret):
		return Reply{Err: ErrBadSecret}
	case c.secret == nil:
		c.secret = slices.Clone(cmd.Secret)
		c.version++
	}
	return Reply{}
}
