package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// maxProgress bounds the timers of one request for progress.
const maxProgress = 4096

// Flags of the request.
const (
	progressAttempts = 1 << iota
)

// AppendProgressRequest encodes a request for the progress of timers in one shard.
func AppendProgressRequest(dst []byte, id timer.ShardID, q *timer.ProgressQuery) []byte {
	flags := encoding.Flag(q.Attempts, progressAttempts)
	dst = binary.AppendUvarint(append(dst, version), uint64(id))
	dst = binary.AppendUvarint(dst, uint64(q.Topic))
	dst = binary.AppendUvarint(append(dst, flags), uint64(len(q.IDs)))
	for _, name := range q.IDs {
		dst = encoding.AppendBlock(dst, name)
	}
	return dst
}

// DecodeProgressRequest decodes the output of AppendProgressRequest.
func DecodeProgressRequest(b []byte) (id timer.ShardID, q *timer.ProgressQuery, err error) {
	r := open(b)
	id = timer.ShardID(r.Number(1<<32-1, "shard"))
	q = &timer.ProgressQuery{Topic: timer.TopicID(r.Number(1<<32-1, "topic"))}
	flags := r.Byte()
	if flags&^progressAttempts != 0 {
		r.Fail("unknown flags of a question for progress")
	}
	q.Attempts = flags&progressAttempts != 0
	for n := r.Count(maxProgress, 1, "timers"); n > 0 && r.Fault == ""; n-- {
		q.IDs = append(q.IDs, string(r.Block(encoding.MaxID, "id")))
	}
	return id, q, r.Close()
}

// AppendProgress encodes the progress of timers, in the order of the request.
func AppendProgress(dst []byte, list []timer.Progress) []byte {
	dst = binary.AppendUvarint(append(dst, version, faultNone), uint64(len(list)))
	for i := range list {
		p := &list[i]
		dst = encoding.AppendBlock(append(dst, byte(p.For)), encoding.Cut(p.On, encoding.MaxErr))
		dst = appendAttempts(dst, p.Attempts)
	}
	return dst
}

// DecodeProgress decodes the output of AppendProgress or AppendFailure. A cause that this release
// does not know is dropped.
func DecodeProgress(b []byte) (list []timer.Progress, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	const least = 3 // bytes of a timer's progress
	for n := r.Count(maxProgress, least, "timers"); n > 0 && r.Fault == ""; n-- {
		p := timer.Progress{Wait: timer.Wait{For: timer.WaitCause(r.Byte()), On: string(r.Block(encoding.MaxErr, "cause"))}}
		if !p.For.Known() {
			p.Wait = timer.Wait{}
		}
		p.Attempts = r.attempts()
		list = append(list, p)
	}
	return list, r.Close()
}

func appendAttempts(dst []byte, list []timer.HistoryAttempt) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		a := &list[i]
		dst = binary.AppendUvarint(dst, uint64(a.Attempt))
		dst = encoding.AppendVarints(dst, a.StartedMs, a.EndedMs)
		dst = binary.AppendUvarint(dst, uint64(a.Status))
		dst = encoding.AppendError(dst, a.Err, a.Answer)
	}
	return dst
}

func (r *reader) attempts() (list []timer.HistoryAttempt) {
	const least = 5 // bytes of an attempt
	for n := r.Count(encoding.MaxAttempt, least, "attempts"); n > 0 && r.Fault == ""; n-- {
		a := timer.HistoryAttempt{
			Attempt: int(r.Number(encoding.MaxAttempt, "attempt")), StartedMs: r.Varint(), EndedMs: r.Varint(),
			Status: int(r.Number(1<<16-1, "status")),
		}
		a.Err, a.Answer = r.Failure()
		list = append(list, a)
	}
	return list
}
