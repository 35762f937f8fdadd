package timers

import (
	"encoding/base64"

	"carillon/timer"
	"carillon/transport/api/web"
)

// mayWait reports that something may keep a timer from its next attempt: its due time or that of
// the attempt has come, or it is between attempts.
func mayWait(t *timer.Timer, nowMs int64) bool {
	return t.State == timer.Scheduled && (min(t.DueMs, t.NextMs) <= nowMs || t.Attempts > 0)
}

// heldWait is why a timer waits that a client holds: its state has it, and it goes before all else.
func heldWait(t *timer.Timer) (w timer.Wait) {
	if t.Paused {
		w.For = timer.WaitHeld
	}
	return w
}

// progress asks for the part of a timer's read besides its state. Where the shard's leader cannot
// be asked a due timer waits for it; the read is good without the rest.
func progress(rq *web.Request, id timer.ShardID, t *timer.Timer) (p timer.Progress) {
	p.Wait = heldWait(t)
	if (t.Paused || !mayWait(t, rq.NowMs())) && t.Attempts == 0 {
		return p
	}
	list, err := rq.Core.Timers.Progress(rq.Base, id, &timer.ProgressQuery{Topic: t.Topic, IDs: []string{t.ID}, Attempts: t.Attempts > 0})
	if err == nil && len(list) == 1 {
		p = list[0]
	} else if t.State == timer.Scheduled && t.NextMs <= rq.NowMs() && !t.Paused {
		p.For = timer.WaitLeader
	}
	if t.State == timer.Leased {
		p.Wait = timer.Wait{} // those of its id wait, not it
	}
	if len(p.Attempts) == 0 {
		p.Attempts = lastAttempt(t)
	}
	return p
}

// lastAttempt is the one that the timer itself remembers, for where the history has none.
func lastAttempt(t *timer.Timer) []timer.HistoryAttempt {
	if t.Attempts == 0 || t.FiredMs == 0 || t.State == timer.Leased {
		return nil
	}
	return []timer.HistoryAttempt{{Attempt: t.Attempts, StartedMs: t.FiredMs, Status: t.LastStatus, Err: t.LastError, Answer: t.LastAnswer}}
}

// appendWait adds to a timer's object why it waits.
func appendWait(b []byte, w timer.Wait) []byte {
	if w.For == timer.NoWait {
		return b
	}
	b = append(append(b[:len(b)-1], `,"waits_for":"`...), w.For.String()...)
	b = append(b, '"')
	if w.On != "" {
		b = web.AppendString(append(b, `,"waits_on":`...), w.On)
	}
	return append(b, '}')
}

// appendAnswer adds to an attempt's object what its receiver answered.
func appendAnswer(o *web.Object, a *timer.Answer) {
	switch {
	case a == nil:
		return
	case a.Text():
		o.OptText("answer", a.Body)
	default:
		o.Text("answer_base64", base64.StdEncoding.EncodeToString([]byte(a.Body)))
	}
	o.OptText("answer_type", a.Type)
	o.OptText("location", a.Location)
}

// appendAttemptLog adds to a timer's object how its attempts went.
func appendAttemptLog(b []byte, t *timer.Timer, attempts []timer.HistoryAttempt) []byte {
	log := web.Object{B: b[:len(b)-1], Begun: true}
	log.List("attempt_log", len(attempts), func(b []byte, i int) []byte {
		a, o := &attempts[i], web.Object{B: b}
		o.Integer("attempt", int64(a.Attempt))
		o.Integer("started_ms", a.StartedMs)
		o.OptInteger("ended_ms", a.EndedMs)
		if a.Attempt == 1 && t.LatenessMs >= 0 {
			o.Integer("lateness_ms", t.LatenessMs)
		}
		o.OptInteger("status", int64(a.Status))
		o.OptText("error", a.Err)
		appendAnswer(&o, a.Answer)
		return o.End()
	})
	return log.End()
}
