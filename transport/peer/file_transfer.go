package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/time/rate"
)

const (
	bulkChunkBytes = 56 << 10 // fits the far side's read buffer
	bulkQueueBytes = 1 << 20
)

// newPace spreads the bytes of all files of one direction over time, in the order in which they are
// asked for: no file starves. It lets 10 ms worth of them go ahead, since a timer is no finer.
func newPace(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond/100, bulkChunkBytes))
}

// await waits for n bytes' turn; false means that ctx ended.
func await(ctx context.Context, pace *rate.Limiter, n int) bool {
	for ; n > 0; n -= pace.Burst() {
		if pace.WaitN(ctx, min(n, pace.Burst())) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// fileSender is the sending side of one file. Each channel holds one.
type fileSender struct {
	have chan int64
	end  chan error
}

func (f *fileSender) handle(kind byte, payload []byte, _ bool) error {
	switch {
	case kind == kindHave && len(payload) == 8 && len(f.have) == 0:
		f.have <- int64(binary.LittleEndian.Uint64(payload))
	case kind == kindEnd && len(payload) >= 2 && len(f.end) == 0:
		if payload[0] == statusOK {
			f.end <- nil
		} else {
			f.end <- &RemoteError{Code: payload[1], Text: printable(string(payload[2:]))}
		}
	default:
		return errProtocol
	}
	return nil
}

// SendFile brings size bytes of file to the node and returns when the far side has
// accepted them whole. It waits for its turn behind other files to the node. After a
// failure, the same header and file continue where the receiver stands. Its errors are those
// of Call.
func (t *Transport) SendFile(ctx context.Context, node uint64, header []byte, file io.ReaderAt, size int64) error {
	if len(header) > t.config.MaxFrame {
		return notSent(errTooLarge)
	}
	p, err := t.peer(node)
	if err != nil {
		return notSent(err)
	}
	select {
	case p.bulk <- struct{}{}:
		defer func() { <-p.bulk }()
	case <-ctx.Done():
		return notSent(ctx.Err())
	}
	c, err := t.connect(ctx, p, LaneBulk, newOutbox(bulkQueueBytes))
	if err != nil {
		return notSent(err)
	}
	f := &fileSender{have: make(chan int64, 1), end: make(chan error, 1)}
	if !t.spawn(func() { _ = t.serve(c, f.handle) }) {
		c.close(errStopped)
		return notSent(errStopped)
	}
	stop := context.AfterFunc(ctx, func() { c.close(ctx.Err()) }) // frees all that waits below
	err = c.sendChunks(f, header, file, size)
	stop()
	c.close(err)
	<-c.ended
	return err
}

func (c *conn) sendChunks(f *fileSender, header []byte, file io.ReaderAt, size int64) error {
	broken := func() error { return unknown(context.Cause(c.ctx)) }
	if !c.out.pushWait(kindOpen, binary.LittleEndian.AppendUint64(nil, uint64(size)), header) {
		return broken()
	}
	var at int64
	select {
	case at = <-f.have:
	case err := <-f.end:
		return err
	case <-c.ctx.Done():
		return broken()
	}
	if at < 0 || at > size {
		return fmt.Errorf("peer: the receiver has %d bytes of %d", at, size)
	}
	chunk := make([]byte, bulkChunkBytes)
	for at < size && len(f.end) == 0 { // an early end is a failure
		part := chunk[:min(size-at, bulkChunkBytes)]
		if !await(c.ctx, c.t.sending, len(part)) {
			return broken()
		}
		if n, err := file.ReadAt(part, at); n < len(part) {
			return fmt.Errorf("peer: read the file at %d: %w", at, noEOF(err))
		}
		if !c.out.pushWait(kindChunk, nil, part) {
			return broken()
		}
		at += int64(len(part))
	}
	select {
	case err := <-f.end:
		if err == nil && at < size {
			return errors.New("peer: the receiver accepted a part as the whole")
		}
		return err
	case <-c.ctx.Done():
		return broken()
	}
}
