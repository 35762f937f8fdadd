//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// OS is the operating system's file system.
type OS struct{}

type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }
func (f osFile) Sync() error     { return syncFile(f.File) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (OS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, FilePerm)
	if err != nil {
		return nil, LackOfInodes(filepath.Dir(name), err)
	}
	return osFile{f}, nil
}

// When a file cannot be created, inodes lack if there are fewer than these, as a file may have gone
// since, and more bytes: some file systems derive their inodes from the free bytes.
const (
	fewInodes = 16
	someBytes = 1 << 20
)

// LackOfInodes adds to the error of a file that could not be created in a directory that it is
// inodes that lack.
func LackOfInodes(dir string, err error) error {
	var st syscall.Statfs_t
	if !errors.Is(err, syscall.ENOSPC) || syscall.Statfs(dir, &st) != nil {
		return err
	}
	if st.Files > 0 && st.Ffree < fewInodes && freeBytes(&st) >= someBytes {
		return fmt.Errorf("%w: %w", err, ErrNoInodes)
	}
	return err
}

func freeBytes(st *syscall.Statfs_t) uint64 { return uint64(st.Bavail) * uint64(st.Bsize) }

func (o OS) Create(name string) (File, error) {
	return o.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
}

func (o OS) Open(name string) (File, error) { return o.OpenFile(name, os.O_RDONLY) }

func (OS) Rename(from, to string) error { return os.Rename(from, to) }
func (OS) Remove(name string) error     { return os.Remove(name) }

func (OS) MkdirAll(dir string) error {
	return LackOfInodes(filepath.Dir(dir), os.MkdirAll(dir, DirPerm))
}

func (OS) ReadDir(dir string) ([]DirEntry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]DirEntry, 0, len(list))
	for _, e := range list {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, DirEntry{Name: e.Name(), Dir: e.IsDir(), Bytes: info.Size()})
	}
	return out, nil
}

func (OS) Stat(name string) (DirEntry, error) {
	info, err := os.Stat(name)
	if err != nil {
		return DirEntry{}, err
	}
	return DirEntry{Name: info.Name(), Dir: info.IsDir(), Bytes: info.Size(), info: info}, nil
}

func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(d), d.Close())
}

// Lock implements FS by flock, which ends with the process.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, FilePerm)
	if err != nil {
		return nil, LackOfInodes(filepath.Dir(name), err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, err
	}
	return f, nil
}

func (OS) Free(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return freeBytes(&st), nil
}
