// Package memfs is a file system in memory for tests and the simulator. It knows which writes were
// synced: file data by File.Sync, directory entries by SyncDir. CrashClone returns the state after
// a power cut, Kill the one after the end of a process. Faults (FailNth, SetHook, SetCapacity),
// damage (FlipBit, Damage) and false syncs (SetSyncLies) are set beforehand. All that an FS does is
// a function of the calls made and of the Rand given.
//
// Directory changes are kept as operations. Each of them survives a crash whole or not at all, so a
// rename never loses the file. A sync of a file does not sync its name.
//
// No product code imports the package.
package memfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"carillon/internal/vfs"
)

// FS is a file system in memory. The package comment has its rules.
type FS struct {
	mu       sync.Mutex
	root     *inode
	pending  []dirOp // directory changes that are not durable, oldest first
	locks    map[string]*fileLock
	epoch    int // handles of an earlier epoch belong to a killed process
	opened   int // handles of this epoch that are not closed
	capacity int64
	ops      int
	hook     func(n int, op Op, name string) error
	faults   []fault
	syncLies func(name string, dir bool) SyncLie
}

// inode is a file or a directory.
type inode struct {
	dir     bool
	entries map[string]*inode // as the running process sees them
	durable map[string]*inode // as they stand on disk

	blocks blocks
}

// dirOp is one atomic directory change: a link, an unlink, or both at once in a rename.
type dirOp struct {
	sets []dirSet
	// failed: a sync of the directory failed since. The change counts as written, though it is not,
	// until another change of the directory is to be written with it.
	failed bool
}

type dirSet struct {
	dir  *inode
	name string
	node *inode // nil: unlink
}

// New returns an empty file system.
func New() *FS {
	return &FS{root: newDir(), locks: map[string]*fileLock{}}
}

func newDir() *inode {
	return &inode{dir: true, entries: map[string]*inode{}, durable: map[string]*inode{}}
}

func splitPath(name string) []string {
	name = strings.Trim(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func pathError(op Op, name string, err error) error {
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}

func (m *FS) lookupLocked(name string) (*inode, error) {
	n := m.root
	for _, part := range splitPath(name) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.entries[part]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = next
	}
	return n, nil
}

func (m *FS) parentLocked(name string) (dir *inode, base string, err error) {
	dir, err = m.lookupLocked(filepath.Dir(filepath.Clean(name)))
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", syscall.ENOTDIR
	}
	return dir, filepath.Base(name), nil
}

// changeLocked does an atomic directory change, durable only after a SyncDir.
func (m *FS) changeLocked(sets ...dirSet) {
	for _, s := range sets {
		set(s.dir.entries, s.name, s.node)
		for i := range m.pending {
			m.pending[i].failed = m.pending[i].failed && m.pending[i].where() != s.dir
		}
	}
	m.pending = append(m.pending, dirOp{sets: sets})
}

// where is the directory whose block holds the change: of a rename, the one that it ends in.
func (op *dirOp) where() *inode { return op.sets[len(op.sets)-1].dir }

// failDir is a sync of a directory that failed: as with a file's pages, the entries count as clean
// from now on, though they were not written.
func (m *FS) failDir(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.lookupLocked(name)
	if err != nil {
		return
	}
	for i := range m.pending {
		m.pending[i].failed = m.pending[i].failed || m.pending[i].where() == dir
	}
}

func set(entries map[string]*inode, name string, node *inode) {
	if node == nil {
		delete(entries, name)
	} else {
		entries[name] = node
	}
}

// OpenFile implements FS.
func (m *FS) OpenFile(name string, flag int) (vfs.File, error) {
	op := OpOpen
	if flag&os.O_CREATE != 0 {
		op = OpCreate
	}
	if err := m.enter(op, name); err != nil {
		return nil, pathError(op, name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	n := dir.entries[base]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, pathError(op, name, fs.ErrNotExist)
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathError(op, name, fs.ErrExist)
	case n == nil:
		n = &inode{}
		m.changeLocked(dirSet{dir, base, n})
	case n.dir:
		return nil, pathError(op, name, syscall.EISDIR)
	}
	if flag&os.O_TRUNC != 0 {
		n.blocks.truncate(0)
	}
	m.opened++
	return &openFile{fs: m, node: n, name: name, epoch: m.epoch, write: flag&(os.O_WRONLY|os.O_RDWR) != 0}, nil
}

// OpenFiles counts the files that the running process has open.
func (m *FS) OpenFiles() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.opened
}

// Create implements FS.
func (m *FS) Create(name string) (vfs.File, error) {
	return m.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
}

// Open implements FS.
func (m *FS) Open(name string) (vfs.File, error) { return m.OpenFile(name, os.O_RDONLY) }

// Rename implements FS.
func (m *FS) Rename(from, to string) error {
	if err := m.enter(OpRename, to); err != nil {
		return pathError(OpRename, to, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	src, srcBase, err := m.parentLocked(from)
	if err != nil {
		return pathError(OpRename, from, err)
	}
	dst, dstBase, err := m.parentLocked(to)
	if err != nil {
		return pathError(OpRename, to, err)
	}
	n := src.entries[srcBase]
	if n == nil {
		return pathError(OpRename, from, fs.ErrNotExist)
	}
	if old := dst.entries[dstBase]; old != nil && (old.dir || n.dir) {
		return pathError(OpRename, to, fs.ErrExist)
	}
	m.changeLocked(dirSet{src, srcBase, nil}, dirSet{dst, dstBase, n})
	return nil
}

// Remove implements FS.
func (m *FS) Remove(name string) error {
	if err := m.enter(OpRemove, name); err != nil {
		return pathError(OpRemove, name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return pathError(OpRemove, name, err)
	}
	n := dir.entries[base]
	if n == nil {
		return pathError(OpRemove, name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return pathError(OpRemove, name, syscall.ENOTEMPTY)
	}
	m.changeLocked(dirSet{dir, base, nil})
	return nil
}

// MkdirAll implements FS.
func (m *FS) MkdirAll(dir string) error {
	if err := m.enter(OpMkdir, dir); err != nil {
		return pathError(OpMkdir, dir, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range splitPath(dir) {
		next := n.entries[part]
		if next == nil {
			next = newDir()
			m.changeLocked(dirSet{n, part, next})
		}
		if !next.dir {
			return pathError(OpMkdir, dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// ReadDir implements FS.
func (m *FS) ReadDir(dir string) ([]vfs.DirEntry, error) {
	if err := m.enter(OpReadDir, dir); err != nil {
		return nil, pathError(OpReadDir, dir, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError(OpReadDir, dir, err)
	}
	out := make([]vfs.DirEntry, 0, len(n.entries))
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		out = append(out, n.entries[name].describe(name))
	}
	return out, nil
}

func (n *inode) describe(name string) vfs.DirEntry {
	return vfs.DirEntry{Name: name, Dir: n.dir, Bytes: int64(len(n.blocks.data))}
}

// Stat implements FS.
func (m *FS) Stat(name string) (vfs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(name)
	if err != nil {
		return vfs.DirEntry{}, pathError(OpOpen, name, err)
	}
	return n.describe(filepath.Base(name)), nil
}

// SyncDir implements FS.
func (m *FS) SyncDir(dir string) error {
	if err := m.enter(OpSyncDir, dir); err != nil {
		if !errors.Is(err, ErrKilled) {
			m.failDir(dir)
		}
		return pathError(OpSyncDir, dir, err)
	}
	lie := m.lie(dir, true)
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(dir)
	if err != nil {
		return pathError(OpSyncDir, dir, err)
	}
	if !lie.Lies {
		m.syncEntriesLocked(n)
	}
	return nil
}

// syncEntriesLocked makes the pending changes of dir durable, and the earlier ones that they
// rest on: those of every directory that such a change touches.
func (m *FS) syncEntriesLocked(dir *inode) {
	touched := []*inode{dir} // few: a map costs more
	var take []bool
	for i := len(m.pending) - 1; i >= 0; i-- {
		op := &m.pending[i]
		if op.failed || !slices.ContainsFunc(op.sets, func(s dirSet) bool { return slices.Contains(touched, s.dir) }) {
			continue
		}
		if take == nil {
			take = make([]bool, len(m.pending))
		}
		take[i] = true
		for _, s := range op.sets {
			if !slices.Contains(touched, s.dir) {
				touched = append(touched, s.dir)
			}
		}
	}
	if take == nil {
		return
	}
	var left []dirOp
	for i, op := range m.pending {
		if !take[i] {
			left = append(left, op)
			continue
		}
		for _, s := range op.sets {
			set(s.dir.durable, s.name, s.node)
		}
	}
	m.pending = left
}

type fileLock struct {
	fs   *FS
	name string
}

// Lock implements FS.
func (m *FS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.locks[name] != nil {
		return nil, vfs.ErrLocked
	}
	l := &fileLock{fs: m, name: name}
	m.locks[name] = l
	return l, nil
}

func (l *fileLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.fs.locks[l.name] == l {
		delete(l.fs.locks, l.name)
	}
	return nil
}

// Free implements FS.
func (m *FS) Free(string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return 1 << 40, nil
	}
	return uint64(max(0, m.capacity-m.root.size())), nil
}

func (n *inode) size() int64 {
	total := int64(len(n.blocks.data))
	for _, e := range n.entries {
		total += e.size()
	}
	return total
}

// ErrKilled is the error of a killed process's operations. A hook that returns it ends the process
// in front of an operation: unlike a sync that fails, it leaves pages that are to be synced as they
// are.
var ErrKilled = errors.New("the process was killed")
