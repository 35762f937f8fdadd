package encoding

import (
	"encoding/binary"

	"carillon/timer"
)

// An error text may be followed by what the receiver answered. Without an answer it is written as
// any text is.

const (
	// AnswerFollows is added to the length of an error text if an answer follows it.
	AnswerFollows = 1 << 11
	// MaxAnswer bounds an encoded answer.
	MaxAnswer = timer.MaxAnswerBody + timer.MaxAnswerType + timer.MaxAnswerLocation + 8
)

// AppendAnswer encodes an answer; one that is empty or nil has no bytes.
func AppendAnswer(dst []byte, a *timer.Answer) []byte {
	if a.Empty() {
		return dst
	}
	dst = AppendBlock(dst, a.Body[:min(len(a.Body), timer.MaxAnswerBody)])
	dst = AppendBlock(dst, Cut(a.Type, timer.MaxAnswerType))
	return AppendBlock(dst, Cut(a.Location, timer.MaxAnswerLocation))
}

func DecodeAnswer(b []byte) (*timer.Answer, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := Reader{Rest: b}
	a := &timer.Answer{
		Body: string(r.Block(timer.MaxAnswerBody, "answer")), Type: string(r.Block(timer.MaxAnswerType, "answer's type")),
		Location: string(r.Block(timer.MaxAnswerLocation, "answer's location")),
	}
	if a.Empty() {
		r.Fail("empty answer")
	}
	return a, r.Close()
}

// AppendFailure writes an error text of at most MaxErr bytes and an encoded answer, if there is
// one.
func AppendFailure(dst, text, answer []byte) []byte {
	if len(answer) == 0 {
		return AppendBlock(dst, text)
	}
	dst = binary.AppendUvarint(dst, uint64(len(text)|AnswerFollows))
	return AppendBlock(append(dst, text...), answer)
}

// AppendError is AppendFailure of an attempt's error and answer.
func AppendError(dst []byte, text string, a *timer.Answer) []byte {
	text = Cut(text, MaxErr)
	if a.Empty() {
		return AppendBlock(dst, text)
	}
	return AppendFailure(dst, []byte(text), AppendAnswer(nil, a))
}

// Failure reads the output of AppendFailure.
func (r *Reader) Failure() (text string, a *timer.Answer) {
	n := r.Number(MaxErr|AnswerFollows, "error text")
	if n&^AnswerFollows > MaxErr {
		r.Fail("error text out of range")
	}
	text = string(r.Take(int(n &^ AnswerFollows)))
	if n&AnswerFollows == 0 || r.Fault != "" {
		return text, nil
	}
	a, err := DecodeAnswer(r.Block(MaxAnswer, "answer"))
	if err != nil || a == nil {
		r.Fail("answer cannot be read")
	}
	return text, a
}
