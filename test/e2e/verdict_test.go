package e2e

import (
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"
)

// crash is a kill -9 or another fault that may repeat calls: those that were open, and those whose
// outcome was not yet in the log.
type crash struct {
	at   time.Time // before the signal was sent
	gone time.Time // after the process had ended
	open int64     // calls open at the receiver

	commit time.Duration // see commitBefore; set by check
}

// crashNow kills the process and records when.
func crashNow(p *process, r *receiver) crash {
	c := crash{at: time.Now(), open: r.open.Load()}
	p.kill()
	c.gone = time.Now()
	return c
}

// outcomeSlack is how long the outcome of an answered call may take into the log, beside the time of
// a commit then. A duplicate whose first call ended longer before the crash is an error.
const outcomeSlack = 500 * time.Millisecond

// slack is how long before the crash a call may have been answered whose outcome is lost.
func (c *crash) slack() time.Duration { return outcomeSlack + 2*c.commit }

// commitBefore is the yardstick for outcomes, which a busy machine delays as it delays adds: the
// median of the adds that were answered in the two seconds before.
func (l *ledger) commitBefore(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []time.Duration
	for _, e := range l.entries {
		for _, w := range e.versions {
			if w.effect == acked && !w.repeated && w.answered.Before(at) && at.Sub(w.answered) < 2*time.Second {
				took = append(took, w.answered.Sub(w.sent))
			}
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// arrivalSlack is how long after its sender's death a call may reach this machine. Runs without a
// crash have no slack.
const arrivalSlack = 200 * time.Millisecond

// verdict compares the ledger, the calls and the final states. Each fault is one line.
type verdict struct {
	ledger  *ledger
	crashes []crash
	skews   []skew      // periods of a wrong clock
	resumes []time.Time // when stopped processes went on
	log     []arrival
	final   map[string]timer // nil: not checked

	attempts func(id string) []attempt // from the node's history; nil: not asked for
	timeout  time.Duration             // of calls
	asked    int                       // calls of attemptsOf

	faults     []string
	lost       int
	early      int
	byClock    int // early, but not by the leader's clock
	operations int // in linearizable histories
	duplicates int
	twice      []time.Time   // when a completed timer was called again
	resumed    int           // calls that a stopped node sent when it went on
	oldest     time.Duration // of duplicates: from the end of the first call to the crash
	tooLate    int           // of duplicates: answered after the call's timeout
	late       []string      // some of the calls after their sender's death
	latest     time.Duration // of duplicates: from the sender's death to the first call
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// check compares everything and fails the test on any fault.
func (v *verdict) check(t testing.TB) {
	t.Helper()
	for i := range v.crashes {
		v.crashes[i].commit = v.ledger.commitBefore(v.crashes[i].at)
	}
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

// checkBodies checks that no call was early (I4) or after a "prevented" (I5), and that each has the
// body and due time of a version that was written (I2, I6).
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

// resumeSlack is how long after a stopped process goes on its unfinished calls may arrive.
const resumeSlack = time.Second

// withoutResumed drops and counts calls with an outdated fence that arrived just after a stopped
// process went on: it was sending them when it was stopped. Tests bound their number.
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

// checkSequence checks that the fence rises with each call, and the attempt with each call of a
// webhook-id.
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

// checkWebhooks checks that each version of a timer has its own webhook-id and keeps it.
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

// checkTwice checks each call after a successful one. It needs a crash before the outcome was in
// the log, or an answer after the call's timeout.
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

// mostAsked bounds the requests for timers' attempts.
const mostAsked = 1000

// attemptsOf returns a timer's attempts from the node's history.
func (v *verdict) attemptsOf(id string) []attempt {
	if v.asked++; v.attempts == nil || v.asked > mostAsked {
		return nil
	}
	return v.attempts(id)
}

// attempt is an entry of a timer's attempt_log.
type attempt struct {
	Attempt   uint32 `json:"attempt"`
	StartedMs int64  `json:"started_ms"`
	EndedMs   int64  `json:"ended_ms"`
	Error     string `json:"error"`
}

// answeredTooLate reports whether the node gave the call up after its whole timeout, within which the
// receiver's answer had not come. The answer may have been on its way for as long as the call: on a
// busy machine both wait for their readers.
func answeredTooLate(list []attempt, call arrival, timeout time.Duration) bool {
	for _, a := range list {
		way := max(call.at.UnixMilli()-a.StartedMs, 1)
		if uint64(a.Attempt) == uint64(call.attempt) && a.Error == "timeout" && a.EndedMs-a.StartedMs >= timeout.Milliseconds() && call.done.UnixMilli() >= a.StartedMs+timeout.Milliseconds()-way {
			return true
		}
	}
	return false
}

// twiceBetween counts the completed timers that were called again between from and to.
func (v *verdict) twiceBetween(from, to time.Time) (n int) {
	for _, at := range v.twice {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// bornBetween reports whether the id was reused for a new timer between two calls.
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

// explained reports whether a crash may have lost the first call's outcome. It prefers a crash
// after that call's arrival to one shortly before.
func (v *verdict) explained(first, again arrival) bool {
	for _, slack := range []time.Duration{0, arrivalSlack} {
		for _, c := range v.crashes {
			if first.reached.Before(c.gone.Add(slack)) && first.done.After(c.at.Add(-c.slack())) && again.at.After(c.at) {
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

// checkDelivered checks that an owed timer was delivered (I1).
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

// checkFinal compares a timer's final state on the node with the ledger.
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
