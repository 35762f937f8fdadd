package terminal

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// Bounds of what waits to be written. Beyond either of them lines are lost.
const (
	mostLines = 4096
	mostBytes = 1 << 20
)

// Log writes the lines of a log to an output that may be slow, full, or gone. Write never waits:
// the lines wait in a bounded queue for Run. Lines for which there is no room, and those that the
// output refuses, are counted, and their number is logged before the next line that can be written.
//
// Write may be called by any goroutine, Run and Close once. A write that hangs cannot be
// ended: Run returns after Close only if the output takes what waits.
type Log struct {
	out     io.Writer
	handler slog.Handler // writes to out

	queue chan entry
	lines atomic.Int64 // that wait, with the one that is being written
	bytes atomic.Int64 // of them
	lost  atomic.Int64

	// Of Run.
	reported int64 // of lost
	cut      bool  // the last line was written in part
}

// entry is a line, or the mark of Close.
type entry struct {
	line   []byte
	closed chan struct{}
}

// NewLog makes a Log. The handler formats the line that reports lost lines.
func NewLog(out io.Writer, handler func(io.Writer) slog.Handler) *Log {
	l := &Log{out: out, queue: make(chan entry, mostLines)}
	l.handler = handler(lineWriter{l})
	return l
}

// Write queues a line, which is copied. It does not fail.
func (l *Log) Write(line []byte) (int, error) {
	n := int64(len(line))
	l.lines.Add(1)
	if l.bytes.Add(n) <= mostBytes {
		select {
		case l.queue <- entry{line: bytes.Clone(line)}:
			return len(line), nil
		default:
		}
	}
	l.lines.Add(-1)
	l.bytes.Add(-n)
	l.lost.Add(1)
	return len(line), nil
}

// Counts returns how many lines wait to be written, and how many never will be.
func (l *Log) Counts() (waiting, lost int64) { return l.lines.Load(), l.lost.Load() }

// Run writes lines until Close.
func (l *Log) Run() {
	for e := range l.queue {
		l.report()
		if e.closed != nil {
			close(e.closed)
			return
		}
		if l.write(e.line) != nil {
			l.lost.Add(1)
		}
		l.lines.Add(-1)
		l.bytes.Add(-int64(len(e.line)))
	}
}

// Close waits until the lines that wait are written, but no longer than the limit. Later lines are
// never written.
func (l *Log) Close(limit time.Duration) {
	over := time.NewTimer(limit)
	defer over.Stop()
	closed := make(chan struct{})
	select {
	case l.queue <- entry{closed: closed}:
		select {
		case <-closed:
		case <-over.C:
		}
	case <-over.C:
	}
}

// report logs how many lines were lost since the last report.
func (l *Log) report() {
	lost := l.lost.Load() - l.reported
	if lost == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were lost: its reader was too slow, or it could not be written", 0)
	r.AddAttrs(slog.Int64("lines", lost))
	if l.handler.Handle(context.Background(), r) == nil {
		l.reported += lost
	}
}

// write ends a line that was cut first.
func (l *Log) write(line []byte) error {
	if l.cut {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.out.Write(line)
	if n > 0 {
		l.cut = n < len(line)
	}
	return err
}

// lineWriter writes a Log's own lines, past its queue.
type lineWriter struct{ log *Log }

func (w lineWriter) Write(line []byte) (int, error) { return len(line), w.log.write(line) }

// WriteWithin writes a text, and waits for that no longer than the limit: a terminal or pipe may
// stand still.
func WriteWithin(limit time.Duration, out io.Writer, text string) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(out, text) // there is no other place to report it
	}()
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-written:
	case <-over.C:
	}
}
