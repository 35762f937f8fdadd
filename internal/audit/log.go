// Package audit keeps a log of changes, one JSON object per line: the token, the action, its
// object, the client's address and the result.
//
// Servers call Record, which never waits: entries are collected in memory and written a moment
// later by Run. The file is rotated by size, and a bounded number of files is kept. Other programs
// may rotate it too: a file that was renamed or removed is left, and a new one begun. A disk that
// fails or is too slow costs entries, never the service. Lost entries are counted and reported, in
// the node's log and in the next line that can be written.
//
// The package knows no requests and no timers. The caller must leave secrets out of its entries.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Entry is one requested change.
type Entry struct {
	Who    string // the token's name; "-" if the server asks for none
	What   string // for example timer.add
	Object string // for example topics/orders/timers/order-77
	From   string // the client's address
	Status int    // HTTP status of the answer
	Count  int    // number of objects of a change to many; otherwise 0
	// Refused is the number of refused requests that the entry stands for; 0: it was not refused.
	Refused int
}

// Config configures a Log. Zero fields take the given defaults.
type Config struct {
	Path   string           // required
	Bytes  int64            // size of one file; default 64 MiB
	Files  int              // number of files, with the current one; default 8
	Now    func() time.Time // default time.Now
	Logger *slog.Logger
}

const (
	flushEvery      = 200 * time.Millisecond
	flushAt         = 256 << 10        // … or when this many bytes wait
	mostWaiting     = 4 << 20          // bytes; further entries are lost
	lossLogInterval = 10 * time.Second // minimum time between two log lines about lost entries
	endTime         = 2 * time.Second  // how long the end waits for a disk that hangs
)

// Log is an audit log. It is safe for concurrent use; Run must be called once.
type Log struct {
	config Config
	file   file

	mu      sync.Mutex
	waiting []byte
	entries int // in waiting
	missed  int // lost since the last written line
	wake    chan struct{}

	written, lost atomic.Int64
	reopen        atomic.Bool
	patience      time.Duration // endTime, except in tests

	// Of the goroutine that writes.
	failing    bool
	complained time.Time
}

// New makes a Log without opening a file.
func New(c Config) *Log {
	c.Bytes = cmp.Or(c.Bytes, 64<<20)
	c.Files = cmp.Or(c.Files, 8)
	if c.Now == nil {
		c.Now = now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &Log{config: c, file: file{path: c.Path, bytes: c.Bytes, files: c.Files}, wake: make(chan struct{}, 1), patience: endTime}
}

// Record adds an entry. It does not wait.
func (l *Log) Record(e Entry) {
	at := l.config.Now()
	l.mu.Lock()
	if len(l.waiting) >= mostWaiting {
		l.missed++
		l.mu.Unlock()
		l.lost.Add(1)
		return
	}
	l.waiting = appendEntry(l.waiting, at, &e)
	l.entries++
	much := len(l.waiting) >= flushAt
	l.mu.Unlock()
	if much {
		l.wakeWriter()
	}
}

// Reopen closes the file and opens it by its name again, for a program that has rotated it. It does
// not wait.
func (l *Log) Reopen() {
	l.reopen.Store(true)
	l.wakeWriter()
}

func (l *Log) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Counts returns how many entries were written and how many were lost.
func (l *Log) Counts() (written, lost int64) { return l.written.Load(), l.lost.Load() }

// Run writes entries until the context ends, and then the remaining ones. It leaves them where the
// disk hangs.
func (l *Log) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.write(ctx)
	}()
	<-ctx.Done()
	over := time.NewTimer(l.patience)
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
		l.config.Logger.Error("the last entries of the audit log are not written: its disk does not answer", "file", l.config.Path)
	}
}

func (l *Log) write(ctx context.Context) {
	defer l.file.close()
	if err := l.file.begin(); err != nil { // people learn of a wrong path before a change is lost
		l.failed(err, 0)
	}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var spare []byte
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-l.wake:
		case <-ctx.Done():
			ended = true
		}
		if l.reopen.Swap(false) {
			l.file.close()
		}
		spare = l.flush(spare)
	}
}

// flush writes the waiting entries and returns their buffer; spare takes new entries meanwhile.
func (l *Log) flush(spare []byte) []byte {
	l.mu.Lock()
	batch, entries, missed := l.waiting, l.entries, l.missed
	l.waiting, l.entries = spare[:0], 0
	l.mu.Unlock()
	if entries == 0 && missed == 0 {
		return batch
	}
	if missed > 0 { // reported before the entries that came later
		batch = append(appendEntry(nil, l.config.Now(), &Entry{Who: "-", What: "entries.lost", Object: "-", From: "-", Count: missed}), batch...)
	}
	n, err := l.file.write(batch)
	whole := bytes.Count(batch[:n], []byte{'\n'}) // a full disk takes a part
	if missed > 0 && whole > 0 {
		whole--
		l.mu.Lock()
		l.missed -= missed
		l.mu.Unlock()
	}
	l.written.Add(int64(whole))
	switch {
	case err != nil:
		l.failed(err, entries-whole)
	case l.failing:
		l.failing, l.complained = false, time.Time{}
		l.config.Logger.Info("the audit log is written again", "file", l.config.Path, "lost", l.lost.Load())
	}
	return batch
}

// failed counts entries that could not be written. The next try opens the file again.
func (l *Log) failed(err error, entries int) {
	l.failing = true
	l.lost.Add(int64(entries))
	l.mu.Lock()
	l.missed += entries
	l.mu.Unlock()
	if now := l.config.Now(); now.Sub(l.complained) >= lossLogInterval {
		l.complained = now
		l.config.Logger.Error("the audit log cannot be written; changes continue without it", "file", l.config.Path, "lost", l.lost.Load(), "error", err)
	}
}
