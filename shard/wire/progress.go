package wire

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// maxProgress bounds the timers of one request for progress.
const maxProgress = 4096

// AppendProgressRequest encodes a request for the progress of timers in one shard.
func AppendProgressRequest(dst []byte, id timer.ShardID, q *timer.ProgressQuery) []byte {
	c := encoding.Codec{Out: append(dst, version)}
	progressQuery(&c, &id, q)
	return c.Out
}

// DecodeProgressRequest decodes the output of AppendProgressRequest.
func DecodeProgressRequest(b []byte) (id timer.ShardID, q *timer.ProgressQuery, err error) {
	c, q := open(b), new(timer.ProgressQuery)
	progressQuery(&c, &id, q)
	return id, q, c.Close()
}

func progressQuery(c *encoding.Codec, id *timer.ShardID, q *timer.ProgressQuery) {
	encoding.Uint32(c, id, "shard")
	encoding.Uint32(c, &q.Topic, "topic")
	c.Flags("a question for progress", &q.Attempts)
	encoding.List(c, &q.IDs, maxProgress, 1, "timers", timerID)
}

func timerID(c *encoding.Codec, id *string) { encoding.Text(c, id, encoding.MaxID, "id") }

func progress(c *encoding.Codec, list *[]timer.Progress) {
	const least = 3 // bytes of a timer's progress
	encoding.List(c, list, maxProgress, least, "timers", func(c *encoding.Codec, p *timer.Progress) {
		encoding.Octet(c, &p.For)
		encoding.CutText(c, &p.On, encoding.MaxErr, "cause")
		if c.Reads && !p.For.Known() {
			p.Wait = timer.Wait{}
		}
		attempts(c, &p.Attempts)
	})
}

// AppendProgress encodes the progress of timers, in the order of the request.
func AppendProgress(dst []byte, list []timer.Progress) []byte { return answer(dst, &list, progress) }

// DecodeProgress decodes the output of AppendProgress or AppendFailure. A cause that this release
// does not know is dropped.
func DecodeProgress(b []byte) ([]timer.Progress, error) { return answered(b, progress) }

func attempts(c *encoding.Codec, list *[]timer.HistoryAttempt) {
	const least = 5 // bytes of an attempt
	encoding.List(c, list, encoding.MaxAttempt, least, "attempts", func(c *encoding.Codec, a *timer.HistoryAttempt) {
		encoding.Number(c, &a.Attempt, encoding.MaxAttempt, "attempt")
		encoding.Signed(c, &a.StartedMs, &a.EndedMs)
		encoding.Number(c, &a.Status, 1<<16-1, "status")
		c.Failure(&a.Err, &a.Answer)
	})
}
