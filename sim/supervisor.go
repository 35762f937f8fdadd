package sim

import (
	"errors"
	"syscall"
	"time"

	"carillon/shard"
	"carillon/vfs/memfs"
)

// A process that ended itself is started again at once, always, up to mostStarts times in a row: so does whoever does not heed its exit code. Its
// machine goes on as a rule. So the next process reads what the page cache has and the disk has not; the power is cut later, or never.
const mostStarts = 10

// ended is the end of a process by an error of its own.
func (n *node) ended(err error) {
	w := n.w
	w.note(n, "ended", uint64(n.inARow), 0, err.Error())
	cut := n.crash.clone == nil && w.chance.IntN(4) == 0
	n.eager = true
	n.stop(cut)
	n.eager = false
	if errors.Is(err, syscall.EIO) && !w.calm && w.chance.IntN(4) == 0 { // the disk is no better
		n.crash.fail[memfs.OpSync] = 1 + w.chance.IntN(10)
	}
}

// startDelay is how long it takes until a machine's next process begins.
func (n *node) startDelay() time.Duration {
	w := n.w
	longest := w.swarm.longestDown
	if w.calm {
		longest = time.Second
	}
	usual := w.chance.between(20*time.Millisecond, longest)
	if n.eager && n.inARow < mostStarts {
		n.inARow++
		w.counts.AtOnce++
		return min(usual, 50*time.Millisecond)
	}
	n.inARow = 0
	return usual
}

// ofItsDisk says whether a process may have ended by such an error: its disk failed. A full disk is no such reason once the log is open.
func (n *node) ofItsDisk(err error) bool {
	return n.w.checker.mayFail(n) && (errors.Is(err, syscall.EIO) || n.host == nil && errors.Is(err, syscall.ENOSPC))
}

// halts takes the end of a process that was told that it lacks what it had acknowledged. From then on none may begin with what is there.
func (n *node) halts(err error) {
	n.halted = true
	n.w.counts.Told++
	n.ended(err)
}

// heldBack takes the refusal of a start on a disk whose process has halted; true if that is what the error is. After some such starts a person
// puts another machine in its place.
func (n *node) heldBack(err error) bool {
	var halt *shard.HaltError
	if !n.halted || !errors.As(err, &halt) {
		return false
	}
	n.w.counts.HeldBack++
	if n.inARow >= mostStarts || n.w.chance.IntN(4) == 0 {
		n.refuse()
		return true
	}
	n.ended(err)
	return true
}
