package shard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"carillon/shard/halt"
	"carillon/test/memfs"
)

// TestLostEndOfALog: damage that looks like a torn write cuts off the end of a replica's log. The
// leader's commit index reveals it. The replica stops and logs the remedy, instead of going on
// without entries that it acknowledged.
func TestLostEndOfALog(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", time.Hour)
	group := r.host.group(1)
	last, term := group.store.Last(), group.term
	beat := func(commit uint64) {
		m := heartbeat(term + 1)
		m.Commit = &commit
		c.send(1, m)
		r.turn()
	}
	beat(last)
	if err := r.failure(); err != nil {
		t.Fatalf("all is there: %v", err)
	}
	beat(last + 1)
	if err := r.failure(); err == nil || !strings.Contains(err.Error(), "shard 1") || !strings.Contains(err.Error(), "joins again") {
		t.Fatalf("entry %d of %d is gone: %v", last+1, last, err)
	}
}

// TestLostEndOnDisk: the same on a real log: the last frame of a follower's log is damaged after a
// power cut. The start truncates it, as it must truncate a torn write. The leader's next message
// ends the node.
func TestLostEndOnDisk(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", time.Hour)
	last, term := r.host.group(1).store.Last(), r.host.group(1).term
	disk := r.fs.CrashClone(calm{}, memfs.CrashOptions{})
	r.abort()
	var cut bool
	for _, path := range logFiles(t, disk, "data/wal/0") {
		if err := disk.Damage(path, func(b []byte) []byte {
			if at := len(strings.TrimRight(string(b), "\x00")); at > 0 && !strings.Contains(path, "FIRST") {
				b[at-1] ^= 1
				cut = true
			}
			return b
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !cut {
		t.Fatal("nothing to damage")
	}
	r.fs, r.topics = disk, fakeTopics{}
	if err := r.open(); err != nil {
		t.Fatalf("a torn tail is cut off, not refused: %v", err)
	}
	if said := r.log.String(); !strings.Contains(said, "the log ended within a frame") || !strings.Contains(said, ".broken") {
		t.Errorf("the node does not say that it has cut its log: %s", said)
	}
	if got := r.host.group(1).store.Last(); got >= last {
		t.Skipf("the last frame had nothing of the shard: entry %d of %d", got, last)
	}
	m := heartbeat(term + 1)
	m.Commit = &last
	c.send(1, m)
	r.turn()
	if err := r.failure(); err == nil || !strings.Contains(err.Error(), "the end of the log was damaged") {
		t.Fatalf("%v", err)
	}
}

// logFiles lists the files of the newest generation of a stream.
func logFiles(t *testing.T, fs *memfs.FS, dir string) (list []string) {
	t.Helper()
	entries, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := dir + "/" + e.Name
		switch {
		case e.Dir && e.Name != "spare":
			list = append(list, logFiles(t, fs, path)...)
		case !e.Dir:
			list = append(list, path)
		}
	}
	return list
}

// TestHaltOutlivesTheProcess: a node that learned that it has lost the end of its log does not
// start with the rest, however often it is started: the leader that told it may be gone by then.
// The reason is on disk before the process ends.
func TestHaltOutlivesTheProcess(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	c.leads()
	r.add("a", time.Hour)
	m := heartbeat(r.host.group(1).term + 1)
	m.Commit = new(r.host.group(1).store.Last() + 1)
	said := len(c.sent)
	c.send(1, m)
	r.turn()
	var why *halt.Error
	if err := r.failure(); !errors.As(err, &why) || why.Reason != halt.LostEnd {
		t.Fatalf("it ends by %v", err)
	}
	if len(c.sent) > said {
		t.Errorf("it says %d more things to others", len(c.sent)-said)
	}
	disk := r.fs.CrashClone(calm{}, memfs.CrashOptions{})
	r.abort()
	r.fs, r.topics = disk, fakeTopics{}
	for range 3 {
		err := r.open()
		if !errors.As(err, &why) || why.Reason != halt.LostEnd || !strings.Contains(err.Error(), "shard 1") || !strings.Contains(err.Error(), "joins again") {
			t.Fatalf("it starts again: %v", err)
		}
		r.fs.Kill()
	}
	if err := r.fs.Damage("data/halted.json", func([]byte) []byte { return []byte("?") }); err != nil {
		t.Fatal(err)
	}
	if err := r.open(); !errors.As(err, &why) {
		t.Fatalf("the note cannot be read, and it starts: %v", err)
	}
}
