package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// HistoryFilter selects timers that have ended; all that is given must hold.
type HistoryFilter struct {
	ID    string
	From  time.Time
	To    time.Time // exclusive
	State State     // done, dead or cancelled
}

// Entry is a timer that has ended, and its attempts.
type Entry struct{ Timer }

// Attempt is one attempt of a timer.
type Attempt struct {
	Attempt   int    `json:"attempt"`
	StartedMs int64  `json:"started_ms"`
	EndedMs   int64  `json:"ended_ms"` // 0: not known
	Status    int    `json:"status"`
	Error     string `json:"error"`

	// What the receiver answered to an attempt that failed: the first 1,024 bytes of the body, as
	// Answer if they are UTF-8, its Content-Type, and where a redirect points.
	Answer      string `json:"answer"`
	AnswerBytes []byte `json:"answer_base64"`
	AnswerType  string `json:"answer_type"`
	Location    string `json:"location"`

	LatenessMs *int64 `json:"lateness_ms"` // of the first attempt
}

// History goes through a topic's timers that have ended, as long as its policy keeps them.
func (c *Client) History(ctx context.Context, topic string, f HistoryFilter) iter.Seq2[*Entry, error] {
	q := url.Values{}
	setText(q, "id", f.ID)
	setText(q, "state", string(f.State))
	setTime(q, "from", f.From)
	setTime(q, "to", f.To)
	return pages[Entry](ctx, c, Path("topics", topic, "history"), "entries", q)
}
