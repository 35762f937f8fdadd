package wal

import (
	"os"
	"path/filepath"

	"carillon/internal/vfs"
)

// appender is the append-only file under the framing: tidwall/wal on the operating
// system's file system, fileAppender on any other. Both write the same bytes.
// After the first error an appender is only dropped, never used or closed again.
type appender interface {
	// append writes all entries by one write.
	append(entries [][]byte) error
	// close syncs and closes.
	close() error
}

// newAppender begins a segment in an empty directory; its file is segmentName(1).
func newAppender(fsys vfs.FS, dir string) (appender, error) {
	if _, ok := fsys.(vfs.OS); ok {
		log, err := newTidwall(dir)
		return log, vfs.LackOfInodes(dir, err)
	}
	f, err := fsys.OpenFile(filepath.Join(dir, segmentName(1)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	return &fileAppender{file: f}, nil
}

// fileAppender writes the bytes that tidwall/wal would write, over FS.
type fileAppender struct {
	file vfs.File
	buf  []byte
}

func (a *fileAppender) append(entries [][]byte) error {
	a.buf = a.buf[:0]
	for _, e := range entries {
		a.buf = appendEntry(a.buf, e)
	}
	_, err := a.file.Write(a.buf)
	return err
}

func (a *fileAppender) close() error {
	if err := a.file.Sync(); err != nil {
		return err
	}
	return a.file.Close()
}
