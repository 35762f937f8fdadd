package memfs

import (
	"fmt"
	"syscall"
)

// Op is a kind of file system operation.
type Op uint8

// The kinds, as faults and hooks see them.
const (
	OpOpen Op = iota
	OpCreate
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpRename
	OpRemove
	OpMkdir
	OpReadDir
	OpSyncDir
)

var opNames = [...]string{"open", "create", "read", "write", "sync", "truncate", "rename",
	"remove", "mkdir", "readdir", "syncdir"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", o)
}

// Changes reports whether the operation can change the state after a crash.
func (o Op) Changes() bool { return o != OpOpen && o != OpRead && o != OpReadDir }

type fault struct {
	op   Op
	left int // operations of that kind until it strikes
	keep int // bytes that a failing write still writes
	err  error
}

// FailNth makes the n-th operation of a kind from now (1 is the next) fail with err. A failing
// write writes nothing; the pages that a failing sync should have written are lost for good.
func (m *FS) FailNth(op Op, n int, err error) { m.addFault(fault{op: op, left: n, err: err}) }

// ShortWriteNth makes the n-th write from now write only keep bytes and fail with err.
func (m *FS) ShortWriteNth(n, keep int, err error) {
	m.addFault(fault{op: OpWrite, left: n, keep: keep, err: err})
}

func (m *FS) addFault(f fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, f)
}

// SetCapacity bounds the sum of all file sizes; writes beyond it are cut short with
// ENOSPC. 0 means no bound.
func (m *FS) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// SetFree bounds the sum of all file sizes to the present one and so many bytes more.
func (m *FS) SetFree(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = m.root.size() + bytes
}

// SetHook calls hook before every operation, outside of all locks; an error makes the
// operation fail. n counts operations from 1. CrashClone may be called in it.
func (m *FS) SetHook(hook func(n int, op Op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// FlipBit inverts one bit of a file, durably: damage at rest. Bits count from the file's start.
func (m *FS) FlipBit(name string, bit int64) error {
	return m.Damage(name, func(b []byte) []byte {
		if bit/8 < int64(len(b)) {
			b[bit/8] ^= 1 << (bit % 8)
		}
		return b
	})
}

// Damage replaces a file's content by the result of change, durably.
func (m *FS) Damage(name string, change func([]byte) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return pathError(OpWrite, name, err)
	}
	n.blocks = blocks{data: change(n.blocks.data)}
	n.blocks.size = int64(len(n.blocks.data))
	return nil
}

// enter counts an operation and returns the fault that strikes it.
func (m *FS) enter(op Op, name string) error {
	_, err := m.strike(op, name)
	return err
}

// enterWrite is enter for a write of n bytes: how many of them are written.
func (m *FS) enterWrite(name string, n int) (keep int, err error) {
	f, err := m.strike(OpWrite, name)
	if err != nil {
		return min(n, f.keep), err
	}
	return n, nil
}

func (m *FS) strike(op Op, name string) (fault, error) {
	m.mu.Lock()
	m.ops++
	n, hook := m.ops, m.hook
	var hit fault
	for i := range m.faults {
		if f := &m.faults[i]; f.op == op {
			if f.left--; f.left == 0 {
				hit = *f
			}
		}
	}
	m.mu.Unlock()
	if hook != nil {
		if err := hook(n, op, name); err != nil {
			return fault{}, err
		}
	}
	return hit, hit.err
}
