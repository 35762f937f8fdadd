// Package vfs is the file system as an interface, so that the log, the history and the host run on
// a real disk (OS) and on one that fails, lies and loses power (package memfs).
//
//   - An FS may be used by any goroutine; a File only by one at a time, except ReadAt.
//   - Nothing is durable before a sync: the data of a file by File.Sync, its name by SyncDir of its
//     directory.
//   - A sync that failed is not repeated: the kernel may have dropped the very pages. ResyncDir is
//     how a later process makes sure of a directory's names.
//
// The package knows nothing of the contents of the files. It imports nothing of ours.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// Permissions of the files and directories that an FS makes.
const (
	FilePerm fs.FileMode = 0o600
	DirPerm  fs.FileMode = 0o700
)

var (
	// ErrLocked is returned by Lock and LockDir when another holder has the lock.
	ErrLocked = errors.New("wal: directory is in use by another process")
	// ErrNoInodes is in the error of a file that could not be created for lack of an inode, with
	// ENOSPC: there may be any number of free bytes.
	ErrNoInodes = errors.New("no inodes are left")
	// ErrTooLarge is returned by ReadFile for a file above its limit.
	ErrTooLarge = errors.New("file is larger than its limit")
)

// IsFull reports whether an error is that of a full disk or quota, or of too many open files. It
// passes when there is room.
func IsFull(err error) bool {
	full := []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE}
	return slices.ContainsFunc(full, func(errno error) bool { return errors.Is(err, errno) })
}

// Lack says what lacks where an error is IsFull.
func Lack(err error) string {
	switch {
	case errors.Is(err, ErrNoInodes):
		return "the disk has no inodes left"
	case errors.Is(err, syscall.EDQUOT):
		return "the quota of the disk is used up"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "no more files can be opened"
	}
	return "the disk is full"
}

// IsReadFailure reports whether the disk did not give a file that is there. Nothing is then known
// of the file's content, while the content of a damaged file is known to be bad.
func IsReadFailure(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}

// FS is the part of a file system that the product needs. OS and memfs.FS implement it. Errors
// satisfy errors.Is with fs.ErrNotExist and fs.ErrExist as those of package os do.
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
	// Datasync makes data durable, and the metadata that is needed to read it.
	Datasync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// DirEntry describes a file or directory.
type DirEntry struct {
	Name  string
	Dir   bool
	Bytes int64

	info fs.FileInfo // of OS.Stat
}

// same reports whether both are one file, as OS.Stat has found them: not two with one name. Of
// others it is not known, and true.
func (e DirEntry) same(as DirEntry) bool {
	return e.info == nil || as.info == nil || os.SameFile(e.info, as.info)
}
