package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Op is one operation of a batch; make it with AddOp, PutOp, PatchOp, CancelOp or FireOp.
type Op struct {
	verb    string
	id      string
	ifMatch uint32
	fields  any // Spec or Patch; nil none
}

// AddOp adds a timer. Its Spec has no IdempotencyKey.
func AddOp(s Spec) Op { return Op{verb: "add", id: s.ID, fields: s} }

// PutOp creates or replaces a timer. version 0: any.
func PutOp(id string, s Spec, version uint32) Op {
	s.ID = id
	return Op{verb: "put", id: id, ifMatch: version, fields: s}
}

// PatchOp changes a timer.
func PatchOp(id string, p Patch, version uint32) Op {
	return Op{verb: "patch", id: id, ifMatch: version, fields: p}
}

// CancelOp cancels a timer.
func CancelOp(id string, version uint32) Op { return Op{verb: "cancel", id: id, ifMatch: version} }

// FireOp makes a timer due now.
func FireOp(id string, version uint32) Op { return Op{verb: "fire", id: id, ifMatch: version} }

func (o Op) MarshalJSON() ([]byte, error) {
	if s, ok := o.fields.(Spec); ok && o.verb == "add" && s.IdempotencyKey != "" {
		return nil, errors.New("client: an add of a batch takes no IdempotencyKey: give it an ID")
	}
	fields := map[string]json.RawMessage{}
	if o.fields != nil {
		var err error
		if fields, err = fieldsOf(o.fields); err != nil {
			return nil, err
		}
	}
	fields["op"], _ = json.Marshal(o.verb)
	if o.id != "" {
		fields["id"], _ = json.Marshal(o.id)
	}
	if o.ifMatch != 0 {
		fields["if_match"], _ = json.Marshal(o.ifMatch)
	}
	return encode(fields)
}

// Result is the outcome of one operation of a batch.
type Result struct {
	Status   int     `json:"status"`
	ID       string  `json:"id"`
	Timer    *Timer  `json:"timer"`      // not of a cancel, nor of a brief batch, nor where Truncated
	Outcome  Outcome `json:"outcome"`    // of a cancel
	LateByMs int64   `json:"late_by_ms"` // see Timer.LateByMs
	// Truncated: it was done, and the answer was too large to show the timer.
	Truncated bool     `json:"truncated"`
	Problem   *Problem `json:"error"` // why it was refused; nil when it was done
}

// Err is the problem as an error; nil when the operation was done.
func (r *Result) Err() error {
	if r.Problem == nil {
		return nil
	}
	return r.Problem
}

// Batch does up to 1,000 operations on timers of one topic; those of one id in order. It is not
// atomic: each has its own result. brief leaves the timers out of the results.
func (c *Client) Batch(ctx context.Context, topic string, ops []Op, brief bool) ([]Result, error) {
	var answer struct {
		Results []Result `json:"results"`
	}
	r := Request{Method: http.MethodPost, Path: Path("topics", topic, "batch")}
	if brief {
		r.Query = url.Values{"brief": {"true"}}
	}
	if err := c.call(ctx, r, map[string]any{"ops": append([]Op{}, ops...)}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(ops) {
		return nil, fmt.Errorf("client: %d results of %d operations", len(answer.Results), len(ops))
	}
	return answer.Results, nil
}
