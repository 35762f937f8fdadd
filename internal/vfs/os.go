//go:build unix

package vfs

import (
	"errors"
	"io"
	"os"
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
		return nil, err
	}
	return osFile{f}, nil
}

func (o OS) Create(name string) (File, error) {
	return o.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
}

func (o OS) Open(name string) (File, error) { return o.OpenFile(name, os.O_RDONLY) }

func (OS) Rename(from, to string) error { return os.Rename(from, to) }
func (OS) Remove(name string) error     { return os.Remove(name) }
func (OS) MkdirAll(dir string) error    { return os.MkdirAll(dir, DirPerm) }

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
		return nil, err
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
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
