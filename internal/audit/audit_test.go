package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carillon/test/testkit"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 1_500_000, time.UTC)

func newLog(t testing.TB, edit func(*Config)) (*Log, string) {
	t.Helper()
	c := Config{Path: filepath.Join(t.TempDir(), "audit.log"), Now: func() time.Time { return noon }}
	if edit != nil {
		edit(&c)
	}
	l := New(c)
	l.patience = time.Minute // a busy machine is no disk that hangs
	return l, c.Path
}

// run calls f while the log runs, and returns when all entries are written.
func run(l *Log, f func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	f()
	stop()
	<-done
}

type line struct {
	Time, Who, What, Object, From string
	Status, Count, Refused        int
}

func read(t testing.TB, path string) (lines []line) {
	t.Helper()
	data := testkit.File(t, path)
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var l line
		d := json.NewDecoder(strings.NewReader(s.Text()))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestEntriesAreLinesOfJSON(t *testing.T) {
	l, path := newLog(t, nil)
	odd := "a \"b\"\n\\ü\x00\xff"
	run(l, func() {
		l.Record(Entry{Who: "shop", What: "timer.add", Object: "topics/orders/timers/a", From: "10.0.0.1:5", Status: 201})
		l.Record(Entry{Who: odd, What: "timers.cancel", Object: odd, From: "[::1]:7", Status: 200, Count: 12})
		l.Record(Entry{Who: "shop", What: "refused", Object: "-", From: "-", Status: 403, Refused: 7})
	})
	got := read(t, path)
	if len(got) != 3 || got[0] != (line{"2026-06-01T12:00:00.001Z", "shop", "timer.add", "topics/orders/timers/a", "10.0.0.1:5", 201, 0, 0}) ||
		got[1].Who != "a \"b\"\n\\ü\x00\uFFFD" || got[1].Count != 12 || got[2].Refused != 7 || got[2].Count != 0 {
		t.Errorf("%+v", got)
	}
	if written, lost := l.Counts(); written != 3 || lost != 0 {
		t.Error(written, lost)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

// A full file is rotated, the oldest one is deleted, and no entry in between is missing.
func TestRotationKeepsAFewFiles(t *testing.T) {
	l, path := newLog(t, func(c *Config) { c.Bytes, c.Files = 2000, 3 })
	for i := range 100 {
		run(l, func() { l.Record(Entry{Who: "w", What: "x", Object: fmt.Sprint(i), From: "-"}) })
	}
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(names) != 3 {
		t.Fatalf("%v %v", names, err)
	}
	var all []line
	for _, name := range []string{path + ".2", path + ".1", path} {
		if info, err := os.Stat(name); err != nil || info.Size() > 2000 || info.Size() < 100 {
			t.Errorf("%s: %v %v", name, info, err)
		}
		all = append(all, read(t, name)...)
	}
	if len(all) < 40 {
		t.Errorf("%d entries are kept", len(all))
	}
	for i, e := range all {
		if e.Object != fmt.Sprint(100-len(all)+i) {
			t.Fatalf("entry %d is %s", i, e.Object)
		}
	}
}

// Nothing waits for a file that cannot be written. Lost entries are counted and reported as soon as
// possible.
func TestAFailingDiskCostsEntriesOnly(t *testing.T) {
	var log bytes.Buffer
	l, path := newLog(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := os.Mkdir(path, 0o700); err != nil { // a directory in place of the file
		t.Fatal(err)
	}
	run(l, func() {})
	if !strings.Contains(log.String(), "cannot be written") {
		t.Error("the start does not say so")
	}
	run(l, func() {
		for range 5 {
			l.Record(Entry{Who: "lost"})
		}
	})
	if written, lost := l.Counts(); written != 0 || lost != 5 {
		t.Error(written, lost)
	}
	if strings.Count(log.String(), "cannot be written") != 1 {
		t.Error(log.String())
	}
	testkit.Must(t, os.Remove(path))
	run(l, func() { l.Record(Entry{Who: "kept"}) })
	if !strings.Contains(log.String(), "is written again") {
		t.Error(log.String())
	}
	got := read(t, path)
	if len(got) != 2 || got[0].What != "entries.lost" || got[0].Count != 5 || got[1].Who != "kept" {
		t.Errorf("%+v", got)
	}
	run(l, func() { l.Record(Entry{Who: "kept"}) })
	if got := read(t, path); len(got) != 3 {
		t.Errorf("the loss is said again: %+v", got)
	}
}

// Entries that arrive faster than they are written take a bounded amount of memory.
func TestWaitingEntriesAreBounded(t *testing.T) {
	l, path := newLog(t, nil)
	e := Entry{Who: "w", What: "x", Object: strings.Repeat("o", 1000), From: "-"}
	for range 10_000 {
		l.Record(e)
	}
	if n := len(l.waiting); n > mostWaiting+2000 {
		t.Errorf("%d bytes wait", n)
	}
	run(l, func() {})
	written, lost := l.Counts()
	if got := read(t, path); written+lost != 10_000 || lost == 0 || int64(len(got)) != written+1 || got[0].Count != int(lost) {
		t.Errorf("%d written, %d lost, %d lines", written, lost, len(got))
	}
}

func TestRecordedAtOnceFromManySides(t *testing.T) {
	l, path := newLog(t, nil)
	run(l, func() {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for k := range 500 {
					l.Record(Entry{Who: fmt.Sprint(i), Count: k})
				}
			})
		}
		all.Wait()
	})
	if got := read(t, path); len(got) != 4000 {
		t.Errorf("%d lines", len(got))
	}
}

// A line that a crash has cut off does not damage the next one.
func TestACutOffLineIsEnded(t *testing.T) {
	l, path := newLog(t, nil)
	testkit.Must(t, os.WriteFile(path, []byte(`{"time":"2026-`), 0o600))
	run(l, func() { l.Record(Entry{Who: "after"}) })
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte("2026-\n{")) {
		t.Errorf("%s %v", data, err)
	}
}

// TestFileIsFollowed: entries go to the file that has the name, whatever other programs do to it,
// and none is lost that was not in a removed file.
func TestFileIsFollowed(t *testing.T) {
	rename := func(t *testing.T, path string) {
		t.Helper()
		testkit.Must(t, os.Rename(path, path+".old"))
	}
	for name, c := range map[string]struct {
		disturb func(t *testing.T, path string)
		want    string // in the file by its name, and in .old
	}{
		"renamed": {rename, "b.a"},
		"renamed, and made": {func(t *testing.T, path string) {
			rename(t, path)
			testkit.Must(t, os.WriteFile(path, []byte("{\"who\":\"new\"}\n"), 0o600))
		}, "new b.a"},
		"removed": {func(t *testing.T, path string) {
			testkit.Must(t, os.Remove(path))
		}, "b."},
		"emptied": {func(t *testing.T, path string) {
			testkit.Must(t, os.Truncate(path, 0))
		}, "b."},
		"left alone": {func(*testing.T, string) {}, "a b."},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := newLog(t, nil)
			l.Record(Entry{Who: "a"})
			spare := l.flush(nil)
			c.disturb(t, path)
			l.Record(Entry{Who: "b"})
			l.flush(spare)
			var got []string
			for _, p := range []string{path, path + ".old"} {
				var who []string
				if _, err := os.Stat(p); err == nil {
					for _, e := range read(t, p) {
						who = append(who, e.Who)
					}
				}
				got = append(got, strings.Join(who, " "))
			}
			if written, lost := l.Counts(); strings.Join(got, ".") != c.want || written != 2 || lost != 0 {
				t.Errorf("%q, %d written, %d lost", got, written, lost)
			}
			l.file.close()
		})
	}
}

// TestReopen: a file that was renamed is closed at once, also when there is nothing to write.
func TestReopen(t *testing.T) {
	l, path := newLog(t, nil)
	run(l, func() {
		l.Record(Entry{Who: "a"})
		for written, _ := l.Counts(); written == 0; written, _ = l.Counts() {
			runtime.Gosched()
		}
		testkit.Must(t, os.Rename(path, path+".old"))
		l.Reopen()
		for l.reopen.Load() {
			runtime.Gosched()
		}
		l.Record(Entry{Who: "b"})
	})
	if before, after := read(t, path+".old"), read(t, path); len(before) != 1 || len(after) != 1 || after[0].Who != "b" {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestOnlyFilesAreRotated: a pipe, or a device such as /dev/stdout, keeps its name.
func TestOnlyFilesAreRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	l, _ := newLog(t, func(c *Config) { c.Path, c.Bytes = path, 200 })
	var spare []byte
	for range 10 {
		l.Record(Entry{Who: "w", Object: strings.Repeat("o", 100)})
		spare = l.flush(spare)
	}
	l.file.close()
	names, err := os.ReadDir(filepath.Dir(path))
	if written, lost := l.Counts(); err != nil || len(names) != 1 || names[0].Type() != os.ModeNamedPipe || written != 10 || lost != 0 {
		t.Errorf("%v %v, %d written, %d lost", names, err, written, lost)
	}
}

// TestEndLeavesADiskThatStandsStill: the node ends though the file takes nothing more.
func TestEndLeavesADiskThatStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	var log bytes.Buffer
	l, _ := newLog(t, func(c *Config) { c.Path, c.Logger = path, slog.New(slog.NewTextHandler(&log, nil)) })
	l.patience = 50 * time.Millisecond
	run(l, func() {
		for range 3000 { // more than a pipe has room for
			l.Record(Entry{Who: "a", Object: strings.Repeat("o", 100)})
		}
	})
	if !strings.Contains(log.String(), "does not answer") {
		t.Errorf("the log: %s", log.String())
	}
	f, err := os.Open(path) // which ends the write
	testkit.Must(t, err)
	defer f.Close()
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error(err)
	}
}

func BenchmarkRecord(b *testing.B) {
	l, _ := newLog(b, func(c *Config) { c.Now = nil })
	e := Entry{Who: "shop", What: "timer.add", Object: "topics/orders/timers/order-7700123", From: "10.0.0.1:51234", Status: 201}
	b.ReportAllocs()
	run(l, func() {
		for b.Loop() {
			l.Record(e)
		}
	})
}
