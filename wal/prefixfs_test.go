package wal

import (
	"io"
	"path/filepath"

	"carillon/internal/vfs"
)

// prefixFS is the operating system's file system below a directory, under a type that is
// not vfs.OS: the log then writes by fileAppender, not by tidwall/wal.
type prefixFS struct {
	fs   vfs.FS
	root string
}

func (p prefixFS) at(name string) string { return filepath.Join(p.root, name) }

func (p prefixFS) OpenFile(name string, flag int) (vfs.File, error) {
	return p.fs.OpenFile(p.at(name), flag)
}
func (p prefixFS) Create(name string) (vfs.File, error)       { return p.fs.Create(p.at(name)) }
func (p prefixFS) Open(name string) (vfs.File, error)         { return p.fs.Open(p.at(name)) }
func (p prefixFS) Rename(from, to string) error               { return p.fs.Rename(p.at(from), p.at(to)) }
func (p prefixFS) Remove(name string) error                   { return p.fs.Remove(p.at(name)) }
func (p prefixFS) MkdirAll(dir string) error                  { return p.fs.MkdirAll(p.at(dir)) }
func (p prefixFS) ReadDir(dir string) ([]vfs.DirEntry, error) { return p.fs.ReadDir(p.at(dir)) }
func (p prefixFS) Stat(name string) (vfs.DirEntry, error)     { return p.fs.Stat(p.at(name)) }
func (p prefixFS) SyncDir(dir string) error                   { return p.fs.SyncDir(p.at(dir)) }
func (p prefixFS) Lock(name string) (io.Closer, error)        { return p.fs.Lock(p.at(name)) }
func (p prefixFS) Free(dir string) (uint64, error)            { return p.fs.Free(p.at(dir)) }
