package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"time"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Backup streams a backup of the whole cluster. Its beginning is awaited, so that a backup that
// cannot begin is a problem and no file.
func Backup(rq *web.Request) *web.Problem {
	n := rq.Node
	select {
	case n.Backups <- struct{}{}:
	default:
		return web.Fail(503, "overloaded", "a backup is being taken through this node already")
	}
	from := rq.Core.Backup
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(n.Ending)
	end := func() {
		cancel()
		_ = reader.Close()
	}
	go func() {
		defer func() { <-n.Backups }()
		_ = writer.CloseWithError(writeBackup(n, ctx, from, writer))
	}()
	b := &backupBody{Reader: bufio.NewReaderSize(reader, 64<<10), conn: rq.Ctx.Conn(), end: end}
	if _, err := b.Peek(1); err != nil {
		end()
		switch {
		case n.Ending.Err() != nil:
			return web.Fail(503, web.Unavailable, "the node is stopping")
		case errors.Is(err, errBackupPanic):
			return web.Fail(500, web.InternalError, "the backup could not be taken")
		}
		return web.Fault(err)
	}
	// A node that stops does not wait for a reader that rests.
	stop := context.AfterFunc(n.Ending, func() { _ = b.conn.Close() })
	b.end = func() {
		stop()
		end()
	}
	rq.Ctx.SetStatusCode(200)
	rq.Ctx.Response.Header.SetContentType("application/octet-stream")
	rq.Ctx.Response.Header.Set("Content-Disposition", `attachment; filename="carillon.backup"`)
	rq.Ctx.Response.SetBodyStream(b, -1)
	return nil
}

var errBackupPanic = errors.New("panic in a backup")

// writeBackup does not let a panic end the process.
func writeBackup(n *web.Node, ctx context.Context, from backend.Backup, to io.Writer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			n.Logger.Error("panic in a backup", "panic", v, "stack", string(debug.Stack()))
			err = errBackupPanic
		}
	}()
	return from.Backup(ctx, to)
}

// pieceWithin is the time for each piece. A reader that puts the backup into a store reads nothing
// while it sends 16 MiB there. It is less than the time after which a shard's state is closed that
// nobody reads.
const pieceWithin = 4 * time.Minute

// backupBody is the answer. It may take as long as the backup does: the time to write is that of
// each piece.
type backupBody struct {
	*bufio.Reader
	conn net.Conn
	end  func()
}

func (b *backupBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	_ = b.conn.SetWriteDeadline(time.Now().Add(pieceWithin))
	return n, err
}

// Close is called when the answer has been written, or cannot be.
func (b *backupBody) Close() error {
	b.end()
	return nil
}
