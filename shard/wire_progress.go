package shard

import (
	"encoding/binary"

	"carillon/timer"
)

// maxProgress bounds the timers of one question for their progress.
const maxProgress = 4096

const progressAttempts = 1 // a flag of the question

// AppendProgressRequest encodes the question for the progress of timers in one shard.
func AppendProgressRequest(dst []byte, id timer.ShardID, q *timer.ProgressQuery) []byte {
	var flags byte
	if q.Attempts {
		flags |= progressAttempts
	}
	dst = binary.AppendUvarint(append(dst, wireVersion), uint64(id))
	dst = binary.AppendUvarint(dst, uint64(q.Topic))
	dst = binary.AppendUvarint(append(dst, flags), uint64(len(q.IDs)))
	for _, name := range q.IDs {
		dst = appendBlock(dst, name)
	}
	return dst
}

// DecodeProgressRequest decodes what AppendProgressRequest wrote.
func DecodeProgressRequest(b []byte) (id timer.ShardID, q *timer.ProgressQuery, err error) {
	r := openWire(b)
	id = timer.ShardID(r.number(1<<32-1, "shard"))
	q = &timer.ProgressQuery{Topic: timer.TopicID(r.number(1<<32-1, "topic"))}
	flags := r.byte()
	if flags&^progressAttempts != 0 {
		r.fail("unknown flags of a question for progress")
	}
	q.Attempts = flags&progressAttempts != 0
	for n := r.count(maxProgress, 1, "timers"); n > 0 && r.fault == ""; n-- {
		q.IDs = append(q.IDs, string(r.block(maxID, "id")))
	}
	return id, q, r.close()
}

// AppendProgress encodes the progress of timers, in the order of the question.
func AppendProgress(dst []byte, list []timer.Progress) []byte {
	dst = binary.AppendUvarint(append(dst, wireVersion, faultNone), uint64(len(list)))
	for i := range list {
		p := &list[i]
		dst = appendBlock(append(dst, byte(p.For)), cut(p.On, maxErr))
		dst = appendAttempts(dst, p.Attempts)
	}
	return dst
}

// DecodeProgress decodes what AppendProgress or AppendFailure wrote. A cause that this release
// does not know is none.
func DecodeProgress(b []byte) (list []timer.Progress, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	const least = 3 // bytes of one
	for n := r.count(maxProgress, least, "timers"); n > 0 && r.fault == ""; n-- {
		p := timer.Progress{Wait: timer.Wait{For: timer.WaitCause(r.byte()), On: string(r.block(maxErr, "cause"))}}
		if p.For > timer.WaitSlots {
			p.Wait = timer.Wait{}
		}
		p.Attempts = r.attempts()
		list = append(list, p)
	}
	return list, r.close()
}

func appendAttempts(dst []byte, list []timer.HistoryAttempt) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		a := &list[i]
		dst = binary.AppendUvarint(dst, uint64(a.Attempt))
		dst = binary.AppendVarint(dst, a.StartedMs)
		dst = binary.AppendVarint(dst, a.EndedMs)
		dst = binary.AppendUvarint(dst, uint64(a.Status))
		dst = appendBlock(dst, cut(a.Err, maxErr))
	}
	return dst
}

func (r *wireReader) attempts() (list []timer.HistoryAttempt) {
	const least = 5 // bytes of an attempt
	for n := r.count(maxAttempt, least, "attempts"); n > 0 && r.fault == ""; n-- {
		list = append(list, timer.HistoryAttempt{
			Attempt: int(r.number(maxAttempt, "attempt")), StartedMs: r.varint(), EndedMs: r.varint(),
			Status: int(r.number(1<<16-1, "status")), Err: string(r.block(maxErr, "error text")),
		})
	}
	return list
}
