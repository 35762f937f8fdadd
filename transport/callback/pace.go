package callback

import "time"

const (
	// leastPace is how many calls at once are enough to keep busy a receiver that answers at once.
	leastPace = 16
	// sentInMs is how many calls a node can send in a millisecond, at most. While one is answered,
	// this many for each millisecond of its answer time are of use.
	sentInMs = 50
	// paceWindow is how long an answer time counts; until twice as long, if none is shorter.
	paceWindow = 10 * time.Second
	// longestWait bounds what the pace delays a call by.
	longestWait = 25 * time.Millisecond
)

// destinationPace is how many calls at once at a destination are of use. A receiver nearby answers
// faster than a node can send. More calls than keep both busy wait in each other's way: each of 256
// at once costs half as much processor time again as each of 16, and all else in the node waits
// behind them. A receiver far away takes longer for an answer than the node for 256 calls, and has
// no such bound.
//
// The shortest answer time distinguishes the two, since a busy receiver, or node, does not make it
// longer. It misjudges a receiver that answers some calls at once and others later. Then calls wait
// for longestWait, and the limit rises to what ran then, for a while.
//
// It has no clock and no goroutine.
type destinationPace struct {
	running          int           // calls that have begun and not ended
	shortest, before time.Duration // the shortest answer time of this window, and of the one before; 0: none
	window           time.Time     // when this one began
	least            int           // of the limit, since calls have waited too long; halved with each window
}

// limit is how many calls may run at once.
func (dp *destinationPace) limit() int {
	shortest := dp.shortest
	if dp.before > 0 {
		shortest = min(shortest, dp.before)
	}
	return max(leastPace+int(shortest*sentInMs/time.Millisecond), dp.least)
}

// full reports that one more call would only wait.
func (dp *destinationPace) full() bool { return dp.running >= dp.limit() }

// answered records how long an answer took, on a connection that was open.
func (dp *destinationPace) answered(took time.Duration, now time.Time) {
	took = max(took, 1)
	if dp.shortest == 0 || now.Sub(dp.window) >= paceWindow {
		dp.before, dp.shortest, dp.window = dp.shortest, took, now
		dp.least /= 2
	}
	dp.shortest = min(dp.shortest, took)
}

// overdue records that calls had waited for longestWait. They run now.
func (dp *destinationPace) overdue() { dp.least = max(dp.least, dp.running) }
