package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"carillon/internal/vfs"
	"carillon/wal"
)

// A node halts when it learns that its disk lacks something that it had acknowledged or voted. It
// must stop, nor may a new process on that disk, which might not learn of the loss again. So
// the halt is recorded on disk before the process ends, and a start that finds the record refuses
// (docs/adr/0016).

// HaltReason is the reason of a halt.
type HaltReason string

// Reasons of a halt.
const (
	// LostEnd: a leader knows of entries that this node had acknowledged and has lost.
	LostEnd HaltReason = "lost_end"
	// OldDirectory: the cluster knows of a later start of this node than its data directory does.
	OldDirectory HaltReason = "old_directory"
)

// HaltError ends a node that halts, and refuses each later start of it.
type HaltError struct {
	Reason HaltReason
	Err    error
}

func (e *HaltError) Error() string { return e.Err.Error() + "; " + e.Reason.advice() }

func (e *HaltError) Unwrap() error { return e.Err }

// advice names the way to recover.
func (r HaltReason) advice() string {
	text := "it must not vote with what it has: while the other nodes serve, empty the data directory and start it, " +
		"so that it joins again under a new id and is filled by them"
	if r == OldDirectory {
		text = "put the newest data directory back, or: " + text
	}
	return text
}

const (
	haltFile    = "halted.json"
	haltVersion = 1
)

// haltRecord is the content of haltFile. It is for people: the existence of the file alone makes a
// start refuse.
type haltRecord struct {
	Version int        `json:"version"`
	Reason  HaltReason `json:"reason"`
	Detail  string     `json:"detail"`
	At      string     `json:"at"`
	Advice  string     `json:"advice"`
}

// WriteHalt durably records that the node of a data directory has halted. It keeps an earlier
// record.
func WriteHalt(fsys vfs.FS, dir string, nowMs int64, halt *HaltError) error {
	path := filepath.Join(dir, haltFile)
	if _, err := fsys.Stat(path); err == nil {
		return nil
	}
	r := haltRecord{Version: haltVersion, Reason: halt.Reason, Detail: halt.Err.Error(), Advice: halt.Reason.advice(), At: time.UnixMilli(nowMs).UTC().Format(time.RFC3339)}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, path, append(data, '\n'))
}

// CheckHalt returns a *HaltError if the node of a data directory has halted, or another error if
// that cannot be read.
func CheckHalt(fsys vfs.FS, dir string) error {
	path := filepath.Join(dir, haltFile)
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return fmt.Errorf("shard: read %s: %w", path, err)
	}
	var r haltRecord
	if err := json.Unmarshal(data, &r); err != nil {
		r.Detail = "for a reason that cannot be read any more"
	}
	return &HaltError{Reason: r.Reason, Err: fmt.Errorf("this node ended itself at %s: %s (%s)", r.At, r.Detail, path)}
}

// halt ends the host for good. The reason is on disk before the host fails.
func (h *Host) halt(halt *HaltError) {
	h.halting.Do(func() {
		h.fail(refuse(&h.cfg, halt))
	})
}

// outnumbered is why a start is refused that counts fewer shards than the data directory has
// something of. A node stores how many there are in identity.json before it has anything of a new
// one. Without them it would count their replicas as empty, though they have voted.
func outnumbered(shards int, shard uint32, what string) *HaltError {
	return &HaltError{OldDirectory, fmt.Errorf("identity.json was put back from before the number of shards grew: it has %d, and this directory has %s of shard %d",
		shards, what, shard)}
}

// refuse records a halt of a process that has not begun.
func refuse(cfg *Config, halt *HaltError) error {
	if err := WriteHalt(cfg.FS, cfg.Dir, cfg.Clock.Look().WallMs, halt); err != nil {
		return errors.Join(halt, fmt.Errorf("and that could not be stored, so do not start it again as it is: %w", err))
	}
	return halt
}

// damageError is in the error of a start that lacks something which this node had on its disk.
type damageError struct{ err error }

func (e damageError) Error() string { return e.err.Error() }

func (e damageError) Unwrap() error { return e.err }

// Damaged reports that a start failed because the data directory is not what this node left on its
// disk: the log is damaged before its end, or a file is missing or damaged that nothing on this
// disk makes up for. Such a directory is not started on again. A disk that does not read now, and a
// file of another release, are not damage.
func Damaged(err error) bool {
	if _, ok := errors.AsType[damageError](err); ok {
		return true
	}
	c, ok := errors.AsType[*wal.CorruptionError](err)
	return ok && !c.OtherRelease()
}

// checkLog refuses a directory that has had a log and has none. Snapshots do not make up for it:
// what was acknowledged last is in the log alone.
func (h *Host) checkLog() error {
	if h.cfg.Meta != nil {
		return nil // of a new node
	}
	dir := filepath.Join(h.cfg.Dir, "wal")
	if _, err := h.cfg.FS.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return damageError{fmt.Errorf("shard: the folder %s is missing, and what was acknowledged last is in it alone", dir)}
	}
	return nil
}
