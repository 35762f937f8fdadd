package wal

import (
	"io/fs"
	"strings"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

// removing removes a file just before it is opened, as a node that runs may.
type removing struct {
	vfs.FS
	name string
}

func (r removing) Open(name string) (vfs.File, error) {
	if strings.HasSuffix(name, r.name) {
		return nil, fs.ErrNotExist
	}
	return r.FS.Open(name)
}

// TestVerifyBesideARunningNode: a snapshot that is being written is called that, and one that a
// newer one has replaced since the directory was listed is no damage.
func TestVerifyBesideARunningNode(t *testing.T) {
	fsys := memfs.New()
	for index := range uint64(2) {
		writeSnapshot(t, fsys, snapMeta(1+index), []byte("state"))
	}
	w, err := CreateSnapshot(fsys, snapDir, snapMeta(3))
	must(t, err)
	defer w.Abort()
	got, err := Verify(removing{fsys, snapMeta(1).FileName()}, "data")
	if err != nil || got.Snapshots != 1 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "snapshot that was not finished") {
		t.Errorf("%+v, %v", got, err)
	}
}
