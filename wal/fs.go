package wal

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

const (
	filePerm fs.FileMode = 0o600
	dirPerm  fs.FileMode = 0o700
)

// FS is what the log needs of a file system. OSFS and MemFS implement it.
// Errors satisfy errors.Is with fs.ErrNotExist and fs.ErrExist as those of package os do.
type FS interface {
	// OpenFile takes the os.O_ flags; new files get mode 0600.
	OpenFile(name string, flag int) (File, error)
	// Create opens a new or emptied file for reading and writing.
	Create(name string) (File, error)
	// Open opens for reading.
	Open(name string) (File, error)
	Rename(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// MkdirAll makes a directory and its missing parents, mode 0700.
	MkdirAll(dir string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]DirEntry, error)
	Stat(name string) (DirEntry, error)
	// SyncDir makes creates, renames and removes in dir durable.
	SyncDir(dir string) error
	// Lock takes the exclusive lock that is named by a file, without waiting.
	// ErrLocked if it is held, also by this process.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes that an unprivileged writer can still use.
	Free(dir string) (uint64, error)
}

// File is an open file. Write continues at the file's own offset.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	// Sync makes data and size durable.
	Sync() error
	// Datasync makes data durable, and of the metadata what is needed to read it.
	Datasync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// DirEntry describes a file or directory.
type DirEntry struct {
	Name  string
	Dir   bool
	Bytes int64
}

// makeDir makes dir and makes its existence durable, parents included. If that fails it takes back
// what it has made, as far as it can: a directory that is there counts as durable later on.
func makeDir(fsys FS, dir string) error {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		_, err := fsys.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
		if d == filepath.Dir(d) {
			break
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := fsys.MkdirAll(dir)
	for i := len(missing) - 1; i >= 0 && err == nil; i-- {
		err = fsys.SyncDir(filepath.Dir(missing[i]))
	}
	if err != nil {
		for _, d := range missing {
			_ = fsys.Remove(d)
		}
	}
	return err
}

// resyncName is a file that is there for a moment: see resyncDir.
const resyncName = "resync" + tempSuffix

// resyncDir makes all names in dir durable, also those whose sync failed before: a directory whose
// sync has failed counts as clean until it is changed again.
func resyncDir(fsys FS, dir string) error {
	path := filepath.Join(dir, resyncName)
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.Remove(path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// removeTree removes dir and all below it; a missing dir is no error.
func removeTree(fsys FS, dir string) error {
	list, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name)
		if e.Dir {
			err = removeTree(fsys, path)
		} else {
			err = fsys.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

// readFile reads a whole file into buf, growing it as needed.
func readFile(fsys FS, name string, buf []byte, limit int64) ([]byte, error) {
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
		return nil, errSegmentSize
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	n, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) { // cut meanwhile by a live writer
		return nil, err
	}
	return buf[:n], nil
}
