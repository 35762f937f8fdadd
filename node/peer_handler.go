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

// peerHandler connects the host with the other nodes: it implements shard.Peers for what the host
// sends, and peer.Handler for what the others send.
type peerHandler struct{ p *process }

func (h peerHandler) Send(node uint64, frame []byte) {
	if !h.p.peers.Send(node, frame) {
		if c := h.p.core.Load(); c != nil {
			c.host.Unreachable(node)
		}
	}
}

func (h peerHandler) SendSnapshot(node uint64, s *shard.SnapshotStream) {
	h.p.tasks.Go(func() {
		file := &snapshotFile{open: s.Open}
		defer file.close()
		s.Done(h.p.peers.SendFile(h.p.running, node, s.Header, file, s.Size))
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

func (h peerHandler) Frame(from uint64, frame []byte) {
	c := h.p.core.Load()
	if c == nil || len(frame) == 0 {
		return
	}
	if h.p.self.Frame(from, frame) {
		c.host.InContact(from)
	} else {
		c.host.Deliver(from, frame)
	}
}

func (h peerHandler) Call(ctx context.Context, from peer.Hello, method uint8, body []byte) ([]byte, error) {
	if answer, handled, err := h.p.self.Call(ctx, from, method, body); handled {
		return answer, err
	}
	c := h.p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	if method == methodDestinations {
		return c.answerDestinations()
	}
	return h.answer(ctx, c, from.Node, method, body)
}

// answer has the router answer. A panic costs the caller its answer, and not the process.
func (h peerHandler) answer(ctx context.Context, c *core, from uint64, method uint8, body []byte) (answer []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			h.p.log.Error("a request of another node has panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
			answer, err = wire.AppendFailure(nil, timer.ErrUnknown), nil
		}
	}()
	if feed.Serves(method) {
		return c.feed.Serve(ctx, from, method, body)
	}
	return c.router.Serve(ctx, from, method, body)
}

func (h peerHandler) Unreachable(node uint64) {
	if c := h.p.core.Load(); c != nil {
		c.host.Unreachable(node)
	}
}

func (h peerHandler) SeemsGone(node uint64, starts uint32) {
	if c := h.p.core.Load(); c != nil {
		c.host.SeemsGone(table.NewIncarnation(node, starts))
	}
}

func (h peerHandler) DuplicateIdentity(other peer.Hello) {
	h.p.fail(stayDown(fmt.Errorf("node: another process has this node's identity (%s, start %d): its data directory is a copy of this one, or the other "+
		"way round; remove one of the two, and empty its directory before it joins again", other.Name, other.Starts)))
}

func (h peerHandler) OpenStream(from uint64, header []byte, size int64) (peer.Sink, error) {
	c := h.p.core.Load()
	if c == nil {
		return nil, errNotYet
	}
	return h.p.snapshots.open(from, header, func() (incoming, error) {
		in, err := c.host.Receive(from, header, size)
		if err != nil {
			return nil, err // not a nil pointer in an interface, which is not nil
		}
		return in, nil
	})
}
