package wal

import (
	"path/filepath"
	"sync"

	"carillon/internal/vfs"
)

// preallocated hands out the next segment. While the stream runs, a goroutine prepares one
// ahead; under Step alone it is made when it is needed, in the caller's goroutine.
type preallocated struct {
	requests chan struct{} // nil: nobody prepares
	ready    chan prepared
	pending  bool // a request is under way or its answer waits in ready
}

type prepared struct {
	seg *segment
	err error
}

// startPreparing begins to prepare segments; the returned function ends that and waits.
func (w *writer) startPreparing(fsys vfs.FS, dir string, size int64) (stop func()) {
	p := &w.preallocated
	p.requests, p.ready = make(chan struct{}, 1), make(chan prepared, 1)
	requests, ready := p.requests, p.ready
	var wg sync.WaitGroup
	wg.Go(func() {
		for range requests {
			seg, err := prepareSegment(fsys, dir, size)
			ready <- prepared{seg, err}
		}
	})
	p.prepareNext()
	return func() {
		close(requests)
		wg.Wait()
		p.requests = nil
		if p.pending {
			if got := <-ready; got.seg != nil {
				got.seg.discard()
			}
			p.pending = false
		}
	}
}

// prepareNext asks for a segment to be made ready, if somebody is there to do it.
func (p *preallocated) prepareNext() {
	if p.requests != nil && !p.pending {
		p.pending = true
		p.requests <- struct{}{} // capacity 1 and one request at a time: never waits
	}
}

// take returns a prepared segment. If there was no room for it that is tried once more: a
// drop may have made some since. Any other failure means a sick disk and stands.
func (p *preallocated) take(fsys vfs.FS, dir string, size int64) (*segment, error) {
	if p.pending {
		got := <-p.ready
		p.pending = false
		if !vfs.IsFull(got.err) {
			return got.seg, got.err
		}
	}
	return prepareSegment(fsys, dir, size)
}

// remove deletes the rest of the spare directory; a failure leaves it to the next Open.
func (p *preallocated) remove(fsys vfs.FS, dir string) {
	_ = vfs.RemoveTree(fsys, filepath.Join(dir, preallocatedDir))
}
