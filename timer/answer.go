package timer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Answer is what a receiver answered to an attempt that failed. It is a client's data, as a payload
// is: it belongs in no log, metric or event.
type Answer struct {
	Body     string // its first bytes; cut back to a whole character if they are UTF-8
	Type     string // Content-Type
	Location string // of a 3xx
}

// Bounds of an answer, in bytes.
const (
	MaxAnswerBody     = 1024
	MaxAnswerType     = 256
	MaxAnswerLocation = 2048
)

// Empty reports whether the receiver answered a status and nothing more.
func (a *Answer) Empty() bool { return a == nil || *a == Answer{} }

// Size is how many bytes an answer takes, about.
func (a *Answer) Size() int {
	if a == nil {
		return 0
	}
	return len(a.Body) + len(a.Type) + len(a.Location)
}

// Text reports whether the body can be shown as it is.
func (a *Answer) Text() bool { return utf8.ValidString(a.Body) }

// OneLine is a text that others wrote, on one line and without control characters.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}

// shownAnswer is how many characters of an answer a last error ends with.
const shownAnswer = 120

// ShownError is the timer's last error as clients see it. It ends with the beginning of the
// receiver's answer on one line, if that is text.
func (t *Timer) ShownError() string {
	if t.LastAnswer == nil || !t.LastAnswer.Text() {
		return t.LastError
	}
	line, n := OneLine(t.LastAnswer.Body), 0
	for i := range line {
		if n++; n > shownAnswer {
			line = line[:i]
			break
		}
	}
	if line == "" {
		return t.LastError
	}
	return t.LastError + ": " + line
}
