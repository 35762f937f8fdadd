package sim

import (
	"fmt"
	"strings"

	"carillon/shard/table"
	"carillon/timer"
)

// answerChecker checks that a timer shows what its own receiver answered to its last attempt, if
// that failed, and nothing else. Receivers answer a failed call with a text that names the timer
// and the fence of the call.
type answerChecker struct {
	all  map[string]givenAnswer // by text
	full bool                   // a node may have had no memory for an answer
}

// givenAnswer is what came with an answer's text.
type givenAnswer struct{ status, attempt int }

// given returns the answer of a receiver to a call that fails.
func (b *answerChecker) given(w *World, j *table.Job, status int) *timer.Answer {
	text := fmt.Sprintf("%s/%d/%d", j.ID, j.Seq, j.Fence)
	if b.all == nil {
		b.all = map[string]givenAnswer{}
	}
	b.all[text] = givenAnswer{status, int(j.Attempts)}
	b.full = b.full || w.swarm.bounds.memory > 0
	return &timer.Answer{Body: text}
}

// shown checks a timer in an answer to a client.
func (b *answerChecker) shown(w *World, t *timer.Timer) {
	if t == nil {
		return
	}
	if t.LastAnswer == nil {
		// A consumer's report keeps the status of the call, and has an error of its own.
		if t.LastStatus >= 300 && t.LastError == "" && !b.full {
			w.violate("answer", "timer %s failed with status %d and shows no answer", t.ID, t.LastStatus)
		}
		return
	}
	text := t.LastAnswer.Body
	w.counts.Answers++
	// The fence of a lease that is ahead of its due time is shown to no client, but is in t: the
	// timer is shown as scheduled, with the attempts before this one, and with the answer to the last
	// of these. When this answer reaches the client, the receiver may have answered that attempt, too.
	last := b.all[fmt.Sprintf("%s/%d/%d", t.ID, t.Seq, t.Fence)]
	switch is, known := b.all[text]; {
	case !known || !strings.HasPrefix(text, fmt.Sprintf("%s/%d/", t.ID, t.Seq)):
		w.violate("answer", "timer %s, number %d, shows the answer %q, which its receiver did not give", t.ID, t.Seq, text)
	case t.LastStatus != is.status:
		w.violate("answer", "timer %s shows status %d and the answer %q, which came with %d", t.ID, t.LastStatus, text, is.status)
	case t.State != timer.Leased && t.Attempts > 0 && !strings.HasSuffix(text, fmt.Sprintf("/%d", t.Fence)) && last.status != 0 && last.attempt == t.Attempts:
		w.violate("answer", "timer %s shows the answer %q, but that to its last attempt, under fence %d, is another", t.ID, text, t.Fence)
	}
}
