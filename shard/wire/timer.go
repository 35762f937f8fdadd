package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// AppendTimerRequest encodes a request for one timer.
func AppendTimerRequest(dst []byte, id timer.ShardID, topic timer.TopicID, timerID string) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(id))
	dst = binary.AppendUvarint(dst, uint64(topic))
	return encoding.AppendBlock(dst, timerID)
}

// DecodeTimerRequest decodes the output of AppendTimerRequest.
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

// AppendTimers encodes a page of timers: the first that fit, at least one.
func AppendTimers(dst []byte, list []*timer.Timer) []byte {
	start := len(dst)
	dst = append(dst, version, faultNone, 0)
	for _, t := range list {
		if len(dst)-start > answerBytes {
			dst[start+2] = 1
			return append(dst, 0)
		}
		dst = encoding.AppendTimer(append(dst, 1), t)
	}
	return append(dst, 0)
}

// DecodeTimers decodes the output of AppendTimers or AppendFailure. cut says that the list was
// longer.
func DecodeTimers(b []byte) (list []*timer.Timer, cut bool, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, false, err
	}
	cut = r.Number(1, "cut") == 1
	for r.Number(1, "presence") == 1 && r.Fault == "" {
		list = append(list, r.Timer())
	}
	if err := r.Close(); err != nil {
		return nil, false, err
	}
	return list, cut, nil
}
