package sim

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"carillon/test/memfs"
)

// blindness is a disk that does not read for a while, or some of its files. Which files fail, and
// after how many reads, does not depend on the order of reads, because background goroutines read
// too.
type blindness struct {
	on, whole bool
	salt      uint64
	after     int            // reads of a file that succeed first
	reads     map[string]int // by file
	struck    bool           // a read has failed in this process
	logStruck bool           // … of the log, before it was open
	changed   string         // a log file that was changed nevertheless
	count     int            // failed reads of the whole run
}

// readErrors makes a disk unreadable for a while and causes many reads meanwhile.
func (w *World) readErrors() {
	n := w.sufferer()
	c := &n.crash
	c.mu.Lock()
	was := c.blind.on
	c.blind.on, c.blind.whole, c.blind.salt = true, w.ills.IntN(3) == 0, w.ills.Uint64()
	c.blind.after, c.blind.reads = w.ills.IntN(4), map[string]int{}
	c.mu.Unlock()
	if was {
		return // only the salt changes
	}
	d := w.ills.between(200*time.Millisecond, 6*time.Second)
	w.note(n, "blind", uint64(d.Milliseconds()), 0, "")
	w.after(d, n.crash.sees)
	switch w.ills.IntN(4) {
	case 0: // reads of a start
		if n.up && !n.gone {
			n.stop(w.ills.IntN(2) == 0)
			life := n.life
			w.after(w.ills.between(10*time.Millisecond, d), func() {
				if n.life == life && !n.up && !n.gone && !n.held {
					n.start()
				}
			})
		}
	case 1: // reads of a snapshot to send
		if other := w.sufferer(); other != n {
			other.pause(w.ills.between(time.Second, 5*time.Second))
		}
	}
}

// sufferer draws a machine in use.
func (w *World) sufferer() *node { return w.inUse(w.ills) }

// sees makes the disk readable again.
func (c *crash) sees() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind.on = false
}

// unreadable returns the error of a read that must fail now, or nil.
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

// couldNotRead reports whether an error comes from a failed read of this process.
func (n *node) couldNotRead(err error) bool { return n.hadReadErrors() && errors.Is(err, syscall.EIO) }

// hadReadErrors reports whether a read of this process has failed.
func (n *node) hadReadErrors() bool {
	n.crash.mu.Lock()
	defer n.crash.mu.Unlock()
	return n.crash.blind.struck
}

// blinded ends a process that could not read its disk. It must not have changed its log because of
// that. The next process starts when the disk may be readable again.
func (n *node) blinded(err error) {
	n.w.counts.Blinded++
	if changed := n.crash.blind.changed; changed != "" {
		n.w.violate("P6", "node %d could not read its log (%v), but changed %s", n.id, err, changed)
	}
	n.w.note(n, "cannot read", 0, 0, err.Error())
	n.stop(n.crash.clone == nil)
}

// opens marks the begin or the end of a start. If the log cannot be read during a start, the
// process must not change it.
func (c *crash) opens(begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting = begins
	if begins {
		c.blind.struck, c.blind.logStruck, c.blind.changed = false, false, ""
	}
}

// changes records the change of a log that could not be read.
func (c *crash) changes(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting && c.blind.logStruck && inLog(name) {
		c.blind.changed = name
	}
}

// inLog reports whether a file belongs to the log. The spare segment holds no frames and is made
// anew at each start.
func inLog(name string) bool {
	rest, ok := strings.CutPrefix(name, dataDir+"/wal/0/")
	return ok && !strings.HasPrefix(rest, "spare/")
}

// countUnread counts the failed reads of the whole run.
func (w *World) countUnread() {
	for _, n := range w.nodes {
		w.counts.Unread += n.crash.blind.count
	}
}
