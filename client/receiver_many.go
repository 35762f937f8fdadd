package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// HandleMany is Handle for topics with Policy.Batch. f gets the timers of a call, or the one of a
// call for one, which a retry is. Those whose lease is over are left out, and answered as failed:
// the call may be the copy of one that is still being handled. f returns what failed: an error at
// the place of each such timer, and nil for the others; a shorter list, or nil, means that the rest
// is done. Of a call of many, the failed ones are retried after their backoff, whatever the error
// is; a call for one is answered as by Handle.
func (r *Receiver) HandleMany(f func(ctx context.Context, list []*Delivery) []error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Carillon-Timer") != "" {
			r.Handle(func(ctx context.Context, d *Delivery) error { return errorAt(f(ctx, []*Delivery{d}), 0) }).ServeHTTP(w, req)
			return
		}
		body, ok := r.body(w, req)
		if !ok {
			return
		}
		list, err := readMany(req.Header, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fresh, stale := list[:0], []failedTimer{}
		for _, d := range list {
			switch admitted, err := r.options.Fences.Admit(req.Context(), d.Topic, d.Timer, d.Fence); {
			case err != nil:
				http.Error(w, "the fence could not be looked up", http.StatusInternalServerError)
				return
			case admitted:
				fresh = append(fresh, d)
			default:
				stale = append(stale, failedTimer{d.ID, staleText})
			}
		}
		var failed []error
		if len(fresh) > 0 {
			failed = f(req.Context(), fresh)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(manyAnswer{failuresOf(fresh, failed, stale)})
	})
}

func errorAt(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}

// manyAnswer names the timers of a call that failed.
type manyAnswer struct {
	Failed []failedTimer `json:"failed"`
}

type failedTimer struct {
	WebhookID string `json:"webhook_id"`
	Error     string `json:"error"`
}

// failuresOf adds those of a list that failed to the failed ones.
func failuresOf(list []*Delivery, errs []error, failed []failedTimer) []failedTimer {
	for i, d := range list {
		if err := errorAt(errs, i); err != nil {
			failed = append(failed, failedTimer{d.ID, err.Error()})
		}
	}
	return failed
}

// readMany reads the timers of a call of many. The body is signed, and so is that there is no
// Carillon-Timer.
func readMany(h http.Header, body []byte) ([]*Delivery, error) {
	var call struct {
		Timers []struct {
			Topic, ID     string
			WebhookID     string `json:"webhook_id"`
			DueMs         int64  `json:"due_ms"`
			AskedMs       int64  `json:"asked_ms"`
			Attempt       int
			Fence         uint64
			Payload       json.RawMessage
			PayloadBase64 []byte `json:"payload_base64"`
			ContentType   string `json:"content_type"`
		}
	}
	if err := json.Unmarshal(body, &call); err != nil || len(call.Timers) == 0 || h.Get("Webhook-Id") == "" {
		return nil, errors.New("this is no call of Carillon: it has neither the headers of one timer nor a body of many")
	}
	list := make([]*Delivery, len(call.Timers))
	for i, t := range call.Timers {
		d := &Delivery{Topic: t.Topic, Timer: t.ID, ID: t.WebhookID, Attempt: t.Attempt, Fence: t.Fence, Due: time.UnixMilli(t.DueMs), Body: t.Payload}
		usual := ""
		switch {
		case t.PayloadBase64 != nil:
			d.Body, usual = t.PayloadBase64, "application/octet-stream"
		case t.Payload != nil:
			usual = "application/json"
		}
		d.ContentType = cmp.Or(t.ContentType, usual)
		if d.Topic == "" || d.Timer == "" || d.ID == "" || d.Fence == 0 {
			return nil, errors.New("this is no call of Carillon: a timer of it has no id")
		}
		if t.AskedMs != 0 {
			d.Asked = time.UnixMilli(t.AskedMs)
		}
		list[i] = d
	}
	return list, nil
}
