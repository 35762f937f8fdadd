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
	"fmt"
	"log/slog"
	"os"
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
	flushEvery   = 200 * time.Millisecond
	flushAt      = 256 << 10        // … or when this many bytes wait
	mostWaiting  = 4 << 20          // bytes; further entries are lost
	complainEach = 10 * time.Second // minimum time between two log lines about lost entries
	endTime      = 2 * time.Second  // how long the end waits for a disk that hangs
)

// Log is an audit log. It is safe for concurrent use; Run must be called once.
type Log struct {
	config Config
	file   file

	mu      sync.Mutex
	times   timestamps
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
	l.waiting = l.times.appendEntry(l.waiting, at, &e)
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
		batch = append(new(timestamps).appendEntry(nil, l.config.Now(), &Entry{Who: "-", What: "entries.lost", Object: "-", From: "-", Count: missed}), batch...)
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
	if now := l.config.Now(); now.Sub(l.complained) >= complainEach {
		l.complained = now
		l.config.Logger.Error("the audit log cannot be written; changes continue without it", "file", l.config.Path, "lost", l.lost.Load(), "error", err)
	}
}

// file is the current file and its predecessors: PATH.1 is the newest of them.
type file struct {
	path  string
	bytes int64
	files int

	open *os.File
	info os.FileInfo // of open
	size int64
}

// write appends lines, to a new file if the current one is full, or has lost its name.
func (f *file) write(b []byte) (n int, err error) {
	f.follow()
	if f.open == nil {
		if err := f.begin(); err != nil {
			return 0, err
		}
	}
	if f.size > 0 && f.size+int64(len(b)) > f.bytes {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err = f.open.Write(b)
	f.size += int64(n)
	if err != nil {
		f.close()
	}
	return n, err
}

// follow closes the file if it was renamed or removed.
func (f *file) follow() {
	if f.open == nil {
		return
	}
	named, err := os.Stat(f.path)
	switch {
	case err == nil && os.SameFile(named, f.info):
		f.size = named.Size() // another program may have cut it
	case err == nil, os.IsNotExist(err):
		f.close()
	}
}

// begin opens the file to append. It ends a line that a crash has cut off, so that the next line
// stays readable.
func (f *file) begin() error {
	open, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := open.Stat()
	if err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err = open.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			_, err = open.Write([]byte{'\n'})
		}
	}
	if err != nil {
		_ = open.Close()
		return err
	}
	f.open, f.info, f.size = open, info, info.Size()
	return nil
}

// rotate renames each file to the next number and deletes the last one.
func (f *file) rotate() error {
	f.close()
	if f.files == 1 {
		if err := os.Remove(f.path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	for n := f.files - 1; n > 0; n-- {
		if err := os.Rename(f.name(n-1), f.name(n)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return f.begin()
}

func (f *file) name(n int) string {
	if n == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, n)
}

func (f *file) close() {
	if f.open != nil {
		_ = f.open.Sync() // best effort
		_ = f.open.Close()
		f.open = nil
	}
}
