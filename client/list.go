package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Filter selects timers; all that is given must hold.
type Filter struct {
	States   []State // none: scheduled and leased
	DueFrom  time.Time
	DueTo    time.Time // exclusive
	Labels   []string
	IDPrefix string
	ID       string // a whole id, for a List of all topics only: the node refuses it elsewhere
}

// wireFilter is a filter in a body; its fields are the parameters of a list, too.
type wireFilter struct {
	States   []State    `json:"state,omitempty"`
	DueFrom  *time.Time `json:"due_from,omitempty"`
	DueTo    *time.Time `json:"due_to,omitempty"`
	Labels   []string   `json:"label,omitempty"`
	IDPrefix string     `json:"id_prefix,omitempty"`
	ID       string     `json:"id,omitempty"` // is sent so that it is refused, and not left out in silence
}

func (f *Filter) wire() *wireFilter {
	return &wireFilter{
		States: f.States, DueFrom: moment(f.DueFrom), DueTo: moment(f.DueTo), Labels: f.Labels, IDPrefix: f.IDPrefix, ID: f.ID,
	}
}

func (f *Filter) values() url.Values {
	q := url.Values{}
	states := ""
	for i, s := range f.States {
		if i > 0 {
			states += ","
		}
		states += string(s)
	}
	setText(q, "state", states)
	setTime(q, "due_from", f.DueFrom)
	setTime(q, "due_to", f.DueTo)
	setText(q, "id_prefix", f.IDPrefix)
	setText(q, "id", f.ID)
	for _, label := range f.Labels {
		q.Add("label", label)
	}
	return q
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func setText(q url.Values, name, v string) {
	if v != "" {
		q.Set(name, v)
	}
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// List goes through the timers of a topic that a filter selects, by due time, then id. It reads page
// by page; an error ends it. Topic "" is all topics that the token reaches: each page costs the
// cluster a look at every timer.
func (c *Client) List(ctx context.Context, topic string, f Filter) iter.Seq2[*Timer, error] {
	path := Path("timers")
	if topic != "" {
		path = Path("topics", topic, "timers")
	}
	return pages[Timer](ctx, c, path, "timers", f.values())
}

// pageSize is the largest that there is.
const pageSize = 1000

// pages goes through a listing: {member: […], "next_cursor"?}.
func pages[T any](ctx context.Context, c *Client, path, member string, q url.Values) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		q.Set("limit", strconv.Itoa(pageSize))
		for q.Del("cursor"); ; {
			rows, next, err := page[T](ctx, c, path, member, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range rows {
				if !yield(&rows[i], nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.Set("cursor", next)
		}
	}
}

func page[T any](ctx context.Context, c *Client, path, member string, q url.Values) (rows []T, next string, err error) {
	var answer map[string]json.RawMessage
	r := Request{Method: http.MethodGet, Path: path, Query: q, Repeatable: true}
	if err := c.call(ctx, r, nil, &answer); err != nil {
		return nil, "", err
	}
	err = json.Unmarshal(answer[member], &rows)
	if raw, more := answer["next_cursor"]; more && err == nil {
		err = json.Unmarshal(raw, &next)
	}
	if err != nil {
		return nil, "", fmt.Errorf("client: GET %s: read the answer: %w", path, err)
	}
	return rows, next, nil
}

// asProblem is the problem in an error, nil when it has none.
func asProblem(err error) *Problem {
	p, _ := errors.AsType[*Problem](err)
	return p
}
