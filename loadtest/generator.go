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
func (p *generator) next(c *call, now time.Time) bool {
	c.numbers = c.numbers[:0]
	switch p.config.Mode {
	case ModeMixed:
		if op := p.mix.draw(p.rng); op != opAdd && p.act(c, op) {
			return true
		}
	case ModeChurn:
		if len(p.recent) >= churnBlocks || (p.exhausted() && len(p.recent) > 0) {
			p.take(c, opCancel, 0)
			return true
		}
	}
	return p.add(c, now)
}

func (p *generator) exhausted() bool { return p.ledger.issued.Load() >= p.limit }

// act applies a change to a random recent block, false if there is none fit.
func (p *generator) act(c *call, op operation) bool {
	if len(p.recent) == 0 {
		return false
	}
	at := p.rng.IntN(len(p.recent))
	switch op {
	case opCancel:
		p.take(c, op, at)
		return true
	case opPatch:
		if p.recent[at].patched {
			return false
		}
		p.recent[at].patched = true
	}
	p.fill(c, op, p.recent[at])
	if op == opGet {
		c.numbers = c.numbers[:1] // there is no batch of reads
	}
	return true
}

// take removes a block and cancels it.
func (p *generator) take(c *call, op operation, at int) {
	p.fill(c, op, p.recent[at])
	p.recent = append(p.recent[:at], p.recent[at+1:]...)
}

func (p *generator) fill(c *call, op operation, b block) {
	c.op = op
	for number := b.first; number < b.first+b.count; number++ {
		c.numbers = append(c.numbers, number)
	}
}

// add issues a block of timers and draws their due times.
func (p *generator) add(c *call, now time.Time) bool {
	first, count := p.ledger.issue(int64(p.config.Batch), p.limit)
	if count == 0 {
		return false
	}
	b := block{first: first, count: count}
	p.fill(c, opAdd, b)
	nowMs := now.UnixMilli()
	for _, number := range c.numbers {
		due := p.instant
		if due == 0 {
			due = nowMs + p.delay.draw(p.rng).Milliseconds()
		}
		p.ledger.setDue(number, due)
		if p.receivers != nil && p.receivers.inVain(number) {
			p.ledger.add(number, markExcused) // it may end without having arrived
		}
	}
	p.remember(b)
	return true
}

func (p *generator) remember(b block) {
	switch p.config.Mode {
	case ModeChurn:
		if p.rng.Float64() < p.config.CancelShare {
			p.recent = append(p.recent, b)
		}
	case ModeMixed:
		if len(p.recent) == recentBlocks {
			p.recent = append(p.recent[:0], p.recent[1:]...)
		}
		p.recent = append(p.recent, b)
	}
}
