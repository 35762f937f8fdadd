package node

import (
	"errors"

	"carillon/internal/vfs"
	"carillon/shard"
)

// ErrStayDown is in the error of a node that no restart repairs: its disk failed, its directory is
// damaged or not to be used, or another process has its identity. A supervisor should leave it down
// until an operator has looked.
var ErrStayDown = errors.New("node: it must stay down until an operator has looked")

// stayDown marks an error so. A full disk and a directory that another process holds pass by
// themselves; of a memory that has changed by itself the disk has what is right.
func stayDown(err error) error {
	if err == nil || vfs.IsFull(err) || errors.Is(err, vfs.ErrLocked) || errors.Is(err, ErrRemoved) || errors.Is(err, shard.ErrMemoryFault) {
		return err
	}
	return stayDownError{err}
}

type stayDownError struct{ error }

func (e stayDownError) Unwrap() error { return e.error }

// Is makes it an ErrStayDown.
func (stayDownError) Is(target error) bool { return target == ErrStayDown }
