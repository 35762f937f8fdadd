package e2e

import (
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"
)

// crash is one kill -9: calls that were open then, or whose outcome could not be in the log yet,
// may be made again.
type crash struct {
	at   time.Time // before the signal was sent
	gone time.Time // the process is no more
	open int64     // calls open at the receiver
}

// crashNow kills the process and notes when.
func crashNow(p *process, r *receiver) crash {
	c := crash{at: time.Now(), open: r.open.Load()}
	p.kill()
	c.gone = time.Now()
	return c
}

// outcomeSlack is how long the outcome of an answered call may take into the log of a busy machine.
// A duplicate whose first call ended longer than this before the crash is a fault.
const outcomeSlack = 500 * time.Millisecond

// arrivalSlack is how long after its sender's death a call may still reach the receiver's log: its
// bytes are in a socket, and the receiver shares a busy machine. Runs without a crash have no slack
// at all.
const arrivalSlack = 200 * time.Millisecond

// verdict compares the witnesses. Every fault is one line.
type verdict struct {
	ledger  *ledger
	crashes []crash
	skews   []skew      // times in which a node's clock was wrong
	resumes []time.Time // when stopped processes went on: what they had in their hands then comes late, see withoutResumed
	log     []arrival
	final   map[string]timer // nil: not asked for

	attempts func(id string) []attempt // the node's own log of a timer's attempts; nil: not asked for
	timeout  time.Duration             // of calls
	asked    int                       // attempts were asked for so often

	faults     []string
	lost       int
	early      int
	byClock    int // early, but not by the clock of who led then
	operations int // of which an order was found that explains all answers
	duplicates int
	twice      []time.Time   // when a completed timer was called again
	resumed    int           // calls that were on their way when their node was stopped, and arrived when it went on
	oldest     time.Duration // of duplicates: from the first call's end to the crash that lost its outcome
	tooLate    int           // of duplicates: the first call was answered when its time was over
	late       []string      // some of those that arrived when the sender was dead
	latest     time.Duration // … and from the crash to the first call's arrival, when the sender was dead by then
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// check runs the whole checker and fails the test on any fault.
func (v *verdict) check(t testing.TB) {
	t.Helper()
	byTimer := map[string][]arrival{}
	for _, a := range v.log {
		byTimer[a.timer] = append(byTimer[a.timer], a)
	}
	webhooks := map[string]string{}
	for id, list := range byTimer {
		e := v.ledger.byID[id]
		if e == nil {
			v.fault("%s: arrived, but no client wrote it", id)
			continue
		}
		v.checkBodies(e, list)
		list = v.withoutResumed(list)
		v.checkSequence(id, list)
		v.checkWebhooks(id, list, webhooks)
		v.checkTwice(id, list)
	}
	for _, e := range v.ledger.entries {
		v.checkDelivered(e, byTimer[e.id])
		v.checkFinal(e, byTimer[e.id])
	}
	v.checkOrder()
	v.report(t)
}

func (v *verdict) report(t testing.TB) {
	t.Helper()
	sort.Strings(v.faults)
	for i, f := range v.faults {
		if i == 20 {
			t.Errorf("… and %d more", len(v.faults)-i)
			return
		}
		t.Error(f)
	}
}

// checkBodies: I2, I4, I5, I6.
func (v *verdict) checkBodies(e *entry, list []arrival) {
	prevented := e.prevented()
	for _, a := range list {
		switch {
		case !a.early():
		case -a.lateness() <= v.aheadAt(a.at):
			v.byClock++
		default:
			v.early++
			v.fault("%s: early by %v (attempt %d)", e.id, -a.lateness(), a.attempt)
		}
		if err := e.mayArrive(a); err != nil {
			v.fault("%s: altered: attempt %d: %v", e.id, a.attempt, err)
		}
		if !prevented.IsZero() && a.at.After(prevented) {
			v.fault("%s: attempt %d came %v after its cancel was answered prevented", e.id, a.attempt, a.at.Sub(prevented))
		}
	}
}

// resumeSlack is how long after a stopped process goes on what it had begun to send may arrive.
const resumeSlack = time.Second

// withoutResumed leaves out calls with an outdated fence that came right after a stopped process
// went on: their sending had begun when it was stopped. They are counted; a test bounds them by
// what can have been on its way.
func (v *verdict) withoutResumed(list []arrival) []arrival {
	highest := uint64(0)
	return slices.DeleteFunc(slices.Clone(list), func(a arrival) bool {
		outdated := a.fence <= highest
		highest = max(highest, a.fence)
		if !outdated {
			return false
		}
		for _, at := range v.resumes {
			if since := a.at.Sub(at); since >= 0 && since < resumeSlack {
				v.resumed++
				return true
			}
		}
		return false
	})
}

// checkSequence: the fence rises with every call, the attempt with every call of one version.
func (v *verdict) checkSequence(id string, list []arrival) {
	for i := 1; i < len(list); i++ {
		last, a := list[i-1], list[i]
		if a.fence <= last.fence {
			v.fault("%s: fence %d after %d (attempts %d and %d)", id, a.fence, last.fence, last.attempt, a.attempt)
		}
		if a.webhook == last.webhook && a.attempt <= last.attempt {
			v.fault("%s: attempt %d after %d", id, a.attempt, last.attempt)
		}
	}
}

// checkWebhooks: one webhook-id for each version of each timer, and no other version's.
func (v *verdict) checkWebhooks(id string, list []arrival, owners map[string]string) {
	own := map[uint64]string{}
	for _, a := range list {
		owner := fmt.Sprintf("%s/%x", id, a.sum)
		if a.webhook == "" {
			v.fault("%s: no webhook-id", id)
		}
		if had := own[a.sum]; had != "" && had != a.webhook {
			v.fault("%s: webhook-id %s, before %s", id, a.webhook, had)
		}
		own[a.sum] = a.webhook
		if other := owners[a.webhook]; other != "" && other != owner {
			v.fault("webhook-id %s is that of %s and of %s", a.webhook, other, owner)
		}
		owners[a.webhook] = owner
	}
}

// checkTwice: a call after a successful one is explained only by a crash that came when its outcome
// was not yet safe, or by an answer that came when the call's time was over.
func (v *verdict) checkTwice(id string, list []arrival) {
	for i := 1; i < len(list); i++ {
		first, again := list[i-1], list[i]
		if !first.succeeded() || first.webhook != again.webhook && v.bornBetween(id, first, again) {
			continue
		}
		v.duplicates++
		v.twice = append(v.twice, again.at)
		if v.explained(first, again) {
			continue
		}
		attempts := v.attemptsOf(id)
		if answeredTooLate(attempts, first, v.timeout) {
			v.tooLate++
			continue
		}
		v.fault("%s: called again (attempt %d) %v after attempt %d, from %s to %s, was answered %d, and no crash explains it (attempts %+v): %v", id, again.attempt,
			again.at.Sub(first.done), first.attempt, first.at.Format(clockFormat), first.done.Format(clockFormat), first.status, attempts, v.crashTimes())
	}
}

// mostAsked bounds how often a node is asked of a timer's attempts.
const mostAsked = 1000

// attemptsOf is how the node itself says that a timer's attempts ended.
func (v *verdict) attemptsOf(id string) []attempt {
	if v.asked++; v.attempts == nil || v.asked > mostAsked {
		return nil
	}
	return v.attempts(id)
}

// attempt is one of a timer's attempt_log.
type attempt struct {
	Attempt   uint32 `json:"attempt"`
	StartedMs int64  `json:"started_ms"`
	EndedMs   int64  `json:"ended_ms"`
	Error     string `json:"error"`
}

// answeredTooLate says whether the node gave a call up, after all the time that it may take, before
// the receiver had answered it.
func answeredTooLate(list []attempt, call arrival, timeout time.Duration) bool {
	for _, a := range list {
		if uint64(a.Attempt) == uint64(call.attempt) && a.Error == "timeout" && a.EndedMs-a.StartedMs >= timeout.Milliseconds() && call.done.UnixMilli() >= a.EndedMs-1 {
			return true
		}
	}
	return false
}

// twiceBetween counts the completed timers that were called again in that time.
func (v *verdict) twiceBetween(from, to time.Time) (n int) {
	for _, at := range v.twice {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// bornBetween tells that a new timer was made over the finished one between two arrivals.
func (v *verdict) bornBetween(id string, first, again arrival) bool {
	versions := v.ledger.byID[id].versions
	for i := 1; i < len(versions); i++ {
		if versions[i].born && hasSum(versions[:i], first.sum) && hasSum(versions[i:], again.sum) {
			return true
		}
	}
	return false
}

func hasSum(list []written, sum uint64) bool {
	return slices.ContainsFunc(list, func(w written) bool { return w.sum == sum })
}

const clockFormat = "05.000"

func (v *verdict) crashTimes() (list []string) {
	for _, c := range v.crashes {
		list = append(list, c.at.Format(clockFormat)+"–"+c.gone.Format(clockFormat))
	}
	return list
}

// explained looks first for a crash after the first call's arrival, then for one shortly before it.
func (v *verdict) explained(first, again arrival) bool {
	for _, slack := range []time.Duration{0, arrivalSlack} {
		for _, c := range v.crashes {
			if first.at.Before(c.gone.Add(slack)) && first.done.After(c.at.Add(-outcomeSlack)) && again.at.After(c.at) {
				v.oldest, v.latest = max(v.oldest, c.at.Sub(first.done)), max(v.latest, first.at.Sub(c.gone))
				if slack > 0 && len(v.late) < 5 {
					v.late = append(v.late, fmt.Sprintf("%s attempt %d on %s at %s, again on %s at %s; crash %s–%s", first.timer, first.attempt, first.peer,
						first.at.Format(clockFormat), again.peer, again.at.Format(clockFormat), c.at.Format(clockFormat), c.gone.Format(clockFormat)))
				}
				return true
			}
		}
	}
	return false
}

// checkDelivered: I1.
func (v *verdict) checkDelivered(e *entry, list []arrival) {
	if !e.owed() {
		return
	}
	for _, a := range list {
		if a.succeeded() {
			return
		}
	}
	v.lost++
	v.fault("%s: lost: acknowledged %v, never delivered (%d calls)", e.id, e.versions[0].answered.Format(time.TimeOnly+".000"), len(list))
}

// checkFinal compares with what the node says at the end.
func (v *verdict) checkFinal(e *entry, list []arrival) {
	if v.final == nil || len(e.versions) == 0 {
		return
	}
	f, there := v.final[e.id]
	first := e.versions[0].effect
	switch {
	case !there && first == acked:
		v.lost++
		v.fault("%s: gone: acknowledged, and the node does not know it", e.id)
		return
	case there && first == refused:
		v.fault("%s: the node has it (%s), but its add was refused", e.id, f.State)
		return
	case !there:
		return
	}
	want := e.end()
	if want != "" && f.State != want {
		v.fault("%s: ended %s, want %s (%d calls, last error %q)", e.id, f.State, want, len(list), f.LastError)
	}
	if want == "" && f.State != "done" && f.State != "cancelled" {
		v.fault("%s: ended %s after a cancel", e.id, f.State)
	}
}
