// Package audit keeps a log of changes, one JSON object per line: the token, the action, its
// object, the client's address and the result.
//
// Servers call Record, which never waits: entries are collected in memory and written a moment
// later by Run. The file is rotated by size, and a bounded number of files is kept. A disk that
// fails or is too slow costs entries, never the service. Lost entries are counted and reported, in
// the node's log and in the next line that can be written.
//
// The package knows no requests and no timers. The caller must leave secrets out of its entries.
package audit

import (
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
	full    chan struct{}

	written, lost atomic.Int64
	complained    time.Time // used by Run only
}

// New makes a Log without opening a file.
func New(c Config) *Log {
	if c.Bytes == 0 {
		c.Bytes = 64 << 20
	}
	if c.Files == 0 {
		c.Files = 8
	}
	if c.Now == nil {
		c.Now = now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Log{config: c, file: file{path: c.Path, bytes: c.Bytes, files: c.Files}, full: make(chan struct{}, 1)}
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
	wake := len(l.waiting) >= flushAt
	l.mu.Unlock()
	if wake {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// Counts returns how many entries were written and how many were lost.
func (l *Log) Counts() (written, lost int64) { return l.written.Load(), l.lost.Load() }

// Run writes entries until the context ends, and then the remaining ones.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var spare []byte
	for {
		select {
		case <-tick.C:
		case <-l.full:
		case <-ctx.Done():
			l.flush(nil)
			l.file.close()
			return
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
	if err := l.file.write(batch); err != nil {
		l.failed(err, entries)
		return batch
	}
	l.written.Add(int64(entries))
	l.mu.Lock()
	l.missed -= missed
	l.mu.Unlock()
	return batch
}

// failed counts entries that could not be written. The next try opens the file again.
func (l *Log) failed(err error, entries int) {
	l.lost.Add(int64(entries))
	l.mu.Lock()
	l.missed += entries
	l.mu.Unlock()
	if now := l.config.Now(); now.Sub(l.complained) >= complainEach {
		l.complained = now
		l.config.Logger.Error("the audit log cannot be written; changes go on without it", "file", l.config.Path, "lost", l.lost.Load(), "error", err)
	}
}

// file is the current file and its predecessors: PATH.1 is the newest of them.
type file struct {
	path  string
	bytes int64
	files int

	open *os.File
	size int64
}

// write appends lines, to a new file if the current one is full.
func (f *file) write(b []byte) error {
	if f.open == nil {
		if err := f.begin(); err != nil {
			return err
		}
	}
	if f.size > 0 && f.size+int64(len(b)) > f.bytes {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	n, err := f.open.Write(b)
	f.size += int64(n)
	if err != nil {
		f.close()
		return err
	}
	return nil
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
	f.open, f.size = open, info.Size()
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
