package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// The fields of a Result that are present, in this order.
const (
	resultHandle = 1 << iota
	resultFence
	resultRemoved
	resultSeq
	resultVersion
	resultAtMs
	resultTimer
	resultUnchanged // has no value
	resultOrigin

	resultBits = 1<<iota - 1
)

// answerBytes is where an answer is full: a peer refuses frames that are much longer. A page of
// timers ends there and reports that there is more. Operations beyond it are answered without their
// Timer, which the client can read.
const answerBytes = 16 << 20

// AppendAnswers encodes the results of operations. An operation without a result gets ErrUnknown.
// The Timer of a Created is left out: the asking node can make it from the command.
func AppendAnswers(dst []byte, ops []timer.Op) []byte {
	start := len(dst)
	dst = append(dst, version, faultNone)
	dst = binary.AppendUvarint(dst, uint64(len(ops)))
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Err != nil:
			dst = appendFault(dst, o.Err)
		case o.Result.Code == 0:
			dst = appendFault(dst, timer.ErrUnknown)
		default:
			found := o.Result.Timer
			if o.Result.Code == timer.Created || len(dst)-start > answerBytes {
				found = nil
			}
			dst = appendResult(append(dst, faultNone), &o.Result, found)
		}
	}
	return dst
}

func appendResult(dst []byte, r *timer.Result, found *timer.Timer) []byte {
	var bits uint64
	set := func(on bool, bit uint64) {
		if on {
			bits |= bit
		}
	}
	set(r.Handle != 0, resultHandle)
	set(r.Fence != 0, resultFence)
	set(r.Removed != 0, resultRemoved)
	set(r.Seq != 0, resultSeq)
	set(r.Version != 0, resultVersion)
	set(r.AtMs != 0, resultAtMs)
	set(found != nil, resultTimer)
	set(r.Unchanged, resultUnchanged)
	set(r.Origin != 0, resultOrigin)

	dst = binary.AppendUvarint(append(dst, byte(r.Code)), bits)
	given := func(v uint64) {
		if v != 0 {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	given(uint64(r.Handle))
	given(r.Fence)
	given(uint64(r.Removed))
	given(r.Seq)
	given(uint64(r.Version))
	given(uint64(r.AtMs))
	if found != nil {
		dst = encoding.AppendTimer(dst, found)
	}
	given(uint64(r.Origin))
	return dst
}

// DecodeAnswers sets every operation's Result and Err. If the whole answer is an error, each
// operation gets it; if it cannot be decoded, each gets ErrUnknown. The error is also returned.
func DecodeAnswers(b []byte, ops []timer.Op) error {
	r, err := answered(b)
	if err != nil {
		if r.Fault != "" {
			return answerAll(ops, timer.ErrUnknown, err)
		}
		return answerAll(ops, err, err)
	}
	if n := r.Count(maxOps, 1, "answers"); n != len(ops) {
		r.Fail("not as many answers as operations")
	}
	for i := range ops {
		if r.Fault != "" {
			break
		}
		r.answer(&ops[i])
	}
	if err := r.Close(); err != nil {
		return answerAll(ops, timer.ErrUnknown, err)
	}
	return nil
}

// answerAll sets the same error on every operation, and returns why.
func answerAll(ops []timer.Op, each, why error) error {
	for i := range ops {
		ops[i].Result, ops[i].Err = timer.Result{}, each
	}
	return why
}

func (r *reader) answer(o *timer.Op) {
	o.Result = timer.Result{}
	if o.Err = r.errorAnswer(); o.Err != nil || r.Fault != "" {
		return
	}
	r.result(&o.Result)
	if o.Result.Code != timer.Created || r.Fault != "" {
		return
	}
	if o.Result.Timer != nil || o.Command.Spec == nil {
		r.Fail("nothing can have been created so")
		return
	}
	if !o.Brief {
		o.Result.Timer = timer.Born(o.Command, &o.Result)
	}
}

func (r *reader) result(to *timer.Result) {
	to.Code = timer.Code(r.Byte())
	if to.Code < timer.Created || to.Code > timer.TooMany {
		r.Fail("unknown answer")
	}
	bits := r.Number(resultBits, "answer bits")
	to.Unchanged = bits&resultUnchanged != 0
	given := func(bit, limit uint64) uint64 {
		if bits&bit == 0 {
			return 0
		}
		return r.Number(limit, "answer")
	}
	to.Handle = timer.Handle(given(resultHandle, 1<<32-1))
	to.Fence = given(resultFence, 1<<64-1)
	to.Removed = int(given(resultRemoved, 1<<62))
	to.Seq = given(resultSeq, 1<<64-1)
	to.Version = uint32(given(resultVersion, 1<<32-1))
	to.AtMs = int64(given(resultAtMs, 1<<63-1))
	if bits&resultTimer != 0 {
		to.Timer = r.Timer()
	}
	to.Origin = timer.ShardID(given(resultOrigin, 1<<32-1))
}
