package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// prey is a timer of the storm as its client knows it.
type prey struct {
	*entry
	version int
	payload string // last acknowledged one
	writes  int    // makes each payload unique
}

func (p *prey) next() string {
	p.writes++
	return fmt.Sprintf(`{"id": %q,"write":%d}`, p.id, p.writes)
}

// changes are the requests for a timer at its due time. Each is logged in the ledger.
var changes = map[string]func(c *client, book *ledger, p *prey) answer{
	"patch": func(c *client, book *ledger, p *prey) answer {
		payload, due := p.next(), time.Now().UnixMilli()+5
		a := c.do("PATCH", timerPath("storm", p.id), fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, due, payload))
		p.wrote(book, payload, due, a)
		return a
	},
	"put": func(c *client, book *ledger, p *prey) answer {
		payload, due := p.next(), time.Now().UnixMilli()+5
		body := fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, due, payload)
		a := c.do("PUT", timerPath("storm", p.id), body, "If-Match", fmt.Sprintf(`"%d"`, p.version))
		p.wrote(book, payload, due, a)
		return a
	},
	"cancel": func(c *client, book *ledger, p *prey) answer {
		a := c.do("DELETE", timerPath("storm", p.id), "")
		book.cancelled(p.entry, a)
		return a
	},
	"fire": func(c *client, book *ledger, p *prey) answer {
		a := c.do("POST", timerPath("storm", p.id)+"/fire", "")
		var moved timer
		_ = json.Unmarshal(a.body, &moved) // a refusal has no due time
		p.wrote(book, p.payload, moved.DueMs, a)
		return a
	},
}

// mayAnswer has the documented answers.
var mayAnswer = map[string][]string{
	"patch":  {"200", "409 in_flight", "410 already_fired", "410 cancelled"},
	"put":    {"200", "201", "409 in_flight", "412 version_mismatch"},
	"cancel": {"200 prevented", "202 in_flight", "410 already_fired"},
	"fire":   {"200", "409 in_flight", "410 already_fired", "410 cancelled"},
}

// tallies counts the answers.
type tallies struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *tallies) note(verb string, a answer) {
	what := strconv.Itoa(a.status)
	if outcome := a.outcome(); outcome != "" {
		what += " " + outcome
	} else if code := a.code(); code != "" {
		what += " " + code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[verb+" "+what]++
}

func (s *tallies) check(t testing.TB) {
	t.Helper()
	for answer, n := range s.count {
		verb, what, _ := strings.Cut(answer, " ")
		if !slices.Contains(mayAnswer[verb], what) {
			t.Errorf("%d times %q", n, answer)
		}
	}
}

func (p *prey) wrote(book *ledger, payload string, dueMs int64, a answer) {
	if book.wrote(p.entry, payload, dueMs, a) == acked {
		p.version, p.payload = p.version+1, payload
	}
}

// TestStormAtTheMomentOfFiring changes, replaces, cancels and fires timers within milliseconds of
// their due time. Prevented timers are not called, calls have payloads that were written, and all
// answers are documented ones.
func TestStormAtTheMomentOfFiring(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	n := setting(t, "CARILLON_E2E_STORM", 1500)
	random := seeded(t)
	rcv := newReceiver(t, nil)
	c := newClient(serve(t, t.TempDir()))
	c.topic(t, "storm", rcv.url(), "")
	book := newLedger()
	answers := &tallies{count: map[string]int{}}
	var wg sync.WaitGroup
	for worker := range 8 {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(worker)))
		wg.Go(func() {
			for i := worker; i < n; i += 8 {
				stormOne(c, book, answers, own, fmt.Sprintf("s%d", i))
			}
		})
	}
	wg.Wait()
	poll(t, patience, "all have ended", func() bool {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/storm/timers?limit=1", "").decode(t, &page)
		return len(page.Timers) == 0
	})
	v := &verdict{ledger: book, log: rcv.arrivals(), final: map[string]timer{}}
	for _, tm := range c.all(t, "storm") {
		v.final[tm.ID] = tm
	}
	v.check(t)
	answers.check(t)
	t.Logf("%d timers, %d arrivals; answers: %v", n, len(v.log), answers.count)
	for _, want := range []string{"cancel 200 prevented", "patch 200", "patch 410 already_fired"} {
		if answers.count[want] == 0 {
			t.Errorf("no %q: the storm missed the moment", want)
		}
	}
}

// stormOne adds a timer due within 30 ms and sends one or two requests around its due time.
func stormOne(c *client, book *ledger, answers *tallies, random *rand.Rand, id string) {
	p := &prey{entry: book.add(id, 0)}
	payload, due := p.next(), time.Now().UnixMilli()+1+random.Int64N(30)
	body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, id, due, payload)
	p.wrote(book, payload, due, c.do("POST", "/v1/topics/storm/timers", body))
	for range 1 + random.IntN(2) {
		moment := time.UnixMilli(due).Add(time.Duration(random.IntN(4000)-2500) * time.Microsecond)
		wait(max(0, time.Until(moment)))
		verb := verbs[random.IntN(len(verbs))]
		answers.note(verb, changes[verb](c, book, p))
	}
}

var verbs = []string{"patch", "put", "cancel", "fire"}
