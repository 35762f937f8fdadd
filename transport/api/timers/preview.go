package timers

import (
	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/web"
)

// ShownTimes is how many due times of a series a dry run shows.
const ShownTimes = 5

// maxNext is how many of them a read shows at most.
const maxNext = 100

// preview computes what a command would do to its timer as it is now.
func preview(rq *web.Request, id timer.ShardID, cmd *timer.Command) (timer.Result, error) {
	var cur *timer.Timer
	if cmd.Topic != 0 {
		var err error
		cur, err = rq.Core.Timers.Timer(rq.Base, id, cmd.Topic, cmd.ID)
		nameLeader(rq, id)
		if err != nil {
			return timer.Result{}, err
		}
	}
	return timer.Preview(cmd, cur, rq.NowMs()), nil
}

// answerPreview answers with a timer as it would be. It has no uid, and an id only if it is known.
func answerPreview(rq *web.Request, in *timerRequest, topic *timer.Topic, res *timer.Result) *web.Problem {
	w := NewWriter(topic)
	w.preview, w.merged, w.lateMs = true, res.Code == timer.Merged, in.lateMs(res, rq.NowMs())
	w.unnamed = in.unnamed && !topic.Policy.ByContent
	held := heldWait(res.Timer)
	return rq.JSON(200, appendWait(appendNext(rq, w.Append(rq.Out(), res.Timer), res.Timer, held.For, ShownTimes), held))
}

func appendNext(rq *web.Request, b []byte, t *timer.Timer, waits timer.WaitCause, n int) []byte {
	if n == 0 || t.Repeat == nil {
		return b
	}
	var calendar recurrence.Calendar
	times := calendar.Coming(t, waits, rq.NowMs(), n)
	o := web.Object{B: b[:len(b)-1], Begun: true}
	o.List("next", len(times), func(b []byte, i int) []byte { return append(web.AppendInstant(append(b, '"'), times[i]), '"') })
	o.Integers("next_ms", times)
	return o.End()
}
