package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"time"
)

// backup streams a backup of the whole cluster. Its beginning is awaited, so that a backup that
// cannot begin is a problem and no file.
func (rq *request) backup() *problem {
	s := rq.s
	select {
	case s.backups <- struct{}{}:
	default:
		return fail(503, "overloaded", "a backup is being taken through this node already")
	}
	from := rq.core.Backup
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(s.ending)
	end := func() {
		cancel()
		_ = reader.Close()
	}
	go func() {
		defer func() { <-s.backups }()
		_ = writer.CloseWithError(s.writeBackup(ctx, from, writer))
	}()
	b := &backupBody{Reader: bufio.NewReaderSize(reader, 64<<10), conn: rq.ctx.Conn(), each: s.cfg.Limits.WriteTimeout, end: end}
	if _, err := b.Peek(1); err != nil {
		end()
		switch {
		case s.ending.Err() != nil:
			return fail(503, unavailable, "the node is stopping")
		case errors.Is(err, errBackupPanic):
			return fail(500, internalError, "the backup could not be taken")
		}
		return engineFault(err)
	}
	rq.ctx.SetStatusCode(200)
	rq.ctx.Response.Header.SetContentType("application/octet-stream")
	rq.ctx.Response.Header.Set("Content-Disposition", `attachment; filename="carillon.backup"`)
	rq.ctx.Response.SetBodyStream(b, -1)
	return nil
}

var errBackupPanic = errors.New("panic in a backup")

// writeBackup does not let a panic end the process.
func (s *Server) writeBackup(ctx context.Context, from Backup, to io.Writer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.cfg.Logger.Error("panic in a backup", "panic", v, "stack", string(debug.Stack()))
			err = errBackupPanic
		}
	}()
	return from.Backup(ctx, to)
}

// backupBody is the answer. It may take as long as it goes on: the time to write is that of each
// piece.
type backupBody struct {
	*bufio.Reader
	conn net.Conn
	each time.Duration
	end  func()
}

func (b *backupBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	_ = b.conn.SetWriteDeadline(time.Now().Add(b.each))
	return n, err
}

// Close is called when the answer has been written, or cannot be.
func (b *backupBody) Close() error {
	b.end()
	return nil
}
