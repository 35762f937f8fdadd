package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"carillon/node/feed"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/shard/wire"
	"carillon/timer"
	"carillon/transport/peer"
)

// links is the process as its peers know it: it implements shard.Peers towards the host and
// peer.Handler towards the transport.
type links struct{ p *process }

func (l links) Send(node uint64, frame []byte) {
	if !l.p.peers.Send(node, frame) {
		if c := l.p.core.Load(); c != nil {
			c.host.Unreachable(node)
		}
	}
}

func (l links) SendSnapshot(node uint64, s *shard.SnapshotStream) {
	l.p.tasks.Go(func() {
		file := &snapshotFile{open: s.Open}
		defer file.close()
		s.Done(l.p.peers.SendFile(l.p.running, node, s.Header, file, s.Size))
	})
}

// snapshotFile reads a snapshot from any place on; the transport reads it in order.
type snapshotFile struct {
	open   func() (shard.SnapshotSource, error)
	source shard.SnapshotSource
	at     int64
}

// ReadAt implements io.ReaderAt.
func (f *snapshotFile) ReadAt(b []byte, offset int64) (int, error) {
	if f.source == nil {
		source, err := f.open()
		if err != nil {
			return 0, err
		}
		f.source, f.at = source, 0
	}
	if offset != f.at {
		if err := f.source.SeekTo(offset); err != nil {
			return 0, err
		}
		f.at = offset
	}
	n, err := io.ReadFull(f.source, b)
	f.at += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

func (f *snapshotFile) close() {
	if f.source != nil {
		_ = f.source.Close()
	}
}

func (l links) Frame(from uint64, frame []byte) {
	c := l.p.core.Load()
	if c == nil || len(frame) == 0 {
		return
	}
	if l.p.self.Frame(from, frame) {
		c.host.InContact(from)
	} else {
		c.host.Deliver(from, frame)
	}
}

func (l links) Call(ctx context.Context, from peer.Hello, method uint8, body []byte) ([]byte, error) {
	if answer, handled, err := l.p.self.Call(ctx, from, method, body); handled {
		return answer, err
	}
	c := l.p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	if method == methodDestinations {
		return c.answerDestinations()
	}
	return l.answer(ctx, c, from.Node, method, body)
}

// answer has the router answer. A panic costs the caller its answer, and not the process.
func (l links) answer(ctx context.Context, c *core, from uint64, method uint8, body []byte) (answer []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			l.p.log.Error("a request of another node has panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
			answer, err = wire.AppendFailure(nil, timer.ErrUnknown), nil
		}
	}()
	if feed.Serves(method) {
		return c.feed.Serve(ctx, from, method, body)
	}
	return c.router.Serve(ctx, from, method, body)
}

func (l links) Unreachable(node uint64) {
	if c := l.p.core.Load(); c != nil {
		c.host.Unreachable(node)
	}
}

func (l links) SeemsGone(node uint64, starts uint32) {
	if c := l.p.core.Load(); c != nil {
		c.host.SeemsGone(table.NewIncarnation(node, starts))
	}
}

func (l links) DuplicateIdentity(h peer.Hello) {
	l.p.fail(stayDown(fmt.Errorf("node: another process has this node's identity (%s, start %d): its data directory is a copy of this one, or the other "+
		"way round; remove one of the two, and empty its directory before it joins again", h.Name, h.Starts)))
}

func (l links) OpenStream(from uint64, header []byte, size int64) (peer.Sink, error) {
	c := l.p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	return l.p.intakes.open(from, header, func() (incoming, error) {
		in, err := c.host.Receive(from, header, size)
		if err != nil {
			return nil, err // not a nil pointer in an interface, which is not nil
		}
		return in, nil
	})
}
