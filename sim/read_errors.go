package sim

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"carillon/vfs/memfs"
)

// blindness is a disk that does not read for a while: all of it, or some of its files. Which do, and from which read on, does not depend on the order in
// which they are read: goroutines in the background read, too.
type blindness struct {
	on, whole bool
	salt      uint64
	after     int            // reads of a file that succeed
	reads     map[string]int // by file
	struck    bool           // a read has failed in this process's life
	logStruck bool           // … of the log, before it was open
	changed   string         // what of the log was changed nevertheless
	count     int            // … so often in all
}

// readErrors has a disk read nothing for a while, and much be asked of it meanwhile.
func (w *World) readErrors() {
	n := w.sufferer()
	c := &n.crash
	c.mu.Lock()
	was := c.blind.on
	c.blind.on, c.blind.whole, c.blind.salt = true, w.ills.IntN(3) == 0, w.ills.Uint64()
	c.blind.after, c.blind.reads = w.ills.IntN(4), map[string]int{}
	c.mu.Unlock()
	if was {
		return // for another salt
	}
	d := w.ills.between(200*time.Millisecond, 6*time.Second)
	w.note(n, "blind", uint64(d.Milliseconds()), 0, "")
	w.after(d, n.crash.sees)
	switch w.ills.IntN(4) {
	case 0: // what it reads at its start
		if n.up && !n.gone {
			n.stop(w.ills.IntN(2) == 0)
			life := n.life
			w.after(w.ills.between(10*time.Millisecond, d), func() {
				if n.life == life && !n.up && !n.gone && !n.held {
					n.start()
				}
			})
		}
	case 1: // what it reads to send it
		if other := w.sufferer(); other != n {
			other.pause(w.ills.between(time.Second, 5*time.Second))
		}
	}
}

// sufferer is a random machine that is in use.
func (w *World) sufferer() *node { return w.inUse(w.ills) }

// sees ends it.
func (c *crash) sees() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind.on = false
}

// unreadable is why a file cannot be read now.
func (c *crash) unreadable(op memfs.Op, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.blind
	if !b.on || !b.whole && (xxhash.Sum64String(name)^b.salt)%3 != 0 {
		return nil
	}
	if op != memfs.OpReadDir {
		if b.reads[name]++; b.reads[name] <= b.after {
			return nil
		}
	}
	b.struck = true
	b.logStruck = b.logStruck || c.starting && inLog(name)
	b.count++
	return syscall.EIO
}

// couldNotRead says whether an error is of a read of this process that failed.
func (n *node) couldNotRead(err error) bool {
	n.crash.mu.Lock()
	defer n.crash.mu.Unlock()
	return n.crash.blind.struck && errors.Is(err, syscall.EIO)
}

// blinded ends a process that could not read what it must. It is not to have changed anything because of that; the next one begins when it may.
func (n *node) blinded(err error) {
	n.w.counts.Blinded++
	if changed := n.crash.blind.changed; changed != "" {
		n.w.violate("P6", "node %d could not read its log (%v), and changed %s", n.id, err, changed)
	}
	n.w.note(n, "cannot read", 0, 0, err.Error())
	n.stop(n.crash.clone == nil)
}

// opens is the begin of a start, or its end: what could not be read while the log was not open yet is a reason to change none of it.
func (c *crash) opens(begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = begins
	if begins {
		c.blind.struck, c.blind.logStruck, c.blind.changed = false, false, ""
	}
}

// changes notes what is changed of a log that could not be read.
func (c *crash) changes(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting && c.blind.logStruck && inLog(name) {
		c.blind.changed = name
	}
}

// inLog says whether a file is of the log. The spare holds no frames: it is made anew at each start.
func inLog(name string) bool {
	rest, ok := strings.CutPrefix(name, dataDir+"/wal/0/")
	return ok && !strings.HasPrefix(rest, "spare/")
}

// countUnread counts the reads that failed in the whole run.
func (w *World) countUnread() {
	for _, n := range w.nodes {
		w.counts.Unread += n.crash.blind.count
	}
}
