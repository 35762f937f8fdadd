package wal

import (
	"math"
	"reflect"
	"sync"
	"unsafe"

	tidwall "github.com/tidwall/wal"

	"carillon/internal/vfs"
)

// tidwallAppender writes one segment by tidwall/wal. It never reads, truncates or
// turns: repair and reading are ours, and a segment turn is a new appender, so that
// tidwall's inline turn (sync, close, create in the middle of an append) never happens.
type tidwallAppender struct {
	log   *tidwall.Log
	index uint64
	kept  *[]byte // see keptBy
}

// batches are used again, by the next segment too: a batch copies what it is given.
var batches = sync.Pool{New: func() any { return new(tidwall.Batch) }}

func newTidwall(dir string) (appender, error) {
	log, err := tidwall.Open(dir, &tidwall.Options{
		NoSync:      true, // the stream decides when to sync
		SegmentSize: math.MaxInt,
		LogFormat:   tidwall.Binary,
		AllowEmpty:  true,
		DirPerms:    vfs.DirPerm,
		FilePerms:   vfs.FilePerm,
	})
	if err != nil {
		return nil, err
	}
	return &tidwallAppender{log: log, kept: keptBy(log)}, nil
}

// keptBy is where tidwall/wal keeps the bytes of the segment that it writes, for reads, which we do
// not make. It grows them by copying: five bytes are allocated for each that is written. It has no
// option for that, so we empty them at each write. If a later version keeps them elsewhere, that is
// only slow; a test finds it.
func keptBy(log *tidwall.Log) *[]byte {
	segments := reflect.ValueOf(log).Elem().FieldByName("segments")
	if segments.Kind() != reflect.Slice || segments.Len() != 1 || segments.Type().Elem().Kind() != reflect.Pointer {
		return new([]byte)
	}
	kept := reflect.Indirect(segments.Index(0))
	if kept.Kind() == reflect.Struct {
		kept = kept.FieldByName("ebuf")
	}
	if !kept.IsValid() || kept.Type() != reflect.TypeFor[[]byte]() {
		return new([]byte)
	}
	return (*[]byte)(unsafe.Pointer(kept.UnsafeAddr()))
}

func (a *tidwallAppender) append(entries [][]byte) error {
	*a.kept = (*a.kept)[:0]
	batch := batches.Get().(*tidwall.Batch)
	batch.Clear() // a write that failed has left something
	for _, e := range entries {
		a.index++
		batch.Write(a.index, e)
	}
	err := a.log.WriteBatch(batch)
	batches.Put(batch)
	return err
}

func (a *tidwallAppender) sync() error  { return a.log.Sync() }
func (a *tidwallAppender) close() error { return a.log.Close() }
