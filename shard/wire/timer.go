package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

func AppendTimerRequest(dst []byte, id timer.ShardID, topic timer.TopicID, timerID string) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(id))
	dst = binary.AppendUvarint(dst, uint64(topic))
	return encoding.AppendBlock(dst, timerID)
}

func DecodeTimerRequest(b []byte) (id timer.ShardID, topic timer.TopicID, timerID string, err error) {
	r := open(b)
	id = timer.ShardID(r.Number(1<<32-1, "shard"))
	topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	timerID = string(r.Block(encoding.MaxID, "id"))
	return id, topic, timerID, r.Close()
}

// AppendTimer encodes the answer for one timer; nil: there is none.
func AppendTimer(dst []byte, t *timer.Timer) []byte {
	dst = append(dst, version, faultNone)
	if t == nil {
		return append(dst, 0)
	}
	return encoding.AppendTimer(append(dst, 1), t)
}

// DecodeTimer decodes the output of AppendTimer or AppendFailure.
func DecodeTimer(b []byte) (*timer.Timer, error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	var t *timer.Timer
	if r.Number(1, "presence") == 1 {
		t = r.Timer()
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return t, nil
}

// Flags of a page.
const (
	pageMore   = 1 << iota // there is more: where
	pageShards             // the shards that answer are last
	pageWaits              // and then, why each timer waits
	pageTopic              // the place where there is more has a topic

	pageFlags = 1<<iota - 1
)

// AppendPage encodes a page of the shards that answer: the first timers that fit.
func AppendPage(dst []byte, ids []timer.ShardID, page timer.Page, q *timer.Query) []byte {
	start := len(dst)
	dst = append(dst, version, faultNone, 0)
	for i, t := range page.Timers {
		if len(dst)-start > answerBytes {
			page.Cut(q, i)
			break
		}
		dst = encoding.AppendTimer(append(dst, 1), t)
	}
	dst = append(dst, 0)
	dst[start+2] = encoding.Flag(page.More, pageMore) | encoding.Flag(len(ids) > 0, pageShards) | encoding.Flag(page.Waits != nil, pageWaits) |
		encoding.Flag(page.More && page.Next.Topic != 0, pageTopic)
	if page.More {
		dst = appendPlace(dst, page.Next, page.Next.Topic != 0)
	}
	if len(ids) > 0 {
		dst = appendIDs(dst, ids)
	}
	for _, w := range page.Waits {
		if dst = append(dst, byte(w.For)); w.For != timer.NoWait {
			dst = encoding.AppendBlock(dst, encoding.Cut(w.On, encoding.MaxErr))
		}
	}
	return dst
}

// DecodePage decodes the output of AppendPage or AppendFailure. A cause of waiting that this
// release does not know is dropped.
func DecodePage(b []byte) (ids []timer.ShardID, p timer.Page, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, timer.Page{}, err
	}
	flags := r.Byte()
	if flags&^pageFlags != 0 {
		r.Fail("unknown flags of a page")
	}
	for r.Number(1, "presence") == 1 && r.Fault == "" {
		p.Timers = append(p.Timers, r.Timer())
	}
	if p.More = flags&pageMore != 0; p.More {
		p.Next = r.place(flags&pageTopic != 0)
	}
	if flags&pageShards != 0 {
		ids = r.ids()
	}
	if flags&pageWaits != 0 && r.Fault == "" {
		p.Waits = make([]timer.Wait, len(p.Timers))
	}
	for i := range p.Waits {
		w := timer.Wait{For: timer.WaitCause(r.Byte())}
		if w.For != timer.NoWait {
			w.On = string(r.Block(encoding.MaxErr, "cause"))
		}
		if w.For.Known() {
			p.Waits[i] = w
		}
	}
	if err := r.Close(); err != nil {
		return nil, timer.Page{}, err
	}
	return ids, p, nil
}
