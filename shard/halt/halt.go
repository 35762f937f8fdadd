// Package halt ends a node for good: it records on disk why, and refuses each later start
// (docs/adr/0016).
package halt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"carillon/internal/vfs"
)

// A node halts when it learns that its disk lacks something that it had acknowledged or voted. It
// must stop, and so must a new process on that disk, which might not learn of the loss again. So
// the halt is recorded on disk before the process ends, and a start that finds the record refuses
// (docs/adr/0016).

// Reason is the reason of a halt.
type Reason string

// Reasons of a halt.
const (
	// LostEnd: a leader knows of entries that this node had acknowledged and has lost.
	LostEnd Reason = "lost_end"
	// OldDirectory: the cluster knows of a later start of this node than its data directory does.
	OldDirectory Reason = "old_directory"
)

// Error ends a node that halts, and refuses each later start of it.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() + "; " + e.Reason.advice() }

func (e *Error) Unwrap() error { return e.Err }

// advice names the way to recover.
func (r Reason) advice() string {
	text := "it must not vote with what it has: while the other nodes serve, empty the data directory and start it, " +
		"so that it joins again under a new id and is filled by them"
	if r == OldDirectory {
		text = "put the newest data directory back, or: " + text
	}
	return text
}

const (
	file    = "halted.json"
	version = 1
)

// record is the content of file. It is for people: the existence of the file alone makes a
// start refuse.
type record struct {
	Version int    `json:"version"`
	Reason  Reason `json:"reason"`
	Detail  string `json:"detail"`
	At      string `json:"at"`
	Advice  string `json:"advice"`
}

// Write durably records that the node of a data directory has halted. It keeps an earlier
// record. An empty one needs no room on the disk, and refuses a start just as well.
func Write(fsys vfs.FS, dir string, nowMs int64, halt *Error) error {
	path := filepath.Join(dir, file)
	if _, err := fsys.Stat(path); err == nil {
		return nil
	}
	r := record{Version: version, Reason: halt.Reason, Detail: halt.Err.Error(), Advice: halt.Reason.advice(), At: time.UnixMilli(nowMs).UTC().Format(time.RFC3339)}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err = vfs.WriteFileAtomic(fsys, path, append(data, '\n')); vfs.IsFull(err) {
		err = vfs.WriteFileAtomic(fsys, path, nil)
	}
	return err
}

// Check returns a *Error if the node of a data directory has halted, or another error if
// that cannot be read.
func Check(fsys vfs.FS, dir string) error {
	path := filepath.Join(dir, file)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("halt: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("halt: read %s: %w", path, err)
	}
	if len(data) == 0 {
		return &Error{Err: fmt.Errorf("this node ended itself, and had no room to store why; its log has it (%s)", path)}
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		r.Detail = "for a reason that cannot be read any more"
	}
	return &Error{Reason: r.Reason, Err: fmt.Errorf("this node ended itself at %s: %s (%s)", r.At, r.Detail, path)}
}

// Record writes the halt, and returns it as the error of a process that ends by it.
func Record(fsys vfs.FS, dir string, nowMs int64, halt *Error) error {
	if err := Write(fsys, dir, nowMs, halt); err != nil {
		return errors.Join(halt, fmt.Errorf("and that could not be stored, so do not start it again as it is: %w", err))
	}
	return halt
}
