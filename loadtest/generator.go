package loadtest

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// recentBlocks bounds how many blocks of timers a connection remembers to act
// on; the oldest is forgotten (mixed) or cancelled (churn).
const (
	recentBlocks = 256
	churnBlocks  = 16
)

// block is a run of timers that were added by one request and are acted on
// together.
type block struct {
	first   int64
	count   int64
	patched bool
}

// generator chooses one connection's calls. It acts only on timers that the same
// connection added before, so that the answers about one timer come in order.
type generator struct {
	config  Config
	ledger  *ledger
	delay   delay
	mix     mix
	rng     *rand.Rand
	limit   int64 // timers to issue at most, over all connections
	instant int64 // due time of all timers, Unix ms, 0 = each has its own
	recent  []block

	receivers *receivers // nil: there is one
}

func newGenerator(c Config, l *ledger, connection int, instantMs int64) *generator {
	// Both were parsed by validate, so the errors cannot occur.
	d, _ := parseDelay(c.Delay)
	m, _ := parseMix(c.Mix)
	limit := cmp.Or(c.Timers, maxTimers)
	return &generator{config: c, ledger: l, delay: d, mix: m, limit: limit, instant: instantMs,
		rng: rand.New(rand.NewPCG(c.Seed, uint64(connection)))}
}

// next chooses the next call, false when there is nothing left to do.
func (g *generator) next(c *call, now time.Time) bool {
	c.numbers = c.numbers[:0]
	switch g.config.Mode {
	case ModeMixed:
		if op := g.mix.draw(g.rng); op != opAdd && g.act(c, op) {
			return true
		}
	case ModeChurn:
		if len(g.recent) >= churnBlocks || (g.exhausted() && len(g.recent) > 0) {
			g.take(c, opCancel, 0)
			return true
		}
	}
	return g.add(c, now)
}

func (g *generator) exhausted() bool { return g.ledger.issued.Load() >= g.limit }

// act applies a change to a random recent block, false if there is none fit.
func (g *generator) act(c *call, op operation) bool {
	if len(g.recent) == 0 {
		return false
	}
	at := g.rng.IntN(len(g.recent))
	switch op {
	case opCancel:
		g.take(c, op, at)
		return true
	case opPatch:
		if g.recent[at].patched {
			return false
		}
		g.recent[at].patched = true
	}
	g.fill(c, op, g.recent[at])
	if op == opGet {
		c.numbers = c.numbers[:1] // there is no batch of reads
	}
	return true
}

// take removes a block and cancels it.
func (g *generator) take(c *call, op operation, at int) {
	g.fill(c, op, g.recent[at])
	g.recent = append(g.recent[:at], g.recent[at+1:]...)
}

func (g *generator) fill(c *call, op operation, b block) {
	c.op = op
	for number := b.first; number < b.first+b.count; number++ {
		c.numbers = append(c.numbers, number)
	}
}

// add issues a block of timers and draws their due times.
func (g *generator) add(c *call, now time.Time) bool {
	first, count := g.ledger.issue(int64(g.config.Batch), g.limit)
	if count == 0 {
		return false
	}
	b := block{first: first, count: count}
	g.fill(c, opAdd, b)
	nowMs := now.UnixMilli()
	for _, number := range c.numbers {
		due := g.instant
		if due == 0 {
			due = nowMs + g.delay.draw(g.rng).Milliseconds()
		}
		g.ledger.setDue(number, due)
		if g.receivers != nil && g.receivers.cannotSucceed(number) {
			g.ledger.add(number, markExcused) // it may end without having arrived
		}
	}
	g.remember(b)
	return true
}

func (g *generator) remember(b block) {
	switch g.config.Mode {
	case ModeChurn:
		if g.rng.Float64() < g.config.CancelShare {
			g.recent = append(g.recent, b)
		}
	case ModeMixed:
		if len(g.recent) == recentBlocks {
			g.recent = append(g.recent[:0], g.recent[1:]...)
		}
		g.recent = append(g.recent, b)
	}
}
