package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// answerBytes is where an answer is full: a peer refuses frames that are much longer. A page of
// timers ends there and reports that there is more. Operations beyond it are answered without their
// Timer, which the client can read.
const answerBytes = 16 << 20

// AppendAnswers encodes the results of operations. An operation without a result gets ErrUnknown.
// The Timer of a Created is left out: the asking node can make it from the command.
func AppendAnswers(dst []byte, ops []timer.Op) []byte {
	start := len(dst)
	c := encoding.Codec{Out: append(dst, version, faultNone)}
	c.Out = binary.AppendUvarint(c.Out, uint64(len(ops)))
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Err != nil:
			c.Out = appendFault(c.Out, o.Err)
		case o.Result.Code == 0:
			c.Out = appendFault(c.Out, timer.ErrUnknown)
		default:
			c.Out = append(c.Out, faultNone)
			result(&c, &o.Result, o.Result.Timer != nil && o.Result.Code != timer.Created && len(c.Out)-start <= answerBytes)
		}
	}
	return c.Out
}

// DecodeAnswers sets every operation's Result and Err. If the whole answer is an error, each
// operation gets it; if it cannot be decoded, each gets ErrUnknown. The error is also returned.
func DecodeAnswers(b []byte, ops []timer.Op) error {
	c, err := openAnswer(b)
	if err != nil {
		if c.Fault != "" {
			return answerAll(ops, timer.ErrUnknown, err)
		}
		return answerAll(ops, err, err)
	}
	if n := c.Count(maxOps, 1, "answers"); n != len(ops) {
		c.Fail("not as many answers as operations")
	}
	for i := range ops {
		if c.Fault != "" {
			break
		}
		readAnswer(&c, &ops[i])
	}
	if err := c.Close(); err != nil {
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

func readAnswer(c *encoding.Codec, o *timer.Op) {
	o.Result = timer.Result{}
	if o.Err = readFault(c); o.Err != nil || c.Fault != "" {
		return
	}
	result(c, &o.Result, false)
	if o.Result.Code != timer.Created || c.Fault != "" {
		return
	}
	if o.Result.Timer != nil || o.Command.Spec == nil {
		c.Fail("nothing can have been created so")
		return
	}
	if !o.Brief {
		o.Result.Timer = timer.NewTimer(o.Command, &o.Result)
	}
}

// result has those fields of a Result that are given, but its Timer only if withTimer.
func result(c *encoding.Codec, r *timer.Result, withTimer bool) {
	if encoding.Octet(c, &r.Code); r.Code < timer.Created || r.Code > timer.TooMany {
		c.Fail("unknown answer")
	}
	handle, fence, removed, seq := r.Handle != 0, r.Fence != 0, r.Removed != 0, r.Seq != 0
	version, atMs, origin := r.Version != 0, r.AtMs != 0, r.Origin != 0
	c.Flags("an answer", &handle, &fence, &removed, &seq, &version, &atMs, &withTimer, &r.Unchanged, &origin)
	given(c, handle, &r.Handle, 1<<32-1)
	given(c, fence, &r.Fence, 1<<64-1)
	given(c, removed, &r.Removed, 1<<62)
	given(c, seq, &r.Seq, 1<<64-1)
	given(c, version, &r.Version, 1<<32-1)
	given(c, atMs, &r.AtMs, 1<<63-1)
	if withTimer {
		c.Timer(encoding.Made(c, &r.Timer))
	}
	given(c, origin, &r.Origin, 1<<32-1)
}

func given[T ~int | ~int64 | ~uint32 | ~uint64](c *encoding.Codec, on bool, v *T, limit uint64) {
	if on {
		encoding.Number(c, v, limit, "answer")
	}
}
