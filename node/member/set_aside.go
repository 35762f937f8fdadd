package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"carillon/internal/vfs"
)

// Rejoin is in the identity of a node that replaces one whose directory was set aside. Such a node
// founds nothing: it joins the cluster, whatever its flags are.
type Rejoin struct {
	ClusterID string   `json:"cluster_id"`
	Seeds     []string `json:"seeds,omitempty"` // gossip addresses of other nodes
}

// AsidePrefix begins the name of a folder to which a damaged directory's content was moved.
const AsidePrefix = "damaged-"

const (
	asideFile = "set-aside.json"
	// maxAside bounds the copies. A disk that has damaged so many logs is not to be trusted.
	maxAside = 3
)

// asideContent is what is moved: all that is of the node with the old id.
var asideContent = []string{"wal", "snapshots", "history", identityFile}

// aside is the content of asideFile. It is there while content is being moved.
type aside struct {
	Folder string   `json:"folder"`
	Next   Identity `json:"next"`
}

// SetAside moves the content of the damaged directory to a folder within it, and makes it the
// directory of a new node that joins the same cluster. After a crash in between, the next start
// finishes it. This Self must not be used afterwards: its identity is no more.
func (s *Self) SetAside() (folder string, err error) {
	id := s.Identity()
	a := aside{
		Folder: AsidePrefix + time.UnixMilli(s.clock.WallMs()).UTC().Format("20060102T150405Z"),
		Next:   Identity{Version: identityVersion, NodeID: NewNodeID(s.cfg.Random), Rejoin: &Rejoin{ClusterID: id.ClusterID, Seeds: s.seeds()}},
	}
	have, err := Asides(s.cfg.FS, s.cfg.Dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("node: set the damaged directory aside: %w", err)
	case len(have) >= maxAside:
		return "", fmt.Errorf("node: the data directory was damaged %d times before (%s): check the disk, and remove these folders",
			len(have), strings.Join(have, ", "))
	}
	if n := len(have); n > 0 && have[n-1] >= a.Folder { // the clock was set back, or it is the same second
		a.Folder = have[n-1] + "+"
	}
	data, err := json.Marshal(a)
	if err == nil {
		err = vfs.WriteFileAtomic(s.cfg.FS, filepath.Join(s.cfg.Dir, asideFile), data)
	}
	if err == nil {
		err = finishSetAside(s.cfg.FS, s.cfg.Dir)
	}
	if err != nil {
		return "", fmt.Errorf("node: set the damaged directory aside: %w", err)
	}
	return filepath.Join(s.cfg.Dir, a.Folder), nil
}

// Asides lists the folders to which damaged content was moved, oldest first.
func Asides(fsys vfs.FS, dir string) (names []string, err error) {
	list, err := fsys.ReadDir(dir)
	for _, e := range list {
		if e.Dir && strings.HasPrefix(e.Name, AsidePrefix) {
			names = append(names, e.Name)
		}
	}
	return names, err
}

// finishSetAside carries out asideFile, if it is there. It may be repeated: the old identity is
// moved last, and the new one is written before the file is removed.
func finishSetAside(fsys vfs.FS, dir string) error {
	path := filepath.Join(dir, asideFile)
	data, err := vfs.ReadFile(fsys, path, nil, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node: read %s: %w", path, err)
	}
	var a aside
	if err := json.Unmarshal(data, &a); err != nil || !strings.HasPrefix(a.Folder, AsidePrefix) || strings.ContainsAny(a.Folder, `/\`) || a.Next.Rejoin == nil {
		return fmt.Errorf("%s is damaged; move the content of the directory aside by hand, and start in an empty one", path)
	}
	folder := filepath.Join(dir, a.Folder)
	if err := fsys.MkdirAll(folder); err != nil {
		return err
	}
	if err := vfs.ResyncDir(fsys, dir); err != nil { // the folder is there before anything is in it
		return err
	}
	for _, name := range asideContent {
		if name == identityFile {
			if id, err := ReadIdentity(fsys, dir); err == nil && id.NodeID == a.Next.NodeID {
				continue // it is the new one already
			}
		}
		if err := fsys.Rename(filepath.Join(dir, name), filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := errors.Join(vfs.ResyncDir(fsys, folder), vfs.ResyncDir(fsys, dir)); err != nil {
		return err
	}
	if err := a.Next.Write(fsys, dir); err != nil {
		return err
	}
	if err := fsys.Remove(path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
