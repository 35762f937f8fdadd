package callback

import (
	"log/slog"
	"time"
)

// Bounds of the log of breakers.
const (
	breakerQuiet  = time.Minute // between two openings of one breaker that are logged
	breakerLines  = 30          // lines in a breakerWindow; beyond them openings wait
	breakerWindow = time.Minute

	// maxBreakerNews is how many changes wait to be logged. One that finds no room is not logged.
	maxBreakerNews = 1024
)

// breakerChange means that a breaker opened or closed.
type breakerChange struct {
	gate *breakerScope
	open bool
	at   time.Time
}

// breakerLog logs once when a breaker opens, and once when it closes again. One that flaps is said
// to be open once a breakerQuiet. Only the goroutine of Run uses it, and it holds no lock.
type breakerLog struct {
	logger *slog.Logger
	unsaid map[*breakerScope]struct{} // open, and not logged yet
	begun  time.Time                  // of the window
	lines  int                        // in it
}

// said is the state of a gate's breaker that the log knows.
type said struct {
	open       bool
	openedAt   time.Time
	logged     bool      // that it is open
	quietUntil time.Time // no opening is logged before
	skipped    int       // openings that were not logged
}

// report hands a change to the log, from any goroutine and under any lock.
func (g *breakerScope) report(open bool) {
	select {
	case g.dest.pool.breakerNews <- breakerChange{g, open, time.Now()}:
	default:
	}
}

func (l *breakerLog) note(c breakerChange) {
	s := &c.gate.said
	switch {
	case c.open && s.open:
		return // a probe has failed
	case c.open:
		s.open, s.openedAt = true, c.at
		l.opened(c.gate, c.at)
		return
	}
	if s.open = false; s.logged {
		s.logged = false
		l.logger.Info("the breaker of a destination has closed: its timers are delivered again",
			c.gate.attrs("open_for", c.at.Sub(s.openedAt).Round(time.Millisecond))...)
	} else if _, waits := l.unsaid[c.gate]; waits {
		s.skipped++
		delete(l.unsaid, c.gate)
	}
}

// opened logs that a breaker is open, now or when it is due.
func (l *breakerLog) opened(g *breakerScope, now time.Time) {
	s := &g.said
	if now.Sub(l.begun) >= breakerWindow {
		l.begun, l.lines = now, 0
	}
	if now.Before(s.quietUntil) || l.lines >= breakerLines {
		l.unsaid[g] = struct{}{}
		return
	}
	delete(l.unsaid, g)
	l.lines++
	s.logged, s.quietUntil = true, now.Add(breakerQuiet)
	more := []any{"error", "", "open_since", s.openedAt.UTC()}
	if f := g.dest.failure.Load(); f != nil {
		more[1] = f.text
	}
	if s.skipped > 0 {
		more = append(more, "openings_not_logged", s.skipped)
		s.skipped = 0
	}
	l.logger.Warn("the breaker of a destination has opened: its timers wait, and lose no attempts", g.attrs(more...)...)
}

// look logs the openings that had to wait.
func (l *breakerLog) look(now time.Time) {
	for g := range l.unsaid {
		l.opened(g, now)
	}
}

// attrs names the breaker in a line of the log.
func (g *breakerScope) attrs(more ...any) []any {
	list := []any{"destination", g.dest.label}
	if g.scope != "" {
		list = append(list, "topic", g.scope)
	}
	return append(list, more...)
}
