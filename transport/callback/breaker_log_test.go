package callback

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"
)

// logOf is a log of breakers on a clock of the test's, and its lines.
type logOf struct {
	*testing.T
	log  breakerLog
	out  bytes.Buffer
	now  time.Time
	dest *destination
}

func newLogOf(t *testing.T) *logOf {
	l := &logOf{T: t, now: time.Unix(1_800_000_000, 0), dest: &destination{label: "http://sick:80"}}
	l.log = breakerLog{logger: slog.New(slog.NewTextHandler(&l.out, nil)), unlogged: map[*breakerScope]struct{}{}}
	l.dest.failure.Store(&failure{text: "connection refused"})
	return l
}

func (l *logOf) gate(scope string) *breakerScope { return &breakerScope{dest: l.dest, scope: scope} }

func (l *logOf) change(g *breakerScope, open bool) { l.log.record(breakerChange{g, open, l.now}) }

// lines takes the lines since the last look, by level.
func (l *logOf) lines(warn, info int) string {
	l.Helper()
	text := l.out.String()
	l.out.Reset()
	if w, i := strings.Count(text, "level=WARN"), strings.Count(text, "level=INFO"); w != warn || i != info {
		l.Errorf("%d warnings and %d of news, want %d and %d:\n%s", w, i, warn, info, text)
	}
	return text
}

func TestBreakerLogSaysOpenAndClosed(t *testing.T) {
	l := newLogOf(t)
	g := l.gate("orders")
	l.change(g, true)
	if text := l.lines(1, 0); !strings.Contains(text, "destination=http://sick:80") || !strings.Contains(text, "topic=orders") || !strings.Contains(text, `error="connection refused"`) {
		t.Error(text)
	}
	l.change(g, true) // its probe failed
	l.lines(0, 0)
	l.now = l.now.Add(90 * time.Second)
	l.change(g, false)
	if text := l.lines(0, 1); !strings.Contains(text, "open_for=1m30s") {
		t.Error(text)
	}
}

// One that flaps is logged as open once a minute, and in the end if it is open.
func TestBreakerLogOfOneThatFlaps(t *testing.T) {
	l := newLogOf(t)
	g := l.gate("")
	for range 5 {
		l.change(g, true)
		l.now = l.now.Add(2 * time.Second)
		l.change(g, false)
		l.now = l.now.Add(2 * time.Second)
		l.log.look(l.now)
	}
	l.lines(1, 1)
	l.change(g, true)
	l.lines(0, 0)
	l.now = l.now.Add(breakerQuiet)
	l.log.look(l.now)
	if text := l.lines(1, 0); !strings.Contains(text, "openings_not_logged=4") {
		t.Error(text)
	}
	l.log.look(l.now)
	l.lines(0, 0)
	l.change(g, false)
	l.lines(0, 1)
	if len(l.log.unlogged) != 0 {
		t.Error("something is kept")
	}
}

// Many that open at once are not all logged at once; none is forgotten.
func TestBreakerLogOfMany(t *testing.T) {
	l := newLogOf(t)
	gates := make([]*breakerScope, breakerLines+10)
	for i := range gates {
		gates[i] = l.gate("")
		l.change(gates[i], true)
	}
	l.lines(breakerLines, 0)
	l.now = l.now.Add(breakerWindow)
	l.log.look(l.now)
	l.lines(10, 0)
}

// TestFailuresInARow: calls that fail are counted until one succeeds, those that open no breaker
// too.
func TestFailuresInARow(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		inRow := func() (n int64) {
			s.p.Destinations(func(d DestinationStat) { n = d.InRow })
			return n
		}
		for range 3 {
			s.call(Breaker{}, 302)
		}
		if n := inRow(); n != 3 {
			t.Errorf("%d after three redirects", n)
		}
		if s.call(Breaker{}, 410); inRow() != 3 {
			t.Errorf("%d after a 410, which is about one timer", inRow())
		}
		if s.call(Breaker{}, 200); inRow() != 0 {
			t.Errorf("%d after a success", inRow())
		}
	})
}

// TestBreakerChangesAreLogged: the pool's own breakers tell the log, and destinations say since
// when.
func TestBreakerChangesAreLogged(t *testing.T) {
	inSickbed(t, func(s *sickbed) {
		b := Breaker{Failures: 1, Open: time.Minute}
		s.call(b, 500)
		opened := time.Now()
		synctest.Wait()
		var stats []DestinationStat
		s.p.Destinations(func(d DestinationStat) { stats = append(stats, d) })
		if len(stats) != 1 || stats[0].Breaker != delivery.BreakerOpen || stats[0].Since.IsZero() || stats[0].Since.After(opened) ||
			stats[0].ProbeIn <= 0 || stats[0].LastError != "status 500" || stats[0].FailedAt.IsZero() || stats[0].InRow != 1 {
			t.Errorf("%+v", stats)
		}
		if at := s.p.State(s.key); at.Breaker != delivery.BreakerOpen || at.ProbeIn <= 0 || at.Name != "http://sick.example:80" {
			t.Errorf("%+v", at)
		}
		if at := s.p.State(address.Key{Scheme: "http", Host: "other", Port: 80}); at.Breaker != delivery.BreakerClosed || at.Name != "http://other:80" {
			t.Errorf("%+v", at)
		}
		g := s.p.destinations[s.key].gates[""]
		if !g.logged.open || !g.logged.logged {
			t.Error("Run has not logged it")
		}
		g.report(false)
		synctest.Wait()
		if g.logged.open {
			t.Error("Run has not logged that it closed")
		}
	})
}
