package sim

import (
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"
)

// traceKept is how many of the last events a failing run shows.
const traceKept = 400

// traceLine is one event, formatted only when it is printed.
type traceLine struct {
	at     time.Duration
	node   uint64
	what   string
	a, b   uint64
	detail string
}

func (l *traceLine) String() string {
	return fmt.Sprintf("%12.6f  node %d  %-12s %4d %8d  %s", l.at.Seconds(), l.node, l.what, l.a, l.b, l.detail)
}

// trace keeps the last events and hashes all of them.
type trace struct {
	ring  [traceKept]traceLine
	count uint64
	sum   xxhash.Digest
	out   io.Writer // nil: only the last events are printed, on a failure
	buf   []byte
}

func (t *trace) note(l traceLine) {
	t.ring[t.count%traceKept] = l
	t.count++
	b := t.buf[:0]
	for _, v := range [...]uint64{uint64(l.at), l.node, l.a, l.b} {
		b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	t.buf = append(append(b, l.what...), l.detail...)
	_, _ = t.sum.Write(t.buf)
	if t.out != nil {
		fmt.Fprintln(t.out, l.String())
	}
}

// last returns the last events, oldest first.
func (t *trace) last(n int) []string {
	n = min(n, traceKept, int(t.count))
	lines := make([]string, 0, n)
	for i := t.count - uint64(n); i < t.count; i++ {
		lines = append(lines, t.ring[i%traceKept].String())
	}
	return lines
}

// note records an event of a node; nil: of the world.
func (w *World) note(n *node, what string, a, b uint64, detail string) {
	l := traceLine{at: w.now, what: what, a: a, b: b, detail: detail}
	if n != nil {
		l.node = n.id
	}
	w.trace.note(l)
}
