package wal

import (
	"math"
	"sync"

	tidwall "github.com/tidwall/wal"

	"carillon/internal/vfs"
)

// tidwallAppender writes one segment by tidwall/wal. It never reads, truncates or
// turns: repair and reading are ours, and a segment turn is a new appender, so that
// tidwall's inline turn (sync, close, create in the middle of an append) never happens.
type tidwallAppender struct {
	log   *tidwall.Log
	index uint64
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
	return &tidwallAppender{log: log}, nil
}

func (a *tidwallAppender) append(entries [][]byte) error {
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

func (a *tidwallAppender) close() error { return a.log.Close() }
