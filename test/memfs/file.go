package memfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// openFile is an open file of a FS.
type openFile struct {
	fs     *FS
	node   *inode
	name   string
	offset int64
	epoch  int
	write  bool
	closed bool
}

func (f *openFile) checkLocked() error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case f.epoch != f.fs.epoch:
		return ErrKilled
	}
	return nil
}

// do runs an operation with the file system locked.
func (f *openFile) do(op Op, run func() error) error {
	if err := f.fs.enter(op, f.name); err != nil {
		return pathError(op, f.name, err)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.checkLocked()
	if err == nil {
		err = run()
	}
	if err == io.EOF || err == nil {
		return err
	}
	return pathError(op, f.name, err)
}

func (f *openFile) Read(p []byte) (n int, err error) {
	err = f.do(OpRead, func() error {
		n, err = f.readLocked(p, f.offset)
		f.offset += int64(n)
		return err
	})
	return n, err
}

func (f *openFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.do(OpRead, func() error {
		n, err = f.readLocked(p, off)
		if n == len(p) {
			return nil
		}
		return io.EOF
	})
	return n, err
}

func (f *openFile) readLocked(p []byte, off int64) (int, error) {
	data := f.node.blocks.data
	if off >= int64(len(data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	return copy(p, data[off:]), nil
}

func (f *openFile) Write(p []byte) (int, error) {
	return f.writeFault(p, func() int64 { return f.offset }, true)
}

func (f *openFile) WriteAt(p []byte, off int64) (int, error) {
	return f.writeFault(p, func() int64 { return off }, false)
}

// writeFault writes as much of p as faults and capacity let it.
func (f *openFile) writeFault(p []byte, at func() int64, advance bool) (n int, err error) {
	n, fault := f.fs.enterWrite(f.name, len(p))
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkLocked(); err != nil {
		return 0, pathError(OpWrite, f.name, err)
	}
	if !f.write {
		return 0, pathError(OpWrite, f.name, syscall.EBADF)
	}
	off := at()
	if f.fs.capacity > 0 && off+int64(n) > f.roomLocked() {
		n, fault = int(max(0, f.roomLocked()-off)), syscall.ENOSPC
	}
	f.node.blocks.writeAt(p[:n], off)
	if advance {
		f.offset += int64(n)
	}
	if fault != nil {
		return n, pathError(OpWrite, f.name, fault)
	}
	return n, nil
}

// roomLocked is the size to which this file may grow.
func (f *openFile) roomLocked() int64 {
	size := int64(len(f.node.blocks.data))
	return size + max(0, f.fs.capacity-f.fs.root.size())
}

func (f *openFile) Sync() error { return f.sync(OpSync) }

// Datasync is Sync: the size is needed to read the data.
func (f *openFile) Datasync() error { return f.sync(OpSync) }

func (f *openFile) sync(op Op) error {
	if err := f.fs.enter(op, f.name); err != nil {
		if !errors.Is(err, ErrKilled) {
			f.fs.mu.Lock()
			f.node.blocks.fail()
			f.fs.mu.Unlock()
		}
		return pathError(op, f.name, err)
	}
	lie := f.fs.lie(f.name, false)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.checkLocked(); err != nil {
		return pathError(op, f.name, err)
	}
	if lie.Lies {
		f.node.blocks.lie(lie)
		return nil
	}
	f.node.blocks.sync()
	return nil
}

func (f *openFile) Truncate(size int64) error {
	return f.do(OpTruncate, func() error {
		if !f.write {
			return syscall.EINVAL
		}
		f.node.blocks.truncate(size)
		return nil
	})
}

func (f *openFile) Size() (size int64, err error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.blocks.data)), f.checkLocked()
}

func (f *openFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return pathError(OpOpen, f.name, fs.ErrClosed)
	}
	f.closed = true
	if f.epoch == f.fs.epoch {
		f.fs.opened--
	}
	return nil
}
