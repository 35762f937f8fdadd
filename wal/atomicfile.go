package wal

import (
	"fmt"
	"path/filepath"
)

const tempSuffix = ".tmp"

// WriteFileAtomic replaces a small file: after any crash it holds either the
// old or the new content, whole. On return without error the new one is durable.
func WriteFileAtomic(fsys FS, path string, data []byte) error {
	if err := writeSynced(fsys, path+tempSuffix, data); err != nil {
		return fmt.Errorf("wal: write %s: %w", path, err)
	}
	if err := fsys.Rename(path+tempSuffix, path); err != nil {
		return fmt.Errorf("wal: write %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("wal: write %s: %w", path, err)
	}
	return nil
}

// writeSynced writes a new file and syncs its data, not its directory.
func writeSynced(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
