package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// MakeDir makes dir and makes its existence durable, parents included. If that fails it removes the
// directories that it has made, if it can: a directory that is there counts as durable later
// on.
func MakeDir(fsys FS, dir string) error {
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

// resyncName is a file that is there for a moment: see ResyncDir.
const resyncName = "resync" + TempSuffix

// ResyncDir makes all names in dir durable, also those whose sync failed before: a directory whose
// sync has failed counts as clean until it is changed again.
func ResyncDir(fsys FS, dir string) error {
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

// RemoveTree removes dir and all below it; a missing dir is no error.
func RemoveTree(fsys FS, dir string) error {
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
			err = RemoveTree(fsys, path)
		} else {
			err = fsys.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}
