package timers

import (
	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Outcomes describes ended timers in the payloads of their outcomes, as a read shows them. The
// attempts are those that the timer has logged, since to read the history takes too long for the
// entry that ends it. Its payload is left out if that of the outcome would become too large.
func Outcomes() func(topic *timer.Topic, ended *timer.Timer, attempts []timer.HistoryAttempt) []byte {
	most := web.DefaultLimits().PayloadBytes
	return func(topic *timer.Topic, ended *timer.Timer, attempts []timer.HistoryAttempt) []byte {
		w := Writer{topic: topic, payload: true}
		b := w.appendOutcome(nil, ended, attempts)
		if len(b) > most {
			w.payload = false
			b = w.appendOutcome(b[:0], ended, attempts)
		}
		return b
	}
}

func (w *Writer) appendOutcome(b []byte, ended *timer.Timer, attempts []timer.HistoryAttempt) []byte {
	o := web.Object{B: b}
	o.Text("outcome", web.StateNames[ended.State])
	if ended.State == timer.Dead {
		o.Text("reason", backend.ReasonName(ended.Reason))
	}
	o.Name("timer")
	o.B = w.Append(o.B, ended)
	if len(attempts) > 0 {
		o.B = appendAttemptLog(o.B, ended, attempts[max(0, len(attempts)-timer.AttemptLog):])
	}
	o.OptBoolean("payload_left_out", !w.payload)
	return o.End()
}
