package vfs

import (
	"fmt"
	"io"
	"path/filepath"
)

// LockName is the file that LockDir locks.
const LockName = "LOCK"

// LockDir takes the directory for this process until the result is closed.
// A second holder gets an error that is ErrLocked. The directory is made if missing.
func LockDir(fsys FS, dir string) (io.Closer, error) {
	if err := MakeDir(fsys, dir); err != nil {
		return nil, fmt.Errorf("wal: lock %s: %w", dir, err)
	}
	l, err := fsys.Lock(filepath.Join(dir, LockName))
	if err != nil {
		return nil, fmt.Errorf("wal: lock %s: %w", dir, err)
	}
	return l, nil
}
