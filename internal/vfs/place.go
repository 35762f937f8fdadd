package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// Place is the path of a file that is held open. While it is open no other file is taken for it.
type Place struct {
	Path string
	file DirEntry // as Left found it first
}

// Left reports whether the path leads to another file now, or to none: it, or a directory above it,
// was deleted, moved, replaced or mounted over. Writes and syncs succeed then, and nobody finds what
// they wrote. A look that fails otherwise proves nothing.
func (p *Place) Left(fsys FS) bool {
	file, err := fsys.Stat(p.Path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	}
	if !file.same(p.file) {
		return true
	}
	p.file = file
	return false
}
