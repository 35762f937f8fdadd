package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// TempSuffix ends the name of a file that is being written and will get its own name by a rename.
const TempSuffix = ".tmp"

// WriteFileAtomic replaces a small file: after any crash it holds either the
// old or the new content, whole. On return without error the new one is durable.
func WriteFileAtomic(fsys FS, path string, data []byte) error {
	err := WriteSynced(fsys, path+TempSuffix, data)
	if err == nil {
		err = fsys.Rename(path+TempSuffix, path)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("wal: write %s: %w", path, err)
	}
	return nil
}

// WriteSynced writes a new file and syncs its data, not its directory.
func WriteSynced(fsys FS, path string, data []byte) error {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadFile reads a whole file into buf, growing it as needed. A file above limit is ErrTooLarge.
func ReadFile(fsys FS, name string, buf []byte, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, ErrTooLarge
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	n, err := io.ReadFull(f, buf)
	// Cut meanwhile by a live writer.
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:n], nil
}
