package audit

import (
	"fmt"
	"os"
)

// file is the current file and its predecessors: PATH.1 is the newest of them.
type file struct {
	path  string
	bytes int64
	files int

	open *os.File
	info os.FileInfo // of open
	size int64
}

// write appends lines, to a new file if the current one is full, or has lost its name.
func (f *file) write(b []byte) (n int, err error) {
	f.follow()
	if f.open == nil {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	if f.size > 0 && f.size+int64(len(b)) > f.bytes {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err = f.open.Write(b)
	f.size += int64(n)
	if err != nil {
		f.close()
	}
	return n, err
}

// follow closes the file if it was renamed or removed.
func (f *file) follow() {
	if f.open == nil {
		return
	}
	named, err := os.Stat(f.path)
	switch {
	case err == nil && os.SameFile(named, f.info):
		f.size = named.Size() // another program may have cut it
	case err == nil, os.IsNotExist(err):
		f.close()
	}
}

// begin opens the file to append. It ends a line that a crash has cut off, so that the next line
// stays readable.
func (f *file) begin() error {
	open, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := open.Stat()
	if err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err = open.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			_, err = open.Write([]byte{'\n'})
		}
	}
	if err != nil {
		_ = open.Close()
		return err
	}
	f.open, f.info, f.size = open, info, info.Size()
	return nil
}

// rotate renames each file to the next number and deletes the last one.
func (f *file) rotate() error {
	f.close()
	if f.files == 1 {
		if err := os.Remove(f.path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	for n := f.files - 1; n > 0; n-- {
		if err := os.Rename(f.name(n-1), f.name(n)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return f.begin()
}

func (f *file) name(n int) string {
	if n == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, n)
}

func (f *file) close() {
	if f.open != nil {
		_ = f.open.Sync() // best effort
		_ = f.open.Close()
		f.open = nil
	}
}
