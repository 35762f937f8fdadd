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

// breakerLog logs once when a breaker opens, and once when it closes again. One that flaps is
// logged as open once a breakerQuiet. Only the goroutine of Run uses it, and it holds no lock.
type breakerLog struct {
	logger   *slog.Logger
	unlogged map[*breakerScope]struct{} // open, and not logged yet
	begun    time.Time                  // of the window
	lines    int                        // in it
}

// loggedState is the state of a gate's breaker that the log knows.
type loggedState struct {
	open       bool
	openedAt   time.Time
	logged     bool      // that it is open
	quietUntil time.Time // no opening is logged before
	skipped    int       // openings that were not logged
}

// report hands a change to the log, from any goroutine and under any lock.
func (s *breakerScope) report(open bool) {
	select {
	case s.dest.pool.breakerNews <- breakerChange{s, open, time.Now()}:
	default:
	}
}

func (l *breakerLog) record(c breakerChange) {
	s := &c.gate.logged
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
	} else if _, waits := l.unlogged[c.gate]; waits {
		s.skipped++
		delete(l.unlogged, c.gate)
	}
}

// opened logs that a breaker is open, now or when it is due.
func (l *breakerLog) opened(g *breakerScope, now time.Time) {
	s := &g.logged
	if now.Sub(l.begun) >= breakerWindow {
		l.begun, l.lines = now, 0
	}
	if now.Before(s.quietUntil) || l.lines >= breakerLines {
		l.unlogged[g] = struct{}{}
		return
	}
	delete(l.unlogged, g)
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
	for g := range l.unlogged {
		l.opened(g, now)
	}
}

// attrs names the breaker in a line of the log.
func (s *breakerScope) attrs(more ...any) []any {
	list := []any{"destination", s.dest.label}
	if s.scope != "" {
		list = append(list, "topic", s.scope)
	}
	return append(list, more...)
}
