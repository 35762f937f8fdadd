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
	"strings"
	"time"
)

// Filter selects timers; all that is given must hold.
type Filter struct {
	States   []State   `json:"state,omitempty"` // none: scheduled and leased
	DueFrom  time.Time `json:"due_from,omitzero"`
	DueTo    time.Time `json:"due_to,omitzero"` // exclusive
	Labels   []string  `json:"label,omitempty"`
	IDPrefix string    `json:"id_prefix,omitempty"`
	ID       string    `json:"id,omitempty"` // a whole id, for a List of all topics only: the node refuses it elsewhere
}

func (f *Filter) values() url.Values {
	q := url.Values{}
	setText(q, "state", commaList(f.States))
	setTime(q, "due_from", f.DueFrom)
	setTime(q, "due_to", f.DueTo)
	setText(q, "id_prefix", f.IDPrefix)
	setText(q, "id", f.ID)
	setLabels(q, f.Labels)
	return q
}

func commaList[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = string(one)
	}
	return strings.Join(texts, ",")
}

func setText(q url.Values, name, v string) {
	if v != "" {
		q.Set(name, v)
	}
}

func setLabels(q url.Values, labels []string) {
	for _, label := range labels {
		q.Add("label", label)
	}
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// List goes through the timers of a topic that a filter selects, by due time, then id. It reads page
// by page; an error ends it. Topic "" is all topics that the token reaches: these are listed in parts
// of some million timers, each by due time.
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

func asProblem(err error) *Problem {
	p, _ := errors.AsType[*Problem](err)
	return p
}
