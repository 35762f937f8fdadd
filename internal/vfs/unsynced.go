package vfs

// Unsynced is a file system that leaves it to the kernel when data gets to the disk. What was
// written outlasts the process, but not the machine. It is for tests, which wait for the disk
// otherwise.
type Unsynced struct{ FS }

func (u Unsynced) OpenFile(name string, flag int) (File, error) {
	return unsynced(u.FS.OpenFile(name, flag))
}

func (u Unsynced) Create(name string) (File, error) { return unsynced(u.FS.Create(name)) }

func (Unsynced) SyncDir(string) error { return nil }

func unsynced(f File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ File }

func (unsyncedFile) Sync() error     { return nil }
func (unsyncedFile) Datasync() error { return nil }
