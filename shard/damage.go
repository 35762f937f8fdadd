package shard

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"carillon/wal"
)

// damageError is in the error of a start that lacks something which this node had on its disk.
type damageError struct{ err error }

func (e damageError) Error() string { return e.err.Error() }

func (e damageError) Unwrap() error { return e.err }

// Damaged reports that a start failed because the data directory is not what this node left on its
// disk: the log is damaged before its end, or a file is missing or damaged that nothing on this disk
// makes up for. Such a directory is not started on again. A disk that does not read now, and a file
// of another release, are not damage.
func Damaged(err error) bool {
	if _, ok := errors.AsType[damageError](err); ok {
		return true
	}
	c, ok := errors.AsType[*wal.CorruptionError](err)
	return ok && !c.OtherRelease()
}

// checkLog refuses a directory that has had a log and has none. Snapshots do not make up for it:
// what was acknowledged last is in the log alone.
func (h *Host) checkLog() error {
	if h.cfg.Meta != nil {
		return nil // of a new node
	}
	dir := filepath.Join(h.cfg.Dir, "wal")
	if _, err := h.cfg.FS.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return damageError{fmt.Errorf("shard: the folder %s is missing, and what was acknowledged last is in it alone", dir)}
	}
	return nil
}
