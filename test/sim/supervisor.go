package sim

import (
	"errors"
	"syscall"
	"time"

	"carillon/shard/halt"
	"carillon/test/memfs"
)

// A supervisor restarts a process that ended itself, always and at once, up to mostStarts times in
// a row. It ignores the exit code, as the worst supervisor would. The machine usually stays up. So
// the next process reads data from the page cache that is not on the disk; the power is cut later,
// or never.
const mostStarts = 10

// ended handles the end of a process by its own error.
func (n *node) ended(err error) {
	w := n.w
	w.note(n, "ended", uint64(n.inARow), 0, err.Error())
	cut := n.crash.clone == nil && w.chance.IntN(4) == 0
	n.eager = true
	n.stop(cut)
	n.eager = false
	if errors.Is(err, syscall.EIO) && !w.calm && w.chance.IntN(4) == 0 { // the disk fails again
		n.crash.fail[memfs.OpSync] = 1 + w.chance.IntN(10)
	}
}

// startDelay is the time until a machine's next process starts.
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

// ofItsDisk reports whether a failing disk explains the end of a process. A full disk explains it
// only before the log is open.
func (n *node) ofItsDisk(err error) bool {
	return n.w.checker.mayFail(n) && (errors.Is(err, syscall.EIO) || n.host == nil && errors.Is(err, syscall.ENOSPC))
}

// halts handles a process that halted because it lacks data that it had acknowledged. No later
// process may start on that disk.
func (n *node) halts(err error) {
	n.halted = true
	n.w.counts.Told++
	n.ended(err)
}

// heldBack handles a start that is refused because a process has halted on the disk; false: that is
// not the error. After some such starts an operator replaces the machine.
func (n *node) heldBack(err error) bool {
	var why *halt.Error
	if !n.halted || !errors.As(err, &why) {
		return false
	}
	n.w.counts.HeldBack++
	if n.inARow >= mostStarts || n.w.chance.IntN(4) == 0 {
		n.w.counts.Refusals++
		n.replace()
		return true
	}
	n.ended(err)
	return true
}
