package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"carillon/internal/vfs"
	"carillon/wal"
)

// Directory knows which snapshots each shard has in a directory. A node may have some thousands,
// and each one that is written has others removed: to list the directory each time would take
// longer than to write most of them. Its methods may be called from any goroutine. Cost: that of
// the shard's own files, of which there are few.
type Directory struct {
	fsys vfs.FS
	path string

	mu    sync.Mutex
	files map[uint32][]wal.SnapshotInfo // by shard. Some may not be there
}

// OpenDirectory lists a directory.
func OpenDirectory(fsys vfs.FS, path string) (*Directory, error) {
	list, err := wal.Snapshots(fsys, path)
	if err != nil {
		return nil, err
	}
	d := &Directory{fsys: fsys, path: path, files: map[uint32][]wal.SnapshotInfo{}}
	for _, file := range list {
		d.files[file.Shard] = append(d.files[file.Shard], file)
	}
	return d, nil
}

// Highest returns the highest shard of which there is a snapshot; 0: none has one.
func (d *Directory) Highest() (shard uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.files {
		shard = max(shard, id)
	}
	return shard
}

// Of returns the snapshots of a shard: those that were there at first, the newest of them first,
// and then those that came since. One may not be there.
func (d *Directory) Of(shard uint32) []wal.SnapshotInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.files[shard])
}

// Add adds a snapshot after its Commit, whether that has failed or not: it may be there all the
// same.
func (d *Directory) Add(meta wal.SnapshotMeta) {
	file := wal.SnapshotInfo{Name: meta.FileName(), Shard: meta.Shard, Index: meta.Index, Term: meta.Term}
	if _, err := d.fsys.Stat(filepath.Join(d.path, file.Name)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(d.files[meta.Shard], func(f wal.SnapshotInfo) bool { return f.Name == file.Name }) {
		d.files[meta.Shard] = append(d.files[meta.Shard], file)
	}
}

// Remove removes those snapshots of a shard that which picks. durable: they are gone after a power
// cut, too. After an error it may be called again.
func (d *Directory) Remove(shard uint32, durable bool, which func(wal.SnapshotInfo) bool) error {
	var gone []string
	for _, file := range d.Of(shard) {
		if !which(file) {
			continue
		}
		if err := d.fsys.Remove(filepath.Join(d.path, file.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a snapshot: %w", err)
		}
		gone = append(gone, file.Name)
	}
	if durable && len(gone) > 0 {
		if err := d.fsys.SyncDir(d.path); err != nil {
			return fmt.Errorf("remove snapshots in %s: %w", d.path, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(d.files[shard]), func(f wal.SnapshotInfo) bool { return slices.Contains(gone, f.Name) })
	if d.files[shard] = left; len(left) == 0 {
		delete(d.files, shard)
	}
	return nil
}
